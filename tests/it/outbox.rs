//! What a service sees of the outbox: delays, batches, the blocking crate, and what others may read.

use std::time::Duration;

use sekali_producer::config::{KafkaSection, PostgresSection, RelaySection};
use sekali_producer::{Event, Relay, ResourceId, outbox};
use sekali_schemas::events::StockAdjusted;
use sekali_tests::harness::{Kafka, TestDatabase, eventually, kafka, workspace_root};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(30);

fn sold(topic: &str, sku: &str, delta: i64) -> Event {
    let payload = StockAdjusted { sku: sku.to_owned(), delta, occurred_at: None };
    Event::of(topic, ResourceId::new(sku.to_owned()).unwrap(), &payload).unwrap()
}

/// A relay of this process; it ends with the token.
fn relay(kafka: &Kafka, database: &TestDatabase) -> CancellationToken {
    let postgres = PostgresSection { url: Some(database.url().into()), ..PostgresSection::default() };
    let section = RelaySection { lease_ttl: Duration::from_secs(1), ..RelaySection::default() };
    let relay = Relay::new(postgres.pool("relay").unwrap(), &KafkaSection::new(kafka.bootstrap()), &section).unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(relay.run(stop.clone()));
    stop
}

async fn deltas(kafka: &Kafka, topic: &str) -> Vec<i64> {
    let read = |payload: &[u8]| serde_json::from_slice::<StockAdjusted>(payload).unwrap().delta;
    kafka.read_all(topic).await.iter().map(|it| read(it.payload.as_deref().unwrap())).collect()
}

#[tokio::test]
async fn a_delayed_event_comes_when_it_is_due_and_not_before() {
    const DELAY: Duration = Duration::from_secs(4);
    let (kafka, database) = (kafka().await, TestDatabase::create().await);
    let topic = kafka.topic("delayed", 1).await;
    let stop = relay(kafka, &database);
    let mut client = database.connect().await;
    let began = Instant::now();
    let tx = client.transaction().await.unwrap();
    outbox::enqueue_after(&tx, DELAY, &sold(&topic, "a", 3)).await.unwrap();
    outbox::enqueue_after(&tx, DELAY / 2, &sold(&topic, "a", 2)).await.unwrap();
    outbox::enqueue(&tx, &sold(&topic, "a", 1)).await.unwrap();
    let too_long = outbox::enqueue_after(&tx, Duration::from_secs(1 << 40), &sold(&topic, "a", 4)).await;
    assert!(too_long.unwrap_err().chain().contains("longer than a year"));
    tx.commit().await.unwrap();
    let tx = client.transaction().await.unwrap();
    outbox::enqueue_after(&tx, Duration::ZERO, &sold(&topic, "a", 99)).await.unwrap();
    tx.rollback().await.unwrap();
    eventually("the first one is published", LIMIT, async || deltas(kafka, &topic).await.contains(&1)).await;
    assert!(DELAY / 2 < began.elapsed() || deltas(kafka, &topic).await == [1], "too early");
    eventually("all are published", LIMIT, async || deltas(kafka, &topic).await == [1, 2, 3]).await;
    assert!(DELAY <= began.elapsed(), "too early: {:?}", began.elapsed());
    let waiting: i64 = database.scalar("SELECT count(*) FROM sekali.outbox_later").await;
    assert_eq!(waiting, 0);
    stop.cancel();
}

