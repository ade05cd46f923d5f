//! The reference worker, in both ways of writing.

use std::time::Duration;

use sekali_consumer::Config;
use sekali_tests::harness::{Kafka, Outgoing, Program, TestDatabase, eventually, kafka, unique};

const LIMIT: Duration = Duration::from_secs(60);

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
    // Alone each of them fits 64 bits, together they do not.
    records.extend([event(200, "max", i64::MAX), event(201, "max", 1), event(202, "max", -5)]);
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
    let expected = [("B", of(1), 67), ("a", of(0), 67), ("c", of(2), 66), ("max", i64::MAX - 5, 2)];
    assert_eq!(stock, expected.map(|(sku, quantity, version)| (sku.to_owned(), quantity, version)), "{mode}");
    let ledger = "SELECT count(*) FROM stock_movement";
    assert_eq!(database.scalar::<i64>(ledger).await, 202, "{mode}: the copy of event 7 is a duplicate");
    let dead =
        client.query("SELECT key_text, class, code FROM sekali.dead_letter ORDER BY key_text", &[]).await.unwrap();
    let dead: Vec<(String, String, String)> = dead.iter().map(|it| (it.get(0), it.get(1), it.get(2))).collect();
    let expected = [("100000", "permanent", "SCHEMA"), ("201", "permanent", "22003"), ("unreadable", "invalid", "")];
    assert_eq!(dead, expected.map(|(key, class, code)| (key.to_owned(), class.to_owned(), code.to_owned())), "{mode}");
}

#[tokio::test]
async fn both_modes_write_the_same() {
    let kafka = kafka().await;
    tokio::join!(applied_by(kafka, "batch"), applied_by(kafka, "per-event"));
}
