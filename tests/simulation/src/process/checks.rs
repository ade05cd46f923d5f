//! What an executor, a client and the memory of a process may rely on.

use sekali_consumer::core::{Findings, LaneId, Limits, Offset, Partition};

use super::{Process, Work};
use crate::shape::LANES_MAX;
use crate::world::World;

impl Process {
    /// Dead letters never run ahead of successes by more than the budget of each executor.
    pub(super) fn check_budget(&mut self, world: &mut World, findings: &Findings) {
        let (Some(credit), Some(max)) = (&mut self.credit, world.dead_letters_ahead_max) else { return };
        let (max, refill) = (i64::from(max), self.shape.limits.dead_letter_refill.as_millis() as u64);
        let refills = (world.now.0 - self.refilled_at.0) / refill;
        self.refilled_at.0 += refills * refill;
        *credit = (*credit + refills as i64).min(max);
        *credit = (*credit + findings.processed as i64).min(max) - findings.dead as i64;
        if *credit < -max * (self.shape.limits.lanes as i64 - 1) {
            world.violated(format!("{} dead letters more than there was budget for", -*credit));
        }
    }

    /// Records that must be held and find no room keep their partition from being fetched, and are not tried at once.
    pub(super) fn note_full(&mut self, world: &mut World, full: Vec<(Partition, Offset)>) {
        for (place, from) in full.into_iter().filter(|_| !self.stopping) {
            if !self.paused.contains(&place) {
                world.violated(format!("{place:?} is fetched although there is no room for its head"));
            }
            self.blocked_until.insert(place, (from, world.now.after(self.shape.limits.full_delay)));
        }
    }

    /// Whether an executor has a batch with records of a partition that is being handed over, read under this ownership.
    pub(super) fn in_hand(&self, place: Partition) -> bool {
        let this_ownership = |lane: LaneId| self.changes_at_start[lane.0] + 1 == self.changes;
        (0..LANES_MAX)
            .map(LaneId)
            .any(|it| self.is_busy(it) && this_ownership(it) && self.in_batch[it.0].contains(&place))
    }

    /// What is not due is not fetched further: its tier would be read into memory. Nor is what an operator has paused.
    pub(super) fn check_pauses(&self, world: &mut World) {
        for (place, _, due_at) in self.core.heads() {
            let waits = due_at.is_some_and(|it| world.now < it);
            if waits && !self.stopping && self.revoked != Some(place) && !self.paused.contains(&place) {
                world.violated(format!("{place:?} is fetched although its head is not due"));
            }
            let piles_up = self.halted && 0 < self.core.buffered(place);
            if piles_up && !self.stopping && self.revoked != Some(place) && !self.paused.contains(&place) {
                world.violated(format!("{place:?} is fetched although an operator has paused it"));
            }
        }
    }

    /// Held messages that failed together run again soon, without a look at all holds.
    pub(super) fn check_held(&self, world: &mut World) {
        let rests = 0 < self.core.interruptions() || self.stopping;
        if self.left_held && self.work.is_empty() && self.reports.is_empty() && !rests {
            world.violated("held messages were left to whoever looks next".to_owned());
        }
    }

    pub(super) fn check_memory(&self, world: &mut World) {
        // A fetch may overshoot the share of each partition by what one fetch holds.
        let Limits { lanes, batch_max, buffered_max, .. } = self.shape.limits;
        let in_hand = if world.effects_max.is_some() { 2 * buffered_max } else { lanes * batch_max * 2 };
        let bound = in_hand + (2 + self.fetching.len()) * (buffered_max + self.shape.fetch_max);
        if bound < self.core.in_flight() {
            world.violated(format!("{} messages in memory", self.core.in_flight()));
        }
        // What found no room among the held ones comes back from the executor.
        let bound = buffered_max + self.shape.fetch_max + batch_max;
        for place in self.fetching.keys().filter(|it| bound <= self.core.buffered(**it)) {
            world.violated(format!("{} records of {place:?} wait in memory", self.core.buffered(*place)));
        }
    }

    pub(super) fn check_start(&self, world: &mut World, lane: LaneId, work: &Work) {
        if self.is_busy(lane) {
            world.violated(format!("executor {} was given a second batch", lane.0));
        }
        if !matches!(work, Work::Decide(..) | Work::Record(_)) {
            if self.stopping {
                world.violated("took something new while draining".to_owned());
            }
            if world.now < self.rests_until[lane.0] {
                world.violated(format!("executor {} did not wait after an interruption", lane.0));
            }
        }
        let passed_over = match work {
            Work::Run(..) => !self.halted,
            Work::RunHeld(_, _, excepted) => *excepted == self.halted,
            Work::Decide(..) | Work::Record(_) => true,
        };
        if !passed_over {
            world.violated(
                "began something of a topic that an operator has paused, or passed over one that is not".to_owned(),
            );
        }
        let Work::Run(items, _) = work else { return };
        let limits = &self.shape.limits;
        if limits.batch_max < items.len() || items.iter().any(|it| it.partition.retry != items[0].partition.retry) {
            world.violated("a batch is too large or mixes source and retry records".to_owned());
        }
        for (place, offset) in items.iter().map(|it| (it.partition, it.record.offset)) {
            // A partition that was handed over or taken away is not fetched, unless it came back.
            if !self.fetching.contains_key(&place) {
                world.violated(format!("{place:?} is not ours, and was given new work"));
            }
            if self.blocked_until.get(&place).is_some_and(|it| it.0 <= offset && world.now < it.1) {
                world.violated(format!("{place:?} was tried again at once although there is no room for its head"));
            }
        }
    }
}
