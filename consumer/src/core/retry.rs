//! Where a failed message goes next.

use std::time::Duration;

use super::Timestamp;

/// How a message failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Worth another attempt.
    Transient,
    /// Never worth one.
    Permanent,
    /// Bytes that cannot be read.
    Invalid,
    /// A lock or lease is taken: later, and not an attempt.
    Contended,
}

/// The decision on a failed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Through a retry topic.
    Retry {
        /// Attempt that the record will ask for.
        attempt: u32,
        /// Index into the delays.
        tier: usize,
        /// Delay with jitter.
        delay: Duration,
    },
    /// Into the dead-letter store.
    Dead(Reason),
}

/// Why a message is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No attempts left.
    Exhausted,
    /// The handler, the schema or PostgreSQL said never.
    Permanent,
    /// Its bytes cannot be read, or it has no idempotency key.
    Invalid,
    /// A retry record whose earlier attempt nobody decided.
    Orphan,
    /// Its idempotency key was decided with another payload.
    KeyReuse,
    /// It waited for a lock longer than allowed.
    Contended,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 6] =
        [Reason::Exhausted, Reason::Permanent, Reason::Invalid, Reason::Orphan, Reason::KeyReuse, Reason::Contended];

    /// Word for tables, labels and headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Exhausted => "exhausted",
            Reason::Permanent => "permanent",
            Reason::Invalid => "invalid",
            Reason::Orphan => "orphan",
            Reason::KeyReuse => "key_reuse",
            Reason::Contended => "contended",
        }
    }
}

/// Delays and limits of retries.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    delays: Vec<Duration>,
    attempts_max: u32,
    jitter: f64,
    contended_age_max: Duration,
}

impl RetryPolicy {
    /// Entry `n` of `delays` is the delay before attempt `n + 2`; the last one serves all later attempts. Without any
    /// delay a failed message is dead at once. `jitter` is the largest relative change of a delay, 0 to 1.
    pub fn new(delays: Vec<Duration>, attempts_max: u32, jitter: f64, contended_age_max: Duration) -> RetryPolicy {
        assert!(0 < attempts_max, "a message has at least one attempt");
        assert!((0.0..=1.0).contains(&jitter), "jitter is a share of the delay");
        RetryPolicy { delays, attempts_max, jitter, contended_age_max }
    }

    /// Decides on a message that failed its `attempt` (1 = first delivery), `failing_for` after its first failure.
    /// `random` may be any number; it only moves the delay within the jitter.
    pub fn decide(&self, attempt: u32, kind: FailureKind, failing_for: Duration, random: u64) -> Decision {
        assert!(0 < attempt, "attempts count from one");
        match kind {
            FailureKind::Permanent => Decision::Dead(Reason::Permanent),
            FailureKind::Invalid => Decision::Dead(Reason::Invalid),
            FailureKind::Contended if self.delays.is_empty() || self.contended_age_max <= failing_for => {
                Decision::Dead(Reason::Contended)
            }
            FailureKind::Contended => Decision::Retry { attempt, tier: 0, delay: self.delay(0, random) },
            FailureKind::Transient if self.delays.is_empty() || self.attempts_max <= attempt => {
                Decision::Dead(Reason::Exhausted)
            }
            FailureKind::Transient => {
                let tier = (attempt as usize - 1).min(self.delays.len() - 1);
                Decision::Retry { attempt: attempt + 1, tier, delay: self.delay(tier, random) }
            }
        }
    }

    /// The delay of each tier, without jitter.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    fn delay(&self, tier: usize, random: u64) -> Duration {
        let delay = self.delays[tier];
        // The top 53 bits as a number from -1 to 1.
        let share = (random >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
        let factor = (1.0 + self.jitter * share).max(0.0);
        Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(delay)
    }
}

/// How long a message has been failing.
pub fn failing_for(now: Timestamp, first_failed_at: Option<Timestamp>) -> Duration {
    Duration::from_millis(first_failed_at.map_or(0, |it| now.0.saturating_sub(it.0)))
}

#[cfg(test)]
mod tests;
