//! Many records in flight, in order, each with its acknowledgement.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext};
use sekali_producer::config::KafkaSection;
use sekali_producer::{KafkaCauses, OutboundRecord, PolledProducer, client_context, explain};

use super::fields::BadLine;
use crate::exit::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_STEP: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time from sending to the broker's answer, retries and all.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Records in flight. More only costs memory: this many are a second's worth and more.
const IN_FLIGHT_MAX: u32 = 100_000;
/// Callbacks are served after so many records.
const RECORDS_BETWEEN_POLLS: u64 = 512;
const POLL: Duration = Duration::from_millis(20);
/// What a record and its batch take beside key, payload and headers.
const FRAME_BYTES: usize = 128;
/// librdkafka's defaults.
const CLIENT_BYTES_MAX: usize = 1_000_000;
const BATCH_BYTES_MAX: usize = 1_000_000;
/// Of a topic whose settings this login may not see.
const TOPIC_BYTES_MAX: usize = 1 << 30;

pub(super) struct Client {
    /// With a thread that polls: input may pause for longer than a login lasts.
    producer: ThreadedProducer<Answers>,
    tally: Arc<Tally>,
    causes: KafkaCauses,
    topic: String,
    bytes_max: usize,
}

#[derive(Default)]
struct Tally {
    handed_over: AtomicU64,
    acknowledged: AtomicU64,
    acknowledged_bytes: AtomicU64,
    /// The first record that the broker refused: its line and why.
    refused: Mutex<Option<(u64, KafkaError)>>,
    has_refused: AtomicBool,
}

/// Counts the broker's answers.
struct Answers {
    tally: Arc<Tally>,
    causes: KafkaCauses,
}

impl ClientContext for Answers {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.causes.generate_oauth_token(config)
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client_context::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.causes.note(&error, reason);
    }
}

impl ProducerContext for Answers {
    /// The number of the line.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, line: usize) {
        match result {
            Ok(message) => {
                self.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
                self.tally.acknowledged_bytes.fetch_add(message.payload_len() as u64, Ordering::Relaxed);
            }
            Err((error, _)) => {
                let mut refused = self.tally.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.get_or_insert_with(|| (line as u64, error.clone()));
                self.tally.has_refused.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Client {
    /// Connects and looks at the topic, which is not created by accident.
    pub(super) async fn connect(section: &KafkaSection, topic: &str) -> Result<Client, Failure> {
        // The guarantee of `sekali_producer::Producer`, whose one future a record would not keep the order of a key
        // when the queue is full.
        let mut config = section.producer_config()?;
        config
            .set("message.timeout.ms", DELIVERY_TIMEOUT.as_millis().to_string())
            .set("queue.buffering.max.messages", IN_FLIGHT_MAX.to_string());
        if section.linger.is_none() {
            config.set("linger.ms", "20");
        }
        let causes = section.causes();
        let of_topic = topic_bytes_max(&config, &causes, topic).await?;
        let bytes_max = section.message_bytes_max.map_or(CLIENT_BYTES_MAX, bytes).min(of_topic);
        // The limit of a topic is that of a batch, which would otherwise grow beyond it.
        let of_batch = section.batch_bytes_max.map_or(BATCH_BYTES_MAX, bytes);
        config.set("batch.size", of_batch.min(bytes_max).saturating_sub(FRAME_BYTES).max(1).to_string());
        let tally = Arc::new(Tally::default());
        let answers = Answers { tally: tally.clone(), causes: causes.clone() };
        let producer = config.create_with_context(answers).map_err(|error| explain(&error, &causes))?;
        Ok(Client { producer, tally, causes, topic: topic.to_owned(), bytes_max })
    }

    /// Largest record that the topic takes.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Refuses what the broker would refuse after many others were sent.
    pub(super) fn check_size(&self, record: &OutboundRecord) -> Result<(), BadLine> {
        let bytes = record.key.as_ref().map_or(0, Bytes::len) + record.payload.as_ref().map_or(0, Bytes::len);
        let size = bytes + record.headers.size_bytes() + FRAME_BYTES;
        if size <= self.bytes_max { Ok(()) } else { Err(BadLine::TooLong { bytes_max: self.bytes_max }) }
    }

    /// Hands a record over, in order. Waits while too many are in flight.
    pub(super) fn send(&self, record: &OutboundRecord, line: u64) -> Result<(), Failure> {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
        for header in record.headers.iter() {
            headers = headers.insert(Header { key: header.name, value: header.value });
        }
        let mut outgoing: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.topic, line as usize).headers(headers);
        outgoing.key = record.key.as_deref();
        outgoing.payload = record.payload.as_deref();
        loop {
            match self.producer.send(outgoing) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    outgoing = back;
                    self.producer.poll(POLL);
                    self.refusal()?;
                }
                Err((error, _)) => return Err(self.refused_at(line, &error)),
            }
        }
        if self.tally.handed_over.fetch_add(1, Ordering::Relaxed).is_multiple_of(RECORDS_BETWEEN_POLLS) {
            self.producer.poll(Duration::ZERO);
        }
        self.refusal()
    }

