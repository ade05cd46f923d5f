//! Messages whose effect happens outside the database: leased, performed, and recorded in whatever order they end.
//!
//! Many are on their way at once, one of each key; what comes behind it waits in memory. The position is the lowest
//! undecided offset.

mod recall;

use std::collections::{BTreeMap, VecDeque};

use super::assignment::Core;
use super::event::{
    Action, Epoch, Fence, Findings, Item, KeyId, LaneId, Leased, Order, Outcome, Partition, Performed, Recorded,
    Timestamp, Verdict,
};
use super::lane::Place;
use super::partition::Owned;
use super::retry::{Decision, FailureKind, failing_for};

/// What is on its way.
#[derive(Clone, Hash)]
pub(super) struct Effects<M> {
    /// Keys with a message on its way, and what waits behind it.
    busy: BTreeMap<KeyId, VecDeque<Item<M>>>,
    /// To be leased next.
    ready: VecDeque<Item<M>>,
    /// To be leased when that time comes.
    later: Vec<(Timestamp, Item<M>)>,
    /// Leased ahead: performed as soon as there is room, so that nobody waits for a lease being taken.
    ahead: VecDeque<Leased<M>>,
    /// In progress.
    performing: BTreeMap<Fence, Place>,
    /// Whose outcome is to be written.
    performed: VecDeque<Recorded<M>>,
    /// The same, of a batch that failed: each in a transaction of its own.
    alone: VecDeque<Recorded<M>>,
    /// A message that was held was interrupted: look for it then.
    look_at: Option<Timestamp>,
    /// A dead letter waits for the budget until then.
    budget_at: Option<Timestamp>,
}

impl<M> Effects<M> {
    pub(super) fn new() -> Effects<M> {
        Effects {
            busy: BTreeMap::new(),
            ready: VecDeque::new(),
            later: Vec::new(),
            ahead: VecDeque::new(),
            performing: BTreeMap::new(),
            performed: VecDeque::new(),
            alone: VecDeque::new(),
            look_at: None,
            budget_at: None,
        }
    }

    /// Neither leased nor about to be written.
    pub(super) fn is_idle(&self) -> bool {
        self.leased() == 0 && self.performed.is_empty() && self.alone.is_empty()
    }

    /// Effects in progress, and what is leased ahead.
    pub(super) fn leased(&self) -> usize {
        self.performing.len() + self.ahead.len()
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Timestamp> {
        self.later.iter().map(|it| it.0).chain(self.look_at).chain(self.budget_at)
    }

    /// Takes a new item in: it is next, or waits behind another one of its key.
    fn admit(&mut self, item: Item<M>, key: Option<KeyId>) {
        if let Some(waiting) = key.and_then(|it| self.busy.get_mut(&it)) {
            waiting.push_back(item);
            return;
        }
        if let Some(key) = key {
            self.busy.insert(key, VecDeque::new());
        }
        self.ready.push_back(item);
    }

    /// The message that kept a key busy is decided or gone.
    fn free(&mut self, key: Option<KeyId>) {
        let Some(key) = key else { return };
        match self.busy.get_mut(&key).and_then(VecDeque::pop_front) {
            Some(next) => self.ready.push_back(next),
            None => {
                self.busy.remove(&key);
            }
        }
    }

    fn wake(&mut self, now: Timestamp) {
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.later).into_iter().partition(|it| it.0 <= now);
        self.later = later;
        self.ready.extend(due.into_iter().map(|it| it.1));
    }

    /// The next ones to be leased, all of source topics or all of retry topics.
    fn take_ready(&mut self, max: usize) -> Vec<Item<M>> {
        let Some(retry) = self.ready.front().map(|it| it.partition.retry) else { return Vec::new() };
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        for item in std::mem::take(&mut self.ready) {
            if taken.len() < max && item.partition.retry == retry {
                taken.push(item);
            } else {
                left.push_back(item);
            }
        }
        self.ready = left;
        taken
    }
}

