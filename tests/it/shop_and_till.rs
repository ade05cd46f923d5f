//! The example services, as processes.

use std::time::Duration;

use sekali_schemas::Record;
use sekali_tests::harness::{Kafka, Program, TestDatabase, eventually, kafka, workspace_root};
use sekali_tests::http::post;
use sekali_tests::worker::relay;

const LIMIT: Duration = Duration::from_secs(30);

/// A database with the outbox alone, made by the operator's command, and the tables of an example.
async fn database(example: &str) -> TestDatabase {
    let database = TestDatabase::create_empty().await;
    let program = Program::of_workspace("sekali").args(["migrate", "--only", "outbox"]);
    let mut migrate = program.env("SEKALI_POSTGRES__URL", database.url()).spawn();
    assert!(migrate.wait(LIMIT).await.success(), "{}", migrate.stderr());
    let tables = workspace_root().join("examples").join(example).join(format!("{example}.sql"));
    database.execute(&std::fs::read_to_string(tables).unwrap()).await;
    database
}

async fn published(kafka: &Kafka, topic: &str, count: usize) -> Vec<Record> {
    eventually("everything is published", LIMIT, async || match kafka.read_all(topic).await.len() {
        found if found == count => Ok(()),
        found => Err(format!("{found} of {count}")),
    })
    .await;
    kafka.read_all(topic).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_stores_an_order_and_publishes_it_once() {
    let (kafka, database) = (kafka().await, database("shop").await);
    let topic = kafka.topic("orders", 2).await;
    let port = sekali::private_postgres::free_port().unwrap();
    let mut shop = Program::of_workspace("shop")
        .env("DATABASE_URL", database.url())
        .env("KAFKA_BROKERS", kafka.bootstrap())
        .env("ORDERS_TOPIC", &topic)
        .env("LISTEN", format!("127.0.0.1:{port}"))
        .spawn();
    let url = format!("http://127.0.0.1:{port}/orders");
    let order = |id: &str| {
        format!(
            r#"{{"order_id":"{id}","customer":"Ada","currency":"EUR",
                "lines":[{{"sku":"SKU-1","quantity":2,"unit_price_minor":250}}]}}"#
        )
    };
    eventually("the shop is open", LIMIT, async || post(&url, None, &order("o-1")).await.is_some()).await;
    assert_eq!(post(&url, None, &order("o-1")).await.unwrap().status, 200, "a repeat");
    assert_eq!(post(&url, None, &order("o-2")).await.unwrap().status, 201);
    assert_eq!(post(&url, None, &order("")).await.unwrap().status, 422, "an order without an id");
    let mut keys: Vec<String> = published(kafka, &topic, 2)
        .await
        .iter()
        .map(|it| it.headers.text("idempotency-key").unwrap().to_owned())
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, ["order.placed:o-1", "order.placed:o-2"]);
    let stored: i64 = database.scalar("SELECT sum(total_minor)::bigint FROM shop_order").await;
    assert_eq!(stored, 1000);
    shop.signal_interrupt();
    assert!(shop.wait(LIMIT).await.success(), "{}", shop.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_till_without_async_sells_what_is_there_and_publishes_it() {
    let (kafka, database) = (kafka().await, database("till").await);
    let topic = kafka.topic("stock", 2).await;
    database.execute("INSERT INTO shelf VALUES ('SKU-1', 5)").await;
    let sales = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(sales.path(), "SKU-1 2\nSKU-1 4\nSKU-2 1\nSKU-1 3\n").unwrap();
    let mut relay = relay(kafka, &database).spawn();
    let till = Program::of_workspace("till").arg(sales.path()).env("STOCK_TOPIC", &topic);
    let mut till = till.env("DATABASE_URL", database.url()).spawn();
    assert!(till.wait(LIMIT).await.success(), "{}", till.stderr());
    assert_eq!(till.stdout(), "SKU-1 sold\nSKU-1 not there\nSKU-2 not there\nSKU-1 sold\n");
    let records = published(kafka, &topic, 2).await;
    let payloads: Vec<&[u8]> = records.iter().map(|it| it.payload.as_deref().unwrap()).collect();
    assert_eq!(payloads, [&br#"{"sku":"SKU-1","delta":-2}"#[..], br#"{"sku":"SKU-1","delta":-3}"#]);
    relay.sigterm();
    assert_eq!(relay.wait(LIMIT).await.code(), Some(0), "SIGTERM ends a relay in good order: {}", relay.stderr());
}
