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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This moment and so much later.
    pub fn after(self, delay: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Distinguishes this ownership of a partition from any earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Of no ownership: messages that come from the database and not from a partition.
    pub const HELD: Epoch = Epoch(0);
}

/// Index of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub usize);

/// A key of a source topic, by a hash of its bytes: two keys that share it cost a needless look at the holds, no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// Index of the source topic.
    pub topic: u16,
    /// Hash of the record's key.
    pub hash: i64,
}

/// One record as the core sees it: its place, and an opaque message.
#[derive(Debug, Clone, Hash)]
pub struct Record<M> {
    /// Its own offset.
    pub offset: Offset,
    /// 1 on a source topic, the header's number on a retry topic.
    pub attempt: u32,
    /// The key that it shares with others; `None` for a record without one, which waits for nobody.
    pub key: Option<KeyId>,
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
#[derive(Debug, Clone, Hash)]
pub struct Item<M> {
    /// Where it was read; for a message that was held, where it was read first.
    pub partition: Partition,
    /// Ownership under which it was read; [`Epoch::HELD`] for a message that was held.
    pub epoch: Epoch,
    /// Its key may be held: look before handling it.
    pub maybe_held: bool,
    /// The record.
    pub record: Record<M>,
}

/// Number of a lease: a later owner has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub i64);

/// A message whose effect this process may perform, and nobody else as long as the lease lasts.
#[derive(Debug, Clone, Hash)]
pub struct Leased<M> {
    /// The message.
    pub item: Item<M>,
    /// Of its lease.
    pub fence: Fence,
}

/// What performing an effect came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Performed {
    /// The effect is there.
    Done,
    /// It failed, or its outcome is not known: both are an attempt.
    Failed(FailureKind),
    /// No verdict: the lease was lost, or infrastructure trouble. Not an attempt.
    Interrupted,
}

/// What is to be written about an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is processed.
    Done,
    /// It failed, and goes there.
    Decide(Decision),
}

/// An effect whose outcome is to be written, guarded by its fence.
#[derive(Debug, Clone, Hash)]
pub struct Recorded<M> {
    /// The message and its lease.
    pub leased: Leased<M>,
    /// Its outcome.
    pub verdict: Verdict,
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
        /// What it learned on the way.
        findings: Findings,
    },
    /// An executor committed its leases on messages; all others that it was given are decided.
    Claimed {
        /// Which executor.
        lane: LaneId,
        /// To be performed.
        leased: Vec<Leased<M>>,
        /// Leased by somebody else, or waiting for one that is: claim again then.
        later: Vec<(Item<M>, Timestamp)>,
        /// What it learned on the way.
        findings: Findings,
    },
    /// An effect has ended.
    Performed {
        /// The message and its lease.
        leased: Leased<M>,
        /// How it went.
        outcome: Performed,
    },
    /// An executor wrote outcomes of effects, or failed to.
    Recorded {
        /// Which executor.
        lane: LaneId,
        /// How it went.
        outcome: Outcome,
        /// What is not written: all of them, or those whose lease somebody else had taken over.
        unwritten: Vec<Recorded<M>>,
        /// What it learned on the way.
        findings: Findings,
    },
    /// The holds of the group, as [`Action::ReadHolds`] asked.
    HoldsRead {
        /// The number of the request.
        read: u64,
        /// Every key that is held.
        held: Vec<KeyId>,
        /// Whether the head of some key is decided, so that what waits behind it may run.
        ready: bool,
    },
    /// Somebody noticed a key whose head is decided and whom nobody has taken up.
    HoldsReady,
    /// Subscribed topics that an operator has paused, all of them: source topics with their retry topics.
    Paused(Vec<u16>),
    /// Quiet partitions that have records which the client has not fetched, as the broker says; all others have none.
    Backlog(Vec<Partition>),
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