impl<M> Core<M> {
    /// The key that a message keeps busy. Those of retry topics and those that were held are alone in progress anyway:
    /// their hold sees to it.
    fn place(&self, item: &Item<M>) -> Place {
        let ordered = self.limits.order == Order::Key && !item.partition.retry && item.epoch != Epoch::HELD;
        let key = item.record.key.filter(|_| ordered);
        Place { partition: item.partition, epoch: item.epoch, offset: item.record.offset, key }
    }

    pub(super) fn start_effects(&mut self, now: Timestamp, actions: &mut Vec<Action<M>>) {
        let Some(effects) = &mut self.effects else { return };
        effects.wake(now);
        if effects.look_at.is_some_and(|it| it <= now) {
            effects.look_at = None;
            self.known.sign();
        }
        self.perform(actions);
        for id in (0..self.lanes.len()).map(LaneId) {
            // Outcomes first: they free keys.
            if self.lanes[id.0].ready(now) && !self.record(now, id, actions) && self.stopping.is_none() {
                self.lease(now, id, actions);
            }
        }
    }

    /// Gives an executor outcomes to write, if there are any.
    fn record(&mut self, now: Timestamp, id: LaneId, actions: &mut Vec<Action<M>>) -> bool {
        let max = self.lanes[id.0].leases_max();
        let Some(effects) = &mut self.effects else { return false };
        let records = if let Some(one) = effects.alone.pop_front() {
            vec![one]
        } else {
            if effects.budget_at.is_some_and(|it| now < it) && effects.performed.iter().all(is_dead) {
                return false;
            }
            effects.budget_at = None;
            let mut room = self.budget.available();
            let (mut chosen, mut left) = (Vec::new(), VecDeque::new());
            for it in std::mem::take(&mut effects.performed) {
                if chosen.len() == max || (is_dead(&it) && room == 0) {
                    left.push_back(it);
                } else {
                    room -= usize::from(is_dead(&it));
                    chosen.push(it);
                }
            }
            if chosen.is_empty() && !left.is_empty() {
                // Its lease is kept meanwhile: it must not be performed again.
                self.budget.refuse();
                effects.budget_at = Some(now.after(self.limits.interrupted_delay_max));
            }
            effects.performed = left;
            chosen
        };
        if records.is_empty() {
            return false;
        }
        let places = records.iter().map(|it| self.place(&it.leased.item)).collect();
        self.lanes[id.0].begin_places(places, true);
        actions.push(Action::Record { lane: id, records });
        true
    }

    /// Gives an executor messages to lease, if there is room.
    fn lease(&mut self, now: Timestamp, id: LaneId, actions: &mut Vec<Action<M>>) {
        let room = self.room();
        if room == 0 {
            return;
        }
        if let Some(items) = self.lanes[id.0].take_redo(room) {
            self.run_leases(id, items, false, actions);
            return;
        }
        // Held messages and new ones in turn.
        let held = self.known.ready && !self.lanes[id.0].last_was_held;
        if !held {
            self.admit(now, id, room);
            let max = room.min(self.lanes[id.0].leases_max());
            let items = self.effects.as_mut().map(|it| it.take_ready(max)).unwrap_or_default();
            if !items.is_empty() {
                self.lanes[id.0].last_was_held = false;
                self.run_leases(id, items, true, actions);
                return;
            }
        }
        if self.known.ready {
            let lane = &mut self.lanes[id.0];
            lane.last_was_held = true;
            let (messages_max, care) = lane.begin_held(self.known.signs());
            let (messages_max, dead_max) = (messages_max.min(room), self.budget.available());
            lane.want_leases(messages_max);
            let except = self.halted.topics();
            actions.push(Action::RunHeld { lane: id, messages_max, except, care, dead_max });
        }
    }

    fn run_leases(&mut self, id: LaneId, mut items: Vec<Item<M>>, new: bool, actions: &mut Vec<Action<M>>) {
        self.mark_held(&mut items);
        let places = items.iter().map(|it| self.place(it)).collect();
        let lane = &mut self.lanes[id.0];
        lane.begin_places(places, new);
        actions.push(Action::Run { lane: id, items, care: super::Care::None, dead_max: self.budget.available() });
    }

