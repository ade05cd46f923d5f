//! Messages that wait on the retry topics: from where the group has committed to the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _};
use rdkafka::{Message as _, Offset, TopicPartitionList};
use sekali_producer::{Error, ErrorKind, KafkaCauses, explain};
use sekali_schemas::{Header, Headers};

use super::{Place, Tally};
use crate::admin::kafka::blocking;
use crate::admin::{PartitionLag, lag};
use crate::config::Config;

/// Longest wait for the next record of a partition that has some.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const POLL_WAIT: Duration = Duration::from_millis(100);

pub(super) async fn read(config: &Config, mut tally: Tally) -> Result<Tally, Error> {
    let waiting: Vec<PartitionLag> = lag(config).await?.into_iter().filter(|it| it.delayed && 0 < it.lag).collect();
    if waiting.is_empty() {
        return Ok(tally);
    }
    let mut client = config.kafka.client_config()?;
    // Assigned by hand and never committed: it reads beside the group without joining it.
    client
        .set("group.id", &config.consumer.group)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed");
    let causes = KafkaCauses::new();
    let consumer: BaseConsumer<KafkaCauses> =
        client.create_with_context(causes.clone()).map_err(|error| explain(&error, &causes))?;
    blocking(move || {
        scan(&consumer, &waiting, &mut tally).map_err(|error| match error {
            Some(error) => explain(&error, &causes),
            None => Error::new(ErrorKind::Kafka, "read the retry topics to their end: the broker sends nothing more"),
        })?;
        Ok(tally)
    })
    .await
}

/// Reads every partition up to the end that was measured. None: nothing comes any more.
fn scan(
    consumer: &BaseConsumer<KafkaCauses>,
    waiting: &[PartitionLag],
    tally: &mut Tally,
) -> Result<(), Option<KafkaError>> {
    let mut assigned = TopicPartitionList::new();
    for it in waiting {
        let from = it.committed.map_or(Offset::Beginning, Offset::Offset);
        assigned.add_partition_offset(&it.topic, it.partition, from)?;
    }
    consumer.assign(&assigned)?;
    let mut open: Vec<&PartitionLag> = waiting.iter().collect();
    let mut heard_at = Instant::now();
    while !open.is_empty() {
        match consumer.poll(POLL_WAIT) {
            Some(Ok(message)) => {
                heard_at = Instant::now();
                let end = open.iter().find(|it| is_of(it, &message)).map(|it| it.end);
                if end.is_some_and(|it| message.offset() < it) {
                    let id = || format!("{}/{}/{}", message.topic(), message.partition(), message.offset());
                    tally.add(Place::Retry, id, &headers(&message), message.payload());
                }
                open.retain(|it| !(is_of(it, &message) && it.end <= message.offset() + 1));
            }
            // Which one is not said: it is asked for the positions.
            Some(Err(KafkaError::PartitionEOF(_))) => {
                heard_at = Instant::now();
                let positions = consumer.position()?;
                open.retain(|it| {
                    let position = positions.find_partition(&it.topic, it.partition).map(|it| it.offset());
                    !matches!(position, Some(Offset::Offset(at)) if it.end <= at)
                });
            }
            Some(Err(error)) => return Err(Some(error)),
            None if SILENCE_MAX < heard_at.elapsed() => return Err(None),
            None => {}
        }
    }
    Ok(())
}

fn is_of(lag: &PartitionLag, message: &BorrowedMessage<'_>) -> bool {
    lag.topic == message.topic() && lag.partition == message.partition()
}

/// Headers; none at all when a name is no text, which the client library cannot hand out.
pub(crate) fn headers(message: &BorrowedMessage<'_>) -> Headers {
    let Some(headers) = message.headers() else { return Headers::default() };
    let read = || headers.iter().map(|it| Header { name: it.key, value: it.value }).collect();
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_default()
}
