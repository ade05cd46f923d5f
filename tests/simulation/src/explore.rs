//! Every state of a small world, breadth first: so that the way to a violation is as short as can be.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Stats;
use super::choice::{Random, Script};
use super::small::{SmallWorld, State, Step};

/// What the exploration of one world saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps from one to another, or back to the same.
    pub transitions: usize,
    /// States in which nothing is left to do.
    pub rests: usize,
    /// Steps to the state that is farthest from the beginning.
    pub depth: usize,
    /// The most that was seen of each on one way.
    pub most: Stats,
}

impl Explored {
    /// Whether everything happened that has to happen in such a world.
    pub fn is_plausible(&self, of: &SmallWorld) -> bool {
        let happened = self.most.retried + self.most.dead;
        of.states_min <= self.states
            && self.states <= self.transitions
            && 0 < self.rests
            && of.faults() == self.most.faults
            && 0 < happened
    }
}

/// How to break a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// The small world.
    pub world: &'static str,
    /// What was broken.
    pub what: String,
    /// The steps that lead there.
    pub steps: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.world, self.what)?;
        self.steps.iter().enumerate().try_for_each(|(number, step)| write!(f, "\n  {:3}. {step}", number + 1))
    }
}

/// Explores several worlds, as many at a time as there are processors. When `hasty`, none is begun after a promise was
/// broken.
pub fn explore_all<'a>(worlds: &[&'a SmallWorld], hasty: bool) -> Vec<(&'a SmallWorld, Exploring)> {
    let next = AtomicUsize::new(0);
    let explored = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((place, world)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|it| Some((it, worlds.get(it)?)))
                {
                    let result = world.explore();
                    if hasty && result.is_err() {
                        next.store(worlds.len(), Ordering::Relaxed);
                    }
                    explored.lock().unwrap_or_else(PoisonError::into_inner).push((place, *world, result));
                }
            });
        }
    });
    let mut explored = explored.into_inner().unwrap_or_else(PoisonError::into_inner);
    explored.sort_by_key(|it| it.0);
    explored.into_iter().map(|(_, world, result)| (world, result)).collect()
}

/// How an exploration ends.
pub type Exploring = Result<Explored, Counterexample>;

/// A state by its number, in the order in which they were found.
type Number = u32;

struct Exploration<'a> {
    of: &'a SmallWorld,
    /// By digest: that two of a million states share one of 64 bits is as likely as winning in a lottery.
    numbers: HashMap<u64, Number, BuildHasherDefault<Digest>>,
    /// For each state: from which one it was found first, and by which of its transitions.
    found_from: Vec<(Number, u32)>,
    /// Transitions without a fault.
    calm: Vec<(Number, Number)>,
    at_rest: Vec<Number>,
    seen: Explored,
}

/// Digests many small numbers fast: each is folded in by a multiplication to 128 bits.
#[derive(Debug, Default)]
struct Digest(u64);

