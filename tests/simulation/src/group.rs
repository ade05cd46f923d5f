//! The consumer group: who owns what, and everything that may happen to its members.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use sekali_consumer::core::operator::{Act, LetterState};
use sekali_consumer::core::{Fence, Offset, Partition, Timestamp};

use super::choice::{Fault, Random};
use super::process::Process;
use super::world::World;

#[derive(Clone)]
pub(crate) struct Group {
    /// Shared with other states of the same world.
    pub(crate) members: Vec<Rc<Process>>,
    /// The broker's view.
    owners: BTreeMap<Partition, usize>,
    /// Counts every change of ownership: the generation that a commit must carry.
    generation: u64,
    /// A hand-over in progress: partition, from, to.
    handing: Option<(Partition, usize, usize)>,
    /// Partitions that a member lost and does not know about yet.
    zombies: Vec<(Partition, usize)>,
}

/// Generations are told apart by the commits that carry them.
impl Hash for Group {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.members, &self.owners, self.handing, &self.zombies).hash(hasher);
    }
}

impl Group {
    /// `owner` says who gets what at first.
    pub(crate) fn new(
        random: &mut Random,
        world: &mut World,
        owner: impl Fn(&mut Random, Partition) -> usize,
    ) -> Group {
        let members = (0..world.shape.processes).map(|_| Rc::new(Process::new(world, random.next()))).collect();
        let mut group = Group { members, owners: BTreeMap::new(), generation: 0, handing: None, zombies: Vec::new() };
        for place in world.places() {
            group.give(world, place, owner(random, place));
        }
        group
    }

    /// One of them, to be changed.
    pub(crate) fn member(&mut self, index: usize) -> &mut Process {
        Rc::make_mut(&mut self.members[index])
    }

    fn give(&mut self, world: &mut World, place: Partition, to: usize) {
        self.owners.insert(place, to);
        // A member that still believes to own it learns of the loss before it can get it again.
        if let Some(index) = self.zombies.iter().position(|it| *it == (place, to)) {
            self.zombies.remove(index);
            self.member(to).lose(world, place);
        }
        self.generation += 1;
        let generation = self.generation;
        self.member(to).assign(world, place, generation);
    }

    /// One step of one member, of the relay, of an operator or of fate, as chance has it.
    pub(crate) fn step(&mut self, random: &mut Random, world: &mut World) {
        if world.faulty && random.one_in(world.shape.fault_in) {
            world.stats.faults += 1;
            self.fault(random, world);
        }
        if !world.faulty {
            self.notice(world);
        }
        let index = random.below(self.members.len());
        let done = match random.below(8) {
            0..3 if self.members[index].performs() && random.one_in(2) => self.member(index).perform(random, world),
            0 | 1 => self.member(index).fetch(random, world),
            2 => self.member(index).execute(random, world),
            3 => self.member(index).report(world),
            4 => self.deliver_commit(random, world, index),
            5 => self.member(index).read_holds(random, world),
            6 => {
                operate(random, world);
                match random.below(12) {
                    0 => self.member(index).look_for_ready(world),
                    1 | 2 => self.member(index).look_out(world),
                    3..6 => self.member(index).tell_positions(world),
                    6..9 => self.members[index].beat(world),
                    9..11 if !self.members[index].has_heard(world) => self.member(index).hear(world),
                    _ => {}
                }
                false
            }
            _ => {
                world.relay(random);
                true
            }
        };
        if !done || random.one_in(8) {
            let idle_max = world.shape.idle_max.as_millis() as usize;
            world.now = Timestamp(world.now.0 + random.below(idle_max) as u64);
            // A runtime wakes up at the deadlines that the core names, and at no other time.
            if self.members[index].overslept(world) {
                self.member(index).tick(world);
            }
        }
        self.rejoin(random, world);
        self.finish_hand_over(random, world);
        self.replace_stopped(random, world, &anybody);
    }

    fn fault(&mut self, random: &mut Random, world: &mut World) {
        let places: Vec<Partition> = self.owners.keys().copied().collect();
        let place = places[random.below(places.len())];
        let (from, to) = (self.owners[&place], random.below(self.members.len()));
        match random.below(7) {
            0 | 1 if self.may_hand_over(place, to) => self.hand_over(world, place, to),
            2 if self.may_take(place, to) => self.take(world, place, to),
            // All at once: nobody is a zombie for as long as the inbox remembers.
            3 => (0..self.zombies.len()).for_each(|_| self.notice(world)),
            4 | 5 if 1 < world.shape.lives && !random.one_in(world.shape.lives) => {}
            4 => self.crash(random, world, from, &anybody),
            5 if self.may_leave(from) => self.member(from).shut_down(world),
            6 => self.member(from).stalled[usize::from(place.retry)] = true,
            _ => {}
        }
    }

