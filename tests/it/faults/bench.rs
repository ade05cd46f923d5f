//! What the tests of faults share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{Offset, TopicPartitionList};
use sekali_consumer::Config;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Kafka, Outgoing, TestDatabase, eventually, unique};
use sekali_tests::scripted::{LEDGER, SCRIPT, Scripted};
use tokio::task::JoinHandle;

/// A record with an identity and a script.
pub(crate) fn scripted(id: &str, script: &str) -> Outgoing {
    Outgoing::new(id.to_owned(), "{}").id(id).header(SCRIPT, script.to_owned())
}

/// Makes the client tell what it sees more often, since lag, holes and clocks follow from it.
pub(crate) fn watchful(config: &mut Config) {
    config.kafka.properties.insert("statistics.interval.ms".to_owned(), "300".to_owned());
}

/// Makes the topics of a group that reads the source topic of another one.
pub(crate) async fn make_topics_for(group: &Group, source: usize) {
    let names = group.config.group_topics().unwrap().topics.remove(source);
    let own: Vec<(&str, i32)> =
        [&names.dlq].into_iter().chain(names.retry.iter().map(|it| &it.1)).map(|it| (it.as_str(), 1)).collect();
    group.kafka.create_exactly(&own, &[]).await;
}

/// Every effect happened once, and these are all.
pub(crate) async fn took_effect_once(group: &Group, count: usize) {
    let effects = group.effects().await;
    let twice: Vec<_> = effects.iter().filter(|it| *it.1 != 1).collect();
    assert!(twice.is_empty(), "took effect more than once: {twice:?}");
    assert_eq!(effects.len(), count);
}

/// Waits until a handler was given a message.
pub(crate) async fn handled(handler: &Scripted, id: &str) {
    eventually(&format!("{id} is handled"), LIMIT, async || !handler.seen(id).is_empty()).await;
}

/// Sets committed offsets from outside, as an operator does while nobody is a member.
pub(crate) async fn commit(group: &Group, topic: &str, offsets: &[(i32, i64)]) {
    let mut config = group.kafka.client_config();
    config.set("group.id", group.name());
    let client: BaseConsumer = config.create().unwrap();
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset)).unwrap();
    }
    tokio::task::spawn_blocking(move || client.commit(&list, CommitMode::Sync)).await.unwrap().unwrap();
}

/// Samples the committed offsets of the source topic from outside; none may go back.
pub(crate) struct OffsetWatch {
    stop: Arc<AtomicBool>,
    watching: JoinHandle<Result<u64, String>>,
}

impl OffsetWatch {
    pub(crate) fn start(group: &Group) -> OffsetWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let (kafka, name, topic) = (group.kafka, group.name().to_owned(), group.topic.clone());
        let watching = tokio::spawn(watch(kafka, name, topic, stop.clone()));
        OffsetWatch { stop, watching }
    }

    /// Fails when an offset went back.
    pub(crate) async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.watching.await.unwrap().unwrap_or_else(|broken| panic!("{broken}"));
        assert!(3 <= samples, "{samples} samples");
    }
}

async fn watch(kafka: &Kafka, group: String, topic: String, stop: Arc<AtomicBool>) -> Result<u64, String> {
    let mut seen: BTreeMap<i32, i64> = BTreeMap::new();
    let mut samples = 0;
    while !stop.load(Ordering::Relaxed) {
        for (partition, committed) in kafka.committed_offsets(&group, &topic).await {
            let before = seen.insert(partition, committed).unwrap_or_default();
            if committed < before {
                return Err(format!("offset of partition {partition} went back from {before} to {committed}"));
            }
        }
        samples += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(samples)
}

/// A group on a broker that can be told to answer with errors.
pub(crate) async fn mocked(
    label: &str,
    partitions: i32,
    change: impl FnOnce(&mut Config),
) -> (Group, MockCluster<'static, DefaultProducerContext>) {
    let cluster = MockCluster::new(1).unwrap();
    // It lives as long as the test program, as the group wants it.
    let kafka: &'static Kafka = Box::leak(Box::new(Kafka::at(&cluster.bootstrap_servers()).unwrap()));
    let database = TestDatabase::create().await;
    database.execute(LEDGER).await;
    let topic = unique(label);
    let config = Group::configure(kafka.bootstrap(), &database.url(), &topic, |config| {
        // It does not know the settings of topics.
        config.inbox.retention = None;
        change(config);
    });
    for it in &config.group_topics().unwrap().topics {
        for name in [&it.source, &it.dlq].into_iter().chain(it.retry.iter().map(|it| &it.1)) {
            cluster.create_topic(name, partitions, 1).unwrap();
        }
    }
    (Group { kafka, database, config, topic }, cluster)
}

/// Bytes that do not compress.
pub(crate) fn noise(count: usize) -> Bytes {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}