impl Digest {
    fn fold(&mut self, number: u64) {
        let product = u128::from(self.0 ^ 0x9E37_79B9_7F4A_7C15) * u128::from(number ^ 0xD6E8_FEB8_6659_FD93);
        self.0 = self.0.rotate_left(23) ^ (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word) ^ ((chunk.len() as u64) << 56));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.fold(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.fold(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One transition.
struct Next {
    step: Step,
    script: Script,
    /// The state; or the message of a panic.
    state: Result<State, String>,
}

impl SmallWorld {
    /// Visits every state.
    ///
    /// # Errors
    /// The first promise that was broken on the shortest way; or a state from which there is no way to rest.
    pub fn explore(&self) -> Exploring {
        let mut exploration = Exploration {
            of: self,
            numbers: HashMap::default(),
            found_from: Vec::new(),
            calm: Vec::new(),
            at_rest: Vec::new(),
            seen: Explored::default(),
        };
        let start = self.start();
        exploration.number(&start, (0, 0));
        let mut frontier = vec![(0, start)];
        while !frontier.is_empty() {
            frontier = exploration.expand(frontier)?;
            exploration.seen.depth += usize::from(!frontier.is_empty());
        }
        exploration.check_progress()?;
        exploration.seen.states = exploration.found_from.len();
        exploration.seen.rests = exploration.at_rest.len();
        Ok(exploration.seen)
    }
}

impl Exploration<'_> {
    /// All that follows from some states and was not seen before.
    fn expand(&mut self, frontier: Vec<(Number, State)>) -> Result<Vec<(Number, State)>, Counterexample> {
        let mut found = Vec::new();
        for (number, state) in frontier {
            for (ordinal, next) in (0..).zip(Transitions::of(self.of, &state)) {
                self.seen.transitions += 1;
                let broken = |what: String| self.counterexample(number, Some(ordinal), what);
                let mut after = next.state.map_err(&broken)?;
                if let Some(what) = after.world.violation.take() {
                    return Err(broken(what));
                }
                let calm = after.world.faults == state.world.faults;
                let (after_number, new) = self.number(&after, (number, ordinal));
                if calm && after_number != number {
                    self.calm.push((number, after_number));
                }
                if new {
                    if after.at_rest() {
                        after.world.check_end().map_err(|what| self.counterexample(number, Some(ordinal), what))?;
                        self.at_rest.push(after_number);
                    }
                    self.seen.most.rise(&after.world.stats);
                    found.push((after_number, after));
                }
            }
        }
        Ok(found)
    }

    fn number(&mut self, state: &State, from: (Number, u32)) -> (Number, bool) {
        let mut digest = Digest(0);
        state.hash(&mut digest);
        let next = self.found_from.len() as Number;
        match self.numbers.entry(digest.finish()) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(vacant) => {
                vacant.insert(next);
                self.found_from.push(from);
                (next, true)
            }
        }
    }

    /// From every state there is a way to rest on which nothing more goes wrong.
    fn check_progress(&mut self) -> Result<(), Counterexample> {
        self.calm.sort_unstable_by_key(|it| it.1);
        let mut ends_well = vec![false; self.found_from.len()];
        let mut reached = self.at_rest.clone();
        while let Some(number) = reached.pop() {
            if std::mem::replace(&mut ends_well[number as usize], true) {
                continue;
            }
            let first = self.calm.partition_point(|it| it.1 < number);
            reached.extend(self.calm[first..].iter().take_while(|it| it.1 == number).map(|it| it.0));
        }
        match ends_well.iter().position(|it| !it) {
            None => Ok(()),
            Some(stuck) => Err(self.counterexample(stuck as Number, None, "nothing leads to rest any more".to_owned())),
        }
    }

    /// The way to a state, and one transition more.
    fn counterexample(&self, number: Number, last: Option<u32>, what: String) -> Counterexample {
        let mut ordinals: Vec<u32> = last.into_iter().collect();
        let mut at = number;
        while at != 0 {
            let (before, ordinal) = self.found_from[at as usize];
            ordinals.push(ordinal);
            at = before;
        }
        let mut state = self.of.start();
        let mut steps = Vec::new();
        for ordinal in ordinals.into_iter().rev() {
            let next = Transitions::of(self.of, &state).nth(ordinal as usize);
            let Some(Next { step, script, state: after }) = next else { break };
            steps.push(format!("{step:?}{}", script.chosen()));
            let Ok(after) = after else { break };
            state = after;
        }
        let what = if last.is_none() { format!("{what}: {}", state.group.describe(&state.world)) } else { what };
        Counterexample { world: self.of.name, what, steps }
    }
}

/// Everything that may happen next, in every way.
struct Transitions<'a> {
    from: &'a State,
    of: &'a SmallWorld,
    steps: std::vec::IntoIter<Step>,
    /// The step under way, and how it goes next.
    under_way: Option<(Step, Script)>,
}

impl Transitions<'_> {
    fn of<'a>(of: &'a SmallWorld, from: &'a State) -> Transitions<'a> {
        Transitions { from, of, steps: from.steps(of).into_iter(), under_way: None }
    }
}

impl Iterator for Transitions<'_> {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        let (step, script) = match self.under_way.take() {
            Some(under_way) => under_way,
            None => (self.steps.next()?, Script::default()),
        };
        let mut random = Random::Script(script);
        let mut after = self.from.clone();
        let taken = catch_unwind(AssertUnwindSafe(|| after.take(self.of, step, &mut random)));
        let Random::Script(script) = random else { return None };
        self.under_way = script.clone().following().map(|it| (step, it));
        Some(Next { step, script, state: taken.map(|()| after).map_err(|_| "the core panicked".to_owned()) })
    }
}
