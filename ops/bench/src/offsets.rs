//! Offset commits, counted where they end up: in the broker's own topic. A client's counter says what the client was
//! told, which for asynchronous commits may be nothing at all.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use sekali_producer::KafkaCauses;
use sekali_producer::config::KafkaSection;

const TOPIC: &str = "__consumer_offsets";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Offset commits of one run.
#[derive(Debug, Clone, Copy)]
pub struct OffsetCommits {
    /// Requests that wrote offsets.
    pub count: usize,
    /// The same a second.
    pub per_second: f64,
}

/// Counts those of a group. Reads the whole topic: for a broker of one's own. Blocks.
///
/// # Errors
/// The topic cannot be read.
pub fn of_group(kafka: &KafkaSection, group: &str) -> Result<OffsetCommits, anyhow::Error> {
    let mut config = kafka.client_config()?;
    config.set("group.id", "sekali-bench").set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    let consumer: BaseConsumer<KafkaCauses> = config.create_with_context(kafka.causes())?;
    let metadata = consumer.fetch_metadata(Some(TOPIC), TIMEOUT).context("cannot look at the offsets topic")?;
    let partitions: Vec<i32> = metadata.topics().iter().flat_map(|it| it.partitions()).map(|it| it.id()).collect();
    let mut list = TopicPartitionList::new();
    for partition in &partitions {
        list.add_partition_offset(TOPIC, *partition, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    let (begin, mut ended, mut moments) = (Instant::now(), BTreeSet::new(), BTreeSet::new());
    while ended.len() < partitions.len() {
        ensure!(begin.elapsed() < TIMEOUT, "the offsets topic was not read in {TIMEOUT:?}");
        match consumer.poll(TIMEOUT) {
            // One request writes a record for each of its partitions, all at one moment.
            Some(Ok(record)) if record.key().is_some_and(|it| is_commit_of(it, group)) => {
                moments.extend(record.timestamp().to_millis());
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
            Some(Err(error)) => return Err(error).context("cannot read the offsets topic"),
            Some(Ok(_)) | None => {}
        }
    }
    let span_ms = moments.last().zip(moments.first()).map_or(0, |(last, first)| last - first);
    let per_second = match moments.len() {
        few @ (0 | 1) => few as f64,
        many => (many - 1) as f64 * 1000.0 / span_ms as f64,
    };
    Ok(OffsetCommits { count: moments.len(), per_second })
}

/// `OffsetCommitKey`: version 0 or 1, then the group as a text with a length of two bytes.
fn is_commit_of(key: &[u8], group: &str) -> bool {
    let Some((head, rest)) = key.split_at_checked(4) else { return false };
    let (version, length) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
    version <= 1 && usize::from(length) == group.len() && rest.starts_with(group.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_told_by_its_key() {
        let key = |version: u8, group: &str| {
            [&[0, version, 0, group.len() as u8], group.as_bytes(), b"\0\x01t\0\0\0\0"].concat()
        };
        assert!(is_commit_of(&key(1, "g"), "g"));
        assert!(!is_commit_of(&key(2, "g"), "g"), "version 2 is about members");
        assert!(!is_commit_of(&key(1, "gg"), "g"));
        assert!(!is_commit_of(b"\0", "g"));
    }
}
