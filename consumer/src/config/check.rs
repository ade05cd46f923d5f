//! What must hold between the values.

mod console;

use std::time::Duration;

use super::problems::Problems;
use super::read::Given;
use super::{AfterDeadLetter, Config, GroupProtocol, HEADER_ALLOWANCE_BYTES, Needs, Order};

const JITTER_MAX: f64 = 0.5;
/// Attempts are stored as a signed 16-bit number.
const ATTEMPTS_MAX: u16 = 32_767;
/// Beside the executors: the relay, the health probe, holds or purges, and the heartbeat of leases.
const CONNECTIONS_BESIDE_EXECUTORS: usize = 4;
const LEASE_TTL_MIN: Duration = Duration::from_secs(1);

pub(super) fn check(config: &Config, needs: Needs, given: &Given, problems: &mut Problems) {
    let mut checks = Checks { config, given, problems };
    if matches!(needs, Needs::Everything | Needs::Kafka | Needs::Relay | Needs::Group) {
        checks.kafka();
    }
    if matches!(needs, Needs::Everything | Needs::Postgres | Needs::Relay) {
        checks.postgres();
    }
    if matches!(needs, Needs::Everything | Needs::Group) {
        checks.names();
    }
    if needs == Needs::Everything {
        checks.budget();
    }
    checks.relay();
    checks.schemas();
    checks.group();
    checks.effects();
    checks.retry();
    checks.retention();
    checks.console();
    checks.log();
}

struct Checks<'a> {
    config: &'a Config,
    given: &'a Given,
    problems: &'a mut Problems,
}

