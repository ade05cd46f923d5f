//! A Kafka producer with a thread that serves its answers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::client::{Client, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig};
use rdkafka::{ClientConfig, ClientContext};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::{Delivery, Error, ErrorKind, KafkaCauses, OutboundRecord, explain};

/// Longest wait of the thread for an event. Events end it at once. The `FutureProducer` of rdkafka 0.39 waits a tenth of a
/// second and spins for the last millisecond of each wait: 1 % of a core for every idle client.
const POLL: Duration = Duration::from_secs(1);
/// Pause while the producer's queue is full.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(5);

/// A producer whose answers, login and errors are served by a thread of its own. Clones share it; the thread ends within
/// a second after the last clone is gone. What has no answer by then is thrown away.
#[derive(Clone)]
pub struct PolledProducer(Arc<Polled>);

struct Polled {
    base: Arc<BaseProducer<Answering>>,
    is_over: Arc<AtomicBool>,
}

/// Where the answer to a record goes.
pub(crate) type Answer = oneshot::Sender<Result<Delivery, KafkaError>>;

impl PolledProducer {
    /// # Errors
    /// A setting that the client refuses, or no thread can be had.
    pub fn create(config: &ClientConfig, causes: &KafkaCauses) -> Result<PolledProducer, Error> {
        let base = config.create_with_context(Answering(causes.clone())).map_err(|error| explain(&error, causes))?;
        let (base, is_over) = (Arc::new(base), Arc::new(AtomicBool::new(false)));
        let polled = PolledProducer(Arc::new(Polled { base: Arc::clone(&base), is_over: Arc::clone(&is_over) }));
        let serve = move || {
            while !is_over.load(Ordering::Acquire) {
                base.poll(POLL);
            }
        };
        let thread = std::thread::Builder::new().name("kafka producer".to_owned()).spawn(serve);
        thread.map_err(|error| Error::new(ErrorKind::System, "start a thread for a kafka client").because(error))?;
        Ok(polled)
    }

    /// The client, to ask for metadata.
    pub fn client(&self) -> &Client<impl ClientContext + use<>> {
        self.0.base.client()
    }

    /// Queues a record; the future resolves to the broker's answer. Waits for as long as the queue is full, at most until
    /// the deadline.
    pub(crate) async fn send(
        &self,
        record: &OutboundRecord,
        deadline: Option<Instant>,
    ) -> Result<impl Future<Output = Result<Delivery, KafkaError>> + use<>, KafkaError> {
        let (answer, answered) = oneshot::channel();
        let mut queued = record.to_kafka(Box::new(answer));
        loop {
            match self.0.base.send(queued) {
                Ok(()) => break,
                Err((error, back)) => {
                    let is_full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
                    if !is_full || self.is_dead() || deadline.is_some_and(|it| it <= Instant::now()) {
                        return Err(error);
                    }
                    queued = back;
                }
            }
            sleep(QUEUE_FULL_PAUSE).await;
        }
        Ok(async { answered.await.unwrap_or(Err(KafkaError::Canceled)) })
    }

    /// Waits until every record has its answer. Blocks.
    pub(crate) fn flush(&self, timeout: Duration) -> Result<(), KafkaError> {
        self.0.base.flush(timeout)
    }

    /// Gives up what has no answer yet; it is answered with an error.
    pub(crate) fn purge(&self, what: PurgeConfig) {
        self.0.base.purge(what);
    }

    /// Whether librdkafka gave the producer up. Asked of the client itself: the callback may come later.
    pub(crate) fn is_dead(&self) -> bool {
        self.client().fatal_error().is_some()
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// Sends each answer to who waits for it.
struct Answering(KafkaCauses);

impl ClientContext for Answering {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = KafkaCauses::ENABLE_REFRESH_OAUTH_TOKEN;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.0.generate_oauth_token(config)
    }
}

impl ProducerContext for Answering {
    type DeliveryOpaque = Box<Answer>;

    fn delivery(&self, result: &DeliveryResult<'_>, answer: Box<Answer>) {
        let result = match result {
            Ok(message) => Ok(Delivery { partition: message.partition(), offset: message.offset() }),
            Err((error, _)) => Err(error.clone()),
        };
        // Nobody waits any more: the caller gave up.
        let _ = answer.send(result);
    }
}

/// A record with the way back of its answer.
pub(crate) type AnsweredRecord<'a> = BaseRecord<'a, [u8], [u8], Box<Answer>>;
