//! Source, retry and dead-letter topics: what should be there against what is.

mod desired;

use std::collections::BTreeMap;

use rdkafka::admin::{AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::KafkaError;
use sekali_producer::config::KafkaSection;
use sekali_producer::{Error, ErrorKind};
use serde::Serialize;

use super::kafka::Cluster;
use crate::config::Config;
use desired::desired;

/// What a topic is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Producers write to it.
    Source,
    /// One retry tier of the group.
    Retry,
    /// The group's dead letters.
    DeadLetter,
}

impl Role {
    /// In an operator's words.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Retry => "retry",
            Role::DeadLetter => "dead letters",
        }
    }
}

/// What is to be done about a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing: it is as it should be, or only a person can change it.
    Keep,
    /// It does not exist.
    Create,
    /// Settings differ.
    Alter,
}

/// One topic of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopicPlan {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// What is to be done.
    pub action: Action,
    /// Partitions that it has, or will be created with.
    pub partitions: i32,
    /// Copies of each partition that it has, or will be created with.
    pub replication_factor: i32,
    /// Settings to write: all of a new topic, those that differ of an existing one.
    pub settings: Vec<Setting>,
    /// What `apply` will not do by itself, each with the reason and the remedy.
    pub problems: Vec<String>,
}

/// One setting of a topic, by Kafka's own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Setting {
    /// For instance `retention.ms`.
    pub name: &'static str,
    /// The present value; `None` on a new topic.
    pub now: Option<String>,
    /// The value that it should have.
    pub wanted: String,
}

/// Every topic of the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Sources first, each followed by its retry topics and its dead letters.
    pub topics: Vec<TopicPlan>,
}

/// A topic as the cluster has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) partitions: i32,
    pub(super) replication_factor: i32,
    /// Every setting with its effective value.
    pub(super) settings: BTreeMap<String, String>,
    /// Those that were set on the topic itself.
    pub(super) own: BTreeMap<String, String>,
}

/// Requires topics beside those of a group, such as one that its handler enqueues for: records for a topic that is
/// missing end in the dead-letter store.
///
/// # Errors
/// Kafka cannot be reached, or topics are missing: all of them are named.
pub async fn require(kafka: &KafkaSection, names: &[&str]) -> Result<(), Error> {
    let metadata = Cluster::connect(kafka).await?.metadata().await?;
    let is_there = |name: &&&str| metadata.topics().iter().any(|it| it.name() == **name && !it.partitions().is_empty());
    let missing: Vec<&str> = names.iter().filter(|it| !is_there(it)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Kafka, format!("find the topics {}: create them first", missing.join(", "))))
}

/// Compares the topics of the group with the cluster. Changes nothing.
///
/// # Errors
/// Kafka cannot be reached or does not let this user look.
pub async fn plan(config: &Config) -> Result<Plan, Error> {
    let cluster = Cluster::connect(&config.kafka).await?;
    let found = look(config, &cluster).await?;
    compare(config, &found)
}

/// Creates the topics that are missing and adjusts the settings that differ. Deletes nothing, adds no partitions (that
/// would break the order by key) and shortens no retention (that would delete records).
///
/// # Errors
/// As [`plan`], or the cluster refuses a change. What was done before stays, and applying again goes on from there.
pub async fn apply(config: &Config) -> Result<Plan, Error> {
    let cluster = Cluster::connect(&config.kafka).await?;
    let found = look(config, &cluster).await?;
    let plan = compare(config, &found)?;
    create(&cluster, &plan).await?;
    alter(&cluster, &plan, &found).await?;
    cluster.wait_for_topics(plan.topics.iter().map(|it| it.name.as_str())).await?;
    Ok(plan)
}

/// The topics of the group that exist.
pub(super) async fn look(config: &Config, cluster: &Cluster) -> Result<BTreeMap<String, Found>, Error> {
    look_closely(config, cluster).await?.map_err(|error| cluster.explain(&error))
}

/// The same, with the client's own error when it is the settings that cannot be read.
pub(super) async fn look_closely(
    config: &Config,
    cluster: &Cluster,
) -> Result<Result<BTreeMap<String, Found>, KafkaError>, Error> {
    let all = config.group_topics().map_err(|error| Error::new(ErrorKind::Config, "name the topics").because(error))?;
    let wanted: Vec<&str> = all
        .topics
        .iter()
        .flat_map(|it| [it.source.as_str(), it.dlq.as_str()].into_iter().chain(it.retry.iter().map(|it| it.1.as_str())))
        .collect();
    cluster.describe(&wanted).await
}

pub(super) fn compare(config: &Config, found: &BTreeMap<String, Found>) -> Result<Plan, Error> {
    let topics = desired(config, found)?;
    Ok(Plan { topics: topics.into_iter().map(|it| it.against(found)).collect() })
}

async fn create(cluster: &Cluster, plan: &Plan) -> Result<(), Error> {
    let missing = plan.topics.iter().filter(|it| it.action == Action::Create);
    let new: Vec<NewTopic<'_>> = missing
        .map(|topic| {
            let replication = TopicReplication::Fixed(topic.replication_factor);
            let new = NewTopic::new(&topic.name, topic.partitions, replication);
            topic.settings.iter().fold(new, |new, it| new.set(it.name, &it.wanted))
        })
        .collect();
    if new.is_empty() { Ok(()) } else { cluster.create(&new).await }
}

async fn alter(cluster: &Cluster, plan: &Plan, found: &BTreeMap<String, Found>) -> Result<(), Error> {
    let differing = plan.topics.iter().filter(|it| it.action == Action::Alter);
    let changes: Vec<AlterConfig<'_>> = differing
        .map(|topic| {
            let mut change = AlterConfig::new(ResourceSpecifier::Topic(&topic.name));
            // The request replaces every setting of the topic: those that are not ours must be repeated.
            if let Some(found) = found.get(&topic.name) {
                change = found.own.iter().fold(change, |change, (name, value)| change.set(name, value));
            }
            topic.settings.iter().fold(change, |change, it| change.set(it.name, &it.wanted))
        })
        .collect();
    if changes.is_empty() { Ok(()) } else { cluster.alter(&changes).await }
}

#[cfg(test)]
mod tests;
