//! Partitions that the client has stopped reading before it began.
//!
//! When the lookup of committed offsets fails with an error that it does not try again, because the coordinator has moved
//! for instance, librdkafka reports the error and leaves the partitions assigned and unread, for ever
//! (`rd_kafka_assignment_apply_offsets`: "do nothing for request-level errors"). The member looks healthy, and nothing
//! comes. Nothing was delivered from such a partition, so that taking it anew, from its committed offset, costs nothing.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use super::Context;

/// Time for the client to get over it by itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether an error may have left partitions unread.
#[derive(Default)]
pub(super) struct Unread {
    suspected_at: Option<Instant>,
}

impl Unread {
    /// The client reported an error.
    pub(super) fn suspect(&mut self) {
        self.suspected_at = Some(Instant::now());
    }

    /// A while after an error, takes anew whatever has not delivered anything yet.
    pub(super) fn look(&mut self, consumer: &BaseConsumer<Context>) {
        if self.suspected_at.is_none_or(|it| it.elapsed() < PATIENCE) {
            return;
        }
        self.suspected_at = None;
        if let Err(error) = take_anew(consumer) {
            tracing::debug!(%error, "partitions were not taken anew, trying again");
            self.suspect();
        }
    }
}

fn take_anew(consumer: &BaseConsumer<Context>) -> KafkaResult<()> {
    let mut unread = TopicPartitionList::new();
    for it in consumer.position()?.elements().iter().filter(|it| it.offset() == Offset::Invalid) {
        unread.add_partition_offset(it.topic(), it.partition(), Offset::Stored)?;
    }
    if unread.count() == 0 {
        return Ok(());
    }
    tracing::info!(partitions = unread.count(), "taking partitions anew of which nothing came yet, after an error");
    consumer.incremental_unassign(&unread)?;
    consumer.incremental_assign(&unread)
}
