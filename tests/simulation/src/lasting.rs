//! One world for a long time: producers, faults and operators go on and on, and nothing may grow.

use std::collections::BTreeSet;
use std::time::Duration;

use sekali_consumer::core::hold::{AfterDeadLetter, Rule};
use sekali_schemas::inbox::State;

use super::choice::Random;
use super::group::Group;
use super::shape::LASTING;
use super::world::{Id, Producer, World};
use super::{STEPS_MAX, Stats, Violation};

/// What a long time showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lasted {
    /// What happened.
    pub stats: Stats,
    /// Messages that were produced, without repetitions.
    pub messages: u64,
    /// Of each quarter of the time.
    pub peaks: [Peaks; 4],
}

/// The most of everything that could grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Messages in the memory of one process.
    pub in_flight: usize,
    /// Keys that one process believes to be held.
    pub held_keys: usize,
    /// Keys that are held.
    pub holds: usize,
    /// Messages that wait behind one.
    pub held: usize,
    /// Rows of the outbox.
    pub outbox: usize,
    /// Records that were produced and whose offset is not committed.
    pub backlog: usize,
    /// Messages that are older than the retention and not forgotten.
    pub overdue: usize,
}

/// After this long nobody repeats a message any more, and the inbox forgets it.
const RETENTION: Duration = Duration::from_secs(1_800);
const PURGE_INTERVAL: Duration = Duration::from_secs(600);
/// Most of the time between two records.
const PRODUCE_MAX: Duration = Duration::from_secs(4);

/// Runs one world for so much of its own time, and then to its end. Every third seed has the same rule for order.
///
/// # Errors
/// The first promise that was broken.
pub fn last(seed: u64, time: Duration) -> Result<Lasted, Violation> {
    let violated = |what: String| Violation { seed, what };
    let mut random = Random::Seed(seed);
    let mut world = World::by_chance(&mut random, &LASTING);
    world.rule = match seed % 3 {
        0 => Rule::ByKey(AfterDeadLetter::Continue),
        1 => Rule::ByKey(AfterDeadLetter::Hold),
        _ => Rule::Never,
    };
    // With one effect at a time the producer would be ahead for ever.
    world.effects_max = world.effects_max.map(|_| 8);
    world.leases_ahead_max = 4;
    // Nor may it wait for an operator, or have most of the messages fail.
    world.pauses = false;
    world.dead_letters_ahead_max = None;
    world.failing_in = LASTING.failing_in;
    let mut producer = Producer::new();
    let mut group = Group::new(&mut random, &mut world, |random, _| random.below(LASTING.processes));
    let mut peaks = [Peaks::default(); 4];
    let (started, mut produce_at, mut purge_at) = (world.now, world.now, world.now);
    let quarter = (time / 4).as_millis() as u64;
    loop {
        let now = (world.now.0 - started.0) / quarter;
        let Some(peak) = peaks.get_mut(now as usize) else { break };
        if produce_at <= world.now {
            producer.produce(&mut random, &mut world);
            produce_at = world.now.after(Duration::from_millis(random.below(PRODUCE_MAX.as_millis() as usize) as u64));
        }
        if purge_at <= world.now {
            peak.overdue = peak.overdue.max(world.forget(RETENTION).map_err(violated)?);
            purge_at = world.now.after(PURGE_INTERVAL);
        }
        world.stats.steps += 1;
        group.step(&mut random, &mut world);
        if let Some(what) = world.violation.take() {
            return Err(violated(what));
        }
        if world.stats.steps.is_multiple_of(8) {
            peak.note(&group, &world);
        }
    }
    world.faulty = false;
    for _ in 0..10 * STEPS_MAX {
        group.step(&mut random, &mut world);
        if let Some(what) = world.violation.take() {
            return Err(violated(what));
        }
        if group.at_rest(&world) {
            world.check_end().map_err(violated)?;
            return Ok(Lasted { stats: world.stats, messages: producer.messages(), peaks });
        }
    }
    Err(violated(format!("no progress: {}", group.describe(&world))))
}

impl Peaks {
    fn note(&mut self, group: &Group, world: &World) {
        for member in &group.members {
            self.in_flight = self.in_flight.max(member.in_flight());
            self.held_keys = self.held_keys.max(member.held_keys());
        }
        self.holds = self.holds.max(world.tables.holds.len());
        self.held = self.held.max(world.tables.held.values().map(Vec::len).sum());
        self.outbox = self.outbox.max(world.tables.outbox.len());
        let behind = world.committed.iter().map(|(it, committed)| world.end(*it) - committed);
        self.backlog = self.backlog.max(behind.sum::<i64>() as usize);
    }
}

impl World {
    /// The promises to old messages are checked, and with that they are forgotten. Returns how many old ones must be kept
    /// because something of them is still on its way.
    fn forget(&mut self, retention: Duration) -> Result<usize, String> {
        let behind = self.logs.iter().flat_map(|(it, log)| log[self.committed[it] as usize..].iter().flatten());
        let mut on_their_way: BTreeSet<Id> = behind.map(|it| it.id).collect();
        on_their_way.extend(self.tables.outbox.iter().map(|it| it.1.id));
        on_their_way.extend(self.tables.holds.values().map(|it| it.head));
        on_their_way.extend(self.tables.held.values().flatten().map(|it| it.id));
        let old: Vec<Id> = self
            .accounts
            .iter()
            .take_while(|(_, it)| it.produced_at.after(retention) < self.now)
            .map(|(it, _)| *it)
            .collect();
        let mut kept = 0;
        for id in old {
            let state = self.tables.inbox.get(&id).map(|it| it.state);
            let recent = self.now <= self.accounts[&id].decided_at.after(retention);
            let done = matches!(state, Some(State::Processed | State::Discarded | State::Dead));
            if !done || recent || on_their_way.contains(&id) {
                kept += usize::from(!recent);
                continue;
            }
            self.check_message(id, &self.accounts[&id])?;
            self.drop_account(id);
        }
        Ok(kept)
    }
}
