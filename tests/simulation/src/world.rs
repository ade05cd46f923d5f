//! The log and its records.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use sekali_consumer::core::hold::{AfterDeadLetter, Rule};
use sekali_consumer::core::{Offset, Partition, Record, Timestamp};

use super::Stats;
use super::choice::{Fault, Faults, Random};
use super::database::{Tables, key_id};
use super::shape::Shape;

pub(crate) type Id = u64;

/// What a record holds; the part that matters for the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

/// What an offset holds: a record, or nothing that a client hands out, such as the marker of a transaction.
pub(crate) type Slot = Option<Logged>;

/// How a message fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Manner {
    /// A statement fails: its batch is lost, unless it has a savepoint of its own.
    Fails,
    /// The handler says so before any statement.
    Refuses,
    /// The transaction fails at its end, so that a savepoint does not help.
    FailsLate,
}

/// How the handler treats a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Behaviour {
    Good,
    /// Fails this many attempts.
    FailsTimes(u32, Manner),
    Poison(Manner),
}

/// What became of one message, for the oracle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Account {
    pub(crate) key: usize,
    pub(crate) behaviour: Behaviour,
    pub(crate) produced_at: Timestamp,
    /// When something was written about it last.
    pub(crate) decided_at: Timestamp,
    /// Attempts on which it took effect.
    pub(crate) applied: Vec<u32>,
    /// Attempts on which its effect outside the database was performed.
    pub(crate) performed: Vec<u32>,
    /// Leases that ended without a word of what came of them.
    pub(crate) unknown: usize,
    pub(crate) dead_letters: u32,
    /// The record that died last.
    pub(crate) dead_record: Option<Logged>,
    /// Records on the DLQ topic.
    pub(crate) published: u32,
    pub(crate) replays: u32,
    /// An operator discarded it.
    pub(crate) closed: bool,
    /// An operator took that back, at some time.
    pub(crate) restored: bool,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) shape: &'static Shape,
    pub(crate) now: Timestamp,
    pub(crate) faulty: bool,
    pub(crate) faults: Faults,
    pub(crate) stats: Stats,
    pub(crate) violation: Option<String>,
    /// Shared with other states of the same world, as other large parts are.
    pub(crate) logs: Rc<BTreeMap<Partition, Vec<Slot>>>,
    pub(crate) committed: BTreeMap<Partition, Offset>,
    pub(crate) tables: Tables,
    pub(crate) rule: Rule,
    /// Most messages that wait behind a key.
    pub(crate) held_per_key_max: usize,
    /// Effects in progress, where messages have effects outside the database.
    pub(crate) effects_max: Option<usize>,
    /// Leases beyond those of effects in progress.
    pub(crate) leases_ahead_max: usize,
    /// Dead letters ahead of successes.
    pub(crate) dead_letters_ahead_max: Option<u32>,
    /// An operator pauses the source topic now and then.
    pub(crate) pauses: bool,
    /// Three in so many messages fail.
    pub(crate) failing_in: usize,
    pub(crate) accounts: Rc<BTreeMap<Id, Account>>,
    /// Sequence number of the last effect of each key.
    pub(crate) order: BTreeMap<usize, usize>,
    /// Distinct messages of each key, in the order of the log.
    pub(crate) by_key: Rc<BTreeMap<usize, Vec<Id>>>,
}

/// What can differ between two states of one world. Time, where states are compared, stands still.
impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.faults, &self.logs, &self.committed, &self.tables).hash(hasher);
        (&self.accounts, &self.order).hash(hasher);
    }
}

pub(crate) fn partition(topic: usize, number: usize) -> Partition {
    Partition { topic: topic as u16, number: number as i32, retry: 0 < topic }
}

/// Who writes source records.
pub(crate) struct Producer {
    next_id: Id,
    /// The last ones.
    sent: VecDeque<Logged>,
    /// Distinct messages of each key so far.
    sequences: BTreeMap<usize, usize>,
}

impl World {
    /// Without a record, and with everything as simple as can be.
    pub(crate) fn new(shape: &'static Shape) -> World {
        let places = (0..=shape.retry_delays.len())
            .flat_map(|topic| (0..shape.partitions).map(move |number| partition(topic, number)));
        let logs: BTreeMap<_, _> = places.map(|it| (it, Vec::new())).collect();
        World {
            shape,
            now: Timestamp(1_000),
            faulty: true,
            faults: Faults::Chance,
            stats: Stats::default(),
            violation: None,
            committed: logs.keys().map(|it| (*it, 0)).collect(),
            logs: Rc::new(logs),
            tables: Tables::default(),
            rule: Rule::ByKey(AfterDeadLetter::Continue),
            held_per_key_max: usize::MAX,
            effects_max: None,
            leases_ahead_max: 0,
            dead_letters_ahead_max: None,
            pauses: false,
            failing_in: shape.failing_in,
            accounts: Rc::default(),
            order: BTreeMap::new(),
            by_key: Rc::default(),
        }
    }

    /// Rules and limits as chance has it.
    pub(crate) fn by_chance(random: &mut Random, shape: &'static Shape) -> World {
        let mut world = World::new(shape);
        world.rule = match random.below(6) {
            0 => Rule::Never,
            1 | 2 => Rule::ByKey(AfterDeadLetter::Hold),
            _ => Rule::ByKey(AfterDeadLetter::Continue),
        };
        if random.one_in(3) {
            world.effects_max = Some(1 + random.below(4));
            world.leases_ahead_max = random.below(4);
        }
        if random.one_in(4) {
            world.held_per_key_max = 2;
        }
        world.pauses = random.one_in(3);
        if random.one_in(4) {
            // So many fail that the budget matters.
            world.dead_letters_ahead_max = Some(1);
            world.failing_in = 4;
        }
        world
    }

