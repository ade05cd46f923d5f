//! What executors do: who gets what next, and what follows from a result.

use std::collections::BTreeMap;

use super::assignment::Core;
use super::event::{Action, Epoch, Findings, Item, LaneId, Offset, Order, Outcome, Partition, Record, Timestamp};
use super::lane::Stage;
use super::partition::Owned;
use super::retry::{Decision, FailureKind};

impl<M> Core<M> {
    pub(super) fn finished(
        &mut self,
        now: Timestamp,
        id: LaneId,
        outcome: Outcome,
        mut items: Vec<Item<M>>,
        findings: &Findings,
        actions: &mut Vec<Action<M>>,
    ) {
        assert!(self.lanes[id.0].stage == Stage::Busy, "an executor finished a batch that it was not given");
        assert!(outcome != Outcome::Decided || items.is_empty(), "decided items do not come back");
        if outcome == Outcome::Decided {
            self.learn(id, findings);
        } else {
            self.leave_held(id);
            if findings.over_budget {
                self.budget.refuse();
            }
        }
        if let Outcome::Failed(kind) = outcome
            && items.len() == 1
            && let Some(item) = items.pop()
        {
            // It failed alone, so that it is to blame; whether the partition is still ours does not matter: the
            // decision is guarded by the inbox.
            self.decide(now, id, item, kind, actions);
        } else if self.lanes[id.0].held_since().is_some() {
            self.finished_held(now, id, outcome, items.len());
        } else if self.effects.is_some() {
            self.unclaimed(now, id, outcome, items, findings);
        } else {
            self.finished_batch(now, id, outcome, items, findings);
        }
    }

    /// Takes in what a committed transaction showed.
    pub(super) fn learn(&mut self, id: LaneId, findings: &Findings) {
        self.budget.settle(findings);
        if findings.stale {
            self.known.doubt(self.limits.commit_interval);
        }
        // Without order nobody waits, and nothing is ever read that would make it forget.
        if self.limits.order == Order::Key {
            findings.held.iter().for_each(|it| self.known.learn(*it));
        }
        match (findings.ready, self.lanes[id.0].held_since()) {
            (Some(true), _) => self.known.sign(),
            (Some(false), Some(signs)) => self.known.nothing_ready(signs),
            (None, _) => self.leave_held(id),
            (Some(false), None) => {}
        }
    }

    /// Held messages that this lane took up are still there. Another lane that found nothing meanwhile found them locked.
    fn leave_held(&mut self, id: LaneId) {
        if self.lanes[id.0].held_since().is_some() {
            self.known.sign();
        }
    }

    fn finished_batch(
        &mut self,
        now: Timestamp,
        id: LaneId,
        outcome: Outcome,
        mut items: Vec<Item<M>>,
        findings: &Findings,
    ) {
        if outcome == Outcome::Decided {
            for entry in self.lanes[id.0].decided(findings.found, &self.limits) {
                // A result of an earlier ownership says nothing about this one.
                if let Some(owned) = self.owned.get_mut(&entry.partition).filter(|it| it.epoch == entry.epoch) {
                    owned.decided(entry.next, entry.count);
                }
            }
            return;
        }
        assert!(!items.is_empty(), "undecided items come back");
        let stopping = self.stopping.is_some();
        let owned = &mut self.owned;
        items.retain(|item| {
            let Some(it) = owned.get_mut(&item.partition).filter(|it| it.epoch == item.epoch) else { return false };
            if it.leaving || stopping {
                it.in_hand -= 1;
            }
            !it.leaving && !stopping
        });
        let is_ours = !items.is_empty();
        let (halted, items): (Vec<_>, Vec<_>) = items.into_iter().partition(|it| self.halted.contains(it.partition));
        self.put_back(halted);
        let lane = &mut self.lanes[id.0];
        match outcome {
            Outcome::Full => self.make_room(now, id, items, &findings.full),
            _ if !is_ours => lane.stage = Stage::Idle,
            Outcome::Failed(_) if items.is_empty() => lane.stage = Stage::Idle,
            Outcome::Failed(_) => lane.failed(items),
            Outcome::Interrupted | Outcome::Decided => lane.interrupted(now, items, &self.limits),
        }
    }

    /// Messages that were held stay in the database until they are decided: nothing of them is kept here.
    fn finished_held(&mut self, now: Timestamp, id: LaneId, outcome: Outcome, failed: usize) {
        let lane = &mut self.lanes[id.0];
        lane.end_places();
        match outcome {
            Outcome::Decided => lane.end_held(None, &self.limits),
            Outcome::Failed(_) => lane.end_held(Some(failed), &self.limits),
            Outcome::Interrupted | Outcome::Full => lane.interrupted(now, Vec::new(), &self.limits),
        }
    }

