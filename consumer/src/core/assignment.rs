//! The state machine: owned partitions, executors, positions.
//!
//! Within a partition messages are taken, run and decided in offset order, so that the position never passes an
//! undecided record. A batch spans the partitions of one executor.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::budget::Budget;
use super::effects::Effects;
use super::event::{
    Action, Epoch, Event, KeyId, LaneId, Limits, Offset, Order, Partition, PauseReason, Record, Timestamp,
};
use super::known::Known;
use super::lane::{Lane, Stage};
use super::partition::{Holds, Owned};
use super::pause::{Paused, Wants, wanted};
use super::retry::RetryPolicy;

/// Everything one process knows about its share of the group.
#[derive(Clone)]
pub struct Core<M> {
    pub(super) policy: RetryPolicy,
    pub(super) limits: Limits,
    pub(super) owned: BTreeMap<Partition, Owned<M>>,
    pub(super) lanes: Vec<Lane<M>>,
    pub(super) known: Known,
    pub(super) budget: Budget,
    /// What an operator has stopped.
    pub(super) halted: Paused,
    /// Where messages have effects outside the database.
    pub(super) effects: Option<Effects<M>>,
    last_epoch: u64,
    /// Revoked partitions whose work in hand has not ended: what each client revoked at once.
    releasing: Vec<Vec<Partition>>,
    commit_at: Timestamp,
    /// From when on commits that were never confirmed are made again.
    recommit_at: Timestamp,
    pub(super) stopping: Option<Timestamp>,
    stopped: bool,
    pub(super) random: u64,
}

/// Tells states apart: all but what never changes, and what only spreads delays.
impl<M: Hash> Hash for Core<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.owned, &self.lanes, &self.known, &self.budget, self.last_epoch, &self.releasing).hash(hasher);
        (&self.effects, self.commit_at, self.recommit_at, self.stopping, self.stopped).hash(hasher);
        self.halted.hash(hasher);
        self.lanes.iter().for_each(|it| it.held_since().map(|since| since == self.known.signs()).hash(hasher));
    }
}

impl<M> Core<M> {
    /// Starts without partitions. `seed` only spreads delays within their jitter.
    pub fn new(policy: RetryPolicy, limits: Limits, seed: u64) -> Core<M> {
        assert!(0 < limits.lanes && 0 < limits.batch_max, "limits are positive");
        assert!(limits.batch_max <= limits.buffered_max, "a batch fits the buffer");
        assert!(limits.effects_max != Some(0), "limits are positive");
        let lanes = (0..limits.lanes).map(|_| Lane::new(&limits)).collect();
        Core {
            policy,
            budget: Budget::new(limits.dead_letters_ahead_max, limits.dead_letter_refill),
            effects: limits.effects_max.map(|_| Effects::new()),
            limits,
            owned: BTreeMap::new(),
            lanes,
            known: Known::default(),
            halted: Paused::default(),
            last_epoch: 0,
            releasing: Vec::new(),
            commit_at: Timestamp::default(),
            recommit_at: Timestamp::default(),
            stopping: None,
            stopped: false,
            random: seed | 1,
        }
    }

    /// Takes one event and says what to do.
    pub fn apply(&mut self, now: Timestamp, event: Event<M>) -> Vec<Action<M>> {
        let mut actions = Vec::new();
        self.budget.refill(now);
        match event {
            Event::Assigned(partitions) => partitions.into_iter().for_each(|it| self.assigned(now, it)),
            Event::Revoked(partitions) => self.revoked(partitions, &mut actions),
            Event::Lost(partitions) => self.lost(&partitions, &mut actions),
            Event::Received(partition, records) => self.received(now, partition, records),
            Event::Reached(partition, offset) => self.reached(now, partition, offset),
            Event::Finished { lane, outcome, items, findings } => {
                self.finished(now, lane, outcome, items, &findings, &mut actions);
            }
            Event::Claimed { lane, leased, later, findings } => {
                self.claimed(lane, leased, later, &findings, &mut actions);
            }
            Event::Performed { leased, outcome } => self.performed(now, leased, outcome),
            Event::Recorded { lane, outcome, unwritten, findings } => {
                self.recorded(now, lane, outcome, unwritten, &findings);
            }
            Event::HoldsRead { read, held, ready } => self.holds_read(read, held, ready),
            Event::HoldsReady => self.known.sign(),
            Event::Paused(topics) => self.halt(Paused::of(topics), &mut actions),
            Event::Backlog(partitions) => {
                for (partition, owned) in &mut self.owned {
                    owned.has_backlog(now, partitions.contains(partition));
                }
            }
            Event::Committed(positions) => self.committed(&positions),
            Event::Tick => {}
            Event::Shutdown { drain } => self.shutdown(now, drain, &mut actions),
        }
        self.reconnect(now, &mut actions);
        self.release(&mut actions);
        self.read_holds(now, &mut actions);
        self.start(now, &mut actions);
        self.pause_and_resume(now, &mut actions);
        self.commit(now, &mut actions);
        self.stop(now, &mut actions);
        actions
    }

