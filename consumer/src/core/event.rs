//! The closed set of events and actions.

use std::time::Duration;

use super::retry::{Decision, FailureKind};

/// Next to read, or a record's own.
pub type Offset = i64;

/// One partition of a subscribed topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Index of the topic in the runtime's list; source topics and retry topics have their own.
    pub topic: u16,
    /// Partition number.
    pub number: i32,
    /// Whether the topic is a retry topic of this group. Source and retry records never share a batch.
    pub retry: bool,
}

/// Milliseconds since the Unix epoch, on the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This moment and so much later.
    pub fn after(self, delay: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Distinguishes this ownership of a partition from any earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Index of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneId(pub usize);

/// One record as the core sees it: its place, and an opaque message.
#[derive(Debug, Clone)]
pub struct Record<M> {
    /// Its own offset.
    pub offset: Offset,
    /// 1 on a source topic, the header's number on a retry topic.
    pub attempt: u32,
    /// Moment from which it may run.
    pub due_at: Option<Timestamp>,
    /// First failure, for the age limit of contended messages.
    pub first_failed_at: Option<Timestamp>,
    /// When it was produced; for lag in seconds.
    pub produced_at: Option<Timestamp>,
    /// What the executor gets.
    pub message: M,
}

/// One record on its way through an executor.
#[derive(Debug, Clone)]
pub struct Item<M> {
    /// Where it was read.
    pub partition: Partition,
    /// Ownership under which it was read.
    pub epoch: Epoch,
    /// The record.
    pub record: Record<M>,
}

/// What happened.
#[derive(Debug)]
pub enum Event<M> {
    /// The group gave us partitions.
    Assigned(Vec<Partition>),
    /// The group wants partitions back and waits for [`Action::Release`]. Never empty, and of one client.
    Revoked(Vec<Partition>),
    /// The partitions belong to somebody else already: nothing may be committed for them.
    Lost(Vec<Partition>),
    /// Records of one partition, in offset order.
    Received(Partition, Vec<Record<M>>),
    /// Every record below this offset was received: what else is there are holes.
    Reached(Partition, Offset),
    /// An executor ended its batch. It gives the items back unless they are decided.
    Finished {
        /// Which executor.
        lane: LaneId,
        /// How it went.
        outcome: Outcome,
        /// The items, in the order they were given; empty when decided.
        items: Vec<Item<M>>,
    },
    /// The broker confirmed positions.
    Committed(Vec<(Partition, Offset)>),
    /// Time passed.
    Tick,
    /// Finish what is in hand, take nothing new; at the latest after this long.
    Shutdown {
        /// How long in-hand work may take.
        drain: Duration,
    },
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every message was decided, and the transaction that says so is committed.
    Decided,
    /// The transaction was rolled back because of the messages.
    Failed(FailureKind),
    /// No verdict: database or broker trouble, or shutdown. Not an attempt.
    Interrupted,
}

/// What the runtime must do.
#[derive(Debug)]
pub enum Action<M> {
    /// Run the items in one transaction.
    Run {
        /// On which executor; it is idle.
        lane: LaneId,
        /// In order.
        items: Vec<Item<M>>,
    },
    /// Write the decision on a message that failed alone, in one transaction.
    Decide {
        /// On the executor that saw it fail.
        lane: LaneId,
        /// The message.
        item: Item<M>,
        /// Where it goes.
        decision: Decision,
    },
    /// Commit these positions to Kafka; the answer is a later [`Event::Committed`], or nothing.
    Commit(Vec<(Partition, Offset)>),
    /// Stop fetching a partition.
    Pause(Partition, PauseReason),
    /// Fetch it again.
    Resume(Partition),
    /// Work on revoked partitions has ended: commit these positions, then let go of all of them.
    Release {
        /// As they were revoked, together.
        partitions: Vec<Partition>,
        /// Of those that moved.
        positions: Vec<(Partition, Offset)>,
    },
    /// Nothing is in hand any more: commit these positions and leave the group.
    Stop(Vec<(Partition, Offset)>),
}

/// Why a partition is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseReason {
    /// Its buffer is full: short, executors are at work.
    Full,
    /// Its first record is not due: as long as the tier's delay.
    NotDue,
}

/// Bounds of everything that could grow.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Executors.
    pub lanes: usize,
    /// Messages in one transaction, at most.
    pub batch_max: usize,
    /// Messages read and not yet in hand, over all partitions.
    pub buffered_max: usize,
    /// Time between offset commits.
    pub commit_interval: Duration,
    /// First wait after an interruption; doubles up to `interrupted_delay_max`.
    pub interrupted_delay: Duration,
    /// Longest wait after interruptions.
    pub interrupted_delay_max: Duration,
}
