//! One executor as the core sees it: what it runs, what must run again, and how much it may take at once.

use std::collections::VecDeque;

use super::event::{Care, Item, KeyId, Offset, Partition, Timestamp};
use super::{Epoch, Limits};

#[derive(Clone, Hash)]
pub(super) struct Lane<M> {
    pub(super) stage: Stage,
    /// Items to run again before anything new, in order, each chunk in one transaction.
    redo: VecDeque<Chunk<M>>,
    /// Largest batch of new records: grows slowly, halves when a batch fails.
    batch_limit: usize,
    /// Largest batch after an interruption: one message probes, then the size doubles.
    probe_limit: usize,
    interruptions: u32,
    /// How often messages fail their transaction, while that is more than rare.
    rate: Option<Rate>,
    /// How what is with the executor runs.
    care: Care,
    /// The last held messages failed together.
    held_failing: bool,
    /// Largest batch of messages that were held: doubles, and halves when one fails.
    held_limit: usize,
    /// The number of signs of ready holds when the lane took up held messages; `None` while it does not.
    held_since: Option<u64>,
    /// What is with the executor to be leased, or whose outcome it writes.
    places: Vec<Place>,
    /// Most held messages that the executor may lease.
    leases_wanted: usize,
    /// What is with the executor: per partition the offset after its last item, and how many.
    in_hand: Vec<InHand>,
    /// Whether what is with the executor is part of a batch that failed before.
    suspect: bool,
    /// Partitions in turn, and whose turn it is.
    turn: usize,
    pub(super) last_was_retry: bool,
    pub(super) last_was_held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Idle,
    Busy,
    Waiting(Timestamp),
}

#[derive(Clone, Hash)]
struct Chunk<M> {
    items: VecDeque<Item<M>>,
    suspect: bool,
    /// Searching it under savepoints did not help: something else than a statement of theirs fails.
    tried: bool,
}

/// A batch holds at most so many parts: each savepoint is a subtransaction, of which PostgreSQL keeps 64 in fast memory,
/// and a search needs some of them.
const PARTS_MAX: usize = 16;

/// How many of a million messages fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Rate(usize);

const MILLION: usize = 1_000_000;

impl Rate {
    /// The first guess: a transaction failed with so many messages.
    const MAX_AT_FIRST: usize = MILLION / 20;
    /// What so many messages show counts as much as all before them.
    const MEMORY: usize = 2_000;

    /// A batch of so many failed together.
    fn seen(before: Option<Rate>, count: usize) -> Rate {
        let least = (MILLION / count.max(1)).min(Rate::MAX_AT_FIRST);
        Rate(before.map_or(least, |it| it.0.max(least)))
    }

    /// So many of a batch failed alone. `None` once failures are rare.
    fn updated(self, found: usize, count: usize, limits: &Limits) -> Option<Rate> {
        let weighted = self.0 * Rate::MEMORY + found * MILLION;
        let rate = Rate(weighted / (Rate::MEMORY + count.max(1)));
        (rate.part() < limits.batch_max.saturating_mul(4)).then_some(rate)
    }

    /// As many as share a savepoint: so that all of them do well about every second time, which tells most (Hwang 1972,
    /// "A method for detecting all defective members in a population by group testing").
    fn part(self) -> usize {
        (MILLION * 69 / 100 / self.0.max(1)).max(1)
    }
}

/// How so many messages run when that many fail.
fn care(rate: Option<Rate>, count: usize) -> Care {
    match rate {
        Some(rate) if 1 < count => Care::Parts(rate.part().min(count)),
        _ => Care::None,
    }
}

/// Where a message stands whose effect is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) partition: Partition,
    pub(super) epoch: Epoch,
    pub(super) offset: Offset,
    /// The key that it keeps busy.
    pub(super) key: Option<KeyId>,
}

#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct InHand {
    pub(super) partition: Partition,
    pub(super) epoch: Epoch,
    pub(super) next: Offset,
    pub(super) count: usize,
}

impl<M> Lane<M> {
    pub(super) fn new(limits: &Limits) -> Lane<M> {
        Lane {
            stage: Stage::Idle,
            redo: VecDeque::new(),
            batch_limit: limits.batch_max,
            probe_limit: limits.batch_max,
            interruptions: 0,
            rate: None,
            care: Care::None,
            held_failing: false,
            held_limit: limits.batch_max,
            held_since: None,
            places: Vec::new(),
            leases_wanted: 0,
            in_hand: Vec::new(),
            suspect: false,
            turn: 0,
            last_was_retry: false,
            last_was_held: false,
        }
    }

