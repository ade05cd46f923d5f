//! Small worlds, of which every state is visited: two members, two keys, three or four messages, and a few faults that may
//! strike between any two steps.

mod worlds;

use std::rc::Rc;

use sekali_consumer::core::hold::{AfterDeadLetter, Rule};
use sekali_consumer::core::operator::Act;
use sekali_consumer::core::{Partition, Timestamp};

use super::choice::{Fault, Faults, Random, Script};
use super::group::Group;
use super::shape::Shape;
use super::world::{Behaviour, Id, World};

pub use worlds::SMALL_WORLDS;

/// A world small enough for all of its states.
#[derive(Debug)]
pub struct SmallWorld {
    /// What is special about it.
    pub name: &'static str,
    /// Whether its exploration takes no more than a few seconds.
    pub quick: bool,
    /// With fewer states, something that should happen does not.
    pub states_min: usize,
    shape: &'static Shape,
    rule: Rule,
    held_per_key_max: usize,
    /// Effects in progress, where messages have effects outside the database.
    effects_max: Option<usize>,
    /// Leases beyond those of effects in progress.
    leases_ahead_max: usize,
    /// Key and behaviour of each message, in the order of the log. Of two partitions, even keys go to the first one.
    messages: &'static [(usize, Behaviour)],
    /// What may go wrong, each as often as it is named.
    faults: &'static [Fault],
    /// Whether an operator may replay a dead letter that holds its key, once, or only discard it.
    replays: bool,
    /// Whether outcomes are reported at once, records published at once, and partitions fetched whole. That is a tenth of
    /// the states. A crash between a commit and its report is the same as one after both.
    eager: bool,
}

/// All that is and that may still happen.
#[derive(Clone, Hash)]
pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) group: Group,
}

/// What may happen next. Members go by their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Fetch(usize, Partition, usize),
    Execute(usize),
    Perform(usize),
    /// A lease of somebody who is gone runs out.
    LeaseEnds(Id),
    Report(usize),
    DeliverCommit(usize),
    LookAtHolds(usize),
    TakeAnswer(usize),
    LookForReady(usize),
    Tick(usize),
    Relay,
    Operate(Id, bool),
    Pause,
    Resume,
    Hear(usize),
    Notice,
    FinishHandOver,
    /// A member that has left is started anew; what it owned goes to somebody.
    Replace(usize),
    Crash(usize, usize),
    Take(Partition, usize),
    HandOver(Partition, usize),
    Leave(usize),
}

impl SmallWorld {
    /// How much may go wrong on one way.
    pub fn faults(&self) -> u64 {
        self.faults.len() as u64
    }

    /// Whether somebody may fail to hear that what waits behind a head may run: who was told is gone, or it was an operator
    /// who decided the head.
    fn needs_housekeeping(&self) -> bool {
        let loses = |it: &Fault| matches!(it, Fault::Crash | Fault::Leave | Fault::LostAnswer);
        // A lease on a held message that is given back may have to run out first.
        let gives_back = self.effects_max.is_some() && self.faults.contains(&Fault::Pause);
        self.faults.iter().any(loses) || self.rule == Rule::ByKey(AfterDeadLetter::Hold) || gives_back
    }

    pub(crate) fn start(&self) -> State {
        let mut world = World::new(self.shape);
        // Not the beginning of time, so that a deadline that has passed is not taken for none.
        world.now = Timestamp(1);
        world.faulty = false;
        world.faults = Faults::of(self.faults);
        world.rule = self.rule;
        world.held_per_key_max = self.held_per_key_max;
        world.effects_max = self.effects_max;
        world.leases_ahead_max = self.leases_ahead_max;
        let mut sequences = vec![0; self.shape.keys];
        for (id, (key, behaviour)) in (0..).zip(self.messages) {
            sequences[*key] += 1;
            let record = world.message(id, *key, sequences[*key], *behaviour);
            world.log(0, record);
        }
        // Nobody needs to own a retry partition that nothing ever comes to.
        let fails = |number: usize| {
            let here = |it: &&(usize, Behaviour)| it.0 % self.shape.partitions == number;
            self.messages.iter().filter(here).any(|it| it.1 != Behaviour::Good)
        };
        Rc::make_mut(&mut world.logs).retain(|it, _| !it.retry || fails(it.number as usize));
        world.committed.retain(|it, _| world.logs.contains_key(it));
        let mut random = Random::Script(Script::default());
        // Source records of different partitions belong to different members at first, retry records to the second one.
        let owner = |_: &mut Random, place: Partition| if place.retry { 1 } else { place.number as usize };
        let group = Group::new(&mut random, &mut world, owner);
        State { world, group }
    }
}

impl State {
    pub(crate) fn at_rest(&self) -> bool {
        self.group.at_rest(&self.world)
    }

