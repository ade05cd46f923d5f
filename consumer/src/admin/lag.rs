//! How far the group is behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use sekali_producer::{Error, ErrorKind, KafkaCauses, explain};
use serde::Serialize;

use super::kafka::{Cluster, blocking};
use crate::config::Config;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
const COORDINATOR_POLL: Duration = Duration::from_millis(200);

/// One partition of a source or retry topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartitionLag {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Next offset that the group will read; `None` when it never committed one, and then it starts at the beginning.
    pub committed: Option<i64>,
    /// Offset that the next record will get.
    pub end: i64,
    /// Records in between that still exist.
    pub lag: i64,
    /// Whether it is a retry topic, whose records wait until they are due: such lag is no trouble.
    pub delayed: bool,
}

/// Lag of every partition that the group reads, sources first. Does not join the group.
///
/// # Errors
/// Kafka cannot be reached, or a source topic does not exist. A retry topic that does not exist has no lag.
pub async fn lag(config: &Config) -> Result<Vec<PartitionLag>, Error> {
    let cluster = Cluster::connect(&config.kafka).await?;
    let metadata = cluster.metadata().await?;
    let existing: BTreeMap<&str, usize> = metadata
        .topics()
        .iter()
        .filter(|it| it.error().is_none())
        .map(|it| (it.name(), it.partitions().len()))
        .collect();
    let all = config.group_topics().map_err(|error| Error::new(ErrorKind::Config, "name the topics").because(error))?;
    let mut wanted: Vec<(String, usize, bool)> = Vec::new();
    for topic in &all.topics {
        let Some(partitions) = existing.get(topic.source.as_str()) else {
            let doing = format!("find topic {}: it does not exist; create it with `sekali topics apply`", topic.source);
            return Err(Error::new(ErrorKind::Kafka, doing));
        };
        wanted.push((topic.source.clone(), *partitions, false));
    }
    for (_, name) in all.topics.iter().flat_map(|it| &it.retry) {
        wanted.extend(existing.get(name.as_str()).map(|it| (name.clone(), *it, true)));
    }
    let mut client = config.kafka.client_config()?;
    client.set("group.id", &config.consumer.group);
    let causes = config.kafka.causes();
    let consumer: BaseConsumer<KafkaCauses> =
        client.create_with_context(causes.clone()).map_err(|error| explain(&error, &causes))?;
    blocking(move || polled(&consumer, || measure(&consumer, &wanted)).map_err(|error| explain(&error, &causes))).await
}

/// Asks while somebody polls the consumer: only then it gets the token that it may need for its login.
fn polled<T>(consumer: &BaseConsumer<KafkaCauses>, ask: impl FnOnce() -> T) -> T {
    let answered = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !answered.load(Ordering::Relaxed) {
                // It reads nothing: there is no assignment.
                let _nothing = consumer.poll(POLL);
            }
        });
        let _ended = Ended(&answered);
        ask()
    })
}

/// Ends the polling, also when the question panics.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn measure(
    consumer: &BaseConsumer<KafkaCauses>,
    wanted: &[(String, usize, bool)],
) -> Result<Vec<PartitionLag>, rdkafka::error::KafkaError> {
    let mut asked = TopicPartitionList::new();
    let mut partitions = Vec::new();
    for (topic, count, delayed) in wanted {
        for partition in 0..i32::try_from(*count).unwrap_or(i32::MAX) {
            asked.add_partition(topic, partition);
            partitions.push((topic, partition, *delayed));
        }
    }
    let committed = committed(consumer, &asked)?;
    let mut measured = Vec::with_capacity(partitions.len());
    for (topic, partition, delayed) in partitions {
        let (start, end) = consumer.fetch_watermarks(topic, partition, REQUEST_TIMEOUT)?;
        let committed = committed.find_partition(topic, partition).and_then(|it| match it.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        });
        let next = committed.unwrap_or(start).max(start);
        let lag = end.saturating_sub(next).max(0);
        measured.push(PartitionLag { topic: topic.clone(), partition, committed, end, lag, delayed });
    }
    Ok(measured)
}

/// Offsets of the group, once its coordinator is there: a new or restarted broker needs a moment to find it.
fn committed(
    consumer: &BaseConsumer<KafkaCauses>,
    asked: &TopicPartitionList,
) -> Result<TopicPartitionList, rdkafka::error::KafkaError> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    loop {
        match consumer.committed_offsets(asked.clone(), REQUEST_TIMEOUT) {
            Err(error) if is_moving(&error) && Instant::now() < deadline => std::thread::sleep(COORDINATOR_POLL),
            answer => return answer,
        }
    }
}

fn is_moving(error: &rdkafka::error::KafkaError) -> bool {
    use RDKafkaErrorCode::{CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator};
    let code = error.rdkafka_error_code();
    code.is_some_and(|it| matches!(it, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator))
}