    /// How many more may be leased: what is leased is bounded, and so is what is to be written.
    fn room(&self) -> usize {
        let (Some(effects), Some(max)) = (&self.effects, self.limits.effects_max) else { return 0 };
        let with_executors: usize = self.lanes.iter().map(super::lane::Lane::places).sum();
        let unwritten = effects.performed.len() + effects.alone.len();
        let (most, leased) = (max + self.limits.leases_ahead_max, effects.leased() + with_executors);
        most.saturating_sub(leased).min((most + max).saturating_sub(leased + unwritten))
    }

    /// Takes new records from the partitions in turn until so many are ready, or too many wait behind others. Those of
    /// retry topics have room of their own: the others may be waiting for what they bring.
    fn admit(&mut self, now: Timestamp, id: LaneId, room: usize) {
        let unordered = self.limits.order == Order::None;
        let share = (self.limits.buffered_max / self.owned.len().max(1)).max(1);
        let runnable = |(partition, it): (&Partition, &Owned<M>)| {
            (it.may_run(now, *partition, unordered) && it.in_hand < share).then_some(*partition)
        };
        let mut partitions: VecDeque<Partition> = self.owned.iter().filter_map(runnable).collect();
        let first = self.lanes[id.0].take_turn(partitions.len());
        partitions.rotate_left(first.min(partitions.len()));
        let mut in_hand = [false, true].map(|retry| {
            let owned = self.owned.iter().filter(|it| it.0.retry == retry);
            owned.map(|it| it.1.in_hand).sum::<usize>()
        });
        while let Some(partition) = partitions.pop_front() {
            let Some(effects) = &self.effects else { return };
            if room <= effects.ready.len() {
                return;
            }
            let Some(owned) = self.owned.get_mut(&partition) else { continue };
            let in_hand = &mut in_hand[usize::from(partition.retry)];
            if share <= owned.in_hand || self.limits.buffered_max <= *in_hand {
                continue;
            }
            *in_hand += 1;
            if let Some(item) = owned.take_open(now, partition) {
                let key = self.place(&item).key;
                if let Some(effects) = &mut self.effects {
                    effects.admit(item, key);
                }
                partitions.push_back(partition);
            }
        }
    }

    pub(super) fn claimed(
        &mut self,
        id: LaneId,
        leased: Vec<Leased<M>>,
        later: Vec<(Item<M>, Timestamp)>,
        findings: &Findings,
        actions: &mut Vec<Action<M>>,
    ) {
        self.learn(id, findings);
        let lane = &mut self.lanes[id.0];
        if lane.held_since().is_some() {
            lane.end_held(None, &self.limits);
        }
        lane.went_well(&self.limits);
        let mut places = lane.end_places();
        let mut back = Vec::new();
        for leased in leased {
            let place = self.place(&leased.item);
            places.retain(|it| *it != place);
            if self.is_halted(&leased.item) {
                back.push(leased.fence);
                self.shelve(leased.item);
            } else if !self.goes_on(&leased.item) {
                self.let_go(&leased.item);
                back.push(leased.fence);
            } else if let Some(effects) = &mut self.effects {
                effects.ahead.push_back(leased);
            }
        }
        give_back(back, actions);
        for (item, at) in later {
            let place = self.place(&item);
            places.retain(|it| *it != place);
            self.again(item, at);
        }
        places.into_iter().for_each(|it| self.settle(it));
    }

    /// Performs what is leased, as far as there is room.
    fn perform(&mut self, actions: &mut Vec<Action<M>>) {
        let max = self.limits.effects_max.unwrap_or_default();
        while self.effects.as_ref().is_some_and(|it| it.performing.len() < max) {
            let Some(leased) = self.effects.as_mut().and_then(|it| it.ahead.pop_front()) else { return };
            let place = self.place(&leased.item);
            if let Some(effects) = &mut self.effects {
                let before = effects.performing.insert(leased.fence, place);
                assert!(before.is_none(), "a fence belongs to one lease");
            }
            actions.push(Action::Perform(leased));
        }
    }

