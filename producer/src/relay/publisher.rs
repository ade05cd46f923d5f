//! Sends runs of records and tells what the broker said about each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::PurgeConfig;
use tokio::time::interval;

use super::cursor::Queued;
use super::page::{Outcome, Reason};
use crate::config::KafkaSection;
use crate::{Delivery, Error, KafkaCauses, PolledProducer, explain};

/// A topic that is missing or forbidden may be about to be made or granted: its records wait this long.
const TOPIC_PATIENCE: Duration = Duration::from_secs(30);
/// How often a wait for answers looks whether the producer has died.
const FATAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for the broker's word on a topic.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// The relay's producer. One serves all pages; a new one is made only when librdkafka calls it dead.
pub(super) struct Publisher {
    client: ClientConfig,
    kafka: KafkaSection,
    live: Option<(PolledProducer, KafkaCauses)>,
    /// Since when each topic has been missing or forbidden.
    unusable_since: HashMap<String, Instant>,
}

/// The outcomes of a run, and what went wrong last if something has to be tried again.
pub(super) struct Answers {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) trouble: Option<Error>,
}

impl Publisher {
    pub(super) fn new(client: ClientConfig, kafka: KafkaSection) -> Publisher {
        Publisher { client, kafka, live: None, unusable_since: HashMap::new() }
    }

    /// Sends the records, pipelined, and waits for the answer to each.
    pub(super) async fn publish(&mut self, run: &[&Queued]) -> Result<Answers, Error> {
        let (client, causes) = self.live()?;
        let sent = send_all(&client, run).await;
        let results = wait_all(&client, sent).await;
        if client.is_dead() {
            self.live = None;
        }
        let answers = self.judge(run, &results, &causes);
        self.ask_about_topics(run, &results).await;
        Ok(answers)
    }

    fn live(&mut self) -> Result<(PolledProducer, KafkaCauses), Error> {
        let live = match self.live.take() {
            Some(live) => live,
            None => {
                let causes = self.kafka.causes();
                (PolledProducer::create(&self.client, &causes)?, causes)
            }
        };
        Ok(self.live.insert(live).clone())
    }

    fn judge(&mut self, run: &[&Queued], results: &[Result<(), KafkaError>], causes: &KafkaCauses) -> Answers {
        let mut trouble = None;
        let mut outcomes = Vec::with_capacity(run.len());
        for (queued, result) in run.iter().zip(results) {
            let topic = &queued.record.topic;
            let outcome = match result {
                Ok(()) => {
                    self.unusable_since.remove(topic);
                    Outcome::Delivered
                }
                Err(error) => self.judge_failure(topic, error, causes),
            };
            if let (Err(error), Outcome::Failed | Outcome::Suspect(_)) = (result, &outcome)
                && !is_consequence(code_of(error))
            {
                trouble = Some(explain(error, causes));
            }
            outcomes.push(outcome);
        }
        if trouble.is_none() && outcomes.contains(&Outcome::Failed) {
            let first = results.iter().find_map(|it| it.as_ref().err());
            trouble = first.map(|error| explain(error, causes));
        }
        Answers { outcomes, trouble }
    }

    fn judge_failure(&mut self, topic: &str, error: &KafkaError, causes: &KafkaCauses) -> Outcome {
        let code = code_of(error);
        let reason = || Reason { code: format!("{code:?}"), message: explain(error, causes).chain() };
        if is_about_topic(code) {
            let since = *self.unusable_since.entry(topic.to_owned()).or_insert_with(Instant::now);
            return if TOPIC_PATIENCE < since.elapsed() { Outcome::Refused(reason()) } else { Outcome::Failed };
        }
        if is_about_record(code) { Outcome::Suspect(reason()) } else { Outcome::Failed }
    }

    /// A topic that the client once found missing is looked for again only when asked.
    async fn ask_about_topics(&self, run: &[&Queued], results: &[Result<(), KafkaError>]) {
        let Some((client, _)) = self.live.clone() else { return };
        let mut missing: Vec<String> = run
            .iter()
            .zip(results)
            .filter(|(_, result)| result.as_ref().is_err_and(|error| is_about_topic(code_of(error))))
            .map(|(queued, _)| queued.record.topic.clone())
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return;
        }
        let asked = tokio::task::spawn_blocking(move || {
            for topic in missing {
                // The answer updates the client; the next run shows it.
                if let Err(error) = client.client().fetch_metadata(Some(&topic), METADATA_TIMEOUT) {
                    tracing::debug!(%topic, %error, "no answer about a topic");
                }
            }
        });
        if asked.await.is_err() {
            tracing::debug!("the question about topics was cut off");
        }
    }
}

/// Whatever was not answered when the term ends is thrown away: the next leader publishes it.
impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some((client, _)) = &self.live {
            client.purge(PurgeConfig::default().queue().inflight().non_blocking());
        }
    }
}

async fn send_all(
    client: &PolledProducer,
    run: &[&Queued],
) -> Vec<Result<impl Future<Output = Result<Delivery, KafkaError>> + use<>, KafkaError>> {
    let mut sent = Vec::with_capacity(run.len());
    // Once a topic refused a record, the later ones must not slip past it.
    let mut closed: HashMap<&str, KafkaError> = HashMap::new();
    for queued in run {
        if let Some(error) = closed.get(queued.record.topic.as_str()) {
            sent.push(Err(error.clone()));
            continue;
        }
        let result = client.send(&queued.record, None).await;
        if let Err(error) = &result
            && !is_about_record(code_of(error))
        {
            closed.insert(&queued.record.topic, error.clone());
        }
        sent.push(result);
    }
    sent
}

async fn wait_all(
    client: &PolledProducer,
    sent: Vec<Result<impl Future<Output = Result<Delivery, KafkaError>>, KafkaError>>,
) -> Vec<Result<(), KafkaError>> {
    let answers = sent.into_iter().map(|it| async { it?.await.map(|_| ()) });
    let mut all = Box::pin(future::join_all(answers));
    let mut check = interval(FATAL_CHECK_INTERVAL);
    loop {
        tokio::select! {
            results = &mut all => return results,
            // A dead producer keeps its queue: without this the rest would wait for ever.
            _ = check.tick() => if client.is_dead() {
                client.purge(PurgeConfig::default().queue().inflight());
            },
        }
    }
}

fn code_of(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)
}

/// Sending the same bytes again cannot help.
fn is_about_record(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidMessage
            | Code::InvalidRecord
            | Code::InvalidTimestamp
            | Code::MessageBatchTooLarge
            | Code::PolicyViolation
            | Code::UnsupportedForMessageFormat
    )
}

/// The topic is missing or forbidden.
fn is_about_topic(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::InvalidTopic
            | Code::TopicAuthorizationFailed
    )
}

/// Follows from another failure, and would hide it in the log.
fn is_consequence(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::PurgeQueue | Code::PurgeInflight | Code::Fatal | Code::Unknown)
}

#[cfg(test)]
mod tests;
