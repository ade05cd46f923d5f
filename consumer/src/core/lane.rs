//! One executor as the core sees it: what it runs, what must run again, and how much it may take at once.

use std::collections::VecDeque;

use super::event::{Care, Item, Offset, Partition, Timestamp};
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
    /// So many fail that new records run in small parts from the beginning.
    failing: bool,
    /// Batches in a row in which none failed, while `failing`.
    clean: u32,
    /// How what is with the executor runs.
    care: Care,
    /// The last held messages failed together.
    held_failing: bool,
    /// Largest batch of messages that were held: doubles, and halves when one fails.
    held_limit: usize,
    /// The number of signs of ready holds when the lane took up held messages; `None` while it does not.
    held_since: Option<u64>,
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

/// Most messages that are searched under savepoints in one transaction. Each savepoint is a subtransaction, of which
/// PostgreSQL keeps 64 in fast memory.
const CAREFUL_MAX: usize = 64;
/// When batches must be this small to succeed, so many messages fail that it is cheaper to search from the beginning.
const FAILING_BELOW: usize = CAREFUL_MAX / 4;
/// Batches in a row without a failure after which messages run together again.
const CLEAN_ENOUGH: u32 = 4;

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
            failing: false,
            clean: 0,
            care: Care::None,
            held_failing: false,
            held_limit: limits.batch_max,
            held_since: None,
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
        let limit = if self.failing { CAREFUL_MAX } else { self.batch_limit };
        limit.min(self.probe_limit)
    }

    /// Whose turn it is among `count` partitions; moves on by one.
    pub(super) fn take_turn(&mut self, count: usize) -> usize {
        self.turn = (self.turn + 1) % count.max(1);
        self.turn
    }

    /// The next items that must run again.
    pub(super) fn take_redo(&mut self) -> Option<Vec<Item<M>>> {
        let chunk = self.redo.front_mut()?;
        let count = chunk.items.len().min(self.probe_limit);
        let items: Vec<Item<M>> = chunk.items.drain(..count).collect();
        self.suspect = chunk.suspect;
        let few = 1 < count && count <= CAREFUL_MAX;
        self.care = match () {
            () if !few || chunk.tried => Care::None,
            () if chunk.suspect => Care::Search,
            () if self.failing => Care::Always,
            () => Care::None,
        };
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
            self.care = if self.failing && 1 < items.len() { Care::Always } else { Care::None };
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

    /// Notes that the executor takes up held messages, at a time with so many signs; how many at most, and how they
    /// run.
    pub(super) fn begin_held(&mut self, signs: u64) -> (usize, Care) {
        assert!(self.stage != Stage::Busy, "an executor has one batch at a time");
        self.stage = Stage::Busy;
        self.in_hand.clear();
        self.held_since = Some(signs);
        let max = self.held_limit.min(self.probe_limit);
        self.care = if self.held_failing && 1 < max && max <= CAREFUL_MAX { Care::Search } else { Care::None };
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
                self.held_limit = (count / 2).max(1);
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

    /// The batch is decided: what was in hand, and the limits recover.
    pub(super) fn decided(&mut self, failed: usize, limits: &Limits) -> Vec<InHand> {
        self.stage = Stage::Idle;
        if self.care == Care::Always && !self.suspect {
            self.clean = if failed == 0 { self.clean + 1 } else { 0 };
            if CLEAN_ENOUGH <= self.clean {
                self.failing = false;
                self.batch_limit = CAREFUL_MAX.min(limits.batch_max);
            }
        }
        self.interruptions = 0;
        self.probe_limit = self.probe_limit.saturating_mul(2).min(limits.batch_max);
        if !self.suspect {
            self.batch_limit = (self.batch_limit + 1 + self.batch_limit / 8).min(limits.batch_max);
        }
        std::mem::take(&mut self.in_hand)
    }

    /// A batch failed: it runs again in halves, in the end alone. Only the first failure of a search says anything
    /// about the rate of failures.
    pub(super) fn failed(&mut self, items: Vec<Item<M>>) {
        self.stage = Stage::Idle;
        if !self.suspect && self.care == Care::None {
            self.batch_limit = (items.len() / 2).max(1);
            self.failing = self.batch_limit <= FAILING_BELOW;
            self.clean = 0;
        }
        let tried = self.care != Care::None;
        let mut first = VecDeque::from(items);
        let second = first.split_off(first.len() / 2);
        for items in [second, first] {
            // Of a batch whose other partitions were taken away, one item may be left.
            if !items.is_empty() {
                self.redo.push_front(Chunk { items, suspect: true, tried });
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

    /// Takes back what waits to run again, where `keep` says no.
    pub(super) fn retain_redo(&mut self, mut keep: impl FnMut(&Item<M>) -> bool) {
        for chunk in &mut self.redo {
            chunk.items.retain(&mut keep);
        }
        self.redo.retain(|it| !it.items.is_empty());
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