#[tokio::test]
async fn events_enqueued_together_keep_their_order_and_carry_an_id() {
    let (kafka, database) = (kafka().await, TestDatabase::create().await);
    let topic = kafka.topic("together", 1).await;
    let mut client = database.connect().await;
    let events: Vec<Event> = (1..=500).map(|it| sold(&topic, "a", it)).collect();
    let tx = client.transaction().await.unwrap();
    outbox::enqueue_all(&tx, &events).await.unwrap();
    tx.commit().await.unwrap();
    let stop = relay(kafka, &database);
    let expected: Vec<i64> = (1..=500).collect();
    eventually("all are published", LIMIT, async || deltas(kafka, &topic).await == expected).await;
    for (event, record) in events.iter().zip(kafka.read_all(&topic).await) {
        let id = event.key().as_str();
        assert_eq!((record.headers.text("id"), record.headers.text("ce_id")), (Some(id), Some(id)));
    }
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_blocking_crate_enqueues_in_its_own_transaction() {
    let (kafka, database) = (kafka().await, TestDatabase::create().await);
    let topic = kafka.topic("blocking", 1).await;
    let (url, name) = (database.url(), topic.clone());
    let enqueued = tokio::task::spawn_blocking(move || {
        let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
        let mut tx = client.transaction().unwrap();
        outbox::sync::enqueue(&mut tx, sold(&name, "a", 99)).unwrap();
        tx.rollback().unwrap();
        let mut tx = client.transaction().unwrap();
        outbox::sync::enqueue(&mut tx, sold(&name, "a", 1)).unwrap();
        outbox::sync::enqueue_all(&mut tx, [sold(&name, "a", 2), sold(&name, "a", 3)]).unwrap();
        outbox::sync::enqueue_after(&mut tx, Duration::from_secs(1), sold(&name, "a", 4)).unwrap();
        tx.commit().unwrap();
    });
    enqueued.await.unwrap();
    let stop = relay(kafka, &database);
    eventually("all are published", LIMIT, async || deltas(kafka, &topic).await == [1, 2, 3, 4]).await;
    stop.cancel();
}

/// What Debezium's outbox event router expects: id, aggregatetype, aggregateid, type, payload.
const COLUMNS: &str = "SELECT id || ' ' || aggregatetype || ' ' || convert_from(aggregateid, 'UTF8') || ' ' || type \
                       || ' ' || convert_from(payload, 'UTF8') || ' ' || coalesce(traceparent, 'none')";

#[tokio::test]
async fn the_view_for_debezium_shows_what_waits_with_its_columns() {
    let database = TestDatabase::create().await;
    let (event, expected) = event_for_debezium();
    enqueue_one(&database, &event).await;
    let strange = "INSERT INTO sekali.outbox (topic, header_names, header_values) VALUES ('t', '{ce_type}', ARRAY['\\xff'::bytea])";
    database.execute(strange).await;
    let found = format!("{COLUMNS} FROM sekali.outbox_debezium WHERE aggregatetype = 'stock'");
    assert_eq!(database.scalar::<String>(&found).await, expected);
    let strange = "SELECT count(*) FROM sekali.outbox_debezium WHERE type IS NULL AND id LIKE 'outbox %'";
    assert_eq!(database.scalar::<i64>(strange).await, 1, "a header that is no text is none");
}

#[tokio::test]
async fn debezium_in_place_of_the_relay_sees_each_record_once_and_nothing_is_left() {
    let database = TestDatabase::create().await;
    database.execute(&std::fs::read_to_string(workspace_root().join("producer/debezium.sql")).unwrap()).await;
    // As the connector, which reads the log, sees it.
    database
        .execute(
            "CREATE TABLE seen (LIKE sekali.outbox_event);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO seen VALUES (NEW.*); RETURN NULL; END $$;
             CREATE TRIGGER see AFTER INSERT ON sekali.outbox_event FOR EACH ROW EXECUTE FUNCTION see();",
        )
        .await;
    let (event, expected) = event_for_debezium();
    enqueue_one(&database, &event).await;
    assert_eq!(database.scalar::<String>(&format!("{COLUMNS} FROM seen")).await, expected);
    let left = "SELECT (SELECT count(*) FROM sekali.outbox) + (SELECT count(*) FROM sekali.outbox_event)";
    assert_eq!(database.scalar::<i64>(left).await, 0);
}

fn event_for_debezium() -> (Event, String) {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let event = sold("stock", "SKU-1", -2).header("traceparent", trace).unwrap();
    let expected =
        format!("{} stock SKU-1 stock.adjusted {{\"sku\":\"SKU-1\",\"delta\":-2}} {trace}", event.key().as_str());
    (event, expected)
}

async fn enqueue_one(database: &TestDatabase, event: &Event) {
    let mut client = database.connect().await;
    let tx = client.transaction().await.unwrap();
    outbox::enqueue(&tx, event).await.unwrap();
    tx.commit().await.unwrap();
}
