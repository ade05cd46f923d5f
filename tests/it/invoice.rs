//! The invoice group as its users run it: two workers, orders over HTTP and Kafka at once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use sekali_consumer::Config;
use sekali_tests::harness::{Kafka, Outgoing, Process, Program, TestDatabase, eventually, kafka, unique};
use sekali_tests::http::{Answer, post};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

struct Worker {
    process: Process,
    url: String,
}

struct Shop {
    kafka: &'static Kafka,
    database: TestDatabase,
    directory: tempfile::TempDir,
    topic: String,
    group: String,
    created: String,
}

impl Shop {
    async fn open() -> Shop {
        let (kafka, database) = (kafka().await, TestDatabase::create().await);
        let shop = Shop {
            kafka,
            database,
            directory: tempfile::tempdir().unwrap(),
            topic: unique("orders"),
            group: unique("invoice"),
            created: kafka.topic("invoice-created", 1).await,
        };
        let text = format!(
            "[kafka]\nbrokers = \"{}\"\n[postgres]\nurl = \"{}\"\n[consumer]\ngroup = \"{}\"\ntopics = [\"{}\"]\n\
             session_timeout = \"6s\"\n[topics]\npartitions = 4\n[admin]\nlisten = \"none\"\n",
            kafka.bootstrap(),
            shop.database.url(),
            shop.group,
            shop.topic
        );
        std::fs::write(shop.config(), &text).unwrap();
        sekali_consumer::admin::topics::apply(&Config::from_toml(&text).unwrap()).await.unwrap();
        shop
    }

    fn config(&self) -> std::path::PathBuf {
        self.directory.path().join("invoice.toml")
    }

    /// Starts a worker and waits until it listens.
    async fn worker(&self) -> Worker {
        let listen = format!("127.0.0.1:{}", sekali::private_postgres::free_port().unwrap());
        let process = self.spawn(&listen, &self.created);
        let url = format!("http://{listen}/webhooks/orders");
        eventually("the worker listens", LIMIT, async || post(&url, None, "").await.is_some()).await;
        Worker { process, url }
    }

    fn spawn(&self, listen: &str, created: &str) -> Process {
        let program = Program::of_workspace("sekali-worker").arg("--config").arg(self.config());
        program.args(["invoice", "--create-tables", "--listen", listen, "--created-topic", created]).spawn()
    }

    async fn produce(&self, id: &str, orders: impl IntoIterator<Item = &str>) {
        let records = orders.into_iter().map(|it| Outgoing::new(id.to_owned(), it.to_owned()).id("of-the-record"));
        self.kafka.produce(&self.topic, records.collect::<Vec<_>>()).await;
    }

    async fn settled(&self) {
        eventually("everything is read", LIMIT, async || match self.kafka.lag(&self.group, &self.topic).await {
            0 => Ok(()),
            lag => Err(format!("lag {lag}")),
        })
        .await;
    }

    async fn count(&self, table: &str) -> i64 {
        self.database.scalar(&format!("SELECT count(*) FROM {table}")).await
    }

    /// Keys and values of topic `invoice.created`, once there are so many.
    async fn created(&self, count: usize) -> Vec<(String, Value)> {
        eventually("the invoices are announced", LIMIT, async || {
            let found = self.kafka.end_offsets(&self.created).await[&0];
            if found == count as i64 { Ok(()) } else { Err(format!("{found} of {count}")) }
        })
        .await;
        let text = |it: &Option<bytes::Bytes>| String::from_utf8(it.as_ref().unwrap().to_vec()).unwrap();
        let records = self.kafka.read_all(&self.created).await;
        records.iter().map(|it| (text(&it.key), serde_json::from_str(&text(&it.payload)).unwrap())).collect()
    }
}

fn order(id: &str, price: i64) -> String {
    let line = json!({"sku": "85123A", "quantity": 2, "unit_price_minor": price});
    json!({"order_id": id, "customer": "Ada", "currency": "EUR", "lines": [line]}).to_string()
}

fn is_problem(answer: &Answer, status: u16, kind: &str) {
    let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    assert_eq!((answer.status, &json["type"]), (status, &format!("urn:sekali:problem:{kind}").into()), "{answer:?}");
}

