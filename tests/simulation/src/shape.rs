//! Sizes and times of worlds.

use std::time::Duration;

use sekali_consumer::core::retry::RetryPolicy;
use sekali_consumer::core::{Limits, Order};

/// What all that happens in a world takes for granted.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) processes: usize,
    /// Of the source topic and of each retry topic.
    pub(crate) partitions: usize,
    pub(crate) keys: usize,
    /// Keys to which most messages belong.
    pub(crate) keys_hot: usize,
    /// Three in so many messages fail.
    pub(crate) failing_in: usize,
    /// Steps between two faults that are no part of another step, on average.
    pub(crate) fault_in: usize,
    /// Of so many such faults that end a process, one does.
    pub(crate) lives: usize,
    pub(crate) retry_delays: &'static [Duration],
    pub(crate) jitter: f64,
    pub(crate) attempts_max: u32,
    /// Records that one fetch hands out, at most.
    pub(crate) fetch_max: usize,
    /// A member with nothing to do waits less than this.
    pub(crate) idle_max: Duration,
    pub(crate) drain: Duration,
    /// A commit takes the place of one that is still on its way. Where time stands still each step makes a commit.
    pub(crate) one_commit_on_its_way: bool,
    /// How long a lease lasts.
    pub(crate) lease_ttl: Duration,
    /// How soon somebody looks again who met a lease.
    pub(crate) lease_look: Duration,
    /// `order`, `effects_max`, `leases_ahead_max` and `dead_letters_ahead_max` are the world's own.
    pub(crate) limits: Limits,
}

/// Most executors of a process.
pub(crate) const LANES_MAX: usize = 2;

/// Worlds that follow from a seed.
pub(crate) static SEEDED: Shape = Shape {
    processes: 3,
    partitions: 3,
    keys: 6,
    keys_hot: 6,
    failing_in: 12,
    fault_in: 12,
    lives: 1,
    retry_delays: &[Duration::from_millis(50), Duration::from_millis(300)],
    jitter: 0.1,
    attempts_max: 4,
    fetch_max: 6,
    idle_max: Duration::from_millis(40),
    drain: Duration::from_millis(500),
    lease_ttl: Duration::from_millis(150),
    lease_look: Duration::from_millis(40),
    one_commit_on_its_way: false,
    limits: Limits {
        lanes: LANES_MAX,
        batch_max: 8,
        buffered_max: 8,
        commit_interval: Duration::from_millis(100),
        interrupted_delay: Duration::from_millis(10),
        interrupted_delay_max: Duration::from_millis(80),
        stall_timeout: Duration::from_millis(300),
        order: Order::Key,
        full_delay: Duration::from_millis(30),
        holds_interval: Duration::from_millis(400),
        effects_max: None,
        leases_ahead_max: 0,
        dead_letters_ahead_max: None,
        dead_letter_refill: Duration::from_millis(200),
    },
};

/// One world for a long time: times are those of production, in order of magnitude.
pub(crate) static LASTING: Shape = Shape {
    processes: 3,
    partitions: 3,
    keys: 2_000,
    keys_hot: 12,
    failing_in: 60,
    fault_in: 60,
    lives: 1_000,
    retry_delays: &[Duration::from_secs(2), Duration::from_secs(30)],
    jitter: 0.1,
    attempts_max: 4,
    fetch_max: 6,
    idle_max: Duration::from_millis(100),
    drain: Duration::from_secs(5),
    lease_ttl: Duration::from_secs(30),
    lease_look: Duration::from_secs(1),
    one_commit_on_its_way: false,
    limits: Limits {
        lanes: LANES_MAX,
        batch_max: 8,
        buffered_max: 24,
        commit_interval: Duration::from_secs(1),
        interrupted_delay: Duration::from_millis(100),
        interrupted_delay_max: Duration::from_secs(5),
        stall_timeout: Duration::from_secs(30),
        order: Order::Key,
        full_delay: Duration::from_secs(1),
        holds_interval: Duration::from_secs(10),
        effects_max: None,
        leases_ahead_max: 0,
        dead_letters_ahead_max: None,
        dead_letter_refill: Duration::from_secs(1),
    },
};

/// Small worlds: time stands still, what has a delay happens at once, and holds are read only for a reason.
pub(crate) static STILL: Shape = still(1, 2);
/// The same with two executors.
pub(crate) static STILL_WITH_TWO_LANES: Shape = still(2, 2);
/// The same with one partition for all keys.
pub(crate) static STILL_IN_ONE_PARTITION: Shape = still(1, 1);

const fn still(lanes: usize, partitions: usize) -> Shape {
    Shape {
        processes: 2,
        partitions,
        keys: 4,
        keys_hot: 4,
        failing_in: 12,
        fault_in: 1,
        lives: 1,
        retry_delays: &[Duration::ZERO],
        jitter: 0.0,
        attempts_max: 2,
        fetch_max: 3,
        idle_max: Duration::ZERO,
        drain: Duration::MAX,
        lease_ttl: Duration::MAX,
        lease_look: Duration::ZERO,
        one_commit_on_its_way: true,
        limits: Limits {
            lanes,
            batch_max: 2,
            buffered_max: 8,
            commit_interval: Duration::ZERO,
            interrupted_delay: Duration::ZERO,
            interrupted_delay_max: Duration::ZERO,
            stall_timeout: Duration::MAX,
            order: Order::Key,
            full_delay: Duration::ZERO,
            holds_interval: Duration::MAX,
            effects_max: None,
            leases_ahead_max: 0,
            dead_letters_ahead_max: None,
            dead_letter_refill: Duration::MAX,
        },
    }
}

impl Shape {
    pub(crate) fn policy(&self) -> RetryPolicy {
        RetryPolicy::new(self.retry_delays.to_vec(), self.attempts_max, self.jitter, Duration::from_secs(600))
    }
}
