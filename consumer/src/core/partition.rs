//! One owned partition: what is buffered, and how far it is decided.

use std::collections::{BTreeMap, VecDeque};

use super::event::{Epoch, Item, LaneId, Offset, Partition, PauseReason, Record, Timestamp};

#[derive(Clone, Hash)]
pub(super) struct Owned<M> {
    pub(super) epoch: Epoch,
    pub(super) lane: LaneId,
    pub(super) paused: Option<PauseReason>,
    /// Revoked, waiting for the work in hand.
    pub(super) leaving: bool,
    /// An operator has paused its topic: nothing of it is begun.
    pub(super) halted: bool,
    /// Items with the executor or waiting to run again.
    pub(super) in_hand: usize,
    /// When it last got something, or was assigned.
    pub(super) quiet_since: Timestamp,
    /// Since when it has got nothing although there is something and nothing keeps it from being fetched.
    starved_since: Option<Timestamp>,
    pub(super) holds: Holds,
    /// Its next record must be held and found no room; it is tried again then.
    pub(super) blocked_until: Option<Timestamp>,
    /// The same, until something of the partition is decided.
    pub(super) held_full: bool,
    buffer: VecDeque<Record<M>>,
    /// Undecided records that were taken for effects, which are decided in any order, and when they were produced.
    open: BTreeMap<Offset, Option<Timestamp>>,
    /// The offset after the last one taken for effects.
    taken_to: Option<Offset>,
    last_received: Option<Offset>,
    /// Next offset to read: everything below is decided.
    position: Option<Offset>,
    /// What a commit asked for last.
    requested: Option<Offset>,
    /// What the broker confirmed.
    committed: Option<Offset>,
}

/// Whether the holds were read since the partition's position is known, which its first records show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holds {
    /// Nothing was received yet.
    Unread,
    /// This read was asked for.
    Asked(u64),
    Read,
}

impl<M> Owned<M> {
    pub(super) fn new(now: Timestamp, epoch: Epoch, lane: LaneId) -> Owned<M> {
        Owned {
            epoch,
            lane,
            paused: None,
            leaving: false,
            halted: false,
            in_hand: 0,
            quiet_since: now,
            starved_since: None,
            holds: Holds::Unread,
            blocked_until: None,
            held_full: false,
            buffer: VecDeque::new(),
            open: BTreeMap::new(),
            taken_to: None,
            last_received: None,
            position: None,
            requested: None,
            committed: None,
        }
    }

    /// Buffers what is new. A client that pauses and resumes may hand out a record a second time.
    pub(super) fn receive(&mut self, now: Timestamp, records: Vec<Record<M>>) {
        self.quiet_since = now;
        self.starved_since = None;
        for record in records {
            if self.last_received.is_some_and(|last| record.offset <= last) {
                continue;
            }
            self.last_received = Some(record.offset);
            self.buffer.push_back(record);
        }
    }