    /// What is paused: the source topic with its retry topics, or nothing.
    pub(crate) fn paused_topics(&self) -> Vec<u16> {
        let topics = 0..=self.shape.retry_delays.len() as u16;
        topics.filter(|_| self.tables.paused).collect()
    }

    /// The topics' partitions.
    pub(crate) fn places(&self) -> Vec<Partition> {
        self.logs.keys().copied().collect()
    }

    /// Whether something goes wrong now: by a seed, so rarely.
    pub(crate) fn strikes(&mut self, random: &mut Random, kind: Fault, one_in: usize) -> bool {
        let may = match self.faults {
            Faults::Chance => self.faulty,
            Faults::Left(_) => self.faults.may(kind),
        };
        let strikes = may && random.one_in(one_in);
        if strikes {
            self.faults.use_up(kind);
            self.stats.faults += 1;
        }
        strikes
    }

    /// A new message.
    pub(crate) fn message(&mut self, id: Id, key: usize, sequence: usize, behaviour: Behaviour) -> Logged {
        let account = Account {
            key,
            behaviour,
            produced_at: self.now,
            decided_at: self.now,
            applied: Vec::new(),
            performed: Vec::new(),
            unknown: 0,
            dead_letters: 0,
            dead_record: None,
            published: 0,
            replays: 0,
            closed: false,
            restored: false,
        };
        Rc::make_mut(&mut self.accounts).insert(id, account);
        Rc::make_mut(&mut self.by_key).entry(key).or_default().push(id);
        Logged { id, key, fingerprint: id as i64, attempt: 1, due_at: None, first_failed_at: None, sequence }
    }

    pub(crate) fn log(&mut self, topic: usize, record: Logged) -> Partition {
        let place = partition(topic, record.key % self.shape.partitions);
        Rc::make_mut(&mut self.logs).entry(place).or_default().push(Some(record));
        place
    }

    /// Some records have a hole behind them.
    fn leave_hole(&mut self, random: &mut Random, place: Partition) {
        if self.faults == Faults::Chance && random.one_in(8) {
            Rc::make_mut(&mut self.logs).entry(place).or_default().push(None);
        }
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
        let twice = self.strikes(random, Fault::PublishedTwice, 6);
        let (tier, record) = if twice { self.tables.outbox[index] } else { self.tables.outbox.remove(index) };
        match tier {
            Some(tier) => {
                let place = self.log(tier + 1, record);
                self.leave_hole(random, place);
            }
            None => self.account(record.id).published += 1,
        }
    }

    /// The records at so many offsets.
    pub(crate) fn read(&self, place: Partition, from: Offset, max: usize) -> Vec<Record<Logged>> {
        let slots = self.logs[&place].iter().enumerate().skip(from as usize).take(max);
        slots.filter_map(|(offset, it)| Some((offset, (*it)?))).map(|(offset, it)| record(offset, it)).collect()
    }

    pub(crate) fn end(&self, place: Partition) -> Offset {
        self.logs[&place].len() as Offset
    }
}

impl Producer {
    pub(crate) fn new() -> Producer {
        Producer { next_id: 0, sent: VecDeque::new(), sequences: BTreeMap::new() }
    }

    pub(crate) fn messages(&self) -> u64 {
        self.sequences.values().map(|it| *it as u64).sum()
    }

    /// Writes one source record; a fifth of them are a second copy of an earlier one.
    pub(crate) fn produce(&mut self, random: &mut Random, world: &mut World) {
        let id = self.next_id;
        self.next_id += 1;
        let again = !self.sent.is_empty() && random.one_in(5);
        let record = if again {
            self.sent[random.below(self.sent.len())]
        } else {
            let few = world.shape.keys == world.shape.keys_hot || !random.one_in(4);
            let key = random.below(if few { world.shape.keys_hot } else { world.shape.keys });
            let sequence = self.sequences.entry(key).or_default();
            *sequence += 1;
            let behaviour = match random.below(world.failing_in) {
                0 => Behaviour::Poison(manner(random)),
                1 | 2 => Behaviour::FailsTimes(1 + random.below(5) as u32, manner(random)),
                _ => Behaviour::Good,
            };
            world.message(id, key, *sequence, behaviour)
        };
        self.sent.push_back(record);
        if REMEMBERED < self.sent.len() {
            self.sent.pop_front();
        }
        let place = world.log(0, record);
        world.leave_hole(random, place);
    }
}

fn manner(random: &mut Random) -> Manner {
    match random.below(5) {
        0 | 1 => Manner::Fails,
        2 | 3 => Manner::Refuses,
        _ => Manner::FailsLate,
    }
}

fn record(offset: usize, it: Logged) -> Record<Logged> {
    Record {
        offset: offset as Offset,
        attempt: it.attempt,
        key: Some(key_id(it.key)),
        due_at: it.due_at,
        first_failed_at: it.first_failed_at,
        produced_at: None,
        message: it,
    }
}

/// A producer repeats only what it sent just before.
const REMEMBERED: usize = 40;
