use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;

/// Section `relay`: how the outbox is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelaySection {
    /// Whether every worker takes part, so that no process of its own is needed. Off: run a `Relay` yourself, else nothing
    /// that is enqueued (retries, dead letters) reaches Kafka. Default `true`.
    pub embedded: bool,
    /// How long a leader that vanished is waited for. Too short: a slow database costs the lease and pages are published
    /// twice; too long: nothing is published for that time after a crash. At least 1 s. Default `"10s"`.
    #[serde(with = "duration")]
    pub lease_ttl: Duration,
    /// Pause between two looks at the outbox while there is traffic, besides a rest in proportion to its work: at most
    /// 15 ms, or `poll_idle` inside a consumer, whose own work comes first. Too short: load on the database; too long: latency. Default `"5ms"`.
    #[serde(with = "duration")]
    pub poll_busy: Duration,
    /// Longest pause when nothing comes. Too short: load on an idle database; too long: the first record after a quiet
    /// time is late, unless the process that enqueued it wakes the relay. Default `"250ms"`.
    #[serde(with = "duration")]
    pub poll_idle: Duration,
    /// Records in flight between two advances of the cursor. Too low: one round trip to the database for few records; too
    /// high: memory, and as many repetitions after a crash. A page also ends at 16 MiB. Default 1000.
    pub page_messages_max: NonZeroUsize,
}

impl Default for RelaySection {
    fn default() -> RelaySection {
        RelaySection {
            embedded: true,
            lease_ttl: Duration::from_secs(10),
            poll_busy: Duration::from_millis(5),
            poll_idle: Duration::from_millis(250),
            page_messages_max: PAGE_MESSAGES_MAX,
        }
    }
}

const PAGE_MESSAGES_MAX: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
/// A page is one array of rows in memory and one run of the producer's queue, which holds 100,000.
const PAGE_MESSAGES_LIMIT: usize = 50_000;

impl RelaySection {
    /// Appends what cannot work, each with its key and the remedy.
    pub fn validate(&self, problems: &mut Vec<String>) {
        if self.lease_ttl < Duration::from_secs(1) {
            problems.push("relay.lease_ttl must be at least 1s: it is renewed three times in that time".to_owned());
        }
        if self.poll_busy.is_zero() {
            problems
                .push("relay.poll_busy must be more than 0: the relay would load the database all the time".to_owned());
        }
        if self.poll_idle < self.poll_busy {
            problems.push("relay.poll_idle must not be shorter than relay.poll_busy".to_owned());
        }
        if PAGE_MESSAGES_LIMIT < self.page_messages_max.get() {
            problems.push(format!("relay.page_messages_max must be at most {PAGE_MESSAGES_LIMIT}"));
        }
    }
}
