//! `sekali topics` and `sekali lag`.

use std::time::Duration;

use rdkafka::admin::{AdminOptions, ResourceSpecifier};
use sekali_tests::harness::{Outgoing, TestDatabase, eventually, kafka};
use serde_json::Value;

use super::Operator;

const DAY_MS: i64 = 24 * 3600 * 1000;

async fn setting(topic: &str, name: &str) -> String {
    let resource = [ResourceSpecifier::Topic(topic)];
    let described = kafka().await.admin().describe_configs(&resource, &AdminOptions::new()).await.unwrap();
    described[0].as_ref().unwrap().get(name).unwrap().value.clone().unwrap()
}

fn actions(plan: &Value) -> Vec<&str> {
    plan["topics"].as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_applied_once_and_then_there_is_nothing_to_do() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    let (status, plan) = operator.json(&["topics", "plan"]).await;
    assert_eq!((status, actions(&plan)), (0, vec!["create"; 3]));
    assert_eq!(operator.run(&["topics", "plan", "--exit-code"]).await.status, 3);
    assert_eq!(
        operator.run(&["lag"]).await.status,
        1,
        "a plan creates nothing, and a look at the topic does not either"
    );

    let (status, applied) = operator.json(&["topics", "apply"]).await;
    assert_eq!((status, actions(&applied)), (0, vec!["create"; 3]));
    let (topic, group) = (&operator.topic, &operator.group);
    let (retry, dlq) = (format!("{topic}.{group}.retry.2s"), format!("{topic}.{group}.dlq"));
    for name in [topic, &retry, &dlq] {
        assert_eq!(kafka().await.partitions(name).await, 3, "{name}");
        assert_eq!(setting(name, "cleanup.policy").await, "delete");
    }
    assert_eq!(setting(topic, "max.message.bytes").await, "1048576");
    assert_eq!(setting(&retry, "max.message.bytes").await, "1114112");
    assert_eq!(setting(&dlq, "retention.ms").await, (14 * DAY_MS).to_string());

    let (status, plan) = operator.json(&["topics", "plan", "--exit-code"]).await;
    assert_eq!((status, actions(&plan)), (0, vec!["keep"; 3]));
    let (status, applied) = operator.json(&["topics", "apply"]).await;
    assert_eq!((status, actions(&applied)), (0, vec!["keep"; 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_adjusted_and_foreign_ones_kept() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    let settings = [("retention.ms", "1000000"), ("max.message.bytes", "5000"), ("segment.ms", "7654321")];
    kafka().await.create_exactly(&[(&operator.topic, 3)], &settings).await;
    let (status, applied) = operator.json(&["topics", "apply"]).await;
    assert_eq!((status, actions(&applied)), (0, vec!["alter", "create", "create"]));
    // The broker takes a change over a moment after the controller has answered.
    let altered = async || setting(&operator.topic, "retention.ms").await == (7 * DAY_MS).to_string();
    eventually("the broker knows the new settings", Duration::from_secs(20), altered).await;
    assert_eq!(setting(&operator.topic, "max.message.bytes").await, "1048576");
    assert_eq!(setting(&operator.topic, "segment.ms").await, "7654321", "what is not ours stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_never_added_and_retention_never_shortened() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    let retention = (20 * DAY_MS).to_string();
    kafka().await.create_exactly(&[(&operator.topic, 2)], &[("retention.ms", &retention)]).await;
    let ended = operator.run(&["topics", "apply"]).await;
    assert_eq!(ended.status, 3, "{}", ended.stdout);
    assert!(
        ended.stdout.contains("breaks their order") && ended.stdout.contains("deletes records"),
        "{}",
        ended.stdout
    );
    assert_eq!(kafka().await.partitions(&operator.topic).await, 2);
    assert_eq!(setting(&operator.topic, "retention.ms").await, retention);
    let retry = format!("{}.{}.retry.2s", operator.topic, operator.group);
    assert_eq!(kafka().await.partitions(&retry).await, 2, "as many as the source really has");
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_counts_what_is_not_committed() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    operator.run(&["lag"]).await.expect(1, &["it does not exist", "sekali topics apply"]);
    operator.run(&["topics", "apply"]).await.expect(0, &[]);
    let records = (0..30).map(|it| Outgoing::new("k", it.to_string()).partition(it % 3));
    kafka().await.produce(&operator.topic, records).await;
    let retry = format!("{}.{}.retry.2s", operator.topic, operator.group);
    kafka().await.produce(&retry, [Outgoing::new("k", "v").partition(1)]).await;
    commit(&operator, 0, 4).await;

    let (status, lag) = operator.json(&["lag"]).await;
    assert_eq!(status, 0);
    let rows: Vec<_> = lag
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let number = |key: &str| it[key].as_i64();
            let topic = it["topic"].as_str().unwrap();
            let delayed = it["delayed"].as_bool().unwrap();
            (
                topic,
                number("partition").unwrap(),
                number("committed"),
                number("end").unwrap(),
                number("lag").unwrap(),
                delayed,
            )
        })
        .collect();
    let source = operator.topic.as_str();
    let expected = [
        (source, 0, Some(4), 10, 6, false),
        (source, 1, None, 10, 10, false),
        (source, 2, None, 10, 10, false),
        (&retry, 0, None, 0, 0, true),
        (&retry, 1, None, 1, 1, true),
        (&retry, 2, None, 0, 0, true),
    ];
    assert_eq!(rows, expected);
    let text = operator.run(&["lag"]).await.stdout;
    assert!(text.contains("source topics: 26 behind, retry topics: 1 waiting"), "{text}");
}

async fn commit(operator: &Operator, partition: i32, offset: i64) {
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
    let mut config = kafka().await.client_config();
    let consumer: BaseConsumer = config.set("group.id", &operator.group).create().unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(&operator.topic, partition, rdkafka::Offset::Offset(offset)).unwrap();
    tokio::task::spawn_blocking(move || consumer.commit(&list, CommitMode::Sync).unwrap()).await.unwrap();
}
