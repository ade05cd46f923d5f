//! The Kafka clients of a process: what they hand out, and that they may stop doing so.

use sekali_consumer::core::{Event, Offset, Partition};

use super::Process;
use crate::choice::{Fault, Random};
use crate::world::World;

impl Process {
    /// Partitions of which there is something to fetch.
    pub(crate) fn open(&self, world: &World) -> Vec<Partition> {
        let open = |(it, from): &(&Partition, &Offset)| {
            !self.paused.contains(it) && **from < world.end(**it) && !self.stalled[usize::from(it.retry)]
        };
        if self.releasing { Vec::new() } else { self.fetching.iter().filter(open).map(|(it, _)| *it).collect() }
    }

    /// Fetches a few records of one partition; false when there is nothing to fetch.
    pub(crate) fn fetch(&mut self, random: &mut Random, world: &mut World) -> bool {
        let open = self.open(world);
        if open.is_empty() {
            return false;
        }
        let place = open[random.below(open.len())];
        let max = 1 + random.below(self.shape.fetch_max);
        self.fetch_from(random, world, place, max);
        true
    }

    pub(crate) fn fetch_from(&mut self, random: &mut Random, world: &mut World, place: Partition, max: usize) {
        let from = self.fetching[&place];
        let records = world.read(place, from, max);
        // Now and then a client hands out a record again after a pause.
        let next = (from + max as Offset).min(world.end(place));
        let back = if world.strikes(random, Fault::ReadTwice, 10) { random.below(3) as Offset } else { 0 };
        let first = records.first().map_or(next, |it| it.offset);
        self.fetching.insert(place, (next - back).max(first));
        let event = match records.is_empty() {
            true => Event::Reached(place, next),
            false => Event::Received(place, records),
        };
        self.apply(world, event);
    }

    /// The clients tell how far they are: over holes they pass in silence.
    pub(crate) fn tell_positions(&mut self, world: &mut World) {
        if self.releasing {
            return;
        }
        for (place, offset) in self.fetching.clone() {
            if self.fetching.contains_key(&place) {
                self.apply(world, Event::Reached(place, offset));
            }
        }
    }

    /// Asks the broker whether quiet partitions have records.
    pub(crate) fn look_out(&mut self, world: &mut World) {
        let quiet = self.core.quiet(world.now);
        if !quiet.is_empty() {
            let behind = |it: &Partition| self.fetching.contains_key(it) && 0 < self.unfetched(world, *it);
            let behind = quiet.into_iter().filter(behind).collect();
            self.apply(world, Event::Backlog(behind));
        }
    }

    /// How much of a partition is not fetched.
    pub(crate) fn unfetched(&self, world: &World, place: Partition) -> usize {
        (world.end(place) - self.fetching[&place]) as usize
    }

    pub(super) fn reconnect(&mut self, world: &mut World, retry: bool, positions: Vec<(Partition, Offset)>) {
        let starves = |it: &Partition| it.retry == retry && !self.paused.contains(it) && 0 < self.unfetched(world, *it);
        if !self.fetching.keys().any(starves) {
            world.violated("a client was made anew although there was nothing to fetch".to_owned());
        }
        self.changes += 1;
        self.stalled[usize::from(retry)] = false;
        self.fetching.retain(|it, _| it.retry != retry);
        self.paused.retain(|it| it.retry != retry);
        self.blocked_until.retain(|it, _| it.retry != retry);
        if self.revoked.is_some_and(|it| it.retry == retry) {
            self.revoked = None;
            self.releasing = false;
        }
        self.reconnected.push((retry, positions));
    }
}
