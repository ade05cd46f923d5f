//! Writing and reading records.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header as KafkaHeader, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::FutureRecord;
use rdkafka::{Offset, TopicPartitionList};
use sekali_schemas::{Headers, Record};

use super::{Kafka, TIMEOUT, blocking};

/// Where a record was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Partition.
    pub partition: i32,
    /// Offset there.
    pub offset: i64,
}

/// A record to write. What is not set is null, absent or the client's choice.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// Kafka key.
    pub key: Option<Bytes>,
    /// Kafka value.
    pub payload: Option<Bytes>,
    /// Header names and values, in order.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Partition, instead of the partitioner's choice.
    pub partition: Option<i32>,
    /// Timestamp in ms since the Unix epoch.
    pub timestamp_ms: Option<i64>,
}

impl Outgoing {
    /// A record with key and value.
    pub fn new(key: impl Into<Bytes>, payload: impl Into<Bytes>) -> Outgoing {
        Outgoing { key: Some(key.into()), payload: Some(payload.into()), ..Outgoing::default() }
    }

    /// Appends a header.
    pub fn header(mut self, name: &str, value: impl Into<Bytes>) -> Outgoing {
        self.headers.push((name.to_owned(), Some(value.into())));
        self
    }

    /// Appends header `idempotency-key`.
    pub fn id(self, id: &str) -> Outgoing {
        self.header("idempotency-key", id.to_owned())
    }

    /// Chooses the partition.
    pub fn partition(mut self, partition: i32) -> Outgoing {
        self.partition = Some(partition);
        self
    }

    /// Sets the timestamp, in ms since the Unix epoch.
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Outgoing {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }
}

impl Kafka {
    /// Writes records, in their order per partition, and returns where each was stored.
    ///
    /// # Panics
    /// One was not acknowledged.
    pub async fn produce(&self, topic: &str, records: impl IntoIterator<Item = Outgoing>) -> Vec<Place> {
        let mut places = Vec::new();
        let mut sent = Vec::new();
        for record in records {
            let mut future = FutureRecord::<[u8], [u8]>::to(topic).headers(kafka_headers(&record));
            future.key = record.key.as_deref();
            future.payload = record.payload.as_deref();
            future.partition = record.partition;
            future.timestamp = record.timestamp_ms;
            match self.clients.producer.send_result(future) {
                Ok(delivery) => sent.push(delivery),
                // The client's queue is full: let it empty, then go on with this one.
                Err((KafkaError::MessageProduction(_), future)) => {
                    places.extend(delivered(std::mem::take(&mut sent)).await);
                    let delivery = self.clients.producer.send_result(future);
                    sent.push(delivery.unwrap_or_else(|(error, _)| panic!("cannot produce to {topic}: {error}")));
                }
                Err((error, _)) => panic!("cannot produce to {topic}: {error}"),
            }
        }
        places.extend(delivered(sent).await);
        places
    }

    /// Every record that the topic has at this moment, by partition and offset. Sees committed records only.
    pub async fn read_all(&self, topic: &str) -> Vec<Record> {
        let partitions = self.partitions(topic).await;
        let consumer = self.reader(&[]);
        let topic: Arc<str> = topic.into();
        let mut records = blocking(move || read_to_the_ends(&consumer, &topic, partitions)).await;
        records.sort_by_key(|it| (it.partition, it.offset));
        records
    }
}

async fn delivered(sent: Vec<rdkafka::producer::DeliveryFuture>) -> impl Iterator<Item = Place> {
    join_all(sent).await.into_iter().map(|result| {
        let delivery = result.expect("the producer outlives its deliveries");
        let delivery = delivery.unwrap_or_else(|(error, _)| panic!("a record was not acknowledged: {error}"));
        Place { partition: delivery.partition, offset: delivery.offset }
    })
}

fn kafka_headers(record: &Outgoing) -> OwnedHeaders {
    let headers = OwnedHeaders::new_with_capacity(record.headers.len());
    record
        .headers
        .iter()
        .fold(headers, |headers, (name, value)| headers.insert(KafkaHeader { key: name, value: value.as_deref() }))
}

fn read_to_the_ends(consumer: &BaseConsumer, topic: &Arc<str>, partitions: i32) -> Vec<Record> {
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, Offset::Beginning).expect("the offset is a valid one");
    }
    consumer.assign(&list).expect("an assignment needs no broker");
    let begin = Instant::now();
    let mut records = Vec::new();
    let mut ended = BTreeSet::new();
    // Ends of partitions, not offsets, say when to stop: transaction markers take offsets, too.
    while (ended.len() as i32) < partitions {
        assert!(begin.elapsed() < TIMEOUT, "{topic}: {} of {partitions} partitions read in {TIMEOUT:?}", ended.len());
        match consumer.poll(TIMEOUT) {
            Some(Ok(message)) => records.push(owned(topic, &message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
            Some(Err(error)) => panic!("cannot read {topic}: {error}"),
            None => {}
        }
    }
    records
}

fn owned(topic: &Arc<str>, message: &BorrowedMessage<'_>) -> Record {
    let mut headers = Headers::builder();
    for header in message.headers().into_iter().flat_map(|it| it.iter()) {
        headers.push(header.key, header.value);
    }
    Record {
        topic: topic.clone(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(Bytes::copy_from_slice),
        payload: message.payload().map(Bytes::copy_from_slice),
        headers: headers.build(),
    }
}
