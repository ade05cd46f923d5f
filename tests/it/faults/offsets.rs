//! Committed offsets.

use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminOptions, NewPartitions};
use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;

use super::bench::{OffsetWatch, commit, handled, mocked, scripted, took_effect_once, watchful};

/// OFF-01.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_outlives_its_assignment_does_not_move_the_offset() {
    let group = Group::new("late-mark", 2, |config| {
        config.consumer.drain_timeout = Duration::from_millis(300);
        config.consumer.batch_messages_max = 5.try_into().unwrap();
    })
    .await;
    // One hand for each partition, and both are full when the second member comes.
    group.produce((0..2).map(|it| scripted(&format!("late-{it}"), "slow=4000").partition(it))).await;
    group.produce((0..100).map(|it| scripted(&format!("m-{it}"), "ok").partition(it % 2))).await;
    let watch = OffsetWatch::start(&group);
    let (slow, quick) = (Scripted::default(), Scripted::default());
    let first = group.start(slow.clone()).await;
    handled(&slow, "late-0").await;
    handled(&slow, "late-1").await;
    let second = group.start(quick.clone()).await;
    // The new owner goes past the record while the old one has just finished it.
    eventually("the second member works", LIMIT, async || 0 < quick.calls()).await;
    group.settled().await;
    second.stop().await.unwrap();
    group.produce((100..120).map(|it| scripted(&format!("m-{it}"), "ok").partition(it % 2))).await;
    group.settled().await;
    first.stop().await.unwrap();
    watch.end().await;
    took_effect_once(&group, 122).await;
}

/// OFF-04: markers of transactions leave holes between and behind the records. MET-04: and no lag that never ends.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_markers_and_aborted_records_leave_no_lag() {
    const TRANSACTIONS: usize = 150;
    let group = Group::new("holes", 2, watchful).await;
    let member = group.start(Scripted::default()).await;
    let (topic, mut config) = (group.topic.clone(), group.kafka.client_config());
    config.set("transactional.id", group.name());
    tokio::task::spawn_blocking(move || produce_in_transactions(&config, &topic, TRANSACTIONS)).await.unwrap();
    group.settled().await;
    took_effect_once(&group, TRANSACTIONS - TRANSACTIONS.div_ceil(5)).await;
    let (committed, ends) =
        (group.kafka.committed_offsets(group.name(), &group.topic).await, group.kafka.end_offsets(&group.topic).await);
    assert_eq!(committed, ends);
    let records: i64 = ends.values().sum();
    assert_eq!(records as usize, 2 * TRANSACTIONS, "a marker for each record");
    // The position behind the holes is where records go on.
    group.produce([scripted("after-0", "ok").partition(0), scripted("after-1", "ok").partition(1)]).await;
    group.settled().await;
    member.stop().await.unwrap();
    took_effect_once(&group, 2 + TRANSACTIONS - TRANSACTIONS.div_ceil(5)).await;
}

/// One record a transaction; every fifth is aborted, the first and the last two of each partition among them.
fn produce_in_transactions(config: &ClientConfig, topic: &str, count: usize) {
    const WAIT: Duration = Duration::from_secs(30);
    let producer: BaseProducer = config.create().unwrap();
    producer.init_transactions(WAIT).unwrap();
    for it in 0..count {
        producer.begin_transaction().unwrap();
        let id = format!("t-{it}");
        let headers = OwnedHeaders::new().insert(Header { key: "idempotency-key", value: Some(&id) });
        let record = BaseRecord::<str, str>::to(topic).key("k").payload("{}").headers(headers);
        producer.send(record.partition((it % 2) as i32)).unwrap();
        if it % 5 == 0 {
            producer.flush(WAIT).unwrap();
            producer.abort_transaction(WAIT).unwrap();
        } else {
            producer.commit_transaction(WAIT).unwrap();
        }
    }
}

/// OFF-05: records that were deleted before anybody read them.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_records_beyond_the_committed_offset_are_passed_over() {
    let group = Group::new("trimmed", 1, watchful).await;
    group.produce((0..100).map(|it| scripted(&format!("m-{it}"), "ok"))).await;
    commit(&group, &group.topic, &[(0, 10)]).await;
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(&group.topic, 0, rdkafka::Offset::Offset(50)).unwrap();
    group.kafka.admin().delete_records(&before, &AdminOptions::new()).await.unwrap();
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    took_effect_once(&group, 50).await;
}

/// OFF-07.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_added_while_running_are_read_from_their_beginning() {
    let group = Group::new("added", 2, |config| {
        let refresh = ("topic.metadata.refresh.interval.ms".to_owned(), "1000".to_owned());
        config.kafka.properties.extend([refresh]);
    })
    .await;
    let member = group.start(Scripted::default()).await;
    group.produce([scripted("before", "ok")]).await;
    group.settled().await;
    let more = NewPartitions::new(&group.topic, 4);
    group.kafka.admin().create_partitions([&more], &AdminOptions::new()).await.unwrap();
    eventually("the broker leads the new partitions", LIMIT, async || group.kafka.partitions(&group.topic).await == 4)
        .await;
    // A fresh client: the bench's own may not know the new partitions yet.
    let fresh = sekali_tests::harness::Kafka::at(group.kafka.bootstrap()).unwrap();
    fresh.produce(&group.topic, (0..100).map(|it| scripted(&format!("m-{it}"), "ok").partition(2 + it % 2))).await;
    group.settled().await;
    member.stop().await.unwrap();
    took_effect_once(&group, 101).await;
}

/// OFF-08.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_offset_lookup_is_not_taken_for_no_offset() {
    let (group, cluster) = mocked("lookup", 8, |_| {}).await;
    group.produce((0..80).map(|it| scripted(&format!("m-{it}"), "ok").partition(it % 8))).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    // Nothing hides a record that is delivered again.
    group.database.execute("TRUNCATE sekali.inbox").await;
    let errors = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
    ];
    cluster.request_errors(RDKafkaApiKey::OffsetFetch, &errors.repeat(4));
    let mut members = Vec::new();
    for _ in 0..2 {
        members.push(group.start(Scripted::default()).await);
    }
    group.produce((80..160).map(|it| scripted(&format!("m-{it}"), "ok").partition(it % 8))).await;
    let effects = "SELECT count(DISTINCT key) FROM effect";
    eventually("the new records are handled", LIMIT, async || group.database.scalar::<i64>(effects).await == 160).await;
    group.settled().await;
    for member in members {
        member.stop().await.unwrap();
    }
    took_effect_once(&group, 160).await;
}
