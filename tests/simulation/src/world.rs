//! The log and its records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sekali_consumer::core::hold::{AfterDeadLetter, Rule};
use sekali_consumer::core::retry::RetryPolicy;
use sekali_consumer::core::{Offset, Partition, Record, Timestamp};

use super::database::{Tables, key_id};
use super::{Random, Stats};

pub(crate) const PARTITIONS: usize = 3;
pub(crate) const TIERS: usize = 2;
pub(crate) const ATTEMPTS_MAX: u32 = 4;
const MESSAGES: usize = 40;
const KEYS: usize = 6;

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
pub(crate) enum Behaviour {
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
    pub(crate) tables: Tables,
    pub(crate) rule: Rule,
    /// Most messages that wait behind a key.
    pub(crate) held_per_key_max: usize,
    /// Dead letters ahead of successes.
    pub(crate) dead_letters_ahead_max: Option<u32>,
    pub(crate) behaviours: BTreeMap<Id, Behaviour>,
    /// Effects: how often, and on which attempt.
    pub(crate) ledger: BTreeMap<Id, Vec<u32>>,
    pub(crate) dead_letters: BTreeMap<Id, u32>,
    pub(crate) dead_records: BTreeMap<Id, Logged>,
    pub(crate) dlq: BTreeMap<Id, u32>,
    pub(crate) replays: BTreeMap<Id, u32>,
    /// Dead letters that an operator discarded.
    pub(crate) closed: BTreeSet<Id>,
    /// Sequence numbers of the effects of each key.
    pub(crate) order: BTreeMap<usize, Vec<usize>>,
    /// Distinct messages of each key, in the order of the log.
    pub(crate) by_key: BTreeMap<usize, Vec<Id>>,
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
            tables: Tables::default(),
            rule: match random.below(6) {
                0 => Rule::Never,
                1 | 2 => Rule::ByKey(AfterDeadLetter::Hold),
                _ => Rule::ByKey(AfterDeadLetter::Continue),
            },
            held_per_key_max: if random.one_in(4) { 2 } else { MESSAGES },
            dead_letters_ahead_max: random.one_in(4).then_some(2),
            behaviours: BTreeMap::new(),
            ledger: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            dead_records: BTreeMap::new(),
            dlq: BTreeMap::new(),
            replays: BTreeMap::new(),
            closed: BTreeSet::new(),
            order: BTreeMap::new(),
            by_key: BTreeMap::new(),
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
                self.by_key.entry(key).or_default().push(id);
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
        if self.tables.outbox.is_empty() {
            return;
        }
        let key = self.tables.outbox[random.below(self.tables.outbox.len())].1.key;
        let Some(index) = self.tables.outbox.iter().position(|it| it.1.key == key) else { return };
        let twice = self.faulty && random.one_in(6);
        let (tier, record) = if twice { self.tables.outbox[index] } else { self.tables.outbox.remove(index) };
        match tier {
            Some(tier) => self.log(tier + 1, record),
            None => *self.dlq.entry(record.id).or_default() += 1,
        }
    }

    pub(crate) fn read(&self, place: Partition, from: Offset, max: usize) -> Vec<Record<Logged>> {
        let records = self.logs[&place].iter().enumerate().skip(from as usize).take(max);
        records
            .map(|(offset, it)| Record {
                offset: offset as Offset,
                attempt: it.attempt,
                key: Some(key_id(it.key)),
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
}
