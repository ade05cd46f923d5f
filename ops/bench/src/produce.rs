//! Filling the topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use sekali_producer::KafkaCauses;
use sekali_producer::config::KafkaSection;

const FLUSH_TIMEOUT: Duration = Duration::from_secs(120);
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(2);

/// A record to produce. Its headers end with those that every record has.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Kafka key.
    pub key: String,
    /// Kafka value.
    pub payload: Bytes,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
}

/// A producer that counts what was refused.
pub struct Filler {
    producer: ThreadedProducer<Deliveries>,
    refused: Arc<AtomicU64>,
    topic: String,
}

struct Deliveries {
    causes: KafkaCauses,
    refused: Arc<AtomicU64>,
}

impl ClientContext for Deliveries {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = KafkaCauses::ENABLE_REFRESH_OAUTH_TOKEN;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.causes.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.causes.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.causes.generate_oauth_token(config)
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Filler {
    /// A producer for a topic.
    ///
    /// # Errors
    /// The settings are refused.
    pub fn new(kafka: &KafkaSection, topic: &str, linger: Duration) -> Result<Filler, anyhow::Error> {
        let mut config = kafka.producer_config()?;
        config.set("linger.ms", linger.as_millis().to_string());
        let refused = Arc::<AtomicU64>::default();
        let context = Deliveries { causes: kafka.causes(), refused: refused.clone() };
        let producer = config.create_with_context(context).context("cannot create the producer")?;
        Ok(Filler { producer, refused, topic: topic.to_owned() })
    }

    /// Queues a record; waits while the queue is full. Blocks.
    ///
    /// # Errors
    /// The client refuses it.
    pub fn send(&self, record: &Outgoing) -> Result<(), anyhow::Error> {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
        for (key, value) in &record.headers {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let mut queued = BaseRecord::to(&self.topic).key(&record.key).payload(&record.payload[..]).headers(headers);
        loop {
            match self.producer.send(queued) {
                Ok(()) => return Ok(()),
                Err((error, back)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => {
                    std::thread::sleep(QUEUE_FULL_PAUSE);
                    queued = back;
                }
                Err((error, _)) => return Err(error).with_context(|| format!("cannot produce to {}", self.topic)),
            }
        }
    }

    /// Waits until the broker has all. Blocks.
    ///
    /// # Errors
    /// It has not, or refused some.
    pub fn finish(self) -> Result<(), anyhow::Error> {
        self.producer.flush(FLUSH_TIMEOUT).context("the broker did not take all records")?;
        let refused = self.refused.load(Ordering::Relaxed);
        ensure!(refused == 0, "the broker refused {refused} records");
        Ok(())
    }
}

/// Sends all records, and returns when the broker has them.
///
/// # Errors
/// It does not take them.
pub async fn fill(
    kafka: &KafkaSection,
    topic: &str,
    records: impl Iterator<Item = Outgoing> + Send + 'static,
) -> Result<(), anyhow::Error> {
    let filler = Filler::new(kafka, topic, Duration::from_millis(5))?;
    let filled = tokio::task::spawn_blocking(move || {
        for record in records {
            filler.send(&record)?;
        }
        filler.finish()
    });
    filled.await?
}