    /// Whether the executor may be given work now.
    pub(super) fn ready(&self, now: Timestamp) -> bool {
        match self.stage {
            Stage::Idle => true,
            Stage::Busy => false,
            Stage::Waiting(until) => until <= now,
        }
    }

    /// How many new records a batch may hold now.
    pub(super) fn new_records_max(&self) -> usize {
        let few = self.rate.map_or(usize::MAX, |it| it.part().saturating_mul(PARTS_MAX));
        few.min(self.batch_limit).min(self.probe_limit)
    }

    /// Whose turn it is among `count` partitions; moves on by one.
    pub(super) fn take_turn(&mut self, count: usize) -> usize {
        self.turn = (self.turn + 1) % count.max(1);
        self.turn
    }

    /// The next items that must run again, at most so many.
    pub(super) fn take_redo(&mut self, max: usize) -> Option<Vec<Item<M>>> {
        let chunk = self.redo.front_mut()?;
        let count = chunk.items.len().min(self.probe_limit).min(max);
        let items: Vec<Item<M>> = chunk.items.drain(..count).collect();
        self.suspect = chunk.suspect;
        self.care = if chunk.tried { Care::None } else { care(self.rate, count) };
        if chunk.items.is_empty() {
            self.redo.pop_front();
        }
        Some(items)
    }

    /// Notes what goes to the executor.
    /// Returns how they run. `new` says that they did not run before.
    pub(super) fn begin(&mut self, items: &[Item<M>], new: bool) -> Care {
        assert!(self.stage != Stage::Busy, "an executor has one batch at a time");
        assert!(!items.is_empty(), "a batch has messages");
        if new {
            self.suspect = false;
            self.care = care(self.rate, items.len());
        }
        self.stage = Stage::Busy;
        self.in_hand.clear();
        for item in items {
            let next = item.record.offset + 1;
            match self.in_hand.iter_mut().rev().find(|it| it.partition == item.partition && it.epoch == item.epoch) {
                Some(entry) => {
                    assert!(entry.next <= item.record.offset, "items of a partition run in offset order");
                    entry.next = next;
                    entry.count += 1;
                }
                None => self.in_hand.push(InHand { partition: item.partition, epoch: item.epoch, next, count: 1 }),
            }
        }
        self.care
    }

    /// How many messages may be leased at once.
    pub(super) fn leases_max(&self) -> usize {
        self.batch_limit.min(self.probe_limit)
    }

    /// Notes what goes to the executor to be leased, or to have its outcome written. `new` says that it did not run
    /// before.
    pub(super) fn begin_places(&mut self, places: Vec<Place>, new: bool) {
        assert!(self.stage != Stage::Busy, "an executor has one batch at a time");
        assert!(!places.is_empty(), "a batch has messages");
        if new {
            self.suspect = false;
        }
        // Leases are taken without the handler: there is nothing to search under savepoints.
        self.care = Care::None;
        self.stage = Stage::Busy;
        self.places = places;
    }

    /// What was with the executor.
    pub(super) fn end_places(&mut self) -> Vec<Place> {
        self.stage = Stage::Idle;
        self.leases_wanted = 0;
        std::mem::take(&mut self.places)
    }

    /// Notes that the executor may lease so many held messages.
    pub(super) fn want_leases(&mut self, max: usize) {
        self.leases_wanted = max;
    }

    /// Messages that are with the executor, or may be soon.
    pub(super) fn places(&self) -> usize {
        self.places.len() + self.leases_wanted
    }

    /// A transaction is committed: the limits recover.
    pub(super) fn went_well(&mut self, limits: &Limits) {
        self.interruptions = 0;
        self.probe_limit = self.probe_limit.saturating_mul(2).min(limits.batch_max);
        if !self.suspect {
            self.batch_limit = (self.batch_limit + 1 + self.batch_limit / 8).min(limits.batch_max);
        }
    }

    /// Notes that the executor takes up held messages, at a time with so many signs; how many at most, and how they
    /// run.
    pub(super) fn begin_held(&mut self, signs: u64) -> (usize, Care) {
        assert!(self.stage != Stage::Busy, "an executor has one batch at a time");
        self.stage = Stage::Busy;
        self.in_hand.clear();
        self.held_since = Some(signs);
        let max = self.held_limit.min(self.probe_limit);
        self.care = if self.held_failing { care(self.rate, max) } else { Care::None };
        (max, self.care)
    }

