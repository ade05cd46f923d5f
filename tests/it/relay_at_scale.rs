//! Many writers, and a relay that is killed again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sekali_producer::{OutboundRecord, outbox};
use sekali_schemas::{Headers, Record};
use sekali_tests::harness::{Kafka, Process, TestDatabase, eventually, kafka};
use sekali_tests::worker::relay;
use tokio_postgres::Client;

const WRITERS: usize = 16;
const KEYS: usize = 5_000;
/// Events of one transaction, each of another key.
const TOGETHER: usize = 25;
const EVENTS: usize = 200_000;
/// Of the transaction that stays open; its keys are its own, so that nobody waits for it.
const HELD_OPEN: Duration = Duration::from_secs(10);
const KILLS: usize = 5;
const PAGE: usize = 1_000;
const LIMIT: Duration = Duration::from_secs(180);

fn start(kafka: &Kafka, database: &TestDatabase) -> Process {
    let program = relay(kafka, database).env("SEKALI_RELAY__LEASE_TTL", "1s");
    program.env("SEKALI_RELAY__PAGE_MESSAGES_MAX", PAGE.to_string()).spawn()
}

/// Enqueues the next event of each key, in one transaction that locks the keys first.
async fn write(client: &mut Client, topic: &str, keys: &[i32], id: &str, hold: Duration, commit: bool) {
    let tx = client.transaction().await.unwrap();
    const LOCK: &str = "SELECT FROM counter WHERE key = ANY($1) ORDER BY key FOR UPDATE";
    tx.query(LOCK, &[&keys]).await.unwrap();
    const NEXT: &str = "UPDATE counter SET number = number + 1 WHERE key = ANY($1) RETURNING key, number";
    let rows = tx.query(NEXT, &[&keys]).await.unwrap();
    let record = |key: i32, number: i32| OutboundRecord {
        topic: topic.to_owned(),
        key: Some(key.to_string().into()),
        payload: Some(number.to_string().into()),
        headers: Headers::builder().text("id", &format!("{id} {key}")).build(),
    };
    let records: Vec<OutboundRecord> = rows.iter().map(|it| record(it.get(0), it.get(1))).collect();
    outbox::enqueue_all(&tx, &records).await.unwrap();
    tokio::time::sleep(hold).await;
    if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
}

/// One writer among many: random keys, random delays before the commit, and a tenth is rolled back.
async fn keep_writing(mut client: Client, topic: String, writer: usize, committed: Arc<AtomicUsize>) {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(writer as u64 + 1);
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % bound
    };
    for number in 0.. {
        let mut keys = BTreeSet::new();
        while keys.len() < TOGETHER {
            keys.insert(below(KEYS) as i32);
        }
        let keys: Vec<i32> = keys.into_iter().collect();
        let (hold, commit) = (Duration::from_millis(below(6) as u64), below(10) != 0);
        if commit && EVENTS < committed.fetch_add(TOGETHER, Ordering::Relaxed) + TOGETHER {
            return;
        }
        let outcome = if commit { "kept" } else { "taken-back" };
        write(&mut client, &topic, &keys, &format!("{outcome} {writer} {number}"), hold, commit).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_writers_and_five_kills_of_the_relay_lose_and_reorder_nothing() {
    let (kafka, database) = (kafka().await, TestDatabase::create().await);
    let topic = kafka.topic("scale", 8).await;
    database.execute("CREATE TABLE counter (key int PRIMARY KEY, number int NOT NULL)").await;
    let keys = KEYS + TOGETHER;
    database.execute(&format!("INSERT INTO counter SELECT it, 0 FROM generate_series(0, {keys} - 1) it")).await;
    let committed = Arc::new(AtomicUsize::new(0));
    let mut writers = Vec::new();
    for writer in 1..WRITERS {
        let client = database.connect().await;
        writers.push(tokio::spawn(keep_writing(client, topic.clone(), writer, committed.clone())));
    }
    let (mut holder, name) = (database.connect().await, topic.clone());
    writers.push(tokio::spawn(async move {
        let own: Vec<i32> = (KEYS as i32..(KEYS + TOGETHER) as i32).collect();
        write(&mut holder, &name, &own, "kept late", HELD_OPEN, true).await;
        write(&mut holder, &name, &own, "kept later", Duration::ZERO, true).await;
    }));
    let published = async || kafka.end_offsets(&topic).await.values().sum::<i64>() as usize;
    let mut running = start(kafka, &database);
    for kill in 1..=KILLS {
        let enough = EVENTS * kill / (KILLS + 1);
        eventually("some more are published", LIMIT, async || enough <= published().await).await;
        running.sigkill().await;
        running = start(kafka, &database);
    }
    for writer in writers {
        writer.await.unwrap();
    }
    eventually("the outbox is empty", LIMIT, async || {
        database.scalar::<i64>("SELECT count(*) FROM sekali.outbox").await == 0
    })
    .await;
    let records = kafka.read_all(&topic).await;
    let total = judge(&records);
    let enqueued: i64 = database.scalar("SELECT sum(number) FROM counter").await;
    assert_eq!(total as i64, enqueued, "every committed event is on the topic");
    assert!(EVENTS <= total, "too few events: {total}");
    let twice = records.len() - total;
    // A page in hand and the one that was read ahead.
    assert!(twice <= KILLS * 2 * PAGE, "{twice} records came twice");
    running.sigterm();
    assert!(running.wait(LIMIT).await.success(), "{}", running.stderr());
}

/// How many different events there are: none was rolled back, and each key's come in order.
fn judge(records: &[Record]) -> usize {
    let (mut seen, mut last) = (BTreeSet::new(), BTreeMap::<&[u8], u32>::new());
    for record in records {
        let id = record.headers.text("id").unwrap();
        assert!(id.starts_with("kept"), "{id} was rolled back");
        if !seen.insert(id) {
            continue;
        }
        let number: u32 = std::str::from_utf8(record.payload.as_deref().unwrap()).unwrap().parse().unwrap();
        let last = last.entry(record.key.as_deref().unwrap()).or_default();
        assert_eq!(number, *last + 1, "{id} is out of order");
        *last = number;
    }
    seen.len()
}