    /// Waits for every answer.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + DELIVERY_TIMEOUT + REQUEST_TIMEOUT;
        while 0 < self.producer.in_flight_count() && Instant::now() < deadline {
            self.producer.poll(POLL);
        }
        self.refusal()?;
        let missing = self.tally.handed_over.load(Ordering::Relaxed).saturating_sub(self.acknowledged());
        if missing == 0 {
            return Ok(());
        }
        Err(Failure::error(format!(
            "{missing} records have no answer from kafka after {} s and may or may not be there; send them again: \
             their idempotency keys are the same",
            DELIVERY_TIMEOUT.as_secs()
        )))
    }

    /// Records that all in-sync replicas have.
    pub(super) fn acknowledged(&self) -> u64 {
        self.tally.acknowledged.load(Ordering::Relaxed)
    }

    /// Bytes of their payloads.
    pub(super) fn acknowledged_bytes(&self) -> u64 {
        self.tally.acknowledged_bytes.load(Ordering::Relaxed)
    }

    fn refusal(&self) -> Result<(), Failure> {
        if !self.tally.has_refused.load(Ordering::Relaxed) {
            return Ok(());
        }
        let refused = self.tally.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match refused {
            Some((line, error)) => Err(self.refused_at(line, &error)),
            None => Ok(()),
        }
    }

    fn refused_at(&self, line: u64, error: &KafkaError) -> Failure {
        let sent = self.acknowledged();
        let why = explain(error, &self.causes).chain();
        Failure::error(format!("line {line} was not sent: {why}; {sent} records were sent"))
    }
}

fn bytes(limit: NonZeroU32) -> usize {
    usize::try_from(limit.get()).unwrap_or(usize::MAX)
}

/// Largest batch that the topic takes. Waits until a broker answers.
async fn topic_bytes_max(config: &ClientConfig, causes: &KafkaCauses, topic: &str) -> Result<usize, Failure> {
    // Asked for metadata, because the admin client does not serve the error callback.
    let probe = PolledProducer::create(config, causes)?;
    let (name, shared) = (topic.to_owned(), causes.clone());
    tokio::task::spawn_blocking(move || find_topic(&probe, &shared, &name))
        .await
        .map_err(|error| Failure::error(format!("wait for kafka: {error}")))??;
    let admin: AdminClient<KafkaCauses> =
        config.create_with_context(causes.clone()).map_err(|error| explain(&error, causes))?;
    let admin = tokio::task::spawn_blocking({
        let causes = causes.clone();
        move || causes.admin_login(&admin).map(|()| admin)
    });
    let admin = admin.await.map_err(|error| Failure::error(format!("wait for kafka: {error}")))??;
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
    let resource = [ResourceSpecifier::Topic(topic)];
    let described = admin.describe_configs(&resource, &options).await.map_err(|error| explain(&error, causes))?;
    // Who may write a topic need not be allowed to look at its settings: then the broker is the one to refuse.
    let described = described.into_iter().find_map(Result::ok);
    let limit = described.and_then(|it| it.get("max.message.bytes")?.value.as_ref()?.parse().ok());
    Ok(limit.unwrap_or(TOPIC_BYTES_MAX))
}

fn find_topic(probe: &PolledProducer, causes: &KafkaCauses, topic: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        // All topics: asking for one could create it.
        match probe.client().fetch_metadata(None, CONNECT_STEP) {
            Ok(metadata) if metadata.topics().iter().any(|it| it.name() == topic && it.error().is_none()) => {
                return Ok(());
            }
            Ok(_) => {
                return Err(Failure::error(format!(
                    "topic {topic} does not exist: create it with `sekali topics apply`, or correct --topic"
                )));
            }
            Err(error) if deadline <= Instant::now() || causes.is_login_refused() => {
                return Err(explain(&error, causes).into());
            }
            // It may fail at once, without waiting for its timeout.
            Err(_) => std::thread::sleep(POLL),
        }
    }
}