    /// What may happen now.
    pub(crate) fn steps(&self, of: &SmallWorld) -> Vec<Step> {
        let mut steps = Vec::new();
        for member in 0..self.group.members.len() {
            self.steps_of(of, member, &mut steps);
        }
        if !self.world.tables.outbox.is_empty() {
            steps.push(Step::Relay);
        }
        if let Some(id) = self.world.to_operate(0) {
            steps.push(Step::Operate(id, false));
            if of.replays && self.world.may_replay(id) {
                steps.push(Step::Operate(id, true));
            }
        }
        if self.world.tables.paused {
            steps.push(Step::Resume);
        } else if self.world.faults.may(Fault::Pause) {
            steps.push(Step::Pause);
        }
        if let Some(id) = self.world.orphaned(&self.group.fences()) {
            steps.push(Step::LeaseEnds(id));
        }
        if self.group.has_zombies() {
            steps.push(Step::Notice);
        }
        if self.group.has_let_go().is_some_and(|it| it || self.world.faults.may(Fault::Impatience)) {
            steps.push(Step::FinishHandOver);
        }
        self.faults(&mut steps);
        steps
    }

    fn steps_of(&self, of: &SmallWorld, member: usize, steps: &mut Vec<Step>) {
        let (world, process) = (&self.world, &self.group.members[member]);
        for place in process.open(world) {
            let all = process.unfetched(world, place).min(world.shape.fetch_max);
            steps.push(Step::Fetch(member, place, all));
            if 1 < all && !of.eager {
                steps.push(Step::Fetch(member, place, 1));
            }
        }
        let mut add = |possible: bool, step: Step| {
            if possible {
                steps.push(step);
            }
        };
        add(process.has_work(), Step::Execute(member));
        add(process.performs(), Step::Perform(member));
        add(process.has_reports(), Step::Report(member));
        add(process.has_commits(), Step::DeliverCommit(member));
        add(process.has_reads(), Step::LookAtHolds(member));
        add(process.has_answers(), Step::TakeAnswer(member));
        // Housekeeping looks rarely: when there was time for everything else.
        let ready = of.needs_housekeeping() && world.tables.holds.values().any(|it| it.ready);
        add(ready && process.idle() && !process.stopping, Step::LookForReady(member));
        add(!process.has_heard(world) && !process.stopping, Step::Hear(member));
        add(process.overslept(world) && !process.has_commits(), Step::Tick(member));
        add(process.stopped.is_some(), Step::Replace(0));
        add(process.stopped.is_some(), Step::Replace(1));
    }

    fn faults(&self, steps: &mut Vec<Step>) {
        let (group, may) = (&self.group, |it| self.world.faults.may(it));
        let members = 0..group.members.len();
        for member in members.clone() {
            if may(Fault::Crash) {
                steps.extend(members.clone().map(|to| Step::Crash(member, to)));
            }
            if may(Fault::Leave) && group.may_leave(member) {
                steps.push(Step::Leave(member));
            }
            for place in self.world.places() {
                if may(Fault::TakeOver) && group.may_take(place, member) {
                    steps.push(Step::Take(place, member));
                }
                if may(Fault::HandOver) && group.may_hand_over(place, member) {
                    steps.push(Step::HandOver(place, member));
                }
            }
        }
    }

    /// Takes one step; the script's choices settle what is left open.
    pub(crate) fn take(&mut self, of: &SmallWorld, step: Step, random: &mut Random) {
        let State { world, group } = self;
        let mut strike = |kind| {
            world.faults.use_up(kind);
            world.stats.faults += 1;
        };
        match step {
            Step::Crash(..) => strike(Fault::Crash),
            Step::Take(..) => strike(Fault::TakeOver),
            Step::HandOver(..) => strike(Fault::HandOver),
            Step::Leave(_) => strike(Fault::Leave),
            Step::Pause => strike(Fault::Pause),
            _ => {}
        }
        match step {
            Step::Fetch(member, place, max) => group.member(member).fetch_from(random, world, place, max),
            Step::Perform(member) => drop(group.member(member).perform(random, world)),
            Step::LeaseEnds(id) => world.end_lease(id),
            Step::Execute(member) => drop(group.member(member).execute(random, world)),
            Step::Report(member) => drop(group.member(member).report(world)),
            Step::DeliverCommit(member) => drop(group.deliver_commit(random, world, member)),
            Step::LookAtHolds(member) => drop(group.member(member).look_at_holds(world)),
            Step::TakeAnswer(member) => drop(group.member(member).take_answer(world)),
            Step::LookForReady(member) => group.member(member).look_for_ready(world),
            Step::Tick(member) => group.member(member).tick(world),
            Step::Relay => world.relay(random),
            Step::Operate(id, replay) => world.operate(id, if replay { Act::Replay } else { Act::Discard }, false),
            Step::Pause => world.tables.paused = true,
            Step::Resume => world.tables.paused = false,
            Step::Hear(member) => group.member(member).hear(world),
            Step::Notice => group.notice(world),
            Step::FinishHandOver => group.finish_hand_over(random, world),
            Step::Replace(to) => group.replace_stopped(random, world, &|_, _| to),
            Step::Crash(member, to) => group.crash(random, world, member, &|_, _| to),
            Step::Take(place, to) => group.take(world, place, to),
            Step::HandOver(place, to) => group.hand_over(world, place, to),
            Step::Leave(member) => group.member(member).shut_down(world),
        }
        if of.eager {
            self.finish_at_once(random);
        }
    }

    fn finish_at_once(&mut self, random: &mut Random) {
        let State { world, group } = self;
        while !world.tables.outbox.is_empty() {
            world.relay(random);
        }
        for member in 0..group.members.len() {
            while group.members[member].has_reports() {
                group.member(member).report(world);
            }
        }
    }
}
