//! Every state of a small world, breadth first: so that the way to a violation is as short as can be.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// A state by its number, in the order in which they were found.
type Number = u32;

struct Exploration<'a> {
    of: &'a SmallWorld,
    /// By digest: that two of a million states share one of 64 bits is as likely as winning in a lottery.
    numbers: HashMap<u64, Number>,
    /// For each state: from which one it was found first, and by which of its transitions.
    found_from: Vec<(Number, u32)>,
    /// Transitions without a fault.
    calm: Vec<(Number, Number)>,
    at_rest: Vec<Number>,
    seen: Explored,
}

/// One transition.
struct Next {
    step: Step,
    chosen: String,
    /// The state; or the message of a panic.
    state: Result<State, String>,
}

impl SmallWorld {
    /// Visits every state.
    ///
    /// # Errors
    /// The first promise that was broken on the shortest way; or a state from which there is no way to rest.
    pub fn explore(&self) -> Result<Explored, Counterexample> {
        let mut exploration = Exploration {
            of: self,
            numbers: HashMap::new(),
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
            if std::env::var_os("TRACE").is_some() { eprintln!("{} {} {}", exploration.seen.depth, frontier.len(), exploration.found_from.len()); }
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
            for (ordinal, next) in (0..).zip(transitions(self.of, &state)) {
                self.seen.transitions += 1;
                let broken = |what: String| self.counterexample(number, Some(ordinal), what);
                let mut after = next.state.map_err(broken)?;
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
                    self.note(&after.world.stats);
                    found.push((after_number, after));
                }
            }
        }
        Ok(found)
    }

    fn number(&mut self, state: &State, from: (Number, u32)) -> (Number, bool) {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let next = self.found_from.len() as Number;
        match self.numbers.entry(hasher.finish()) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(vacant) => {
                vacant.insert(next);
                self.found_from.push(from);
                (next, true)
            }
        }
    }

    fn note(&mut self, stats: &Stats) {
        let most = &mut self.seen.most;
        most.faults = most.faults.max(stats.faults);
        most.retried = most.retried.max(stats.retried);
        most.duplicates = most.duplicates.max(stats.duplicates);
        most.dead = most.dead.max(stats.dead);
        most.held = most.held.max(stats.held);
        most.replays = most.replays.max(stats.replays);
        most.discarded = most.discarded.max(stats.discarded);
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
            let next = transitions(self.of, &state).into_iter().nth(ordinal as usize);
            let Some(Next { step, chosen, state: after }) = next else { break };
            steps.push(format!("{step:?}{chosen}"));
            let Ok(after) = after else { break };
            state = after;
        }
        let what = if last.is_none() { format!("{what}: {}", state.group.describe(&state.world)) } else { what };
        Counterexample { world: self.of.name, what, steps }
    }
}

/// Everything that may happen next, in every way.
fn transitions(of: &SmallWorld, state: &State) -> Vec<Next> {
    let mut all = Vec::new();
    for step in state.steps(of) {
        let mut script = Some(Script::default());
        while let Some(tried) = script {
            let mut random = Random::Script(tried);
            let mut after = state.clone();
            let taken = catch_unwind(AssertUnwindSafe(|| after.take(step, &mut random)));
            let Random::Script(tried) = random else { break };
            let state = taken.map(|()| after).map_err(|_| "the core panicked".to_owned());
            all.push(Next { step, chosen: tried.chosen(), state });
            script = tried.following();
        }
    }
    all
}
