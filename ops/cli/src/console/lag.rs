//! How far the group is behind, asked in the background: no page waits for Kafka.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sekali_consumer::{Config, admin};
use serde::Serialize;

use super::Shared;

const EVERY: Duration = Duration::from_secs(15);

/// What was known last.
#[derive(Default)]
pub(super) struct Lag(Mutex<Known>);

/// Records that are not read yet.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Known {
    /// Nobody has answered yet.
    #[default]
    Asking,
    /// The configuration names no broker, no group or no topic.
    NotConfigured,
    /// Kafka answered.
    Measured {
        /// Records of source topics that the group has not read.
        behind: i64,
        /// Records of retry topics, which wait until they are due.
        delayed: i64,
        /// When.
        at: Timestamp,
    },
    /// Kafka did not answer.
    Failed {
        /// Why.
        error: String,
        /// When.
        at: Timestamp,
    },
}

impl Lag {
    pub(super) fn known(&self) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, known: Known) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// Asks again and again, for as long as the console runs.
pub(super) async fn watch(console: Shared, config: Config) {
    if config.kafka.brokers.is_empty() || config.consumer.group.is_empty() || config.consumer.topics.is_empty() {
        console.lag.set(Known::NotConfigured);
        return;
    }
    loop {
        let at = Timestamp::now();
        console.lag.set(match admin::lag(&config).await {
            Ok(partitions) => {
                let sum = |delayed| partitions.iter().filter(|it| it.delayed == delayed).map(|it| it.lag).sum();
                Known::Measured { behind: sum(false), delayed: sum(true), at }
            }
            Err(error) => Known::Failed { error: error.chain(), at },
        });
        tokio::time::sleep(EVERY).await;
    }
}
