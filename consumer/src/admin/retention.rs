//! Whether decisions outlive what Kafka may deliver again.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use sekali_producer::{Error, ErrorKind};

use super::Cluster;
use super::topics::Found;
use crate::config::{Config, inbox_retention_problem};

/// A topic whose records live longer than the decisions on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outlived {
    /// The topic and both numbers.
    pub(super) finding: String,
    pub(super) remedy: &'static str,
}

/// The worst of the topics that the group reads, by what the cluster really keeps and not by what is configured.
pub(super) fn outlived(config: &Config, found: &BTreeMap<String, Found>) -> Result<Option<Outlived>, Error> {
    let Some(inbox) = config.inbox.retention else { return Ok(None) };
    let all = config.group_topics().map_err(|error| Error::new(ErrorKind::Config, "name the topics").because(error))?;
    let read = all.topics.iter().flat_map(|it| std::iter::once(&it.source).chain(it.retry.iter().map(|it| &it.1)));
    let kept = read.filter_map(|name| Some((found.get(name)?.retention().unwrap_or(Duration::MAX), name)));
    let Some((longest, name)) = kept.max() else { return Ok(None) };
    if longest == Duration::MAX {
        let inbox = humantime::format_duration(inbox);
        return Ok(Some(Outlived {
            finding: format!(
                "topic {name} keeps records for ever, and inbox.retention forgets decisions after {inbox}"
            ),
            remedy: "limit the topic's retention.ms below inbox.retention, or set inbox.retention = \"forever\", which \
                     purges nothing",
        }));
    }
    let problem = inbox_retention_problem(inbox, longest, config.retry_path_max());
    Ok(problem.map(|problem| Outlived {
        finding: format!("topic {name}: inbox.retention {problem}"),
        remedy: "raise inbox.retention, or shorten the topic's retention.ms",
    }))
}

/// Refuses a group whose inbox would forget decisions that Kafka may deliver again. Returns how long each topic of the
/// group keeps its records, in seconds, -1 for ever.
///
/// A cluster or a login that does not show the settings of topics is trusted to have those that are configured; then
/// nothing is returned, nor where the inbox forgets nothing and nobody asks.
pub(crate) async fn require_inbox_retention(
    config: &Config,
    cluster: &Cluster,
) -> Result<BTreeMap<String, f64>, Error> {
    if config.inbox.retention.is_none() {
        return Ok(BTreeMap::new());
    }
    let found = match super::topics::look_closely(config, cluster).await? {
        Ok(found) => found,
        Err(error) => {
            let code = error.rdkafka_error_code();
            let hidden = [
                Code::UnsupportedFeature,
                Code::UnsupportedVersion,
                Code::TopicAuthorizationFailed,
                Code::ClusterAuthorizationFailed,
            ];
            if !code.is_some_and(|it| hidden.contains(&it)) {
                return Err(cluster.explain(&error));
            }
            tracing::warn!(
                ?code,
                "the retention of the topics cannot be read, topics.source_retention is taken for it: allow \
                 DescribeConfigs on the topics"
            );
            return Ok(BTreeMap::new());
        }
    };
    match outlived(config, &found)? {
        None => {
            Ok(found.into_iter().map(|(name, it)| (name, it.retention().map_or(-1.0, |it| it.as_secs_f64()))).collect())
        }
        Some(it) => {
            let doing = "start: the inbox would forget decisions on messages that kafka may deliver again";
            Err(Error::new(ErrorKind::Config, doing).because(format!("{}; {}", it.finding, it.remedy)))
        }
    }
}
