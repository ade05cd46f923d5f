//! Handles of the hot path, looked up once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};
use sekali_producer::metrics::{Kind, Metric};

use super::{ALL, OUTCOMES, error_classes};
use crate::batch::Fate;
use crate::core::Item;
use crate::core::retry::{Decision, Reason};
use crate::failure::FailureClass;
use crate::incoming::Incoming;
use crate::kafka::Role;
use crate::routes::Routes;

/// Every handle of one consumer.
pub(crate) struct Metrics {
    topics: HashMap<Arc<str>, TopicMetrics>,
    batch_size: Histogram,
    commits: Counter,
    rollbacks: Counter,
    panics: Counter,
    failures: HashMap<FailureClass, Counter>,
    /// Turns of the poll loop and of the driver, ms since the Unix epoch, for `/livez`.
    polled_at_ms: [AtomicU64; Role::ALL.len()],
    pub(crate) driven_at_ms: AtomicU64,
}

/// Handles of one source topic.
pub(crate) struct TopicMetrics {
    topic: Arc<str>,
    pub(crate) received: Counter,
    outcomes: [Counter; OUTCOMES.len()],
    duration: Histogram,
    latency_ok: Histogram,
    latency_dead: Histogram,
    attempts_ok: Histogram,
    attempts_dead: Histogram,
    key_reuse: Counter,
}

impl Metrics {
    /// Describes and registers everything, at 0: a counter that first appears with its first increment hides it.
    pub(crate) fn register(routes: &Routes, tiers: usize) -> Metrics {
        for metric in ALL {
            metric.describe_and_register();
        }
        sekali_producer::metrics::describe_and_register();
        gauge!(super::BUILD_INFO.name, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        let topics = routes.source_names().map(|it| (it.clone(), TopicMetrics::new(it, tiers))).collect();
        let failures =
            FailureClass::ALL.map(|it| (it, labelled(&super::BATCH_FAILURES, &[("error_class", it.as_str())])));
        let reads = |role| routes.of_role(role).next().is_some();
        for class in error_classes() {
            labelled(&super::BATCH_FAILURES, &[("error_class", class)]).increment(0);
        }
        Metrics {
            topics,
            batch_size: histogram!(super::BATCH_SIZE.name),
            commits: super::TRANSACTIONS.count(&[("result", "commit")]),
            rollbacks: super::TRANSACTIONS.count(&[("result", "rollback")]),
            panics: super::PANICS.count(&[]),
            failures: failures.into_iter().collect(),
            polled_at_ms: Role::ALL.map(|role| AtomicU64::new(if reads(role) { unix_ms() } else { u64::MAX })),
            driven_at_ms: AtomicU64::new(unix_ms()),
        }
    }

    pub(crate) fn topic(&self, source: &str) -> Option<&TopicMetrics> {
        self.topics.get(source)
    }

    /// A batch was committed.
    pub(crate) fn batch_decided(
        &self,
        source: &str,
        items: &[Item<Incoming>],
        fates: &[Fate],
        elapsed: Duration,
        now_ms: i64,
    ) {
        self.commits.increment(1);
        self.batch_size.record(items.len() as f64);
        let Some(topic) = self.topic(source) else { return };
        topic.duration.record(elapsed.as_secs_f64());
        let mut counts = [0_u64; OUTCOMES.len()];
        for (item, fate) in items.iter().zip(fates) {
            counts[topic.fate(&item.record.message, *fate, now_ms)] += 1;
        }
        for (counter, count) in topic.outcomes.iter().zip(counts) {
            counter.increment(count);
        }
    }

    /// The decision on a message that failed alone was committed.
    pub(crate) fn decided(&self, source: &str, incoming: &Incoming, fate: Fate, now_ms: i64) {
        self.commits.increment(1);
        let Some(topic) = self.topic(source) else { return };
        topic.outcomes[topic.fate(incoming, fate, now_ms)].increment(1);
    }

    /// A message that was held took effect or failed.
    pub(crate) fn released(&self, source: &str, incoming: &Incoming, fate: Fate, now_ms: i64) {
        if let Some(topic) = self.topic(source) {
            topic.outcomes[topic.fate(incoming, fate, now_ms)].increment(1);
        }
    }

    /// A transaction was committed that is not one batch of a partition's records.
    pub(crate) fn committed(&self, messages: usize) {
        self.commits.increment(1);
        self.batch_size.record(messages as f64);
    }

    pub(crate) fn batch_failed(&self, class: FailureClass) {
        self.rollbacks.increment(1);
        if let Some(counter) = self.failures.get(&class) {
            counter.increment(1);
        }
    }

    pub(crate) fn panicked(&self) {
        self.panics.increment(1);
    }

    pub(crate) fn polled(&self, role: Role) {
        self.polled_at_ms[role as usize].store(unix_ms(), Ordering::Relaxed);
    }

    /// When the loop turned that has not turned for longest.
    pub(crate) fn polled_at_ms(&self) -> u64 {
        self.polled_at_ms.iter().map(|it| it.load(Ordering::Relaxed)).min().unwrap_or_default()
    }

    pub(crate) fn driven(&self) {
        self.driven_at_ms.store(unix_ms(), Ordering::Relaxed);
    }
}

impl TopicMetrics {
    fn new(topic: &Arc<str>, tiers: usize) -> TopicMetrics {
        let name: &str = topic;
        for tier in 0..tiers {
            for class in error_classes() {
                retries(topic, tier, class).increment(0);
            }
        }
        for reason in Reason::ALL {
            for class in error_classes() {
                dead_letters(topic, reason, class).increment(0);
            }
        }
        for metric in
            [&super::DLQ_MESSAGES, &super::DLQ_OLDEST, &super::ASSIGNED, &super::PAUSED, &super::RETRY_OVERDUE]
                .into_iter()
                .chain([&super::HELD_KEYS, &super::HELD_MESSAGES, &super::HOLD_OLDEST])
        {
            level(metric, &[("topic", name)]).set(0.0);
        }
        let outcome = |outcome| labelled(&super::PROCESSED, &[("topic", name), ("outcome", outcome)]);
        let spread = |metric, outcome| distribution(metric, &[("topic", name), ("outcome", outcome)]);
        TopicMetrics {
            topic: topic.clone(),
            received: labelled(&super::RECEIVED, &[("topic", name)]),
            outcomes: OUTCOMES.map(outcome),
            duration: distribution(&super::PROCESSING_DURATION, &[("topic", name)]),
            latency_ok: spread(&super::DELIVERY_LATENCY, "ok"),
            latency_dead: spread(&super::DELIVERY_LATENCY, "dead_lettered"),
            attempts_ok: spread(&super::ATTEMPTS_PER_MESSAGE, "ok"),
            attempts_dead: spread(&super::ATTEMPTS_PER_MESSAGE, "dead_lettered"),
            key_reuse: labelled(&super::KEY_REUSE, &[("topic", name)]),
        }
    }