    pub(super) fn performed(&mut self, now: Timestamp, leased: Leased<M>, outcome: Performed) {
        let Some(effects) = &mut self.effects else { return };
        let place = effects.performing.remove(&leased.fence);
        assert!(place.is_some(), "an effect ended that was not in progress");
        let verdict = match outcome {
            Performed::Done => Verdict::Done,
            Performed::Failed(kind) => Verdict::Decide(self.decision(now, &leased.item, kind)),
            Performed::Interrupted => return self.again(leased.item, now.after(self.limits.full_delay)),
        };
        if let Some(effects) = &mut self.effects {
            effects.performed.push_back(Recorded { leased, verdict });
        }
    }

    pub(super) fn recorded(
        &mut self,
        now: Timestamp,
        id: LaneId,
        outcome: Outcome,
        mut unwritten: Vec<Recorded<M>>,
        findings: &Findings,
    ) {
        let mut places = self.lanes[id.0].end_places();
        if outcome == Outcome::Decided {
            self.learn(id, findings);
            self.lanes[id.0].went_well(&self.limits);
            for it in unwritten {
                let place = self.place(&it.leased.item);
                places.retain(|it| *it != place);
                // Somebody else has taken the lease over: what became of it, the next look shows.
                self.again(it.leased.item, now);
            }
            places.into_iter().for_each(|it| self.settle(it));
            return;
        }
        if findings.over_budget {
            self.budget.refuse();
        }
        if let (Outcome::Failed(kind), [one]) = (outcome, &mut unwritten[..])
            && one.verdict == Verdict::Done
        {
            one.verdict = Verdict::Decide(self.decision(now, &one.leased.item, kind));
        } else if !matches!(outcome, Outcome::Failed(_)) || unwritten.len() == 1 {
            self.lanes[id.0].interrupted(now, Vec::new(), &self.limits);
        }
        let Some(effects) = &mut self.effects else { return };
        let failed_together = matches!(outcome, Outcome::Failed(_)) && 1 < unwritten.len();
        let back = if failed_together { &mut effects.alone } else { &mut effects.performed };
        unwritten.into_iter().rev().for_each(|it| back.push_front(it));
    }

    /// What was to be leased and was not comes back.
    pub(super) fn unclaimed(
        &mut self,
        now: Timestamp,
        id: LaneId,
        outcome: Outcome,
        items: Vec<Item<M>>,
        findings: &Findings,
    ) {
        let places = self.lanes[id.0].end_places();
        if outcome == Outcome::Decided {
            places.into_iter().for_each(|it| self.settle(it));
            return;
        }
        let is_ours = items.iter().any(|it| self.goes_on(it));
        let items: Vec<Item<M>> = items.into_iter().filter_map(|it| self.keep(it)).collect();
        let refused =
            |it: &Item<M>| findings.full.iter().any(|(at, from)| *at == it.partition && *from <= it.record.offset);
        match outcome {
            _ if !is_ours => {}
            Outcome::Failed(_) if items.is_empty() => {}
            Outcome::Failed(_) => self.lanes[id.0].failed(items),
            Outcome::Full => {
                let (full, others): (Vec<_>, Vec<_>) = items.into_iter().partition(refused);
                full.into_iter().for_each(|it| self.again(it, now.after(self.limits.full_delay)));
                self.lanes[id.0].again(others);
            }
            Outcome::Interrupted | Outcome::Decided => self.lanes[id.0].interrupted(now, items, &self.limits),
        }
    }

    pub(super) fn decision(&mut self, now: Timestamp, item: &Item<M>, kind: FailureKind) -> Decision {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let failing_for = failing_for(now, item.record.first_failed_at);
        self.policy.decide(item.record.attempt, kind, failing_for, self.random)
    }

