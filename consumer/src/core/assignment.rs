//! The state machine: owned partitions, executors, positions.
//!
//! Within a partition messages are taken, run and decided in offset order, so that the position never passes an
//! undecided record. A batch spans the partitions of one executor.

use std::collections::BTreeMap;

use super::event::{
    Action, Epoch, Event, Item, LaneId, Limits, Offset, Outcome, Partition, PauseReason, Record, Timestamp,
};
use super::lane::{Lane, Stage};
use super::partition::Owned;
use super::retry::{FailureKind, RetryPolicy, failing_for};

/// Everything one process knows about its share of the group.
pub struct Core<M> {
    policy: RetryPolicy,
    limits: Limits,
    owned: BTreeMap<Partition, Owned<M>>,
    lanes: Vec<Lane<M>>,
    last_epoch: u64,
    /// Revoked partitions whose work in hand has not ended: what each client revoked at once.
    releasing: Vec<Vec<Partition>>,
    commit_at: Timestamp,
    /// From when on commits that were never confirmed are made again.
    recommit_at: Timestamp,
    stopping: Option<Timestamp>,
    stopped: bool,
    random: u64,
}

impl<M> Core<M> {
    /// Starts without partitions. `seed` only spreads delays within their jitter.
    pub fn new(policy: RetryPolicy, limits: Limits, seed: u64) -> Core<M> {
        assert!(0 < limits.lanes && 0 < limits.batch_max, "limits are positive");
        assert!(limits.batch_max <= limits.buffered_max, "a batch fits the buffer");
        let lanes = (0..limits.lanes).map(|_| Lane::new(&limits)).collect();
        Core {
            policy,
            limits,
            owned: BTreeMap::new(),
            lanes,
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
        match event {
            Event::Assigned(partitions) => partitions.into_iter().for_each(|it| self.assigned(it)),
            Event::Revoked(partitions) => self.revoked(partitions),
            Event::Lost(partitions) => self.lost(&partitions),
            Event::Received(partition, records) => self.received(partition, records),
            Event::Reached(partition, offset) => self.reached(partition, offset),
            Event::Finished { lane, outcome, items } => self.finished(now, lane, outcome, items, &mut actions),
            Event::Committed(positions) => self.committed(&positions),
            Event::Tick => {}
            Event::Shutdown { drain } => self.shutdown(now, drain),
        }
        self.release(&mut actions);
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
        let all = waits.chain(due).chain(beat).chain(again).chain(self.stopping);
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

    /// How many partitions are paused, of each topic index.
    pub fn paused(&self) -> impl Iterator<Item = (Partition, PauseReason)> {
        self.owned.iter().filter_map(|(&partition, it)| it.paused.map(|reason| (partition, reason)))
    }

    /// For a partition with buffered records: when its first one was produced, and when it is due.
    pub fn heads(&self) -> impl Iterator<Item = (Partition, Option<Timestamp>, Option<Timestamp>)> {
        self.owned.iter().map(|(&partition, it)| (partition, it.oldest_produced_at(), it.ready_at()))
    }

    /// Most consecutive interruptions of any executor: how long there has been no verdict.
    pub fn interruptions(&self) -> u32 {
        self.lanes.iter().map(Lane::interruptions).max().unwrap_or_default()
    }

    fn assigned(&mut self, partition: Partition) {
        self.last_epoch += 1;
        let mut load = vec![0_usize; self.lanes.len()];
        for (it, owned) in &self.owned {
            // Source partitions carry the load; a retry partition counts little.
            load[owned.lane.0] += if it.retry { 1 } else { 100 };
        }
        let lane = (0..load.len()).min_by_key(|&it| load[it]).unwrap_or_default();
        let previous = self.owned.insert(partition, Owned::new(Epoch(self.last_epoch), LaneId(lane)));
        assert!(previous.is_none(), "partition assigned twice without a revocation");
    }

    fn revoked(&mut self, partitions: Vec<Partition>) {
        for partition in &partitions {
            if let Some(owned) = self.owned.get_mut(partition) {
                // What is buffered goes with it; nothing of it is run any more.
                owned.leaving = true;
            }
        }
        self.drop_redo(|partition| partitions.contains(&partition));
        self.releasing.push(partitions);
    }

    fn lost(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.owned.remove(partition);
        }
        for releasing in &mut self.releasing {
            releasing.retain(|it| !partitions.contains(it));
        }
        self.releasing.retain(|it| !it.is_empty());
        let owned = &self.owned;
        for lane in &mut self.lanes {
            lane.retain_redo(|it| owned.get(&it.partition).is_some_and(|owned| owned.epoch == it.epoch));
        }
    }

    /// Forgets items that wait to run again; whoever reads them next runs them.
    fn drop_redo(&mut self, drop: impl Fn(Partition) -> bool) {
        let owned = &mut self.owned;
        for lane in &mut self.lanes {
            lane.retain_redo(|item| {
                if !drop(item.partition) {
                    return true;
                }
                if let Some(it) = owned.get_mut(&item.partition).filter(|it| it.epoch == item.epoch) {
                    it.in_hand -= 1;
                }
                false
            });
        }
    }

    fn received(&mut self, partition: Partition, records: Vec<Record<M>>) {
        // Polled just before the revocation: the new owner reads them again.
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        if !owned.leaving && self.stopping.is_none() {
            owned.receive(records);
        }
    }

    fn reached(&mut self, partition: Partition, offset: Offset) {
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        // Buffers are dropped then, and undecided records with them.
        if !owned.leaving && self.stopping.is_none() {
            owned.reached(offset);
        }
    }

    fn finished(
        &mut self,
        now: Timestamp,
        id: LaneId,
        outcome: Outcome,
        mut items: Vec<Item<M>>,
        actions: &mut Vec<Action<M>>,
    ) {
        let lane = &mut self.lanes[id.0];
        assert!(lane.stage == Stage::Busy, "an executor finished a batch that it was not given");
        if outcome == Outcome::Decided {
            assert!(items.is_empty(), "decided items do not come back");
            for entry in lane.decided(&self.limits) {
                // A result of an earlier ownership says nothing about this one.
                if let Some(owned) = self.owned.get_mut(&entry.partition).filter(|it| it.epoch == entry.epoch) {
                    owned.decided(entry.next, entry.count);
                }
            }
            return;
        }
        assert!(!items.is_empty(), "undecided items come back");
        if let Outcome::Failed(kind) = outcome
            && items.len() == 1
            && let Some(item) = items.pop()
        {
            // It failed alone, so that it is to blame; whether the partition is still ours does not matter: the
            // decision is guarded by the inbox.
            self.decide(now, id, item, kind, actions);
            return;
        }
        let stopping = self.stopping.is_some();
        let owned = &mut self.owned;
        items.retain(|item| {
            let Some(it) = owned.get_mut(&item.partition).filter(|it| it.epoch == item.epoch) else { return false };
            if it.leaving || stopping {
                it.in_hand -= 1;
            }
            !it.leaving && !stopping
        });
        match outcome {
            _ if items.is_empty() => lane.stage = Stage::Idle,
            Outcome::Failed(_) => lane.failed(items),
            Outcome::Interrupted | Outcome::Decided => lane.interrupted(now, items, &self.limits),
        }
    }

    fn decide(&mut self, now: Timestamp, lane: LaneId, item: Item<M>, kind: FailureKind, actions: &mut Vec<Action<M>>) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let failing_for = failing_for(now, item.record.first_failed_at);
        let decision = self.policy.decide(item.record.attempt, kind, failing_for, self.random);
        actions.push(Action::Decide { lane, item, decision });
    }