impl Checks<'_> {
    fn problem(&mut self, section: &str, key: &str, what: impl Into<String>) {
        let from = self.given.from(section, key);
        self.problems.push(format!("{section}.{key}"), from, what);
    }

    fn kafka(&mut self) {
        let mut texts = Vec::new();
        self.config.kafka.validate(&mut texts);
        self.own("kafka", texts);
        let needed = self.config.relayed_bytes_max();
        if self.config.kafka.message_bytes_max.is_some_and(|it| u64::from(it.get()) < needed) {
            let what = format!(
                "must be at least topics.message_bytes_max + {HEADER_ALLOWANCE_BYTES} = {needed}, or large messages cannot \
                 be retried: raise it, or remove it"
            );
            self.problem("kafka", "message_bytes_max", what);
        }
    }

    fn postgres(&mut self) {
        let mut texts = Vec::new();
        self.config.postgres.validate(&mut texts);
        self.own("postgres", texts);
    }

    fn relay(&mut self) {
        let mut texts = Vec::new();
        self.config.relay.validate(&mut texts);
        self.own("relay", texts);
    }

    fn schemas(&mut self) {
        let mut texts = Vec::new();
        self.config.schemas.validate(&mut texts);
        self.own("schemas", texts);
        let mut texts = Vec::new();
        self.config.registry.validate(&mut texts);
        self.own("registry", texts);
    }

    /// What a section of the producer says about itself: mostly `section.key`, then the problem.
    fn own(&mut self, section: &str, texts: Vec<String>) {
        for text in texts {
            let key = text.split_once(' ').and_then(|(path, what)| {
                let key = path.strip_prefix(section)?.strip_prefix('.')?;
                Some((key.trim_end_matches(':').to_owned(), what.to_owned()))
            });
            match key {
                Some((key, what)) => self.problem(section, &key, what),
                None => self.problems.push(section, None, text),
            }
        }
    }

    fn names(&mut self) {
        let consumer = &self.config.consumer;
        if consumer.group.is_empty() {
            self.problem("consumer", "group", "is required: set it to the name of this consumer group");
        }
        if consumer.topics.is_empty() {
            self.problem("consumer", "topics", "is required: list the topics that this group reads");
        }
        for (key, name) in [("name", &consumer.name), ("group_instance_id", &consumer.group_instance_id)] {
            if name.as_deref().is_some_and(str::is_empty) {
                self.problem("consumer", key, "must not be empty: give a name or remove the key");
            }
        }
        if let Err(error) = self.config.topic_templates() {
            let dlq = error.to_string().contains(&format!("\"{}\"", self.config.topics.dlq_template));
            let key = if dlq { "dlq_template" } else { "retry_template" };
            self.problem("topics", key, error.to_string());
        } else if !consumer.group.is_empty()
            && let Err(error) = self.config.group_topics()
        {
            self.problem("consumer", "topics", format!("{error}; change the topics, the group or the templates"));
        }
    }

    fn order(&mut self) {
        let consumer = &self.config.consumer;
        if consumer.order == Order::None && consumer.after_dead_letter == AfterDeadLetter::Hold {
            let what = "is \"hold\", which needs consumer.order = \"key\": change one of the two";
            self.problem("consumer", "after_dead_letter", what);
        }
        let (per_key, all) = (consumer.held_messages_per_key_max, consumer.held_messages_max);
        if all < per_key {
            let what = format!("must be at least consumer.held_messages_per_key_max ({per_key}): is {all}");
            self.problem("consumer", "held_messages_max", what);
        }
    }

    fn group(&mut self) {
        let consumer = &self.config.consumer;
        let (batch, buffer) = (consumer.batch_messages_max.get(), consumer.buffer_messages_max.get());
        if buffer < batch.saturating_mul(2) {
            let what = format!(
                "must be at least twice consumer.batch_messages_max, so that one batch is gathered while another \
                 commits: is {buffer}, needs {}",
                batch.saturating_mul(2)
            );
            self.problem("consumer", "buffer_messages_max", what);
        }
        for (key, value) in [
            ("handler_timeout", consumer.handler_timeout),
            ("lock_ttl", consumer.lock_ttl),
            ("drain_timeout", consumer.drain_timeout),
            ("session_timeout", consumer.session_timeout),
            ("max_poll_interval", consumer.max_poll_interval),
        ] {
            if value < Duration::from_millis(1) {
                self.problem("consumer", key, "must be at least 1ms");
            }
        }
        if consumer.stall_timeout < Duration::from_secs(1) {
            self.problem("consumer", "stall_timeout", "must be at least 1s, or every pause of the broker is a stall");
        }
        self.order();
        if consumer.max_poll_interval <= consumer.handler_timeout {
            let what = format!(
                "must be shorter than consumer.max_poll_interval: is {}, that is {}",
                show(consumer.handler_timeout),
                show(consumer.max_poll_interval)
            );
            self.problem("consumer", "handler_timeout", what);
        }
        if consumer.max_poll_interval / 2 <= consumer.drain_timeout {
            let what = format!(
                "must be shorter than half of consumer.max_poll_interval ({}): is {}",
                show(consumer.max_poll_interval / 2),
                show(consumer.drain_timeout)
            );
            self.problem("consumer", "drain_timeout", what);
        }
        match consumer.group_protocol {
            GroupProtocol::Classic if consumer.max_poll_interval < consumer.session_timeout => {
                let what = format!(
                    "must not exceed consumer.max_poll_interval ({}): is {}",
                    show(consumer.max_poll_interval),
                    show(consumer.session_timeout)
                );
                self.problem("consumer", "session_timeout", what);
            }
            GroupProtocol::Consumer if self.given.from("consumer", "session_timeout").is_some() => {
                let what = "does not exist with consumer.group_protocol = \"consumer\": remove it, and set \
                            group.consumer.session.timeout.ms on the broker";
                self.problem("consumer", "session_timeout", what);
            }
            _ => {}
        }
    }

    fn effects(&mut self) {
        let effects = &self.config.effects;
        if effects.lease_ttl < LEASE_TTL_MIN {
            let what = format!("must be at least {}, or a short pause of the database loses it", show(LEASE_TTL_MIN));
            self.problem("effects", "lease_ttl", what);
        }
        if effects.perform_timeout < Duration::from_millis(1) {
            self.problem("effects", "perform_timeout", "must be at least 1ms");
        }
        let (most, buffer) = (effects.concurrent_max.get(), self.config.consumer.buffer_messages_max.get());
        if buffer < most {
            let what = format!("must not exceed consumer.buffer_messages_max ({buffer}): is {most}");
            self.problem("effects", "concurrent_max", what);
        }
    }

    fn retry(&mut self) {
        let retry = &self.config.retry;
        if retry.delays.iter().any(|it| *it < Duration::from_millis(1) || it.subsec_nanos() % 1_000_000 != 0) {
            self.problem("retry", "delays", "each must be a whole number of milliseconds, at least 1ms");
        }
        if let Some(pair) = retry.delays.windows(2).find(|it| it[1] < it[0]) {
            let what = format!(
                "must not get shorter: {} follows {}; sort them, the shortest first",
                show(pair[1]),
                show(pair[0])
            );
            self.problem("retry", "delays", what);
        }
        let attempts = retry.max_attempts.map_or(1, |it| it.get());
        if ATTEMPTS_MAX < attempts {
            self.problem("retry", "max_attempts", format!("must be at most {ATTEMPTS_MAX}, is {attempts}"));
        }
        if 1 < attempts && retry.delays.is_empty() {
            let what = format!("{attempts} attempts need at least one delay: add it, or set retry.max_attempts to 1");
            self.problem("retry", "delays", what);
        }
        if !(0.0..=JITTER_MAX).contains(&retry.jitter) {
            self.problem("retry", "jitter", format!("must be 0 to {JITTER_MAX}, is {}", retry.jitter));
        }
    }

    fn retention(&mut self) {
        let (topics, inbox) = (&self.config.topics, &self.config.inbox);
        for (key, value) in [
            ("source_retention", topics.source_retention),
            ("retry_retention", topics.retry_retention),
            ("dlq_retention", topics.dlq_retention),
        ] {
            if i64::try_from(value.as_millis()).is_err() || value.is_zero() {
                self.problem("topics", key, "must be at least 1ms and fit into 64 bits of milliseconds");
            }
        }
        if let Some(longest) = self.config.retry.delays.iter().max()
            && topics.retry_retention < longest.saturating_mul(2)
        {
            let what = format!(
                "must be at least twice the longest delay ({}), or records vanish before they are due: is {}",
                show(*longest),
                show(topics.retry_retention)
            );
            self.problem("topics", "retry_retention", what);
        }
        let kept = topics.source_retention.max(topics.retry_retention);
        if let Some(retention) = inbox.retention
            && let Some(what) = inbox_retention_problem(retention, kept, self.config.retry_path_max())
        {
            self.problem("inbox", "retention", what);
        }
    }

    fn budget(&mut self) {
        let (statement, handler) = (self.config.postgres.statement_timeout, self.config.consumer.handler_timeout);
        if self.config.consumer.max_poll_interval <= statement {
            let what = format!(
                "must be shorter than consumer.max_poll_interval ({}), or a stuck statement outlives its partitions: \
                 is {}",
                show(self.config.consumer.max_poll_interval),
                show(statement)
            );
            self.problem("postgres", "statement_timeout", what);
        } else if statement < handler {
            let what = format!(
                "must be at least consumer.handler_timeout ({}), since it also ends a transaction that idles while its \
                 handler works: is {}",
                show(handler),
                show(statement)
            );
            self.problem("postgres", "statement_timeout", what);
        }
        let pool = self.config.postgres.pool_max_connections.get();
        let executors = self.config.consumer.executors.get();
        let needed = executors.saturating_add(CONNECTIONS_BESIDE_EXECUTORS);
        if pool < needed {
            let what = format!(
                "must be at least consumer.executors + {CONNECTIONS_BESIDE_EXECUTORS} = {needed}, or the executors \
                 wait for each other: is {pool}"
            );
            self.problem("postgres", "pool_max_connections", what);
        }
    }

    fn log(&mut self) {
        let filter = &self.config.log.filter;
        if let Err(error) = tracing_subscriber::EnvFilter::builder().parse(filter) {
            let what = format!("is not a filter: {error}; use a level or \"info,sekali_consumer=debug\"");
            self.problem("log", "filter", what);
        }
    }
}

/// Why the inbox would forget decisions that Kafka may still deliver again; `None` when it would not.
pub(crate) fn inbox_retention_problem(inbox: Duration, topics: Duration, retry_path: Duration) -> Option<String> {
    let needed = topics.saturating_add(retry_path);
    (inbox <= needed).then(|| {
        format!(
            "is {}, but topics keep records for {} and the retry path takes up to {}: raise it above {}, or shorten \
             the retention of the topics",
            show(inbox),
            show(topics),
            show(retry_path),
            show(needed)
        )
    })
}

pub(crate) fn show(duration: Duration) -> String {
    humantime::format_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
        .to_string()
}
