//! The configuration: one TOML file, every key overridable by an environment variable, checked as a whole.

mod check;
mod for_ever;
mod listen;
mod print;
mod problems;
mod read;
mod sections;
mod token;

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use sekali_producer::config::{KafkaSection, PostgresSection, RegistrySection, RelaySection, SchemasSection};
use sekali_producer::{Error, ErrorKind};
use sekali_schemas::topics::{GroupTopics, TopicError, TopicTemplates};

pub use problems::{Problem, Problems};
pub use sections::{
    AdminSection, AfterDeadLetter, ConsoleSection, ConsumerSection, EffectsSection, GroupProtocol, InboxSection,
    KeyFrom, LogFormat, LogSection, OnKeyReuse, OperateSection, Order, RetrySection, TopicsSection,
};

pub use token::Token;

pub(crate) use check::inbox_retention_problem;
use read::Given;

/// What a record grows by on its way to a retry or dead-letter topic, at most, in bytes: their limit is that of the
/// source topic plus this. Sekali's own headers are bounded at about 6 KiB; the rest is for batch framing.
pub const HEADER_ALLOWANCE_BYTES: u32 = 64 * 1024;

/// Everything that can be set, checked: a value that exists can be used.
///
/// Sources, the later ones win: defaults, the TOML file, environment variables `SEKALI_<SECTION>__<KEY>`. A key that
/// ends in `_file` (`SEKALI_POSTGRES__PASSWORD_FILE`) names a file that holds the value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Brokers and client settings.
    pub kafka: KafkaSection,
    /// Database and connection pool.
    pub postgres: PostgresSection,
    /// The consumer group.
    pub consumer: ConsumerSection,
    /// Effects outside the database.
    pub effects: EffectsSection,
    /// Retry policy.
    pub retry: RetrySection,
    /// Topics that belong to the group.
    pub topics: TopicsSection,
    /// Table of decisions.
    pub inbox: InboxSection,
    /// Bounds of what operators do.
    pub operate: OperateSection,
    /// Console for operators.
    pub console: ConsoleSection,
    /// Loop that publishes the outbox.
    pub relay: RelaySection,
    /// What payloads are held against.
    pub schemas: SchemasSection,
    /// Registry whose ids stand before payloads.
    pub registry: RegistrySection,
    /// Port for probes and metrics.
    pub admin: AdminSection,
    /// Log lines.
    pub log: LogSection,
}

/// What a program is going to do, and so which sections must be complete. Whatever is given is always checked for
/// unknown keys and unusable values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// Run the group: all of it.
    Everything,
    /// Talk to Kafka only.
    Kafka,
    /// Talk to PostgreSQL only.
    Postgres,
    /// Publish the outbox: Kafka and PostgreSQL, without a group.
    Relay,
    /// Kafka, and the group with its topics, without a database.
    Group,
    /// Nothing yet.
    Nothing,
}

impl Config {
    /// Reads the file, then the environment, and checks the whole.
    ///
    /// # Errors
    /// Lists every problem at once, each with its key, its place and the remedy. See [`Problems`].
    pub fn load(path: Option<&Path>) -> Result<Config, Error> {
        Config::load_for(path, Needs::Everything)
    }