    /// The number of signs when the held messages in hand were taken up.
    pub(super) fn held_since(&self) -> Option<u64> {
        self.held_since
    }

    /// Held messages are done with; `failed` is how many of them failed together.
    pub(super) fn end_held(&mut self, failed: Option<usize>, limits: &Limits) {
        self.stage = Stage::Idle;
        self.held_since = None;
        match failed {
            // Careful in vain: what remains is to run them alone.
            Some(_) if self.care != Care::None => self.held_limit = 1,
            Some(count) => {
                self.rate = Some(Rate::seen(self.rate, count));
                self.held_failing = true;
            }
            None => {
                self.held_failing &= self.care == Care::None;
                self.interruptions = 0;
                self.held_limit = self.held_limit.saturating_mul(2).min(limits.batch_max);
                self.probe_limit = self.probe_limit.saturating_mul(2).min(limits.batch_max);
            }
        }
    }

    /// The batch is decided: what was in hand, and the limits recover. So many messages failed alone in a search.
    pub(super) fn decided(&mut self, found: usize, limits: &Limits) -> Vec<InHand> {
        self.stage = Stage::Idle;
        if self.care != Care::None {
            let count = self.in_hand.iter().map(|it| it.count).sum();
            self.rate = self.rate.and_then(|it| it.updated(found, count, limits));
        }
        self.went_well(limits);
        std::mem::take(&mut self.in_hand)
    }

    /// A batch failed: it runs again in parts under savepoints. When that does not help, something else fails than a
    /// statement of theirs, and halves run in transactions of their own, in the end each message alone.
    pub(super) fn failed(&mut self, items: Vec<Item<M>>) {
        self.stage = Stage::Idle;
        if !self.suspect && self.care == Care::None {
            self.rate = Some(Rate::seen(self.rate, items.len()));
            self.redo.push_front(Chunk { items: items.into(), suspect: true, tried: false });
            return;
        }
        if self.care != Care::None {
            self.batch_limit = (items.len() / 2).max(1);
        }
        let mut first = VecDeque::from(items);
        let second = first.split_off(first.len() / 2);
        for items in [second, first] {
            // Of a batch whose other partitions were taken away, one item may be left.
            if !items.is_empty() {
                self.redo.push_front(Chunk { items, suspect: true, tried: true });
            }
        }
    }

    /// No verdict: the same items run again after a wait, beginning with one of them.
    pub(super) fn interrupted(&mut self, now: Timestamp, items: Vec<Item<M>>, limits: &Limits) {
        let factor = 1_u32.checked_shl(self.interruptions.min(16)).unwrap_or(u32::MAX);
        let delay = limits.interrupted_delay.saturating_mul(factor).min(limits.interrupted_delay_max);
        self.interruptions = self.interruptions.saturating_add(1);
        self.probe_limit = 1;
        self.stage = Stage::Waiting(now.after(delay));
        self.held_since = None;
        if !items.is_empty() {
            self.redo.push_front(Chunk { items: items.into(), suspect: self.suspect, tried: false });
        }
    }

    /// Runs items again at once, before anything else; the batch that they were part of says nothing about them.
    pub(super) fn again(&mut self, items: Vec<Item<M>>) {
        self.stage = Stage::Idle;
        if !items.is_empty() {
            self.redo.push_front(Chunk { items: items.into(), suspect: self.suspect, tried: false });
        }
    }

    /// Takes out what waits to run again and belongs to such a partition, in order.
    pub(super) fn take_redo_of(&mut self, of: impl Fn(Partition) -> bool) -> Vec<Item<M>> {
        let mut taken = Vec::new();
        for chunk in &mut self.redo {
            let (wanted, others) = std::mem::take(&mut chunk.items).into_iter().partition(|it| of(it.partition));
            taken.extend::<VecDeque<_>>(wanted);
            chunk.items = others;
        }
        self.redo.retain(|it| !it.items.is_empty());
        taken
    }

    /// How long it has been failing to reach a verdict, in consecutive interruptions.
    pub(super) fn interruptions(&self) -> u32 {
        self.interruptions
    }

    pub(super) fn waiting_until(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Waiting(until) => Some(until),
            Stage::Idle | Stage::Busy => None,
        }
    }
}