    /// Nothing is here, and nothing keeps it from being fetched.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.in_hand == 0 && self.paused.is_none() && !self.leaving
    }

    /// Takes in whether there is something to fetch.
    pub(super) fn has_backlog(&mut self, now: Timestamp, backlog: bool) {
        let starves = backlog && self.is_empty();
        self.starved_since = if starves { self.starved_since.or(Some(now)) } else { None };
    }

    /// Since when its client fails to hand out anything. One that is revoked goes anyway.
    pub(super) fn starving(&self) -> Option<Timestamp> {
        self.starved_since.filter(|_| !self.leaving)
    }

    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn drop_buffer(&mut self) {
        self.buffer = VecDeque::new();
    }

    /// Takes back records that were in hand. Those that were taken for their effects stay open, so that the position does
    /// not pass them; what stood between them may be decided.
    pub(super) fn put_back(&mut self, records: Vec<Record<M>>) {
        assert!(records.len() <= self.in_hand, "put back what was not in hand");
        self.in_hand -= records.len();
        for record in records.into_iter().rev() {
            self.buffer.push_front(record);
        }
        // Usually it is: a batch that came before everything buffered.
        if !self.buffer.iter().is_sorted_by_key(|it| it.offset) {
            self.buffer.make_contiguous().sort_by_key(|it| it.offset);
        }
    }

    /// Moment from which the first buffered record may run; `None` when nothing is buffered.
    pub(super) fn ready_at(&self) -> Option<Timestamp> {
        self.due_at().map(|it| it.max(self.blocked_until.unwrap_or_default()))
    }

    /// Whether its first buffered record may run now. `unordered` says that nobody waits for anybody.
    pub(super) fn may_run(&self, now: Timestamp, partition: Partition, unordered: bool) -> bool {
        let holds_known = unordered || partition.retry || self.holds == Holds::Read;
        holds_known && !self.leaving && !self.halted && self.ready_at().is_some_and(|it| it <= now)
    }

    /// When the first buffered record is due; `None` when nothing is buffered.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        self.buffer.front().map(|it| it.due_at.unwrap_or_default())
    }

    /// When the oldest undecided record that is known here was produced.
    pub(super) fn oldest_produced_at(&self) -> Option<Timestamp> {
        match self.open.first_key_value() {
            Some((_, produced_at)) => *produced_at,
            None => self.buffer.front().and_then(|it| it.produced_at),
        }
    }

    /// Takes the next record for its effect, if it is due.
    pub(super) fn take_open(&mut self, now: Timestamp, partition: Partition) -> Option<Item<M>> {
        if self.ready_at().is_none_or(|it| now < it) {
            return None;
        }
        let record = self.buffer.pop_front()?;
        self.open.insert(record.offset, record.produced_at);
        // One that was put back is taken a second time.
        self.taken_to = self.taken_to.max(Some(record.offset + 1));
        self.in_hand += 1;
        Some(Item { partition, epoch: self.epoch, maybe_held: false, record })
    }

    /// Notes that a record is decided which was taken for its effect: the position is the lowest undecided offset.
    pub(super) fn settled(&mut self, offset: Offset) {
        assert!(0 < self.in_hand && self.open.remove(&offset).is_some(), "decided what was not in hand");
        self.in_hand -= 1;
        let lowest = self.open.first_key_value().map(|it| *it.0).or(self.taken_to);
        self.position = self.position.max(lowest);
    }

    /// Lets go of a record that was taken for its effect and is not decided: whoever reads it next runs it.
    pub(super) fn let_go(&mut self) {
        assert!(0 < self.in_hand, "let go of what was not in hand");
        self.in_hand -= 1;
    }

    /// Moves due records from the front into `items`, which holds at most `max`.
    pub(super) fn take(&mut self, now: Timestamp, partition: Partition, max: usize, items: &mut Vec<Item<M>>) {
        self.blocked_until = self.blocked_until.filter(|it| now < *it);
        while items.len() < max && self.ready_at().is_some_and(|it| it <= now) {
            let Some(record) = self.buffer.pop_front() else { return };
            items.push(Item { partition, epoch: self.epoch, maybe_held: false, record });
            self.in_hand += 1;
        }
    }

    /// Notes that `count` items up to `next` are decided. Items of a partition are decided in offset order.
    pub(super) fn decided(&mut self, next: Offset, count: usize) {
        assert!(count <= self.in_hand, "decided what was not in hand");
        assert!(self.position.is_none_or(|it| it < next), "the position must advance");
        self.in_hand -= count;
        self.position = Some(next);
        self.held_full = self.blocked_until.is_some();
    }

    /// Passes over holes, when everything before them is decided. A client that passes over something is alive.
    pub(super) fn reached(&mut self, now: Timestamp, offset: Offset) {
        let all_decided = self.buffer.is_empty() && self.in_hand == 0 && self.open.is_empty();
        if all_decided && self.paused.is_none() && self.position < Some(offset) {
            self.position = Some(offset);
            self.quiet_since = now;
            self.starved_since = None;
        }
    }

    pub(super) fn position(&self) -> Option<Offset> {
        self.position
    }

    pub(super) fn confirmed(&mut self, offset: Offset) {
        // A late answer to an earlier commit must not hide that a newer one is still due.
        self.committed = self.committed.max(Some(offset));
    }

    /// The position, when no commit has asked for it yet.
    pub(super) fn unrequested(&self) -> Option<Offset> {
        self.uncommitted().filter(|it| self.requested < Some(*it))
    }

    /// Notes that a commit asks for the position.
    pub(super) fn request(&mut self) {
        self.requested = self.position;
    }

    /// The position, when the broker has not confirmed it yet.
    pub(super) fn uncommitted(&self) -> Option<Offset> {
        if self.committed < self.position { self.position } else { None }
    }
}