/// What an executor learned from its transaction. Without a committed transaction only `full` and `over_budget` say
/// anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Findings {
    /// Keys that are held.
    pub held: Vec<KeyId>,
    /// Some key was thought to be held and is not.
    pub stale: bool,
    /// Whether what waits behind some decided head may run; `None` when nothing was learned about it.
    pub ready: Option<bool>,
    /// Records that could not be held for want of room, the first of each partition.
    pub full: Vec<(Partition, Offset)>,
    /// Messages that were processed.
    pub processed: usize,
    /// Messages that became dead letters.
    pub dead: usize,
    /// Messages that failed alone in a search: see [`Care::Parts`].
    pub found: usize,
    /// More messages would have become dead letters than the budget allows.
    pub over_budget: bool,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every message was decided, and the transaction that says so is committed.
    Decided,
    /// The transaction was rolled back because of the messages.
    Failed(FailureKind),
    /// No verdict: database or broker trouble, or shutdown. Not an attempt.
    Interrupted,
    /// Rolled back, because messages must be held and there is no room for them: see [`Findings::full`].
    Full,
}

/// What the runtime must do.
#[derive(Debug)]
pub enum Action<M> {
    /// Run the items in one transaction; where messages have effects outside the database, take leases on them.
    Run {
        /// On which executor; it is idle.
        lane: LaneId,
        /// In order.
        items: Vec<Item<M>>,
        /// With which care.
        care: Care,
        /// Most dead letters that may come of them.
        dead_max: usize,
    },
    /// Run messages that were held behind heads that are decided by now, in one transaction. The result is an
    /// [`Event::Finished`]; its items have [`Epoch::HELD`].
    RunHeld {
        /// On which executor; it is idle.
        lane: LaneId,
        /// At most this many.
        messages_max: usize,
        /// None of these topics, which an operator has paused.
        except: Vec<u16>,
        /// With which care.
        care: Care,
        /// Most dead letters that may come of them.
        dead_max: usize,
    },
    /// Read which keys are held.
    ReadHolds {
        /// Number of the request, for its answer.
        read: u64,
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
    /// Perform the effect of a message, beside everything else. The result is an [`Event::Performed`].
    Perform(Leased<M>),
    /// End leases under which nothing was begun, so that others need not wait until they run out. No result.
    GiveBack(Vec<Fence>),
    /// Write outcomes of effects in one transaction. The result is an [`Event::Recorded`].
    Record {
        /// On which executor; it is idle.
        lane: LaneId,
        /// In the order in which they ended.
        records: Vec<Recorded<M>>,
    },
    /// Commit these positions to Kafka; the answer is a later [`Event::Committed`], or nothing.
    Commit(Vec<(Partition, Offset)>),
    /// The client of the source or of the retry topics hands out nothing although there is something: make it anew. Its
    /// partitions are forgotten; commit these positions first.
    Reconnect {
        /// Whether it is the client of the retry topics.
        retry: bool,
        /// What is decided and not yet confirmed.
        positions: Vec<(Partition, Offset)>,
    },
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseReason {
    /// Its buffer is full: short, executors are at work.
    Full,
    /// Its first record is not due: as long as the tier's delay.
    NotDue,
    /// Its next record must be held, and there is no room: until the key flows again.
    HeldFull,
    /// An operator has paused its topic: until an operator resumes it.
    Operator,
}

/// How a batch is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Care {
    /// All at once: when one fails, all are rolled back.
    None,
    /// In parts of so many under savepoints: one that fails is undone and searched, and in the end a message that failed
    /// alone is decided while the others stay.
    Parts(usize),
}

/// Whether messages of one key wait for each other across retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A failed message holds its key: the later ones wait behind it.
    Key,
    /// Nobody waits.
    None,
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
    /// How long a partition may get nothing although there is something.
    pub stall_timeout: Duration,
    /// Order of the messages of one key.
    pub order: Order,
    /// Wait before a record that found no room among the held ones is tried again.
    pub full_delay: Duration,
    /// Time between two looks at the holds while some key is held.
    pub holds_interval: Duration,
    /// Effects that may be in progress at once; `None` where messages have no effects outside the database.
    pub effects_max: Option<usize>,
    /// Leases that may be held beyond those of effects in progress.
    pub leases_ahead_max: usize,
    /// Dead letters that may come ahead of successes; `None` for no bound.
    pub dead_letters_ahead_max: Option<u32>,
    /// Time that makes room for one more.
    pub dead_letter_refill: Duration,
}
