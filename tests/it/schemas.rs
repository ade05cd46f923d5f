//! Payloads and their schemas: what is refused, where, and what a registry adds.

mod produced;
mod registry;

use sekali_consumer::config::Config;
use sekali_producer::config::Validate;
use sekali_tests::group::Group;
use sekali_tests::harness::Outgoing;
use sekali_tests::performing::{Calling, attempts};
use sekali_tests::scripted::Scripted;

/// A record of a type.
fn event(id: &str, ty: &str, payload: impl Into<bytes::Bytes>) -> Outgoing {
    Outgoing::new(id.to_owned(), payload).id(id).header("ce_type", ty.to_owned())
}

/// An adjustment that its schema accepts.
fn good(id: &str) -> Outgoing {
    event(id, "stock.adjusted", r#"{"sku":"a","delta":1}"#)
}

/// Code and message of the only dead letter, from the table; its headers on the topic say the same.
async fn only_letter(group: &Group) -> (String, String) {
    let letters = group.kafka.read_all(&group.dlq()).await;
    assert_eq!(letters.len(), 1);
    let client = group.database.connect().await;
    let row = client.query_one("SELECT code, message FROM sekali.dead_letter", &[]).await.unwrap();
    let (code, message): (String, String) = (row.get(0), row.get(1));
    assert_eq!(letters[0].headers.text("sekali-error-code"), Some(code.as_str()));
    assert_eq!(letters[0].headers.text("sekali-error-message"), Some(message.as_str()));
    (code, message)
}

async fn nothing_is_retried(group: &Group) {
    for topic in group.retry_topics() {
        assert_eq!(group.kafka.read_all(&topic).await.len(), 0, "{topic}");
    }
}

fn validating(validate: Validate) -> impl FnOnce(&mut Config) {
    move |config| config.schemas.consume = validate
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_schema_refuses_dies_at_once_with_the_place_and_without_the_value() {
    let group = Group::new("refused", 1, validating(Validate::Known)).await;
    let bad = event("bad", "stock.adjusted", r#"{"sku":"a","delta":"hunter2"}"#);
    group.produce([good("before"), bad, good("after"), event("other", "price.set", "no json")]).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.settled().await;
    member.stop().await.unwrap();

    assert_eq!(group.effects().await.into_keys().collect::<Vec<_>>(), ["after", "before", "other"]);
    assert_eq!(handler.seen("bad"), Vec::<u32>::new(), "no handler sees it");
    let dead = group.dead_letters().await;
    assert_eq!(dead, [("bad".to_owned(), "permanent".to_owned(), "permanent".to_owned(), 1)]);
    let (code, message) = only_letter(&group).await;
    assert_eq!(code, "SCHEMA");
    assert_eq!(message, "payload is refused by schema stock.adjusted v1 at /delta: type");
    nothing_is_retried(&group).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strictly_a_type_without_a_schema_is_refused_and_a_directory_gives_it_one() {
    let schemas = tempfile::tempdir().unwrap();
    std::fs::write(schemas.path().join("price.set.v1.json"), r#"{"required": ["price"]}"#).unwrap();
    let group = Group::new("strict", 1, |config| {
        config.schemas.consume = Validate::Strict;
        config.schemas.directory = Some(schemas.path().to_owned());
    })
    .await;
    let records = [
        good("good"),
        event("priced", "price.set", r#"{"price":1}"#),
        event("unpriced", "price.set", "{}"),
        event("unknown", "price.unset", "{}"),
        Outgoing { payload: None, ..good("tombstone") },
    ];
    group.produce(records).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await.into_keys().collect::<Vec<_>>(), ["good", "priced", "tombstone"]);
    let client = group.database.connect().await;
    let rows = client.query("SELECT key_text, message FROM sekali.dead_letter ORDER BY 1", &[]).await.unwrap();
    let dead: Vec<(String, String)> = rows.iter().map(|it| (it.get(0), it.get(1))).collect();
    let expected = [
        ("unknown", "no schema is known for the type of the event, and schemas.consume is \"strict\""),
        ("unpriced", "payload is refused by schema price.set v1 at /price: required"),
    ];
    assert_eq!(dead, expected.map(|(key, message)| (key.to_owned(), message.to_owned())));
}

/// SCH-03: a producer is upgraded before its consumers.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_a_newer_producer_adds_are_let_through() {
    let group = Group::new("newer", 1, validating(Validate::Strict)).await;
    let newer = event("newer", "stock.adjusted", r#"{"sku":"a","delta":1,"warehouse":"north"}"#);
    let without = event("without", "stock.adjusted", r#"{"sku":"a"}"#);
    group.produce([newer, without]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await, [("newer".to_owned(), 1)].into());
    assert_eq!(only_letter(&group).await.1, "payload is refused by schema stock.adjusted v1 at /delta: required");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_not_performed_for_what_its_schema_refuses() {
    let group = Group::new("effect", 1, validating(Validate::Known)).await;
    group.produce([good("good"), event("bad", "stock.adjusted", "{}")]).await;
    let member = group.start_effect(Calling::new(&group).await).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(attempts(&group).await, [("good".to_owned(), vec![1])].into());
    assert_eq!(only_letter(&group).await.0, "SCHEMA");
    nothing_is_retried(&group).await;
}
