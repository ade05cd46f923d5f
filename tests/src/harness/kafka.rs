//! The broker as the tests see it: topics, records, offsets and groups, through clients that are not the product's.

mod groups;
mod records;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::FutureProducer;
use tokio::sync::OnceCell;

use super::eventually::eventually;
use super::servers;

pub use groups::GroupView;
pub use records::{Outgoing, Place};

/// Limit of every single question to the broker.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// A broker and the bench's own clients for it. Cheap to clone.
#[derive(Clone)]
pub struct Kafka {
    bootstrap: String,
    clients: Arc<Clients>,
}

struct Clients {
    admin: AdminClient<DefaultClientContext>,
    producer: FutureProducer,
}

/// The broker that all tests of the run share: `SEKALI_TEST_KAFKA`, or one that is started on first use.
///
/// # Panics
/// There is none to be had; the message says what was tried.
pub async fn kafka() -> &'static Kafka {
    static SHARED: OnceCell<Kafka> = OnceCell::const_new();
    let start = async || {
        let bootstrap = servers::shared(servers::Server::Kafka).await?;
        Kafka::at(&bootstrap)
    };
    SHARED.get_or_try_init(start).await.unwrap_or_else(|error| panic!("no Kafka for the tests: {error:#}"))
}

/// A name that no other test and no earlier run uses, good for groups, topics and databases.
pub fn unique(label: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{label}-{}", &id[..10])
}

