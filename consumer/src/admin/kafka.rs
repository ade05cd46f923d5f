//! The cluster as an operator sees it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ConfigResource, ConfigSource, NewTopic};
use rdkafka::admin::{OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use sekali_producer::config::KafkaSection;
use sekali_producer::{Error, ErrorKind, KafkaCauses, PolledProducer, explain};

use super::topics::Found;

/// Longest wait for a broker's first answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that wait looks for a refused login, which no longer wait would cure.
const CONNECT_STEP: Duration = Duration::from_secs(1);
/// Longest wait for one request after that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a new topic may take until every broker knows it.
const TOPIC_TIMEOUT: Duration = Duration::from_secs(30);
const TOPIC_POLL: Duration = Duration::from_millis(100);

/// A connection for administration.
pub(crate) struct Cluster {
    admin: Arc<AdminClient<KafkaCauses>>,
    /// Asked for metadata: its client serves the error callback, which the admin client's does not.
    probe: PolledProducer,
    causes: KafkaCauses,
}

impl Cluster {
    /// Connects, and waits until a broker answers.
    pub(crate) async fn connect(section: &KafkaSection) -> Result<Cluster, Error> {
        let config = section.client_config()?;
        let causes = section.causes();
        let probe = PolledProducer::create(&config, &causes)?;
        let admin = config.create_with_context(causes.clone()).map_err(|error| explain(&error, &causes))?;
        let cluster = Cluster { admin: Arc::new(admin), probe, causes };
        cluster.metadata().await?;
        Ok(cluster)
    }

    /// Every topic and broker. Asking for all of them never creates a topic.
    pub(crate) async fn metadata(&self) -> Result<Metadata, Error> {
        let (probe, causes) = (self.probe.clone(), self.causes.clone());
        blocking(move || {
            let deadline = Instant::now() + CONNECT_TIMEOUT;
            loop {
                match probe.client().fetch_metadata(None, CONNECT_STEP) {
                    Ok(metadata) => return Ok(metadata),
                    Err(error) if deadline <= Instant::now() || causes.is_login_refused() => {
                        return Err(explain(&error, &causes));
                    }
                    // It may fail at once, without waiting for its timeout.
                    Err(_) => std::thread::sleep(TOPIC_POLL),
                }
            }
        })
        .await
    }

    /// The named topics that exist, with their settings. The inner error is that of the request for the settings.
    pub(super) async fn describe(&self, names: &[&str]) -> Result<Result<BTreeMap<String, Found>, KafkaError>, Error> {
        let metadata = self.metadata().await?;
        let exists = |name: &&str| metadata.topics().iter().any(|it| it.name() == *name && it.error().is_none());
        let existing: Vec<ResourceSpecifier<'_>> =
            names.iter().filter(|it| exists(it)).map(|it| ResourceSpecifier::Topic(it)).collect();
        if existing.is_empty() {
            return Ok(Ok(BTreeMap::new()));
        }
        let described = match self.admin().await?.describe_configs(&existing, &options()).await {
            Ok(described) => described,
            Err(error) => return Ok(Err(error)),
        };
        let mut found = BTreeMap::new();
        for resource in described {
            let resource = match resource {
                Ok(resource) => resource,
                Err(code) => return Ok(Err(KafkaError::Global(code))),
            };
            let OwnedResourceSpecifier::Topic(name) = &resource.specifier else { continue };
            let Some(topic) = metadata.topics().iter().find(|it| it.name() == name) else { continue };
            let partitions = topic.partitions();
            let copies = partitions.iter().map(|it| it.replicas().len()).min().unwrap_or_default();
            found.insert(
                name.clone(),
                Found {
                    partitions: i32::try_from(partitions.len()).unwrap_or(i32::MAX),
                    replication_factor: i32::try_from(copies).unwrap_or(i32::MAX),
                    settings: values(&resource, |_| true),
                    own: values(&resource, |source| matches!(source, ConfigSource::DynamicTopic)),
                },
            );
        }
        Ok(Ok(found))
    }

    /// Creates topics. One that somebody else created meanwhile is fine.
    pub(super) async fn create(&self, topics: &[NewTopic<'_>]) -> Result<(), Error> {
        let results = self.admin().await?.create_topics(topics, &options()).await.map_err(|it| self.explain(&it))?;
        let refused = |(name, code): (String, RDKafkaErrorCode)| match code {
            RDKafkaErrorCode::TopicAlreadyExists => None,
            RDKafkaErrorCode::InvalidReplicationFactor => Some(failed(
                format!("create topic {name}: the cluster has fewer brokers than topics.replication_factor; lower it"),
                code,
            )),
            RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed => Some(failed(
                format!(
                    "create topic {name}: the login may not; grant it create on the cluster, or create it yourself"
                ),
                code,
            )),
            _ => Some(failed(format!("create topic {name}"), code)),
        };
        match results.into_iter().filter_map(Result::err).find_map(refused) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Replaces the settings of topics.
    pub(super) async fn alter(&self, changes: &[AlterConfig<'_>]) -> Result<(), Error> {
        let results = self.admin().await?.alter_configs(changes, &options()).await.map_err(|it| self.explain(&it))?;
        match results.into_iter().find_map(Result::err) {
            Some((OwnedResourceSpecifier::Topic(name), code)) => {
                Err(failed(format!("change the settings of topic {name}"), code))
            }
            Some((_, code)) => Err(failed("change the settings of the topics".to_owned(), code)),
            None => Ok(()),
        }
    }

    /// Waits until the broker that is asked knows these topics and a leader of each partition.
    pub(super) async fn wait_for_topics(&self, names: impl Iterator<Item = &str> + Clone) -> Result<(), Error> {
        let deadline = Instant::now() + TOPIC_TIMEOUT;
        loop {
            let metadata = self.metadata().await?;
            let led = |name: &str| {
                let topic = metadata.topics().iter().find(|it| it.name() == name && it.error().is_none());
                topic.is_some_and(|it| it.partitions().iter().all(|it| 0 <= it.leader()))
            };
            match names.clone().find(|it| !led(it)) {
                None => return Ok(()),
                Some(name) if deadline <= Instant::now() => {
                    let doing = format!("see topic {name} on the cluster within {} s", TOPIC_TIMEOUT.as_secs());
                    return Err(Error::new(ErrorKind::Kafka, doing));
                }
                Some(_) => tokio::time::sleep(TOPIC_POLL).await,
            }
        }
    }

    /// The client for a request, logged in.
    async fn admin(&self) -> Result<&AdminClient<KafkaCauses>, Error> {
        let (admin, causes) = (self.admin.clone(), self.causes.clone());
        blocking(move || causes.admin_login(&admin)).await?;
        Ok(&self.admin)
    }

    pub(super) fn explain(&self, error: &KafkaError) -> Error {
        explain(error, &self.causes)
    }
}

/// Runs a call of the client that waits.
pub(super) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|error| Error::new(ErrorKind::System, "wait for a kafka request").because(error))?
}

fn values(resource: &ConfigResource, take: impl Fn(&ConfigSource) -> bool) -> BTreeMap<String, String> {
    let taken = resource.entries.iter().filter(|it| take(&it.source));
    taken.filter_map(|it| Some((it.name.clone(), it.value.clone()?))).collect()
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT)).operation_timeout(Some(REQUEST_TIMEOUT))
}

fn failed(doing: String, code: RDKafkaErrorCode) -> Error {
    Error::new(ErrorKind::Kafka, doing).because(code)
}