    /// An undecided item is leased again at that time, if it is still ours.
    fn again(&mut self, item: Item<M>, at: Timestamp) {
        if item.epoch == Epoch::HELD {
            // It is in the database, and ready.
            if let Some(effects) = &mut self.effects {
                effects.look_at = Some(effects.look_at.map_or(at, |it| it.min(at)));
            }
            return;
        }
        if let Some(item) = self.keep(item)
            && let Some(effects) = &mut self.effects
        {
            effects.later.push((at, item));
        }
    }

    /// The item, unless its partition is not ours any more or nothing new is begun: then whoever reads it next runs it.
    fn keep(&mut self, item: Item<M>) -> Option<Item<M>> {
        if self.is_halted(&item) {
            self.shelve(item);
            return None;
        }
        if self.goes_on(&item) {
            return Some(item);
        }
        self.let_go(&item);
        None
    }

    /// Whether work on the item still is to begin: not when its partition is not ours any more, and not at the end.
    fn goes_on(&self, item: &Item<M>) -> bool {
        let ours = |it: &Owned<M>| it.epoch == item.epoch && !it.leaving;
        self.stopping.is_none() && (item.epoch == Epoch::HELD || self.owned.get(&item.partition).is_some_and(ours))
    }

    /// Lets go of an undecided item: whoever reads it next runs it.
    pub(super) fn let_go(&mut self, item: &Item<M>) {
        self.leave(item);
        let key = self.place(item).key;
        if let Some(effects) = &mut self.effects {
            effects.free(key);
        }
    }

    /// It is no longer in hand here, if its partition still is ours.
    fn leave(&mut self, item: &Item<M>) {
        if let Some(owned) = self.owned.get_mut(&item.partition).filter(|it| it.epoch == item.epoch) {
            owned.let_go();
        }
    }

    fn settle(&mut self, place: Place) {
        if let Some(owned) = self.owned.get_mut(&place.partition).filter(|it| it.epoch == place.epoch) {
            owned.settled(place.offset);
        }
        if let Some(effects) = &mut self.effects {
            effects.free(place.key);
        }
    }

    /// Lets go of everything that is not in progress, of such partitions; leases that were taken ahead are given back.
    pub(super) fn drop_effects(&mut self, of: impl Fn(Partition) -> bool, actions: &mut Vec<Action<M>>) {
        let Some(effects) = &mut self.effects else { return };
        // First what waits behind others: what is freed below must not bring it back.
        let (mut waiting, mut dropped) = (Vec::new(), Vec::new());
        for queue in effects.busy.values_mut() {
            waiting.extend(take_out(queue, |it: &Item<M>| of(it.partition)));
        }
        dropped.extend(take_out(&mut effects.ready, |it: &Item<M>| of(it.partition)));
        dropped.extend(effects.later.extract_if(.., |it| of(it.1.partition)).map(|it| it.1));
        let stopping = self.stopping.is_some();
        let given_up = |it: &Leased<M>| stopping || (it.item.epoch != Epoch::HELD && of(it.item.partition));
        let back = Vec::from(take_out(&mut effects.ahead, given_up));
        waiting.iter().for_each(|it| self.leave(it));
        dropped.iter().chain(back.iter().map(|it| &it.item)).for_each(|it| self.let_go(it));
        give_back(back.iter().map(|it| it.fence).collect(), actions);
    }
}

/// Ends leases under which nothing was begun.
fn give_back<M>(fences: Vec<Fence>, actions: &mut Vec<Action<M>>) {
    if !fences.is_empty() {
        actions.push(Action::GiveBack(fences));
    }
}

/// Takes such entries out of a queue.
fn take_out<T>(queue: &mut VecDeque<T>, which: impl Fn(&T) -> bool) -> VecDeque<T> {
    let (taken, kept) = std::mem::take(queue).into_iter().partition(which);
    *queue = kept;
    taken
}

fn is_dead<M>(it: &Recorded<M>) -> bool {
    matches!(it.verdict, Verdict::Decide(Decision::Dead(_)))
}