    /// The next moment after `now` at which a [`Event::Tick`] has something to do. `now` is that of the last `apply`,
    /// which did everything that was due by then.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = self.lanes.iter().filter_map(Lane::waiting_until);
        let due = self.owned.values().filter_map(Owned::ready_at);
        let unrequested = self.owned.values().any(|it| it.unrequested().is_some());
        let uncommitted = self.owned.values().any(|it| it.uncommitted().is_some());
        let beat = unrequested.then_some(self.commit_at);
        let again = uncommitted.then_some(self.recommit_at.max(self.commit_at));
        let holds = self.known.read_again_at();
        let starved = self.owned.values().filter_map(|it| Some(it.starving()?.after(self.limits.stall_timeout)));
        let effects = self.effects.iter().flat_map(Effects::deadlines);
        let all =
            starved.chain(effects).chain(waits).chain(due).chain(beat).chain(again).chain(holds).chain(self.stopping);
        all.filter(|it| now < *it).min()
    }

    /// Partitions owned now, with the next offset to read where it is known.
    pub fn positions(&self) -> impl Iterator<Item = (Partition, Option<Offset>)> {
        self.owned.iter().map(|(&partition, it)| (partition, it.position()))
    }

    /// Whether the partition is owned now.
    pub fn owns(&self, partition: Partition) -> bool {
        self.owned.contains_key(&partition)
    }

    /// Messages buffered and in hand.
    pub fn in_flight(&self) -> usize {
        self.owned.values().map(|it| it.buffered() + it.in_hand).sum()
    }

    /// Effects in progress and those leased ahead, also of messages whose partition is not owned any more.
    pub fn performing(&self) -> usize {
        self.effects.as_ref().map_or(0, Effects::leased)
    }

    /// Records of a partition that were received and are not in hand.
    pub fn buffered(&self, partition: Partition) -> usize {
        self.owned.get(&partition).map_or(0, Owned::buffered)
    }

    /// How many partitions are paused, of each topic index.
    pub fn paused(&self) -> impl Iterator<Item = (Partition, PauseReason)> {
        self.owned.iter().filter_map(|(&partition, it)| it.paused.map(|reason| (partition, reason)))
    }

    /// For a partition with buffered records: when its first one was produced, and when it is due.
    pub fn heads(&self) -> impl Iterator<Item = (Partition, Option<Timestamp>, Option<Timestamp>)> {
        self.owned.iter().map(|(&partition, it)| (partition, it.oldest_produced_at(), it.due_at()))
    }

    /// Keys that are held, as far as this process knows.
    pub fn held_keys(&self) -> usize {
        self.known.len()
    }

    /// Whether a dead letter waits because nothing succeeds any more.
    pub fn is_budget_spent(&self) -> bool {
        self.budget.is_spent()
    }

    /// Partitions that have got nothing for half of the time after which that is too long, if there is something.
    pub fn quiet(&self, now: Timestamp) -> Vec<Partition> {
        let half = self.limits.stall_timeout / 2;
        let quiet = self.owned.iter().filter(|(_, it)| it.is_empty() && it.quiet_since.after(half) <= now);
        quiet.map(|(it, _)| *it).collect()
    }

    /// Most consecutive interruptions of any executor: how long there has been no verdict.
    pub fn interruptions(&self) -> u32 {
        self.lanes.iter().map(Lane::interruptions).max().unwrap_or_default()
    }

    fn assigned(&mut self, now: Timestamp, partition: Partition) {
        self.last_epoch += 1;
        let mut load = vec![0_usize; self.lanes.len()];
        for (it, owned) in &self.owned {
            // Source partitions carry the load; a retry partition counts little.
            load[owned.lane.0] += if it.retry { 1 } else { 100 };
        }
        let lane = (0..load.len()).min_by_key(|&it| load[it]).unwrap_or_default();
        let mut owned = Owned::new(now, Epoch(self.last_epoch), LaneId(lane));
        owned.halted = self.halted.contains(partition);
        let previous = self.owned.insert(partition, owned);
        assert!(previous.is_none(), "partition assigned twice without a revocation");
    }

    /// What is paused is begun no more: what waits to run goes back into its buffer.
    fn halt(&mut self, halted: Paused, actions: &mut Vec<Action<M>>) {
        if halted.resumes(&self.halted) {
            // What was held of it and may run was passed over.
            self.known.sign();
        }
        self.halted = halted;
        for (partition, owned) in &mut self.owned {
            owned.halted = self.halted.contains(*partition);
        }
        self.recall(actions);
    }

    fn revoked(&mut self, partitions: Vec<Partition>, actions: &mut Vec<Action<M>>) {
        for partition in &partitions {
            if let Some(owned) = self.owned.get_mut(partition) {
                // What is buffered goes with it; nothing of it is run any more.
                owned.leaving = true;
            }
        }
        self.drop_redo(|partition| partitions.contains(&partition));
        self.drop_effects(|partition| partitions.contains(&partition), actions);
        self.releasing.push(partitions);
    }

    fn lost(&mut self, partitions: &[Partition], actions: &mut Vec<Action<M>>) {
        self.drop_redo(|partition| partitions.contains(&partition));
        self.drop_effects(|partition| partitions.contains(&partition), actions);
        for partition in partitions {
            self.owned.remove(partition);
        }
        for releasing in &mut self.releasing {
            releasing.retain(|it| !partitions.contains(it));
        }
        self.releasing.retain(|it| !it.is_empty());
    }

    fn received(&mut self, now: Timestamp, partition: Partition, records: Vec<Record<M>>) {
        // Polled just before the revocation: the new owner reads them again.
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        if !owned.leaving && self.stopping.is_none() {
            owned.receive(now, records);
        }
    }

    fn reached(&mut self, now: Timestamp, partition: Partition, offset: Offset) {
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        // Buffers are dropped then, and undecided records with them.
        if !owned.leaving && self.stopping.is_none() {
            owned.reached(now, offset);
        }
    }

    fn holds_read(&mut self, read: u64, held: Vec<KeyId>, ready: bool) {
        self.known.answer(read, held);
        if ready {
            self.known.sign();
        }
        for owned in self.owned.values_mut() {
            if matches!(owned.holds, Holds::Asked(asked) if asked <= read) {
                owned.holds = Holds::Read;
            }
        }
    }

    /// Asks for the holds: for partitions whose position is known by now, and from time to time while some key is held.
    fn read_holds(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        if self.limits.order == Order::None || self.stopping.is_some() {
            return;
        }
        let unread = |(partition, it): (&Partition, &Owned<M>)| {
            !partition.retry && !it.leaving && it.holds == Holds::Unread && 0 < it.buffered()
        };
        let again = self.known.read_again_at().is_some_and(|it| it <= now);
        if !again && !self.owned.iter().any(unread) {
            return;
        }
        let read = self.known.ask(now, self.limits.holds_interval);
        for (partition, owned) in &mut self.owned {
            if unread((partition, owned)) {
                owned.holds = Holds::Asked(read);
            }
        }
        actions.push(Action::ReadHolds { read });
    }

    fn committed(&mut self, positions: &[(Partition, Offset)]) {
        for (partition, offset) in positions {
            if let Some(owned) = self.owned.get_mut(partition) {
                owned.confirmed(*offset);
            }
        }
    }

    fn shutdown(&mut self, now: Timestamp, drain: std::time::Duration, actions: &mut Vec<Action<M>>) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(now.after(drain));
        self.drop_redo(|_| true);
        self.drop_effects(|_| true, actions);
        self.owned.values_mut().for_each(Owned::drop_buffer);
    }

    /// Gives up on a client that hands out nothing of a partition although there is something: with it go all of its
    /// partitions, as when they are lost.
    fn reconnect(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        if self.stopping.is_some() {
            return;
        }
        for retry in [false, true] {
            let stalled = |(it, owned): (&Partition, &Owned<M>)| {
                it.retry == retry && owned.starving().is_some_and(|it| it.after(self.limits.stall_timeout) <= now)
            };
            if !self.owned.iter().any(stalled) {
                continue;
            }
            let positions = self.uncommitted().into_iter().filter(|it| it.0.retry == retry).collect();
            let partitions: Vec<Partition> = self.owned.keys().copied().filter(|it| it.retry == retry).collect();
            self.lost(&partitions, actions);
            actions.push(Action::Reconnect { retry, positions });
        }
    }

    /// Lets go of revoked partitions once nothing of them is in hand.
    fn release(&mut self, actions: &mut Vec<Action<M>>) {
        let owned = &mut self.owned;
        self.releasing.retain_mut(|partitions| {
            if partitions.iter().any(|it| owned.get(it).is_some_and(|it| 0 < it.in_hand)) {
                return true;
            }
            let mut positions = Vec::new();
            for &partition in &*partitions {
                let owned = owned.remove(&partition);
                positions.extend(owned.and_then(|it| it.uncommitted()).map(|it| (partition, it)));
            }
            actions.push(Action::Release { partitions: std::mem::take(partitions), positions });
            false
        });
    }

    fn pause_and_resume(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        if self.stopping.is_some() {
            return;
        }
        let cap = self.buffered_cap();
        for (&partition, owned) in self.owned.iter_mut().filter(|(_, it)| !it.leaving) {
            let wants = Wants {
                halted: owned.halted,
                not_due: owned.due_at().is_some_and(|it| now < it),
                held_full: owned.held_full,
                buffered: owned.buffered(),
                cap,
            };
            let wanted = wanted(owned.paused, wants);
            match (owned.paused, wanted) {
                (None, Some(reason)) => actions.push(Action::Pause(partition, reason)),
                (Some(_), None) => actions.push(Action::Resume(partition)),
                // The client is told anew: a full buffer it need not have taken seriously yet, and an operator's pause
                // counts for its memory.
                (Some(was), Some(reason)) if was != reason => actions.push(Action::Pause(partition, reason)),
                _ => {}
            }
            owned.paused = wanted;
        }
    }

    /// How much one partition may buffer now. Records arrive in long runs of one partition: while there is room, a run is
    /// let in whole; later each partition that has something gets its share.
    fn buffered_cap(&self) -> usize {
        let (mut total, mut filled) = (0, 0);
        // What is halted stays as it is, and must not take the room of the others.
        let flowing = self.owned.values().filter(|it| !it.halted);
        for buffered in flowing.map(Owned::buffered).filter(|it| 0 < *it) {
            total += buffered;
            filled += 1;
        }
        let max = self.limits.buffered_max;
        let share = if total < max / 2 { max / 4 } else { max / filled.max(1) };
        share.max(BUFFERED_MIN.min(max))
    }

    fn commit(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        if now < self.commit_at || self.stopping.is_some() {
            return;
        }
        // A commit that is lost on the way is never answered.
        let again = self.recommit_at <= now;
        let mut positions = Vec::new();
        for (&partition, owned) in &mut self.owned {
            let wanted = if again { owned.uncommitted() } else { owned.unrequested() };
            if let Some(offset) = wanted {
                owned.request();
                positions.push((partition, offset));
            }
        }
        if positions.is_empty() {
            return;
        }
        self.commit_at = now.after(self.limits.commit_interval);
        if again {
            self.recommit_at = now.after(self.limits.commit_interval * RECOMMIT_BEATS);
        }
        actions.push(Action::Commit(positions));
    }

    fn stop(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        let Some(deadline) = self.stopping else { return };
        let performing = self.effects.as_ref().is_some_and(|it| !it.is_idle());
        let idle = !performing && self.lanes.iter().all(|it| it.stage != Stage::Busy);
        if !self.stopped && (idle || deadline <= now) {
            self.stopped = true;
            actions.push(Action::Stop(self.uncommitted()));
        }
    }

    fn uncommitted(&self) -> Vec<(Partition, Offset)> {
        self.owned.iter().filter_map(|(&partition, it)| it.uncommitted().map(|offset| (partition, offset))).collect()
    }
}

/// A partition may buffer this much however many there are.
const BUFFERED_MIN: usize = 100;
/// Beats after which an unconfirmed commit is made again. Confirmations come with the client's statistics.
const RECOMMIT_BEATS: u32 = 15;

#[cfg(test)]
mod tests;