    fn committed(&mut self, positions: &[(Partition, Offset)]) {
        for (partition, offset) in positions {
            if let Some(owned) = self.owned.get_mut(partition) {
                owned.confirmed(*offset);
            }
        }
    }

    fn shutdown(&mut self, now: Timestamp, drain: std::time::Duration) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(now.after(drain));
        self.drop_redo(|_| true);
        self.owned.values_mut().for_each(Owned::drop_buffer);
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

    fn start(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        if self.stopping.is_some() {
            return;
        }
        for id in (0..self.lanes.len()).map(LaneId) {
            if !self.lanes[id.0].ready(now) {
                continue;
            }
            let (items, suspect) = match self.lanes[id.0].take_redo() {
                Some(items) => (items, None),
                None => (self.gather(now, id), Some(false)),
            };
            if items.is_empty() {
                continue;
            }
            self.lanes[id.0].begin(&items, suspect);
            actions.push(Action::Run { lane: id, items });
        }
    }

    /// New records for one executor, from its partitions in turn; either from source topics or from retry topics.
    fn gather(&mut self, now: Timestamp, id: LaneId) -> Vec<Item<M>> {
        let lane = &mut self.lanes[id.0];
        let runnable = |it: &Owned<M>| it.lane == id && !it.leaving && it.ready_at().is_some_and(|at| at <= now);
        let has = |retry: bool| self.owned.iter().any(|(partition, it)| partition.retry == retry && runnable(it));
        let retry = if lane.last_was_retry { !has(false) } else { has(true) };
        lane.last_was_retry = retry;
        let partitions: Vec<Partition> =
            self.owned.iter().filter(|(it, owned)| it.retry == retry && runnable(owned)).map(|(&it, _)| it).collect();
        let max = lane.new_records_max();
        let first = lane.take_turn(partitions.len());
        let mut items = Vec::new();
        for partition in partitions.iter().cycle().skip(first).take(partitions.len()) {
            if let Some(owned) = self.owned.get_mut(partition) {
                owned.take(now, *partition, max, &mut items);
            }
        }
        items
    }

    fn pause_and_resume(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        if self.stopping.is_some() {
            return;
        }
        let cap = self.buffered_cap();
        for (&partition, owned) in self.owned.iter_mut().filter(|(_, it)| !it.leaving) {
            let not_due = owned.ready_at().is_some_and(|it| now < it);
            let wanted = match owned.paused {
                _ if not_due => Some(PauseReason::NotDue),
                // Resumed at half of what it was paused at, so that a partition does not flutter.
                Some(PauseReason::Full) if cap / 2 < owned.buffered() => Some(PauseReason::Full),
                _ if cap <= owned.buffered() => Some(PauseReason::Full),
                _ => None,
            };
            match (owned.paused, wanted) {
                (None, Some(reason)) => actions.push(Action::Pause(partition, reason)),
                (Some(_), None) => actions.push(Action::Resume(partition)),
                (Some(PauseReason::Full), Some(PauseReason::NotDue)) => {
                    actions.push(Action::Pause(partition, PauseReason::NotDue));
                }
                _ => {}
            }
            owned.paused = wanted;
        }
    }

    /// How much one partition may buffer now. Records arrive in long runs of one partition: while there is room, a run is
    /// let in whole; later each partition that has something gets its share.
    fn buffered_cap(&self) -> usize {
        let (mut total, mut filled) = (0, 0);
        for buffered in self.owned.values().map(Owned::buffered).filter(|it| 0 < *it) {
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
        let idle = self.lanes.iter().all(|it| it.stage != Stage::Busy);
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