    /// As [`Config::load`], for a program that does not need every section.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_for(path: Option<&Path>, needs: Needs) -> Result<Config, Error> {
        let mut problems = Problems::default();
        let mut given = Given::default();
        if let Some(path) = path {
            let text = std::fs::read_to_string(path).map_err(|error| {
                let doing = format!(
                    "read the configuration file {} (name another with --config, or set SEKALI_CONFIG)",
                    path.display()
                );
                Error::new(ErrorKind::Config, doing).because(error)
            })?;
            given.add_toml(&path.display().to_string(), &text, &mut problems);
        }
        given.add_env(std::env::vars_os(), &mut problems);
        Config::of(given, needs, problems)
    }

    /// Reads TOML text alone, without the environment.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_toml(text: &str) -> Result<Config, Error> {
        let mut problems = Problems::default();
        let mut given = Given::default();
        given.add_toml("text", text, &mut problems);
        Config::of(given, Needs::Everything, problems)
    }

    fn of(given: Given, needs: Needs, mut problems: Problems) -> Result<Config, Error> {
        let defaults = Config::defaults();
        let mut config = Config {
            kafka: given.section("kafka", &["brokers"], defaults.kafka, &mut problems),
            postgres: given.section("postgres", &[], defaults.postgres, &mut problems),
            consumer: given.section("consumer", &[], defaults.consumer, &mut problems),
            effects: given.section("effects", &[], defaults.effects, &mut problems),
            retry: given.section("retry", &[], defaults.retry, &mut problems),
            topics: given.section("topics", &[], defaults.topics, &mut problems),
            inbox: given.section("inbox", &[], defaults.inbox, &mut problems),
            operate: given.section("operate", &[], defaults.operate, &mut problems),
            console: given.section("console", &[], defaults.console, &mut problems),
            relay: given.section("relay", &[], defaults.relay, &mut problems),
            schemas: given.section("schemas", &[], defaults.schemas, &mut problems),
            registry: given.section("registry", &[], defaults.registry, &mut problems),
            admin: given.section("admin", &[], defaults.admin, &mut problems),
            log: given.section("log", &[], defaults.log, &mut problems),
        };
        config.fit_message_bytes();
        check::check(&config, needs, &given, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems.into_error()) }
    }

    /// What fits into a source topic must fit into our own producers once it has grown: librdkafka's default is smaller
    /// than Kafka's.
    fn fit_message_bytes(&mut self) {
        let bytes = u32::try_from(self.relayed_bytes_max()).unwrap_or(u32::MAX);
        self.kafka.message_bytes_max = self.kafka.message_bytes_max.or(NonZeroU32::new(bytes));
    }

    /// Largest record that is published again: of a source topic, with headers.
    fn relayed_bytes_max(&self) -> u64 {
        u64::from(self.topics.message_bytes_max.get()) + u64::from(HEADER_ALLOWANCE_BYTES)
    }

    /// The configuration as TOML, every key shown with what it does, secrets hidden.
    pub fn print(&self) -> String {
        print::print(self)
    }

    /// The defaults as TOML, for documentation. Required keys are shown empty.
    pub fn print_defaults() -> String {
        print::print(&Config::defaults())
    }

    /// Every default. What is required is empty, so that this alone cannot be used.
    fn defaults() -> Config {
        Config {
            kafka: KafkaSection::new(""),
            postgres: PostgresSection::default(),
            consumer: ConsumerSection::default(),
            effects: EffectsSection::default(),
            retry: RetrySection::default(),
            topics: TopicsSection::default(),
            inbox: InboxSection::default(),
            operate: OperateSection::default(),
            console: ConsoleSection::default(),
            relay: RelaySection::default(),
            schemas: SchemasSection::default(),
            registry: RegistrySection::default(),
            admin: AdminSection::default(),
            log: LogSection::default(),
        }
    }

    /// Scope of the inbox.
    pub fn consumer_name(&self) -> &str {
        self.consumer.name.as_deref().unwrap_or(&self.consumer.group)
    }

    /// Attempts before a message becomes a dead letter, the first delivery included.
    pub fn max_attempts(&self) -> u16 {
        match self.retry.max_attempts {
            Some(given) => given.get(),
            None => u16::try_from(self.retry.delays.len() + 1).unwrap_or(u16::MAX),
        }
    }

    /// Longest time that a message can spend between its first failure and its last attempt, by the configured delays.
    pub fn retry_path_max(&self) -> Duration {
        let Some(last) = self.retry.delays.last() else { return self.retry.contended_age_max };
        let retries = usize::from(self.max_attempts()).saturating_sub(1);
        let listed: Duration =
            self.retry.delays.iter().take(retries).fold(Duration::ZERO, |sum, it| sum.saturating_add(*it));
        let reused = u32::try_from(retries.saturating_sub(self.retry.delays.len())).unwrap_or(u32::MAX);
        let delays = listed.saturating_add(last.saturating_mul(reused));
        let with_jitter = delays.as_secs_f64() * (1.0 + self.retry.jitter.clamp(0.0, 1.0));
        let with_jitter = Duration::try_from_secs_f64(with_jitter).unwrap_or(Duration::MAX);
        with_jitter.saturating_add(self.retry.contended_age_max)
    }

    /// Source, retry and dead-letter topics of the group.
    ///
    /// # Errors
    /// A template or a name cannot be used; a checked configuration has none of these.
    pub fn group_topics(&self) -> Result<GroupTopics, TopicError> {
        let templates = self.topic_templates()?;
        templates.all(&self.consumer.topics, &self.consumer.group, &self.retry.delays)
    }

    /// The templates of topic names.
    ///
    /// # Errors
    /// A template lacks a placeholder; a checked configuration has none of these.
    pub fn topic_templates(&self) -> Result<TopicTemplates, TopicError> {
        TopicTemplates::new(&self.topics.retry_template, &self.topics.dlq_template)
    }
}

/// Texts of a section's keys, from the doc comments.
#[derive(Debug, Clone, Copy)]
struct Docs {
    about: &'static [&'static str],
    keys: &'static [(&'static str, &'static [&'static str])],
}

#[cfg(test)]
mod tests;