    /// Records that must be held and find no room wait in their partitions, with all that stands behind them; the others
    /// of the batch run again at once.
    fn make_room(&mut self, now: Timestamp, id: LaneId, items: Vec<Item<M>>, full: &[(Partition, Offset)]) {
        let refused = |it: &Item<M>| full.iter().any(|(at, from)| *at == it.partition && *from <= it.record.offset);
        let (mut back, again): (Vec<_>, Vec<_>) = items.into_iter().partition(refused);
        let lane = &mut self.lanes[id.0];
        back.extend(lane.take_redo_of(|it| full.iter().any(|(at, _)| *at == it)));
        lane.again(again);
        for (partition, _) in full {
            let (records, others): (Vec<_>, Vec<_>) = back.into_iter().partition(|it| it.partition == *partition);
            back = others;
            if let Some(owned) = self.owned.get_mut(partition) {
                owned.put_back(records.into_iter().map(|it| it.record).collect());
                // One that went and came back meanwhile has nothing that waits for room.
                if 0 < owned.buffered() {
                    owned.held_full = true;
                    owned.blocked_until = Some(now.after(self.limits.full_delay));
                }
            }
        }
    }

    fn decide(&mut self, now: Timestamp, id: LaneId, item: Item<M>, kind: FailureKind, actions: &mut Vec<Action<M>>) {
        let decision = self.decision(now, &item, kind);
        if matches!(decision, Decision::Dead(_)) && self.budget.available() == 0 {
            self.budget.refuse();
            if item.epoch == Epoch::HELD {
                self.finished_held(now, id, Outcome::Interrupted, 1);
            } else if self.effects.is_some() {
                self.unclaimed(now, id, Outcome::Interrupted, vec![item], &Findings::default());
            } else {
                self.finished_batch(now, id, Outcome::Interrupted, vec![item], &Findings::default());
            }
            return;
        }
        actions.push(Action::Decide { lane: id, item, decision });
    }

    /// Takes what waits to run again and belongs to a halted partition out of the executors.
    pub(super) fn recall_redo(&mut self) -> Vec<Item<M>> {
        let halted = &self.halted;
        self.lanes.iter_mut().flat_map(|it| it.take_redo_of(|of| halted.contains(of))).collect()
    }

    /// Puts undecided items back into the buffers of their partitions.
    pub(super) fn put_back(&mut self, items: Vec<Item<M>>) {
        let mut records: BTreeMap<Partition, Vec<Record<M>>> = BTreeMap::new();
        for item in items {
            if self.owned.get(&item.partition).is_some_and(|it| it.epoch == item.epoch) {
                records.entry(item.partition).or_default().push(item.record);
            }
        }
        for (partition, records) in records {
            if let Some(owned) = self.owned.get_mut(&partition) {
                owned.put_back(records);
            }
        }
    }

    /// Forgets items that wait to run again; whoever reads them next runs them.
    pub(super) fn drop_redo(&mut self, drop: impl Fn(Partition) -> bool) {
        let items: Vec<Item<M>> = self.lanes.iter_mut().flat_map(|it| it.take_redo_of(&drop)).collect();
        items.iter().for_each(|it| self.let_go(it));
    }

    pub(super) fn start(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        if self.effects.is_some() {
            self.start_effects(now, actions);
            return;
        }
        if self.stopping.is_some() {
            return;
        }
        for id in (0..self.lanes.len()).map(LaneId) {
            if !self.lanes[id.0].ready(now) {
                continue;
            }
            if let Some(items) = self.lanes[id.0].take_redo(usize::MAX) {
                self.run(id, items, false, actions);
                continue;
            }
            // Held messages and new ones in turn.
            if !self.known.ready || self.lanes[id.0].last_was_held {
                let items = self.gather(now, id);
                if !items.is_empty() {
                    self.lanes[id.0].last_was_held = false;
                    self.run(id, items, true, actions);
                    continue;
                }
            }
            if self.known.ready {
                let lane = &mut self.lanes[id.0];
                lane.last_was_held = true;
                let (messages_max, care) = lane.begin_held(self.known.signs());
                let (except, dead_max) = (self.halted.topics(), self.budget.available());
                actions.push(Action::RunHeld { lane: id, messages_max, except, care, dead_max });
            }
        }
    }

    /// Marks the items whose key may be held.
    pub(super) fn mark_held(&self, items: &mut [Item<M>]) {
        for item in items.iter_mut().filter(|it| !it.partition.retry) {
            item.maybe_held = self.known.is_held(item.record.key);
        }
    }

    fn run(&mut self, id: LaneId, mut items: Vec<Item<M>>, new: bool, actions: &mut Vec<Action<M>>) {
        self.mark_held(&mut items);
        let care = self.lanes[id.0].begin(&items, new);
        actions.push(Action::Run { lane: id, items, care, dead_max: self.budget.available() });
    }

    /// New records for one executor, from its partitions in turn; either from source topics or from retry topics.
    fn gather(&mut self, now: Timestamp, id: LaneId) -> Vec<Item<M>> {
        let lane = &mut self.lanes[id.0];
        let unordered = self.limits.order == Order::None;
        let runnable = |partition: &Partition, it: &Owned<M>| it.lane == id && it.may_run(now, *partition, unordered);
        let has = |retry: bool| self.owned.iter().any(|(it, owned)| it.retry == retry && runnable(it, owned));
        let retry = if lane.last_was_retry { !has(false) } else { has(true) };
        lane.last_was_retry = retry;
        let ready = self.owned.iter().filter(|(it, owned)| it.retry == retry && runnable(it, owned));
        let partitions: Vec<Partition> = ready.map(|(&it, _)| it).collect();
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
}
