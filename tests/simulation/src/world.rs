//! The log, the database and the oracle.

use std::collections::BTreeMap;
use std::time::Duration;

use sekali_consumer::core::retry::{Decision, FailureKind, Reason, RetryPolicy, failing_for};
use sekali_consumer::core::verdict::{Arrival, Asking, Row, arrival};
use sekali_consumer::core::{Item, Offset, Outcome, Partition, Record, Timestamp};
use sekali_schemas::inbox::State;

use super::{Random, Stats};

pub(crate) const PARTITIONS: usize = 3;
pub(crate) const TIERS: usize = 2;
const ATTEMPTS_MAX: u32 = 4;
const MESSAGES: usize = 40;
const KEYS: usize = 6;

/// Attempt numbers, for slices of one.
const ONCE: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

pub(crate) type Id = u64;

/// What a record holds; the part that matters for the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) id: Id,
    pub(crate) key: usize,
    pub(crate) fingerprint: i64,
    pub(crate) attempt: u32,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) first_failed_at: Option<Timestamp>,
    /// Place among the distinct messages of its key.
    pub(crate) sequence: usize,
}

/// How the handler treats a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Good,
    /// Fails this many attempts; the flag says whether by a rejection inside its batch.
    FailsTimes(u32, bool),
    Poison(bool),
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) faulty: bool,
    pub(crate) stats: Stats,
    pub(crate) violation: Option<String>,
    pub(crate) policy: RetryPolicy,
    pub(crate) logs: BTreeMap<Partition, Vec<Logged>>,
    pub(crate) committed: BTreeMap<Partition, Offset>,
    pub(crate) outbox: Vec<(Option<usize>, Logged)>,
    inbox: BTreeMap<Id, Row>,
    behaviours: BTreeMap<Id, Behaviour>,
    /// Effects: how often, and on which attempt.
    ledger: BTreeMap<Id, Vec<u32>>,
    dead_letters: BTreeMap<Id, u32>,
    dlq: BTreeMap<Id, u32>,
    /// Sequence numbers of the first-attempt effects of each key.
    order: BTreeMap<usize, Vec<usize>>,
}

pub(crate) fn partition(topic: usize, number: usize) -> Partition {
    Partition { topic: topic as u16, number: number as i32, retry: 0 < topic }
}

pub(crate) fn partitions() -> impl Iterator<Item = Partition> {
    (0..=TIERS).flat_map(|topic| (0..PARTITIONS).map(move |number| partition(topic, number)))
}

impl World {
    pub(crate) fn new(random: &mut Random) -> World {
        let delays = vec![Duration::from_millis(50), Duration::from_millis(300)];
        let mut world = World {
            now: Timestamp(1_000),
            faulty: true,
            stats: Stats::default(),
            violation: None,
            policy: RetryPolicy::new(delays, ATTEMPTS_MAX, 0.1, Duration::from_secs(600)),
            logs: partitions().map(|it| (it, Vec::new())).collect(),
            committed: partitions().map(|it| (it, 0)).collect(),
            outbox: Vec::new(),
            inbox: BTreeMap::new(),
            behaviours: BTreeMap::new(),
            ledger: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            dlq: BTreeMap::new(),
            order: BTreeMap::new(),
        };
        world.produce(random);
        world
    }

    /// Source records; a fifth of them a second copy of an earlier one.
    fn produce(&mut self, random: &mut Random) {
        let mut sent: Vec<Logged> = Vec::new();
        let mut sequences = [0; KEYS];
        for id in 0..MESSAGES as Id {
            let again = !sent.is_empty() && random.one_in(5);
            let record = if again {
                sent[random.below(sent.len())]
            } else {
                let key = random.below(KEYS);
                sequences[key] += 1;
                let behaviour = match random.below(12) {
                    0 => Behaviour::Poison(random.one_in(2)),
                    1 | 2 => Behaviour::FailsTimes(1 + random.below(5) as u32, random.one_in(2)),
                    _ => Behaviour::Good,
                };
                self.behaviours.insert(id, behaviour);
                Logged {
                    id,
                    key,
                    fingerprint: id as i64,
                    attempt: 1,
                    due_at: None,
                    first_failed_at: None,
                    sequence: sequences[key],
                }
            };
            sent.push(record);
            self.log(0, record);
        }
    }