    fn is_available(&self, member: usize) -> bool {
        !self.members[member].stopping && !self.members[member].releasing
    }

    pub(crate) fn may_hand_over(&self, place: Partition, to: usize) -> bool {
        self.handing.is_none() && self.is_available(self.owners[&place]) && !self.members[to].stopping
    }

    /// Moves a partition, and lets its owner finish what is in hand.
    pub(crate) fn hand_over(&mut self, world: &mut World, place: Partition, to: usize) {
        let from = self.owners[&place];
        self.handing = Some((place, from, to));
        self.member(from).revoke(world, place);
    }

    pub(crate) fn may_take(&self, place: Partition, to: usize) -> bool {
        self.handing.is_none_or(|it| it.0 != place) && self.owners[&place] != to && !self.members[to].stopping
    }

    /// Moves a partition without its owner's knowledge.
    pub(crate) fn take(&mut self, world: &mut World, place: Partition, to: usize) {
        self.zombies.push((place, self.owners[&place]));
        self.give(world, place, to);
    }

    pub(crate) fn has_zombies(&self) -> bool {
        !self.zombies.is_empty()
    }

    /// A member notices that a partition is no longer its own: who has believed it longest.
    pub(crate) fn notice(&mut self, world: &mut World) {
        if !self.zombies.is_empty() {
            let (place, member) = self.zombies.remove(0);
            self.member(member).lose(world, place);
        }
    }

    pub(crate) fn may_leave(&self, member: usize) -> bool {
        self.is_available(member) && self.handing.is_none()
    }

    /// A process dies between two steps: whatever its transactions did stays done.
    pub(crate) fn crash(
        &mut self,
        random: &mut Random,
        world: &mut World,
        index: usize,
        next_owner: &dyn Fn(&mut Random, usize) -> usize,
    ) {
        self.members[index] = Rc::new(Process::new(world, random.next()));
        self.zombies.retain(|it| it.1 != index);
        if let Some((place, from, to)) = self.handing
            && (from == index || to == index)
        {
            self.handing = None;
            if to == index && from != index {
                // The hand-over goes on to nobody else: the partition stays with the broker's next choice.
                self.member(from).lose(world, place);
                self.member(from).releasing = false;
            }
            self.owners.remove(&place);
        }
        self.hand_out(random, world, index, next_owner);
    }

    /// Gives the partitions of a member that is gone, and those of nobody, to somebody.
    fn hand_out(
        &mut self,
        random: &mut Random,
        world: &mut World,
        gone: usize,
        next_owner: &dyn Fn(&mut Random, usize) -> usize,
    ) {
        let processes = self.members.len();
        for place in world.places() {
            if self.owners.get(&place).is_none_or(|it| *it == gone) && self.handing.is_none_or(|it| it.0 != place) {
                let first = next_owner(random, processes);
                self.give(world, place, self.running_from(first, gone));
            }
        }
    }

    pub(crate) fn deliver_commit(&mut self, random: &mut Random, world: &mut World, index: usize) -> bool {
        let owners = &self.owners;
        Rc::make_mut(&mut self.members[index]).deliver_commit(random, world, |it| owners.get(&it) == Some(&index))
    }

    /// Fences of all leases of members that are alive.
    pub(crate) fn fences(&self) -> BTreeSet<Fence> {
        self.members.iter().flat_map(|it| it.fences()).collect()
    }

    /// Whether the owner of a partition that is handed over has let go of it; `None` when nothing is handed over.
    pub(crate) fn has_let_go(&self) -> Option<bool> {
        self.handing.map(|(_, from, _)| self.members[from].released.is_some())
    }

    pub(crate) fn finish_hand_over(&mut self, random: &mut Random, world: &mut World) {
        let Some((place, from, to)) = self.handing else { return };
        let released = if self.members[from].released.is_some() { self.member(from).released.take() } else { None };
        let gives_up = released.is_none() && world.strikes(random, Fault::Impatience, 30);
        if released.is_none() && !gives_up {
            return;
        }
        self.handing = None;
        if gives_up {
            // The callback waited long enough: work in hand becomes a zombie's.
            self.member(from).lose(world, place);
            self.member(from).releasing = false;
        }
        let lost = world.strikes(random, Fault::LostCommit, 5);
        for (place, offset) in released.unwrap_or_default() {
            if !lost {
                world.commit(place, offset);
            }
        }
        self.give(world, place, to);
    }

