//! The consumer group: who owns what, and everything that may happen to its members.

use std::collections::BTreeMap;

use sekali_consumer::core::{Partition, Timestamp};

use super::Random;
use super::process::Process;
use super::world::{World, partitions};

const PROCESSES: usize = 3;

pub(crate) struct Group {
    members: Vec<Process>,
    /// The broker's view.
    owners: BTreeMap<Partition, usize>,
    /// Counts every change of ownership: the generation that a commit must carry.
    generation: u64,
    /// A hand-over in progress: partition, from, to.
    handing: Option<(Partition, usize, usize)>,
    /// Partitions that a member lost and does not know about yet.
    zombies: Vec<(Partition, usize)>,
}

impl Group {
    pub(crate) fn new(random: &mut Random, world: &mut World) -> Group {
        let members = (0..PROCESSES).map(|_| Process::new(random, world)).collect();
        let mut group = Group { members, owners: BTreeMap::new(), generation: 0, handing: None, zombies: Vec::new() };
        for place in partitions() {
            group.give(world, place, random.below(PROCESSES));
        }
        group
    }

    fn give(&mut self, world: &mut World, place: Partition, to: usize) {
        self.owners.insert(place, to);
        // A member that still believes to own it learns of the loss before it can get it again.
        if let Some(index) = self.zombies.iter().position(|it| *it == (place, to)) {
            self.zombies.remove(index);
            self.members[to].lose(world, place);
        }
        self.generation += 1;
        self.members[to].assign(world, place, self.generation);
    }

    pub(crate) fn step(&mut self, random: &mut Random, world: &mut World) {
        if world.faulty && random.one_in(12) {
            world.stats.faults += 1;
            self.fault(random, world);
        }
        if !world.faulty
            && let Some((place, member)) = self.zombies.pop()
        {
            self.members[member].lose(world, place);
        }
        let index = random.below(PROCESSES);
        let owners = &self.owners;
        let member = &mut self.members[index];
        let done = match random.below(8) {
            0 | 1 => member.fetch(random, world),
            2 => member.execute(random, world),
            3 => member.report(world),
            4 => member.deliver_commit(random, world, |it| owners.get(&it) == Some(&index)),
            5 => member.read_holds(random, world),
            6 => {
                operate(random, world);
                if random.one_in(10) {
                    member.look_for_ready(world);
                }
                false
            }
            _ => {
                world.relay(random);
                true
            }
        };
        if !done || random.one_in(8) {
            world.now = Timestamp(world.now.0 + random.below(40) as u64);
            // A runtime wakes up at the deadlines that the core names, and at no other time.
            if member.next_deadline(Timestamp(0)).is_some_and(|it| it <= world.now) {
                member.tick(world);
            }
        }
        self.finish_hand_over(random, world);
        self.replace_stopped(random, world);
    }

    fn fault(&mut self, random: &mut Random, world: &mut World) {
        let places: Vec<Partition> = self.owners.keys().copied().collect();
        let place = places[random.below(places.len())];
        let (from, to) = (self.owners[&place], random.below(PROCESSES));
        let available = |it: &Group, index: usize| !it.members[index].stopping && !it.members[index].releasing;
        match random.below(6) {
            // Moved with a hand-over.
            0 | 1 if self.handing.is_none() && available(self, from) && !self.members[to].stopping => {
                self.handing = Some((place, from, to));
                self.members[from].revoke(world, place);
            }
            // Taken away from a member that does not notice.
            2 if self.handing.is_none_or(|it| it.0 != place) && from != to && !self.members[to].stopping => {
                self.zombies.push((place, from));
                self.give(world, place, to);
            }
            // It notices.
            3 => {
                if let Some((place, member)) = self.zombies.pop() {
                    self.members[member].lose(world, place);
                }
            }
            4 => self.crash(random, world, from),
            5 if available(self, from) && self.handing.is_none() => self.members[from].shut_down(world),
            _ => {}
        }
    }

    /// A process dies between two steps: whatever its transactions did stays done.
    fn crash(&mut self, random: &mut Random, world: &mut World, index: usize) {
        self.members[index] = Process::new(random, world);
        self.zombies.retain(|it| it.1 != index);
        if let Some((place, from, to)) = self.handing
            && (from == index || to == index)
        {
            self.handing = None;
            if to == index && from != index {
                // The hand-over goes on to nobody else: the partition stays with the broker's next choice.
                self.members[from].lose(world, place);
                self.members[from].releasing = false;
            }
            self.owners.remove(&place);
        }
        self.hand_out(random, world, index);
    }

    /// Gives the partitions of a member that is gone, and those of nobody, to somebody.
    fn hand_out(&mut self, random: &mut Random, world: &mut World, gone: usize) {
        for place in partitions() {
            if self.owners.get(&place).is_none_or(|it| *it == gone) && self.handing.is_none_or(|it| it.0 != place) {
                let mut to = random.below(PROCESSES);
                while self.members[to].stopping {
                    to = (to + 1) % PROCESSES;
                    if to == gone {
                        break;
                    }
                }
                self.give(world, place, to);
            }
        }
    }

    fn finish_hand_over(&mut self, random: &mut Random, world: &mut World) {
        let Some((place, from, to)) = self.handing else { return };
        let released = self.members[from].released.take();
        let gives_up = released.is_none() && world.faulty && random.one_in(30);
        if released.is_none() && !gives_up {
            return;
        }
        self.handing = None;
        if gives_up {
            // The callback waited long enough: work in hand becomes a zombie's.
            self.members[from].lose(world, place);
            self.members[from].releasing = false;
        }
        let lost = world.faulty && random.one_in(5);
        for (place, offset) in released.unwrap_or_default() {
            if !lost {
                world.commit(place, offset);
            }
        }
        self.give(world, place, to);
    }

    fn replace_stopped(&mut self, random: &mut Random, world: &mut World) {
        for index in 0..PROCESSES {
            let Some(positions) = self.members[index].stopped.take() else { continue };
            let lost = world.faulty && random.one_in(5);
            for (place, offset) in positions {
                if !lost && self.owners.get(&place) == Some(&index) {
                    world.commit(place, offset);
                }
            }
            self.crash(random, world, index);
        }
    }

    /// Everything is decided, and Kafka knows it.
    pub(crate) fn at_rest(&mut self, world: &World) -> bool {
        let caught_up = partitions().all(|it| world.committed[&it] == world.end(it));
        caught_up
            && world.tables.outbox.is_empty()
            && world.flows()
            && self.handing.is_none()
            && self.members.iter().all(Process::idle)
    }

    pub(crate) fn describe(&self, world: &World) -> String {
        let behind: Vec<String> = partitions()
            .filter(|it| world.committed[it] != world.end(*it))
            .map(|it| {
                format!("{it:?} at {} of {}, owner {:?}", world.committed[&it], world.end(it), self.owners.get(&it))
            })
            .collect();
        let members: Vec<String> = self.members.iter().map(Process::describe).collect();
        format!(
            "behind: {behind:?}; outbox {}; holds {:?}; {members:#?}",
            world.tables.outbox.len(),
            world.tables.holds
        )
    }
}

/// An operator takes up a dead letter, now and then.
fn operate(random: &mut Random, world: &mut World) {
    if !random.one_in(if world.faulty { 30 } else { 4 }) {
        return;
    }
    if let Some(id) = world.to_operate(random.below(100)) {
        let replay = world.may_replay(id) && random.one_in(2);
        world.operate(id, replay);
    }
}