    fn log(&mut self, topic: usize, record: Logged) {
        let place = partition(topic, record.key % PARTITIONS);
        self.logs.entry(place).or_default().push(record);
    }

    pub(crate) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// The relay publishes the oldest outbox record of some key; now and then twice, as after a crash.
    pub(crate) fn relay(&mut self, random: &mut Random) {
        if self.outbox.is_empty() {
            return;
        }
        let key = self.outbox[random.below(self.outbox.len())].1.key;
        let Some(index) = self.outbox.iter().position(|it| it.1.key == key) else { return };
        let twice = self.faulty && random.one_in(6);
        let (tier, record) = if twice { self.outbox[index] } else { self.outbox.remove(index) };
        match tier {
            Some(tier) => self.log(tier + 1, record),
            None => *self.dlq.entry(record.id).or_default() += 1,
        }
    }

    /// One transaction over a batch: all of it or nothing.
    pub(crate) fn transact(&mut self, random: &mut Random, items: &[Item<Logged>]) -> Outcome {
        if self.faulty && random.one_in(10) {
            self.stats.faults += 1;
            return Outcome::Interrupted;
        }
        let saved = (self.inbox.clone(), self.outbox.len());
        let mut effects = Vec::new();
        let mut buried = Vec::new();
        for item in items {
            let logged = item.record.message;
            if logged.due_at.is_some_and(|it| self.now < it) {
                self.violated(format!("message {} ran before it was due", logged.id));
            }
            let asking =
                Asking { retry: item.partition.retry, attempt: logged.attempt, fingerprint: logged.fingerprint };
            match arrival(asking, self.inbox.get(&logged.id).copied()) {
                Arrival::Duplicate => self.stats.duplicates += 1,
                Arrival::Orphan => self.violated(format!("retry record of message {} is an orphan", logged.id)),
                Arrival::KeyReuse => self.violated(format!("message {} met another payload", logged.id)),
                Arrival::Handle => match self.handle(&logged) {
                    Ok(()) => {
                        self.inbox.insert(
                            logged.id,
                            Row { state: State::Processed, attempt: logged.attempt, fingerprint: logged.fingerprint },
                        );
                        effects.push(logged);
                    }
                    Err((kind, true)) => {
                        let age = failing_for(self.now, logged.first_failed_at);
                        let decision = self.policy.decide(logged.attempt, kind, age, random.next());
                        buried.extend(self.write(&logged, decision).then_some((logged, decision)));
                    }
                    Err((kind, false)) => {
                        self.inbox = saved.0;
                        self.outbox.truncate(saved.1);
                        return Outcome::Failed(kind);
                    }
                },
            }
        }
        for logged in effects {
            self.apply(&logged);
        }
        for (logged, decision) in buried {
            self.note(&logged, decision);
        }
        Outcome::Decided
    }

    /// The decision on a message that failed alone, guarded by the inbox as the adapter guards it.
    pub(crate) fn decide(&mut self, random: &mut Random, item: &Item<Logged>, decision: Decision) -> Outcome {
        if self.faulty && random.one_in(8) {
            self.stats.faults += 1;
            return Outcome::Interrupted;
        }
        let logged = item.record.message;
        let row = self.inbox.get(&logged.id);
        let ours = match (item.partition.retry, row) {
            (false, None) => true,
            (true, Some(row)) => row.state == State::Retrying && row.attempt == logged.attempt,
            (false, Some(_)) | (true, None) => false,
        };
        if ours && self.write(&logged, decision) {
            self.note(&logged, decision);
        }
        Outcome::Decided
    }

    fn handle(&self, logged: &Logged) -> Result<(), (FailureKind, bool)> {
        match self.behaviours[&logged.id] {
            Behaviour::Good => Ok(()),
            Behaviour::FailsTimes(times, _) if times < logged.attempt => Ok(()),
            Behaviour::FailsTimes(_, rejects) => Err((FailureKind::Transient, rejects)),
            Behaviour::Poison(rejects) => Err((FailureKind::Permanent, rejects)),
        }
    }