    /// Partitions of a client that was made anew go to somebody, perhaps to the same member.
    fn rejoin(&mut self, random: &mut Random, world: &mut World) {
        for index in 0..self.members.len() {
            if self.members[index].reconnected.is_empty() {
                continue;
            }
            for (retry, positions) in std::mem::take(&mut self.member(index).reconnected) {
                self.rejoin_as(random, world, index, retry, positions);
            }
        }
    }

    fn rejoin_as(
        &mut self,
        random: &mut Random,
        world: &mut World,
        index: usize,
        retry: bool,
        positions: Vec<(Partition, Offset)>,
    ) {
        self.commit_last(random, world, index, positions);
        self.zombies.retain(|it| it.1 != index || it.0.retry != retry);
        if self.handing.is_some_and(|(place, from, _)| from == index && place.retry == retry) {
            self.handing = None;
            self.member(index).released = None;
        }
        let is_handed = |it: &Partition| self.handing.is_some_and(|handing| handing.0 == *it);
        let fetching = &self.members[index].fetching;
        let of_client = |it: &Partition| {
            it.retry == retry && self.owners.get(it) == Some(&index) && !is_handed(it) && !fetching.contains_key(it)
        };
        for place in world.places().into_iter().filter(of_client).collect::<Vec<_>>() {
            let first = random.below(self.members.len());
            self.give(world, place, self.running_from(first, index));
        }
    }

    /// The last commits of somebody who goes; they may get lost.
    fn commit_last(&self, random: &mut Random, world: &mut World, member: usize, positions: Vec<(Partition, Offset)>) {
        let lost = world.strikes(random, Fault::LostCommit, 5);
        for (place, offset) in positions {
            if !lost && self.owners.get(&place) == Some(&member) {
                world.commit(place, offset);
            }
        }
    }

    /// The first member from this one on that is not about to leave.
    fn running_from(&self, first: usize, otherwise: usize) -> usize {
        let members = self.members.len();
        let running = (0..members).map(|it| (first + it) % members).find(|it| !self.members[*it].stopping);
        running.unwrap_or(otherwise)
    }

    /// Starts anew who has left.
    pub(crate) fn replace_stopped(
        &mut self,
        random: &mut Random,
        world: &mut World,
        next_owner: &dyn Fn(&mut Random, usize) -> usize,
    ) {
        for index in 0..self.members.len() {
            let Some(positions) = self.members[index].stopped.clone() else { continue };
            self.commit_last(random, world, index, positions);
            self.crash(random, world, index, next_owner);
        }
    }

    /// Everything is decided, and Kafka knows it.
    pub(crate) fn at_rest(&self, world: &World) -> bool {
        let caught_up = world.committed.iter().all(|(it, committed)| *committed == world.end(*it));
        caught_up
            && world.tables.outbox.is_empty()
            && world.flows()
            && self.handing.is_none()
            && !world.tables.paused
            && self.members.iter().all(|it| it.has_heard(world))
            && self.members.iter().all(|it| it.idle())
    }

    pub(crate) fn describe(&self, world: &World) -> String {
        let behind: Vec<String> = (world.places().iter())
            .filter(|it| world.committed[it] != world.end(**it))
            .map(|it| {
                format!("{it:?} at {} of {}, owner {:?}", world.committed[it], world.end(*it), self.owners.get(it))
            })
            .collect();
        let members: Vec<String> = self.members.iter().map(|it| it.describe()).collect();
        format!(
            "behind: {behind:?}; outbox {}; holds {:?}; {members:#?}",
            world.tables.outbox.len(),
            world.tables.holds
        )
    }
}

fn anybody(random: &mut Random, processes: usize) -> usize {
    random.below(processes)
}

/// An operator takes up a dead letter, now and then, or pauses the source topic for a while.
fn operate(random: &mut Random, world: &mut World) {
    if world.pauses && random.one_in(if world.faulty { 6 } else { 2 }) {
        world.tables.paused = world.faulty && !world.tables.paused;
    }
    if !random.one_in(if world.faulty { 30 } else { 4 }) {
        return;
    }
    // Impatient, while something is on its way; or of another mind later.
    if world.faulty && random.one_in(4) {
        let (state, act) = if random.one_in(2) {
            (LetterState::Replaying, Act::Replay)
        } else {
            (LetterState::Discarded, Act::Restore)
        };
        if let Some(id) = world.letter(state, random.below(100)) {
            let force = random.one_in(2);
            world.operate(id, act, force);
        }
    }
    if let Some(id) = world.to_operate(random.below(100)) {
        let replay = world.may_replay(id) && random.one_in(2);
        world.operate(id, if replay { Act::Replay } else { Act::Discard }, false);
    }
}