impl Kafka {
    /// Clients for a broker, given as `host:port`. Does not connect yet.
    ///
    /// # Errors
    /// The address cannot be read.
    pub fn at(bootstrap: &str) -> Result<Kafka, anyhow::Error> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap).set("topic.metadata.refresh.fast.interval.ms", "20");
        // A broker that a test killed is back in a few seconds.
        config.set("reconnect.backoff.max.ms", "500");
        let admin = config.create().context("admin client")?;
        let producer = config
            .set("enable.idempotence", "true")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "2")
            .set("message.max.bytes", "8000000")
            .create()
            .context("producer")?;
        Ok(Kafka { bootstrap: bootstrap.to_owned(), clients: Arc::new(Clients { admin, producer }) })
    }

    /// Address as `host:port`.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// A client configuration that has the address only.
    pub fn client_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        config
    }

    /// The bench's administration client.
    pub fn admin(&self) -> &AdminClient<DefaultClientContext> {
        &self.clients.admin
    }

    /// Creates one topic with a unique name that begins with `label`, and returns the name.
    ///
    /// # Panics
    /// The broker refuses, as in every function here.
    pub async fn topic(&self, label: &str, partitions: i32) -> String {
        self.create_topics(&[(label, partitions)]).await.remove(0)
    }

    /// Creates topics with unique names that begin with the labels, and returns the names in the same order.
    pub async fn create_topics(&self, topics: &[(&str, i32)]) -> Vec<String> {
        let names: Vec<(String, i32)> = topics.iter().map(|(label, partitions)| (unique(label), *partitions)).collect();
        let exact: Vec<(&str, i32)> = names.iter().map(|(name, partitions)| (name.as_str(), *partitions)).collect();
        self.create_exactly(&exact, &[]).await;
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// Creates topics with these very names, for instance the retry topics of a unique source topic, with settings such
    /// as `("max.message.bytes", "1000")`. Returns when every partition has a leader.
    pub async fn create_exactly(&self, topics: &[(&str, i32)], settings: &[(&str, &str)]) {
        let new = topics.iter().map(|(name, partitions)| {
            let topic = NewTopic::new(name, *partitions, TopicReplication::Fixed(1));
            settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
        });
        let new: Vec<NewTopic<'_>> = new.collect();
        let results = self.admin().create_topics(&new, &options()).await.expect("the broker creates topics");
        for result in results {
            result.unwrap_or_else(|(name, code)| panic!("topic {name} was not created: {code}"));
        }
        for (name, partitions) in topics {
            self.wait_for_leaders(name, *partitions).await;
        }
    }

    /// Deletes topics.
    pub async fn delete_topics(&self, names: &[&str]) {
        let results = self.admin().delete_topics(names, &options()).await.expect("the broker deletes topics");
        for result in results {
            result.unwrap_or_else(|(name, code)| panic!("topic {name} was not deleted: {code}"));
        }
    }

    /// First offset of each partition that is still there.
    pub async fn start_offsets(&self, topic: &str) -> BTreeMap<i32, i64> {
        self.watermarks(topic).await.into_iter().map(|(partition, (start, _))| (partition, start)).collect()
    }

    /// Offset that the next record of each partition will get.
    pub async fn end_offsets(&self, topic: &str) -> BTreeMap<i32, i64> {
        self.watermarks(topic).await.into_iter().map(|(partition, (_, end))| (partition, end)).collect()
    }

    pub(super) async fn watermarks(&self, topic: &str) -> BTreeMap<i32, (i64, i64)> {
        let partitions = self.partitions(topic).await;
        let topic = topic.to_owned();
        let client = self.reader(&[]);
        blocking(move || {
            let ask = |partition| {
                let marks = client.fetch_watermarks(&topic, partition, TIMEOUT);
                marks.map(|it| (partition, it)).unwrap_or_else(|error| panic!("watermarks of {topic}: {error}"))
            };
            (0..partitions).map(ask).collect()
        })
        .await
    }

    /// Number of partitions of a topic.
    pub async fn partitions(&self, topic: &str) -> i32 {
        let (kafka, topic) = (self.clone(), topic.to_owned());
        blocking(move || {
            let metadata = kafka.admin().inner().fetch_metadata(Some(&topic), TIMEOUT).expect("the broker answers");
            metadata.topics().first().map_or(0, |it| it.partitions().len() as i32)
        })
        .await
    }

    /// Waits until the broker answers, and until its first group has been served: that one waits for the offsets topic.
    pub(super) async fn warm_up(&self, timeout: Duration) {
        let what = format!("the broker at {} serves groups", self.bootstrap);
        eventually(&what, timeout, async || {
            let client = self.reader(&[("group.id", "sekali-warm-up")]);
            let ask = move || {
                let mut list = rdkafka::TopicPartitionList::new();
                list.add_partition("sekali-warm-up", 0);
                client.committed_offsets(list, Duration::from_secs(5)).map(|_| ())
            };
            blocking(ask).await
        })
        .await;
    }

    async fn wait_for_leaders(&self, topic: &str, partitions: i32) {
        let what = format!("topic {topic} has {partitions} leaders");
        let (kafka, topic) = (self.clone(), topic.to_owned());
        eventually(&what, TIMEOUT, async || {
            let (kafka, topic) = (kafka.clone(), topic.clone());
            blocking(move || kafka.leaders(&topic, partitions)).await
        })
        .await;
    }

    fn leaders(&self, topic: &str, partitions: i32) -> Result<(), anyhow::Error> {
        let metadata = self.admin().inner().fetch_metadata(Some(topic), TIMEOUT)?;
        let topic = metadata.topics().first().context("no such topic")?;
        let led = topic.partitions().iter().filter(|it| it.error().is_none() && it.leader() >= 0).count();
        ensure!(led as i32 == partitions, "{led} leaders, error {:?}", topic.error());
        Ok(())
    }

    /// A consumer that joins no group, for reading and asking. librdkafka wants a group's name even then.
    pub(super) fn reader(&self, settings: &[(&str, &str)]) -> BaseConsumer {
        let mut config = self.client_config();
        config
            .set("group.id", "sekali-bench")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true")
            .set("topic.metadata.refresh.fast.interval.ms", "20")
            .set("fetch.wait.max.ms", "10");
        for (key, value) in settings {
            config.set(*key, *value);
        }
        config.create().expect("the settings above are valid")
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(TIMEOUT)).request_timeout(Some(TIMEOUT))
}

/// librdkafka's questions block.
pub(super) async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(ask).await {
        Ok(answer) => answer,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
