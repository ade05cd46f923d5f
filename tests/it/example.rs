//! Programs written against the public API: the example of the README, and the reference worker in both of its modes.

use std::time::Duration;

use sekali_consumer::Config;
use sekali_tests::harness::{Kafka, Outgoing, Program, TestDatabase, eventually, kafka, unique, workspace_root};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_service_of_forty_lines_stores_every_order_once() {
    let example = workspace_root().join("examples/orders");
    let source = std::fs::read_to_string(example.join("src/main.rs")).unwrap();
    assert!(source.lines().count() <= 40, "the README promises at most 40 lines");

    let (kafka, database) = (kafka().await, TestDatabase::create().await);
    database.execute(&std::fs::read_to_string(example.join("orders.sql")).unwrap()).await;
    let (topic, group) = (unique("orders"), unique("orders"));
    let settings = [
        ("SEKALI_KAFKA__BROKERS", kafka.bootstrap().to_owned()),
        ("SEKALI_POSTGRES__URL", database.url()),
        ("SEKALI_CONSUMER__TOPICS", format!("[\"{topic}\"]")),
        ("SEKALI_CONSUMER__GROUP", group.clone()),
        ("SEKALI_ADMIN__LISTEN", "none".to_owned()),
    ];
    create_topics(kafka.bootstrap(), &database.url(), &topic, &group).await;

    let order = |id: &str, json: &str| Outgoing::new(id.to_owned(), json.to_owned()).id(id);
    let first = order("o-1", r#"{"id":"o-1","customer":"Ada","cents":1250}"#);
    let free = order("o-2", r#"{"id":"o-2","customer":"Ada","cents":0}"#);
    let last = order("o-3", r#"{"id":"o-3","customer":"Alan","cents":99}"#);
    kafka.produce(&topic, [first.clone(), free, first.clone()]).await;

    let mut service = Program::of_workspace("orders").arg(example.join("orders.toml"));
    for (name, value) in settings {
        service = service.env(name, value);
    }
    let mut service = service.spawn();
    // The first order again, when it has long been committed, and one behind it to wait for.
    eventually("the first order is stored", LIMIT, async || orders(&database).await == ["o-1"]).await;
    kafka.produce(&topic, [first.partition(0), last.partition(0)]).await;
    eventually("the last order is stored", LIMIT, async || orders(&database).await.contains(&"o-3".to_owned())).await;
    eventually("everything is read", LIMIT, async || match kafka.lag(&group, &topic).await {
        0 => Ok(()),
        lag => Err(format!("lag {lag}")),
    })
    .await;

    assert_eq!(orders(&database).await, ["o-1", "o-3"], "copies are duplicates, and the free order is dead");
    let dead = "SELECT key_text || ' ' || code || ' ' || state FROM sekali.dead_letter";
    assert_eq!(database.scalar::<String>(dead).await, "o-2 PRICE open");
    service.sigterm();
    assert_eq!(service.wait(LIMIT).await.code(), Some(0), "SIGTERM ends the service in good order");
}

async fn create_topics(brokers: &str, url: &str, topic: &str, group: &str) {
    let text = format!(
        "[kafka]\nbrokers = \"{brokers}\"\n[postgres]\nurl = \"{url}\"\n\
         [consumer]\ngroup = \"{group}\"\ntopics = [\"{topic}\"]\n[topics]\npartitions = 2\n"
    );
    let config = Config::from_toml(&text).unwrap();
    sekali_consumer::admin::topics::apply(&config).await.unwrap();
}

async fn orders(database: &TestDatabase) -> Vec<String> {
    let client = database.connect().await;
    let rows = client.query("SELECT id FROM placed_order ORDER BY id", &[]).await.unwrap();
    rows.iter().map(|it| it.get(0)).collect()
}

fn event(id: u32, sku: &str, delta: i64) -> Outgoing {
    Outgoing::new(sku.to_owned(), format!(r#"{{"sku":"{sku}","delta":{delta}}}"#)).id(&id.to_string())
}

/// A mix of everything that a batch may meet, one partition, so that it shares transactions.
fn records() -> Vec<Outgoing> {
    let mut records: Vec<Outgoing> =
        (0..200).map(|it| event(it, ["a", "B", "c"][it as usize % 3], it.into())).collect();
    records.insert(50, Outgoing::new("a", "{\"sku\":\"a\"").id("unreadable"));
    records.insert(100, event(100_000, "", 1));
    records.insert(150, event(7, "B", 7));
    // Each fits 64 bits, both together do not.
    records.extend([event(200, "max", i64::MAX), event(201, "max", 1)]);
    records
}

async fn applied_by(kafka: &Kafka, mode: &str) {
    let database = TestDatabase::create().await;
    let (topic, group) = (unique("stock"), unique("stock"));
    let text = format!(
        "[kafka]\nbrokers = \"{}\"\n[postgres]\nurl = \"{}\"\n[consumer]\ngroup = \"{group}\"\ntopics = [\"{topic}\"]\n\
         [topics]\npartitions = 1\n[admin]\nlisten = \"none\"\n",
        kafka.bootstrap(),
        database.url(),
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stock.toml");
    std::fs::write(&file, &text).unwrap();
    sekali_consumer::admin::topics::apply(&Config::from_toml(&text).unwrap()).await.unwrap();
    kafka.produce(&topic, records()).await;

    let worker = Program::of_workspace("sekali-worker").arg("--config").arg(&file);
    let mut worker = worker.args(["stock", "--create-tables", "--mode", mode]).spawn();
    eventually("everything is read", LIMIT, async || match kafka.lag(&group, &topic).await {
        0 => Ok(()),
        lag => Err(format!("lag {lag}")),
    })
    .await;
    worker.sigterm();
    assert_eq!(worker.wait(LIMIT).await.code(), Some(0), "{mode}");

    let client = database.connect().await;
    let rows = client.query("SELECT sku, quantity, version FROM stock ORDER BY sku COLLATE \"C\"", &[]).await.unwrap();
    let stock: Vec<(String, i64, i64)> = rows.iter().map(|it| (it.get(0), it.get(1), it.get(2))).collect();
    let of = |rest: i64| (0..200).filter(|it| it % 3 == rest).sum::<i64>();
    let expected = [("B", of(1), 67), ("a", of(0), 67), ("c", of(2), 66), ("max", i64::MAX, 1)];
    assert_eq!(stock, expected.map(|(sku, quantity, version)| (sku.to_owned(), quantity, version)), "{mode}");
    let ledger = "SELECT count(*) FROM stock_movement";
    assert_eq!(database.scalar::<i64>(ledger).await, 201, "{mode}: the copy of event 7 is a duplicate");
    let dead =
        client.query("SELECT key_text, class, code FROM sekali.dead_letter ORDER BY key_text", &[]).await.unwrap();
    let dead: Vec<(String, String, String)> = dead.iter().map(|it| (it.get(0), it.get(1), it.get(2))).collect();
    let expected = [("100000", "permanent", "SCHEMA"), ("201", "permanent", "22003"), ("unreadable", "invalid", "")];
    assert_eq!(dead, expected.map(|(key, class, code)| (key.to_owned(), class.to_owned(), code.to_owned())), "{mode}");
}

#[tokio::test]
async fn both_modes_of_the_reference_worker_write_the_same() {
    let kafka = kafka().await;
    tokio::join!(applied_by(kafka, "batch"), applied_by(kafka, "per-event"));
}
