//! What is published is held against its schema, too.

use std::sync::Arc;
use std::time::Duration;

use sekali_consumer::schemas::{confluent, events::EventType};
use sekali_consumer::{Failure, Handler, Message, Reply, Transaction, outbox};
use sekali_producer::config::{KafkaSection, RegistrySection, SchemasSection, Validate};
use sekali_producer::{Contract, Event, Producer, ResourceId};
use sekali_schemas::events::StockAdjusted;
use sekali_tests::group::Group;
use sekali_tests::harness::registry::{Mood, SchemaRegistry};
use sekali_tests::scripted::Scripted;

/// Enqueues what its messages say for another topic.
struct Forward(String);

impl Handler for Forward {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let payload = message.data()?.into_owned();
        let resource = ResourceId::new(message.key().unwrap_or_default().to_vec())?;
        let event = Event::raw(&self.0, resource, StockAdjusted::NAME, "application/json", payload)?;
        outbox::enqueue(tx, event).await?;
        Ok(Reply::done())
    }
}

fn adjusted(topic: &str, sku: &str) -> Event {
    let payload = StockAdjusted { sku: sku.to_owned(), delta: 1, occurred_at: None };
    Event::of(topic, ResourceId::new("k").unwrap(), &payload).unwrap()
}

fn contract(registry: &SchemaRegistry, change: impl FnOnce(&mut RegistrySection)) -> Arc<Contract> {
    let mut section = RegistrySection { url: Some(registry.url()), ..RegistrySection::default() };
    section.timeout = Duration::from_secs(1);
    change(&mut section);
    let schemas = SchemasSection { produce: Validate::Known, ..SchemasSection::default() };
    Arc::new(Contract::new(&schemas, &section).unwrap().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_goes_round_with_its_prefix() {
    let registry = SchemaRegistry::start().await.unwrap();
    let url = registry.url();
    let group = Group::new("round", 1, |config| {
        config.registry.url = Some(url);
        config.schemas.consume = Validate::Strict;
    })
    .await;
    let contract = contract(&registry, |_| {});
    let mut client = group.database.connect().await;
    for sku in ["a", "b"] {
        let record = contract.write(adjusted(&group.topic, sku)).await.unwrap();
        let tx = client.transaction().await.unwrap();
        outbox::enqueue(&tx, record).await.unwrap();
        tx.commit().await.unwrap();
    }
    let member = group.start(Scripted::default()).await;
    sekali_tests::harness::eventually("both took effect", sekali_tests::group::LIMIT, async || {
        group.effects().await.len() == 2
    })
    .await;
    group.settled().await;
    member.stop().await.unwrap();

    let subject = format!("{}-value", group.topic);
    let ids = registry.subjects()[&subject].clone();
    assert_eq!(ids.len(), 1, "one version, registered once");
    for record in group.kafka.read_all(&group.topic).await {
        let (id, data) = confluent::read(record.payload.as_deref().unwrap()).unwrap();
        assert_eq!(id, ids[0]);
        serde_json::from_slice::<StockAdjusted>(data).unwrap();
    }
    assert_eq!(group.dead_letters().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_enqueues_is_held_against_its_schema_and_gets_the_prefix() {
    let registry = SchemaRegistry::start().await.unwrap();
    let url = registry.url();
    let group = Group::new("forward", 1, |config| {
        config.registry.url = Some(url);
        config.schemas.produce = Validate::Known;
    })
    .await;
    let out = group.kafka.topic("out", 1).await;
    let record = |id: &str, payload: &'static str| sekali_tests::harness::Outgoing::new(id.to_owned(), payload).id(id);
    let bad = r#"{"sku":"a","delta":1.5}"#;
    group.produce([record("good", r#"{"sku":"a","delta":1}"#), record("bad", bad)]).await;
    let member = group.start(Forward(out.clone())).await;
    group.settled().await;
    member.stop().await.unwrap();
    let written = group.kafka.read_all(&out).await;
    assert_eq!(written.len(), 1);
    let id = registry.subjects()[&format!("{out}-value")][0];
    assert_eq!(written[0].payload.as_deref(), Some(&confluent::write(id, br#"{"sku":"a","delta":1}"#)[..]));
    let (code, message) = super::only_letter(&group).await;
    assert_eq!(code, "SCHEMA");
    assert_eq!(message, "payload is refused by schema stock.adjusted v1 at /delta: type");
    let letter = &group.kafka.read_all(&group.dlq()).await[0];
    assert_eq!(letter.payload.as_deref(), Some(bad.as_bytes()), "copies are made of what came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_sends_under_its_contract() {
    let registry = SchemaRegistry::start().await.unwrap();
    let kafka = sekali_tests::harness::kafka().await;
    let topic = kafka.topic("sent", 1).await;
    let looking = contract(&registry, |it| it.register = false);
    let producer = Producer::connect(&KafkaSection::new(kafka.bootstrap())).await.unwrap();
    let producer = producer.under(Some(looking));
    let error = producer.send(adjusted(&topic, "a")).await.unwrap_err().chain();
    assert!(error.contains("registry.register = true") && error.contains(&format!("{topic}-value")), "{error}");
    let error = producer.send(adjusted(&topic, "")).await.unwrap_err().chain();
    assert!(error.ends_with("at /sku: minLength"), "{error}");

    registry.mood(Mood::RefuseWrites(409));
    let registering = contract(&registry, |_| {});
    let error = registering.write(adjusted(&topic, "a")).await.unwrap_err().chain();
    assert!(error.contains("does not take schema stock.adjusted v1"), "{error}");
    registry.mood(Mood::Well);

    let id = registry.register(&format!("{topic}-value"), "JSON", StockAdjusted::SCHEMA);
    producer.send(adjusted(&topic, "a")).await.unwrap();
    let sent = kafka.read_all(&topic).await;
    assert_eq!(sent.len(), 1, "what is refused is not sent");
    assert_eq!(confluent::read(sent[0].payload.as_deref().unwrap()).unwrap().0, id);
}
