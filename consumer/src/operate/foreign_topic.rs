//! Reading a foreign dead-letter topic from its beginning to where it ends now.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message as _, Offset, TopicPartitionList};
use sekali_producer::{Error, ErrorKind, KafkaCauses, explain};
use sekali_schemas::Record;
use tokio::sync::mpsc;

use super::import::Imported;
use super::{DeadLetters, Exported, foreign};
use crate::admin::waiting::headers;
use crate::config::Config;

/// Letters of one transaction.
const BATCH: usize = 500;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the next record of a partition that has some.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const POLL_WAIT: Duration = Duration::from_millis(100);

impl DeadLetters {
    /// Takes in what another program put on a dead-letter topic, as open letters of a consumer: of Spring Kafka, Kafka
    /// Streams, Kafka Connect, and share groups. Reads the topic to where it ends now, joins no group and commits nothing;
    /// to import it again adds nothing.
    ///
    /// # Errors
    /// No reason, the topic cannot be read, the database refuses. What came in before that stays.
    pub async fn import_topic(
        &self,
        config: &Config,
        topic: &str,
        consumer: &str,
        who: &str,
        reason: &str,
    ) -> Result<Imported, Error> {
        let (found, mut read) = mpsc::channel::<Option<Exported>>(2 * BATCH);
        let mut client = config.kafka.client_config()?;
        // Assigned by hand and never committed; the client wants a name.
        client
            .set("group.id", "sekali-import")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed");
        let causes = KafkaCauses::new();
        let reader: BaseConsumer<KafkaCauses> =
            client.create_with_context(causes.clone()).map_err(|error| explain(&error, &causes))?;
        let (name, of) = (topic.to_owned(), consumer.to_owned());
        let reading = tokio::task::spawn_blocking(move || {
            let each = |record: &Record| found.blocking_send(foreign::letter(record, &of)).is_ok();
            scan(&reader, &name, each).map_err(|error| match error {
                Some(error) => explain(&error, &causes),
                None => Error::new(ErrorKind::Kafka, "read the topic to its end: the broker sends nothing more"),
            })
        });
        let mut imported = Imported::default();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let next = read.recv().await;
            let ended = next.is_none();
            match next.flatten() {
                Some(letter) => batch.push(letter),
                None if !ended => imported.unreadable += 1,
                None => {}
            }
            if batch.len() == BATCH || (ended && !batch.is_empty()) {
                let some = self.import(&batch, topic, who, reason).await?;
                imported.imported += some.imported;
                imported.known += some.known;
                batch.clear();
            }
            if ended {
                break;
            }
        }
        let read = reading.await;
        read.map_err(|error| Error::new(ErrorKind::System, "read the topic").because(error))??;
        Ok(imported)
    }
}

/// Reads every partition up to the end that it has now. None: nothing comes any more.
fn scan(
    reader: &BaseConsumer<KafkaCauses>,
    topic: &str,
    mut each: impl FnMut(&Record) -> bool,
) -> Result<(), Option<KafkaError>> {
    let metadata = reader.fetch_metadata(Some(topic), REQUEST_TIMEOUT)?;
    let partitions = metadata.topics().first().map_or(0, |it| it.partitions().len());
    if partitions == 0 {
        return Err(Some(KafkaError::MetadataFetch(rdkafka::error::RDKafkaErrorCode::UnknownTopicOrPartition)));
    }
    let mut assigned = TopicPartitionList::new();
    let mut open = Vec::new();
    for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
        let (start, end) = reader.fetch_watermarks(topic, partition, REQUEST_TIMEOUT)?;
        if start < end {
            assigned.add_partition_offset(topic, partition, Offset::Offset(start))?;
            open.push((partition, end));
        }
    }
    reader.assign(&assigned)?;
    let mut heard_at = Instant::now();
    while !open.is_empty() {
        match reader.poll(POLL_WAIT) {
            Some(Ok(message)) => {
                heard_at = Instant::now();
                let at = |it: &(i32, i64)| it.0 == message.partition();
                if open.iter().any(|it| at(it) && message.offset() < it.1) && !each(&record(&message)) {
                    return Ok(());
                }
                open.retain(|it| !(at(it) && it.1 <= message.offset() + 1));
            }
            // Which one is not said: it is asked for the positions.
            Some(Err(KafkaError::PartitionEOF(_))) => {
                heard_at = Instant::now();
                let positions = reader.position()?;
                open.retain(|(partition, end)| {
                    let position = positions.find_partition(topic, *partition).map(|it| it.offset());
                    !matches!(position, Some(Offset::Offset(at)) if *end <= at)
                });
            }
            Some(Err(error)) => return Err(Some(error)),
            None if SILENCE_MAX < heard_at.elapsed() => return Err(None),
            None => {}
        }
    }
    Ok(())
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    Record {
        topic: message.topic().into(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(|it| it.to_vec().into()),
        payload: message.payload().map(|it| it.to_vec().into()),
        headers: headers(message),
    }
}