    fn write(&mut self, logged: &Logged, decision: Decision) -> bool {
        let first_failed_at = Some(logged.first_failed_at.unwrap_or(self.now));
        let (state, attempt, record) = match decision {
            Decision::Retry { attempt, tier, delay } => {
                let record = Logged { attempt, due_at: Some(self.now.after(delay)), first_failed_at, ..*logged };
                (State::Retrying, attempt, (Some(tier), record))
            }
            Decision::Dead(_) => (State::Dead, logged.attempt, (None, *logged)),
        };
        self.inbox.insert(logged.id, Row { state, attempt, fingerprint: logged.fingerprint });
        self.outbox.push(record);
        true
    }

    fn note(&mut self, logged: &Logged, decision: Decision) {
        match decision {
            Decision::Retry { .. } => self.stats.retried += 1,
            Decision::Dead(reason) => {
                self.stats.dead += 1;
                *self.dead_letters.entry(logged.id).or_default() += 1;
                let expected = match self.behaviours[&logged.id] {
                    Behaviour::Poison(_) => Reason::Permanent,
                    Behaviour::FailsTimes(..) | Behaviour::Good => Reason::Exhausted,
                };
                if reason != expected || (reason == Reason::Exhausted && logged.attempt != ATTEMPTS_MAX) {
                    self.violated(format!("message {} died of {reason:?} on attempt {}", logged.id, logged.attempt));
                }
            }
        }
    }

    fn apply(&mut self, logged: &Logged) {
        self.ledger.entry(logged.id).or_default().push(logged.attempt);
        if logged.attempt != 1 {
            return;
        }
        let order = self.order.entry(logged.key).or_default();
        let last = order.last().copied();
        order.push(logged.sequence);
        if last.is_some_and(|it| logged.sequence <= it) {
            self.violated(format!("key {}: effect {} came after {last:?}", logged.key, logged.sequence));
        }
    }

    /// Kafka accepts a commit; the rule that everything rests on is checked here.
    pub(crate) fn commit(&mut self, place: Partition, offset: Offset) {
        for logged in &self.logs[&place][..offset as usize] {
            let decided = match self.inbox.get(&logged.id) {
                None => false,
                Some(row) if place.retry => !(row.state == State::Retrying && row.attempt == logged.attempt),
                Some(_) => true,
            };
            if !decided {
                let what = format!("offset {offset} of {place:?} passes undecided message {}", logged.id);
                self.violation.get_or_insert(what);
                return;
            }
        }
        let before = self.committed.insert(place, offset);
        if before.is_some_and(|it| offset < it) {
            self.violated(format!("the committed offset of {place:?} went back from {before:?} to {offset}"));
        }
    }

    pub(crate) fn read(&self, place: Partition, from: Offset, max: usize) -> Vec<Record<Logged>> {
        let records = self.logs[&place].iter().enumerate().skip(from as usize).take(max);
        records
            .map(|(offset, it)| Record {
                offset: offset as Offset,
                attempt: it.attempt,
                due_at: it.due_at,
                first_failed_at: it.first_failed_at,
                produced_at: None,
                message: *it,
            })
            .collect()
    }

    pub(crate) fn end(&self, place: Partition) -> Offset {
        self.logs[&place].len() as Offset
    }

    /// The promises, once nothing is left to do.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        for (id, behaviour) in &self.behaviours {
            let applied = self.ledger.get(id).map_or(&[][..], Vec::as_slice);
            let dead = self.dead_letters.get(id).copied().unwrap_or_default();
            let published = self.dlq.get(id).copied().unwrap_or_default();
            let (expected, dies): (&[u32], bool) = match *behaviour {
                Behaviour::Good => (&[1], false),
                Behaviour::FailsTimes(times, _) if times < ATTEMPTS_MAX => {
                    (&ONCE[times as usize + 1..times as usize + 2], false)
                }
                Behaviour::FailsTimes(..) | Behaviour::Poison(_) => (&[], true),
            };
            if applied != expected {
                return Err(format!(
                    "message {id} ({behaviour:?}) took effect on attempts {applied:?}, not {expected:?}"
                ));
            }
            if dead != u32::from(dies) || (0 < published) != dies {
                return Err(format!("message {id} ({behaviour:?}): {dead} dead letters, {published} on the DLQ topic"));
            }
        }
        Ok(())
    }
}
