//! Simulation of the whole protocol around the very core that ships: several consumers, one log, one database, a relay,
//! and everything that may go wrong between any two steps. Everything follows from the seed.
//!
//! Faults: crashes, graceful restarts, rebalances with and without hand-over, zombies whose transactions and commits
//! come late, lost offset commits, interrupted transactions, duplicate publishing by producers and by the relay,
//! handlers that fail some attempts, all attempts, or for good, rejections inside a batch, clocks that jump ahead.
//!
//! Besides the worlds of [`simulate`] there are small ones, of which every state is visited ([`SmallWorld::explore`]), and
//! long ones, in which nothing may grow ([`last`]).

mod choice;
mod database;
mod explore;
mod group;
mod lasting;
mod oracle;
mod process;
mod shape;
mod small;
mod world;

use std::fmt;

pub use explore::{Counterexample, Explored, Exploring, explore_all};
pub use lasting::{Lasted, Peaks, last};
pub use small::{SMALL_WORLDS, SmallWorld};

use choice::Random;
use group::Group;
use shape::SEEDED;
use world::{Producer, World};

/// What one seed showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps until nothing was left to do.
    pub steps: u64,
    /// Faults of any kind that were injected.
    pub faults: u64,
    /// Messages that were retried.
    pub retried: u64,
    /// Deliveries that were duplicates.
    pub duplicates: u64,
    /// Messages that died.
    pub dead: u64,
    /// Messages that were held behind others.
    pub held: u64,
    /// Dead letters that an operator replayed.
    pub replays: u64,
    /// Dead letters that an operator discarded.
    pub discarded: u64,
}

impl Stats {
    /// Adds what another seed showed.
    pub fn add(&mut self, other: &Stats) {
        let Stats { steps, faults, retried, duplicates, dead, held, replays, discarded } = other;
        self.steps += steps;
        self.faults += faults;
        self.retried += retried;
        self.duplicates += duplicates;
        self.dead += dead;
        self.held += held;
        self.replays += replays;
        self.discarded += discarded;
    }

    /// Keeps the larger number of each.
    pub(crate) fn rise(&mut self, other: &Stats) {
        let Stats { steps, faults, retried, duplicates, dead, held, replays, discarded } = *other;
        self.steps = self.steps.max(steps);
        self.faults = self.faults.max(faults);
        self.retried = self.retried.max(retried);
        self.duplicates = self.duplicates.max(duplicates);
        self.dead = self.dead.max(dead);
        self.held = self.held.max(held);
        self.replays = self.replays.max(replays);
        self.discarded = self.discarded.max(discarded);
    }
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Runs the same world again.
    pub seed: u64,
    /// What was broken.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.what)
    }
}

/// Faults stop after this many steps; then everything must come to an end.
const FAULTY_STEPS: u64 = 600;
const STEPS_MAX: u64 = 60_000;
/// Source records of one world.
const MESSAGES: usize = 40;

/// Runs one world to its end.
///
/// # Errors
/// The first promise that was broken.
pub fn simulate(seed: u64) -> Result<Stats, Violation> {
    let mut random = Random::Seed(seed);
    let mut world = World::by_chance(&mut random, &SEEDED);
    let mut producer = Producer::new();
    (0..MESSAGES).for_each(|_| producer.produce(&mut random, &mut world));
    let mut group = Group::new(&mut random, &mut world, |random, _| random.below(SEEDED.processes));
    let violated = |what: String| Violation { seed, what };
    for step in 0..STEPS_MAX {
        world.faulty = step < FAULTY_STEPS;
        world.stats.steps = step;
        group.step(&mut random, &mut world);
        if let Some(what) = world.violation.take() {
            return Err(violated(what));
        }
        if !world.faulty && group.at_rest(&world) {
            world.check_end().map_err(violated)?;
            return Ok(world.stats);
        }
    }
    Err(violated(format!("no progress: {}", group.describe(&world))))
}