    /// Notes what became of a delivery; the index of its outcome.
    fn fate(&self, incoming: &Incoming, fate: Fate, now_ms: i64) -> usize {
        match fate {
            Fate::Processed => {
                self.finally(incoming, now_ms, &self.latency_ok, &self.attempts_ok);
                0
            }
            Fate::Duplicate => 1,
            Fate::KeyReuseIgnored => {
                self.key_reuse.increment(1);
                4
            }
            Fate::Held => 5,
            Fate::Failed(Decision::Retry { tier, .. }, class) => {
                retries(&self.topic, tier, class.as_str()).increment(1);
                2
            }
            Fate::Failed(Decision::Dead(reason), class) => {
                if reason == Reason::KeyReuse {
                    self.key_reuse.increment(1);
                }
                dead_letters(&self.topic, reason, class.as_str()).increment(1);
                self.finally(incoming, now_ms, &self.latency_dead, &self.attempts_dead);
                3
            }
        }
    }

    fn finally(&self, incoming: &Incoming, now_ms: i64, latency: &Histogram, attempts: &Histogram) {
        let (timestamp_ms, attempt) = match incoming {
            Incoming::Message(message) => (message.origin().timestamp_ms, message.attempt()),
            Incoming::Invalid { record, .. } => (record.timestamp_ms, 1),
        };
        if let Some(timestamp_ms) = timestamp_ms {
            latency.record((now_ms - timestamp_ms).max(0) as f64 / 1000.0);
        }
        if 1 < attempt {
            attempts.record(f64::from(attempt));
        }
    }
}

fn retries(topic: &str, tier: usize, class: &'static str) -> Counter {
    labelled(&super::RETRIES, &[("topic", topic), ("tier", &tier.to_string()), ("error_class", class)])
}

fn dead_letters(topic: &str, reason: Reason, class: &'static str) -> Counter {
    labelled(&super::DEAD_LETTERS, &[("topic", topic), ("reason", reason.as_str()), ("error_class", class)])
}

/// The gauge of a metric whose label values are only known at run time.
pub(crate) fn level(metric: &Metric, labels: &[(&'static str, &str)]) -> Gauge {
    debug_assert!(metric.kind == Kind::Gauge, "{} is no gauge", metric.name);
    gauge!(metric.name, to_labels(labels))
}

fn labelled(metric: &Metric, labels: &[(&'static str, &str)]) -> Counter {
    debug_assert!(metric.kind == Kind::Counter, "{} is no counter", metric.name);
    counter!(metric.name, to_labels(labels))
}

/// The histogram of a metric whose label values are only known at run time.
pub(crate) fn distribution(metric: &Metric, labels: &[(&'static str, &str)]) -> Histogram {
    histogram!(metric.name, to_labels(labels))
}

fn to_labels(labels: &[(&'static str, &str)]) -> Vec<Label> {
    labels.iter().map(|(name, value)| Label::new(*name, value.to_string())).collect()
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
