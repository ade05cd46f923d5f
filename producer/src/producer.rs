//! Publishing at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::KafkaSection;
use crate::{Contract, Error, ErrorKind, IntoRecord, KafkaCauses, OutboundRecord, PolledProducer, explain};

/// Publishes on Kafka and waits for the broker. Idempotent, `acks=all`. Clones share one connection.
///
/// A record sent here is not part of your database transaction: for that, see [`outbox`](crate::outbox).
#[derive(Clone)]
pub struct Producer {
    client: PolledProducer,
    causes: KafkaCauses,
    contract: Option<Arc<Contract>>,
}

/// Where the broker put a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Partition of the topic.
    pub partition: i32,
    /// Offset there.
    pub offset: i64,
}

/// Longest wait for the first answer of a broker.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time from `send` to an answer: queue, retries and all.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the wait for a broker looks for a refused login, which no longer wait would cure.
const CONNECT_STEP: Duration = Duration::from_millis(250);

impl Producer {
    /// Makes a producer and waits until a broker has answered.
    ///
    /// # Errors
    /// No broker answers within 10 seconds, the login is refused, or a property is; the text says which.
    pub async fn connect(section: &KafkaSection) -> Result<Producer, Error> {
        let mut config = section.producer_config()?;
        config.set("message.timeout.ms", DELIVERY_TIMEOUT.as_millis().to_string());
        let causes = section.causes();
        let client = PolledProducer::create(&config, &causes)?;
        let producer = Producer { client, causes, contract: None };
        let probe = producer.clone();
        tokio::task::spawn_blocking(move || probe.wait_for_broker())
            .await
            .map_err(|error| Error::new(ErrorKind::System, "wait for kafka").because(error))??;
        Ok(producer)
    }

    /// Holds what is sent against schemas, and writes the prefix of a registry, as the contract is configured.
    pub fn under(mut self, contract: Option<Arc<Contract>>) -> Producer {
        self.contract = contract;
        self
    }

    /// Publishes an event. Resolves when all in-sync replicas have it.
    ///
    /// # Errors
    /// The event is invalid, [`Contract::write`] or the broker refuses it, or no answer came within 30 seconds. In the last case it may have
    /// arrived: send it again with the same idempotency key.
    pub async fn send(&self, event: impl IntoRecord) -> Result<Delivery, Error> {
        match &self.contract {
            Some(contract) => self.send_record(contract.write(event).await?).await,
            None => self.send_record(event.into_record()?).await,
        }
    }

    /// Publishes a record as it is.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub async fn send_record(&self, record: OutboundRecord) -> Result<Delivery, Error> {
        record.check()?;
        let explained = |error| explain(&error, &self.causes);
        let answer = self.client.send(&record, Some(Instant::now() + DELIVERY_TIMEOUT)).await.map_err(explained)?;
        answer.await.map_err(explained)
    }

    /// Waits until every record that was sent has its answer. An empty queue does not mean success: the result of each
    /// `send` does.
    ///
    /// # Errors
    /// Some record has no answer yet at the end of that time.
    pub async fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let client = self.client.clone();
        tokio::task::spawn_blocking(move || client.flush(timeout))
            .await
            .map_err(|error| Error::new(ErrorKind::System, "flush the producer").because(error))?
            .map_err(|error| explain(&error, &self.causes))
    }

    fn wait_for_broker(&self) -> Result<(), Error> {
        let steps = CONNECT_TIMEOUT.as_millis() / CONNECT_STEP.as_millis();
        for _ in 0..steps {
            if self.client.client().fetch_cluster_id(CONNECT_STEP).is_some() {
                return Ok(());
            }
            if self.causes.is_login_refused() {
                break;
            }
        }
        let silent = rdkafka::error::KafkaError::Global(rdkafka::types::RDKafkaErrorCode::BrokerTransportFailure);
        Err(explain(&silent, &self.causes))
    }
}

#[cfg(test)]
mod tests;