async fn ends_well(worker: &mut Worker) {
    worker.process.sigterm();
    let status = worker.process.wait(LIMIT).await;
    assert!(status.success(), "{status}: {}", worker.process.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_repeats_over_http_and_kafka_at_once_make_one_invoice() {
    let shop = Shop::open().await;
    let (mut one, mut two) = tokio::join!(shop.worker(), shop.worker());
    let order_1 = order("o-1", 150);
    // Half of the clients share a key, the others have keys of their own; both workers are asked, and Kafka as well.
    let ask = |nr: usize| {
        let key = if nr.is_multiple_of(2) { "\"shared\"".to_owned() } else { format!("\"client-{nr}\"") };
        let url = if nr.is_multiple_of(3) { one.url.clone() } else { two.url.clone() };
        let body = order_1.clone();
        async move { post(&url, Some(&key), &body).await.expect("the worker answers") }
    };
    let (answers, ()) = tokio::join!(join_all((0..50).map(ask)), shop.produce("o-1", [order_1.as_str(); 50]));
    shop.settled().await;
    let first = &answers[0];
    assert_eq!((first.status, &*first.content_type), (201, "application/json"), "{first:?}");
    assert!(answers.iter().all(|it| it == first), "{answers:?}");
    let invoice: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(invoice["total_minor"], 300);
    assert_eq!((shop.count("invoice").await, shop.count("sekali.dead_letter").await), (1, 0));
    let reference: String = shop.database.scalar("SELECT reference FROM invoice").await;
    assert_eq!(invoice["reference"], *reference);

    // Another body under the key of the client, and under that of the order.
    let rows = shop.count("sekali.inbox").await;
    assert_eq!(rows, 1 + 1 + 25, "the order, the shared key, a key for each of the others");
    let dearer = order("o-1", 151);
    for (key, body) in [("\"shared\"", &dearer), ("\"new\"", &dearer), ("\"shared\"", &order("o-2", 150))] {
        is_problem(&post(&one.url, Some(key), body).await.unwrap(), 422, "key-reuse");
    }
    assert_eq!((shop.count("invoice").await, shop.count("sekali.inbox").await), (1, rows), "nothing was written");
    shop.produce("o-1", [dearer.as_str()]).await;
    shop.settled().await;
    let dead = "SELECT string_agg(class || ' ' || key_text, ',') FROM sekali.dead_letter";
    assert_eq!(shop.database.scalar::<String>(dead).await, "key_reuse order.placed:o-1");

    assert_eq!(shop.created(1).await, [("o-1".to_owned(), invoice)], "one event, which says what the answer says");
    tokio::join!(ends_well(&mut one), ends_well(&mut two));
    assert_eq!(shop.count("invoice").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_work_says_why_and_writes_nothing() {
    let shop = Shop::open().await;
    let mut without_topic = shop.spawn("127.0.0.1:0", "nowhere");
    assert_eq!(without_topic.wait(LIMIT).await.code(), Some(1));
    assert!(without_topic.stderr().contains("nowhere"), "{}", without_topic.stderr());
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut without_port = shop.spawn(&address, &shop.created);
    assert_eq!(without_port.wait(LIMIT).await.code(), Some(1));
    assert!(without_port.stderr().contains(&format!("{address} for POST")), "{}", without_port.stderr());
    let tables = "SELECT count(*) FROM pg_class WHERE relname = 'invoice'";
    assert_eq!(shop.database.scalar::<i64>(tables).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_way_an_order_comes_first_its_reference_stays() {
    let shop = Shop::open().await;
    let mut worker = shop.worker().await;
    let ids: Vec<String> = (0..20).map(|it| format!("o-{it}")).collect();
    let ask = |id: &str| {
        let (url, key, body) = (worker.url.clone(), format!("\"{}\"", unique("key")), order(id, 100));
        async move { post(&url, Some(&key), &body).await.expect("the worker answers") }
    };
    // The first half over Kafka, all of them over HTTP, then all of them over Kafka.
    for id in &ids[..10] {
        shop.produce(id, [order(id, 100).as_str()]).await;
    }
    eventually("the first ten have invoices", LIMIT, async || shop.count("invoice").await == 10).await;
    let answers = join_all(ids.iter().map(|it| ask(it))).await;
    for id in &ids {
        shop.produce(id, [order(id, 100).as_str()]).await;
    }
    shop.settled().await;
    assert!(answers.iter().all(|it| it.status == 201), "{answers:?}");
    let announced = shop.created(20).await;
    let bodies: BTreeSet<String> = answers.iter().map(|it| it.body.clone()).collect();
    let events: BTreeSet<String> = announced.iter().map(|it| it.1.to_string()).collect();
    let same = |it: &BTreeSet<String>| -> BTreeSet<String> {
        it.iter().map(|it| serde_json::from_str::<Value>(it).unwrap().to_string()).collect()
    };
    assert_eq!((bodies.len(), same(&bodies)), (20, same(&events)), "each answer is one event");
    assert_eq!((shop.count("invoice").await, shop.count("sekali.dead_letter").await), (20, 0));

    // Long after, when the inbox has forgotten: the invoice itself still says which one it is.
    shop.database.execute("DELETE FROM sekali.inbox").await;
    assert_eq!(ask("o-3").await, answers[3]);
    let refused = post(&worker.url, Some("later"), &order("o-4", 101)).await.unwrap();
    is_problem(&refused, 422, "refused");
    assert_eq!(shop.created(20).await.len(), 20, "nothing is announced again");

    // What is no order leaves nothing.
    for (key, body, kind) in [
        (None, order("o-99", 1), "key-missing"),
        (Some("k"), "{}".to_owned(), "refused"),
        (Some("k"), order("", 1), "refused"),
        (Some("k"), order("o-99", -1), "refused"),
    ] {
        let answer = post(&worker.url, key, &body).await.unwrap();
        let status = if body == "{}" || key.is_none() { 400 } else { 422 };
        is_problem(&answer, status, kind);
    }
    assert_eq!((shop.count("invoice").await, shop.count("sekali.inbox").await), (20, 2), "o-3 with both of its keys");
    ends_well(&mut worker).await;
}
