//! A schema registry before the payloads.

use std::time::Duration;

use sekali_consumer::config::Config;
use sekali_consumer::schemas::confluent;
use sekali_producer::config::Validate;
use sekali_schemas::events::{EventType, StockAdjusted};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::harness::registry::{Mood, SchemaRegistry};
use sekali_tests::performing::{Calling, attempts};
use sekali_tests::scripted::Scripted;

use super::{event, good, nothing_is_retried, only_letter};

const GOOD: &[u8] = br#"{"sku":"a","delta":1}"#;

fn asking(registry: &SchemaRegistry) -> impl FnOnce(&mut Config) {
    let url = registry.url();
    move |config| {
        config.registry.url = Some(url);
        config.registry.timeout = Duration::from_millis(300);
    }
}

/// Registers the schema of adjustments for a group's topic.
fn registered(registry: &SchemaRegistry, group: &Group) -> u32 {
    registry.register(&format!("{}-value", group.topic), "JSON", StockAdjusted::SCHEMA)
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_get_payloads_without_the_prefix_and_retries_keep_it() {
    let registry = SchemaRegistry::start().await.unwrap();
    let group = Group::new("prefix", 1, asking(&registry)).await;
    let id = registered(&registry, &group);
    let prefixed = confluent::write(id, GOOD);
    let later = event("later", "stock.adjusted", prefixed.clone()).header("script", "transient=1");
    group.produce([later, event("now", "stock.adjusted", prefixed.clone()), good("bare")]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await.into_keys().collect::<Vec<_>>(), ["bare", "later", "now"]);
    let retried = group.kafka.read_all(&group.retry_topics()[0]).await;
    assert_eq!(retried[0].payload.as_deref(), Some(&prefixed[..]));
    assert_eq!(registry.requests(), [format!("GET /schemas/ids/{id}")], "asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_schema_of_the_registry_refuses_dies_at_once_and_keeps_its_bytes() {
    let registry = SchemaRegistry::start().await.unwrap();
    let group = Group::new("schema", 1, asking(&registry)).await;
    let mut group = group;
    group.config.schemas.consume = Validate::Known;
    let id = registered(&registry, &group);
    let bad = confluent::write(id, br#"{"sku":"a","delta":"hunter2"}"#);
    group.produce([event("bad", "whatever", bad.clone())]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    let (code, message) = only_letter(&group).await;
    assert_eq!(code, "SCHEMA");
    assert_eq!(message, format!("payload is refused by schema {id} of the registry at /delta: type"));
    assert_eq!(group.kafka.read_all(&group.dlq()).await[0].payload.as_deref(), Some(&bad[..]));
    nothing_is_retried(&group).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_id_is_a_dead_letter_with_the_bytes_as_they_came() {
    let registry = SchemaRegistry::start().await.unwrap();
    let group = Group::new("unknown", 1, asking(&registry)).await;
    let avro = registry.register("avro-value", "AVRO", "\"string\"");
    let unknown = confluent::write(registry.unknown_id(), GOOD);
    let id = registered(&registry, &group);
    let good = event("good", "stock.adjusted", confluent::write(id, GOOD));
    group.produce([event("unknown", "stock.adjusted", unknown.clone()), good]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    assert_eq!(group.effects().await, [("good".to_owned(), 1)].into());
    let dead = group.dead_letters().await;
    assert_eq!(dead, [("unknown".to_owned(), "invalid".to_owned(), "invalid".to_owned(), 1)]);
    let (code, message) = only_letter(&group).await;
    assert_eq!(
        (code.as_str(), message),
        ("SCHEMA_ID", format!("schema {} is not in the registry", registry.unknown_id()))
    );
    assert_eq!(group.kafka.read_all(&group.dlq()).await[0].payload.as_deref(), Some(&unknown[..]));
    let stored: Vec<u8> = group.database.scalar("SELECT payload FROM sekali.dead_letter").await;
    assert_eq!(stored, unknown);

    // Bytes that only an Avro reader could follow.
    group.produce([event("avro", "stock.adjusted", confluent::write(avro, &[2, b'a']))]).await;
    group.settled().await;
    member.stop().await.unwrap();
    let text = "SELECT message FROM sekali.dead_letter WHERE key_text = 'avro'";
    let text: String = group.database.scalar(text).await;
    assert_eq!(text, format!("schema {avro} of the registry cannot be used: it is no JSON Schema"));
    nothing_is_retried(&group).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_away_pauses_and_burns_nothing() {
    let registry = SchemaRegistry::start().await.unwrap();
    registry.authorization("Basic dTpwYXNz");
    let mut group = Group::new("away", 1, asking(&registry)).await;
    let id = registered(&registry, &group);
    let moods = [Mood::Refuse(500), Mood::Refuse(503), Mood::Refuse(403), Mood::Refuse(404), Mood::Slow(LIMIT)];
    group.produce((0..20).map(|it| event(&format!("m-{it}"), "stock.adjusted", confluent::write(id, GOOD)))).await;
    let asked = |count: usize| {
        let registry = &registry;
        async move {
            let before = registry.requests().len();
            eventually("the registry is asked again", LIMIT, async || before + count <= registry.requests().len())
                .await;
        }
    };
    // First without the login: 401.
    let member = group.start(Scripted::default()).await;
    asked(2).await;
    member.stop().await.unwrap();
    group.config.registry.user = Some("u".to_owned());
    group.config.registry.password = Some("pass".into());
    registry.mood(moods[0]);
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    for mood in moods {
        registry.mood(mood);
        asked(2).await;
    }
    assert!(member.is_running());
    assert_eq!(group.effects().await, [].into());
    assert_eq!(group.dead_letters().await, []);
    let rows: i64 = group.database.scalar("SELECT count(*) FROM sekali.inbox").await;
    assert_eq!(rows, 0, "nothing is decided");
    registry.mood(Mood::Well);
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await.len(), 20);
    assert!((0..20).all(|it| handler.seen(&format!("m-{it}")) == [1]), "no attempt is burned");
    assert_eq!(group.kafka.read_all(&group.dlq()).await.len(), 0);
    nothing_is_retried(&group).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_waits_for_its_registry() {
    let registry = SchemaRegistry::start().await.unwrap();
    let mut group = Group::new("waits", 1, asking(&registry)).await;
    let id = registered(&registry, &group);
    registry.mood(Mood::Refuse(502));
    group.produce([event("waits", "stock.adjusted", confluent::write(id, GOOD))]).await;
    group.config.schemas.consume = Validate::Known;
    let member = group.start_effect(Calling::new(&group).await).await;
    eventually("the registry is asked again", LIMIT, async || 3 <= registry.requests().len()).await;
    assert_eq!(attempts(&group).await, [].into());
    registry.mood(Mood::Well);
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(attempts(&group).await, [("waits".to_owned(), vec![1])].into());
    assert_eq!(group.dead_letters().await, []);
}
