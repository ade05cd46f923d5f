//! Records of the group's topics between two offsets, those that wait on its retry topics first of all. Joins no group.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _};
use rdkafka::{Message as _, Offset, TopicPartitionList};
use sekali_producer::{Error, ErrorKind, KafkaCauses, explain};
use sekali_schemas::{Header, Headers};

use super::kafka::blocking;
use super::{PartitionLag, lag};
use crate::config::Config;

/// Longest wait for the next record of a partition that has some.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const POLL_WAIT: Duration = Duration::from_millis(100);

/// One of them.
pub(crate) struct Waiting<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: Headers,
}

/// Shows what waits on the retry topics to `visit`, which keeps what it wants in `kept`: from where the group has committed
/// to the end.
pub(crate) async fn read<T: Send + 'static>(
    config: &Config,
    kept: T,
    visit: impl Fn(&mut T, Waiting<'_>) + Send + 'static,
) -> Result<T, Error> {
    let waiting = lag(config).await?.into_iter().filter(|it| it.delayed && 0 < it.lag).collect();
    read_ranges(config, waiting, kept, visit).await
}

/// The same for records of other partitions, from `committed` to before `end`.
pub(super) async fn read_ranges<T: Send + 'static>(
    config: &Config,
    waiting: Vec<PartitionLag>,
    mut kept: T,
    visit: impl Fn(&mut T, Waiting<'_>) + Send + 'static,
) -> Result<T, Error> {
    if waiting.is_empty() {
        return Ok(kept);
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
        scan(&consumer, &waiting, |it| visit(&mut kept, it)).map_err(|error| match error {
            Some(error) => explain(&error, &causes),
            None => Error::new(ErrorKind::Kafka, "read the topics to their end: the broker sends nothing more"),
        })?;
        Ok(kept)
    })
    .await
}

/// Reads every partition up to the end that was measured. None: nothing comes any more.
fn scan(
    consumer: &BaseConsumer<KafkaCauses>,
    waiting: &[PartitionLag],
    mut visit: impl FnMut(Waiting<'_>),
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
                    visit(Waiting {
                        topic: message.topic(),
                        partition: message.partition(),
                        offset: message.offset(),
                        timestamp_ms: message.timestamp().to_millis(),
                        key: message.key(),
                        payload: message.payload(),
                        headers: headers(&message),
                    });
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
