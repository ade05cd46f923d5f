//! What would stop the group or lose messages, found before it happens.

mod database;
mod topics;

use std::fmt;

use sekali_producer::Error;
use serde::Serialize;

use super::kafka::Cluster;
use crate::config::Config;

/// Names of the checks, in the order in which they run.
pub const NAMES: [&str; 11] = [
    "kafka",
    "topics",
    "retention",
    "postgres",
    "schema",
    "permissions",
    "clock",
    "connections",
    "durability",
    "outbox",
    "relay",
];

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, but will hurt one day.
    Warn,
    /// Stops the group or loses messages.
    Fail,
    /// Could not be looked at, because an earlier check failed.
    Skipped,
}

impl Status {
    /// In lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
            Status::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// One of [`NAMES`].
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was seen.
    pub finding: String,
    /// What to do about it; empty when there is nothing to do.
    pub remedy: String,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, finding: finding.into(), remedy: String::new() }
    }

    fn warn(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, status: Status::Warn, finding: finding.into(), remedy: remedy.into() }
    }

    fn fail(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, status: Status::Fail, finding: finding.into(), remedy: remedy.into() }
    }

    fn skipped(name: &'static str, cause: &str) -> Check {
        let finding = format!("not looked at, because check \"{cause}\" failed");
        Check { name, status: Status::Skipped, finding, remedy: format!("put \"{cause}\" right first") }
    }

    /// A check that could not look. The sentence of the error has the remedy in it.
    fn error(name: &'static str, error: &Error) -> Check {
        Check::fail(name, error.chain(), "")
    }
}

/// Runs the checks named in `only`, or all of them when it is empty. Changes nothing. What a check needs runs along
/// unseen.
pub async fn doctor(config: &Config, only: &[String]) -> Vec<Check> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|it| it == name);
    let mut checks = Vec::new();
    if NAMES[..3].iter().any(|it| wanted(it)) {
        checks.extend(kafka(config).await);
    }
    if NAMES[3..].iter().any(|it| wanted(it)) {
        checks.extend(database::checks(config).await);
    }
    checks.retain(|it| wanted(it.name));
    checks
}

async fn kafka(config: &Config) -> Vec<Check> {
    let skipped = || ["topics", "retention"].map(|it| Check::skipped(it, "kafka"));
    let cluster = match Cluster::connect(&config.kafka).await {
        Ok(cluster) => cluster,
        Err(error) => return [Check::error("kafka", &error)].into_iter().chain(skipped()).collect(),
    };
    let mut checks = Vec::new();
    match cluster.metadata().await {
        Ok(metadata) => {
            let finding = format!("{} brokers, {} topics", metadata.brokers().len(), metadata.topics().len());
            checks.push(Check::ok("kafka", finding));
        }
        Err(error) => checks.push(Check::error("kafka", &error)),
    }
    match super::topics::look(config, &cluster).await {
        Ok(found) => {
            checks.push(topics::topics(config, &found));
            checks.push(topics::retention(config, &found));
        }
        Err(error) => {
            checks.push(Check::error("topics", &error));
            checks.push(Check::skipped("retention", "topics"));
        }
    }
    checks
}

#[cfg(test)]
mod tests;
