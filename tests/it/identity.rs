//! Whose message it is: scopes and sources of the idempotency key.

use sekali_consumer::config::KeyFrom;
use sekali_consumer::schemas::idempotency::KeyError;
use sekali_consumer::{Failure, Handler, IdempotencyKey, Message, Record, Reply, Transaction};
use sekali_tests::group::Group;
use sekali_tests::harness::Outgoing;
use sekali_tests::scripted::Scripted;

#[tokio::test(flavor = "multi_thread")]
async fn two_groups_on_one_topic_and_one_database_do_not_hide_messages_from_each_other() {
    let first = Group::new("scope", 2, |_| {}).await;
    let mut second = Group::new("scope-too", 2, |_| {}).await;
    second.config.postgres.url = Some(first.database.url().into());
    second.config.consumer.topics = vec![first.topic.clone()];
    let topics = second.config.group_topics().unwrap();
    let of_second: Vec<(&str, i32)> = topics.topics[0]
        .retry
        .iter()
        .map(|it| (it.1.as_str(), 2))
        .chain([(topics.topics[0].dlq.as_str(), 2)])
        .collect();
    first.kafka.create_exactly(&of_second, &[]).await;
    first.produce((0..100).map(|it| Outgoing::new("k", "{}").id(&format!("m-{it}")))).await;
    let members = [first.start(Scripted::default()).await, second.start(Scripted::default()).await];
    first.settled().await;
    sekali_tests::harness::eventually("the other group has caught up", sekali_tests::group::LIMIT, async || {
        first.kafka.lag(second.name(), &first.topic).await == 0
    })
    .await;
    for member in members {
        member.stop().await.unwrap();
    }
    let effects = first.effects().await;
    assert!(effects.len() == 100 && effects.values().all(|it| *it == 2), "one effect for each group: {effects:?}");
    let rows: i64 = first
        .database
        .scalar("SELECT count(*) FROM (SELECT 1 FROM sekali.inbox GROUP BY consumer_id HAVING count(*) = 100) AS it")
        .await;
    assert_eq!(rows, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinates_identify_records_without_a_key_also_through_a_retry() {
    let group = Group::new("coordinates", 1, |config| config.consumer.key_from = KeyFrom::Coordinates).await;
    group.produce([Outgoing::new("k", "{}"), Outgoing::new("k", "{}").header("script", "transient=1")]).await;
    for _restart in 0..2 {
        let member = group.start(Scripted::default()).await;
        group.settled().await;
        member.stop().await.unwrap();
    }
    let effects = group.effects().await;
    assert!(effects.len() == 2 && effects.values().all(|it| *it == 1), "{effects:?}");
    assert!(group.dead_letters().await.is_empty());
}

/// Takes the key from the payload.
struct OwnKey(Scripted);

impl Handler for OwnKey {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        self.0.handle(message, tx).await
    }

    fn idempotency_key(&self, record: &Record) -> Option<Result<IdempotencyKey, KeyError>> {
        let payload = String::from_utf8_lossy(record.payload.as_deref()?).into_owned();
        assert!(payload != "panic", "a function that panics must not stop the others");
        Some(IdempotencyKey::new(payload))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_own_key_comes_before_the_headers() {
    let group = Group::new("own-key", 1, |_| {}).await;
    let record = |payload: &'static str, id: &str| Outgoing::new("k", payload).id(id);
    group.produce([record("a", "1"), record("a", "2"), record("panic", "3"), record("b", "1")]).await;
    let member = group.start(OwnKey(Scripted::default())).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await, [("a".to_owned(), 1), ("b".to_owned(), 1)].into());
    assert_eq!(group.dead_letters().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_cloudevents_carry_their_identity_in_the_payload() {
    let group = Group::new("structured", 1, |_| {}).await;
    let event = "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/s\",\"type\":\"t\",\"data\":{}}";
    let record = Outgoing::new("k", event).header("content-type", "application/cloudevents+json");
    group.produce([record.clone(), record]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await, [("/s\u{1f}1".to_owned(), 1)].into());
}
