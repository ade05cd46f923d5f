//! The outbox and its relay on a real broker and a real database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use deadpool_postgres::Pool;
use sekali_producer::config::{KafkaSection, PostgresSection, RelaySection};
use sekali_producer::{OutboundRecord, Relay, outbox};
use sekali_schemas::{Header, Headers, Record};
use sekali_tests::harness::{Kafka, OwnBroker, TestDatabase, eventually, kafka, unique};
use sekali_tests::skip;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(30);

/// One database with relays of its own.
struct Bench {
    database: TestDatabase,
    kafka: Kafka,
    topic: String,
}

impl Bench {
    async fn new(label: &str, partitions: i32) -> Bench {
        // What relays log is shown when a test fails.
        let _ = tracing_subscriber::fmt().with_env_filter("sekali=info").with_test_writer().try_init();
        let kafka = kafka().await.clone();
        let topic = kafka.topic(label, partitions).await;
        Bench { database: TestDatabase::create().await, kafka, topic }
    }

    fn pool(&self) -> Pool {
        let section = PostgresSection { url: Some(self.database.url().into()), ..PostgresSection::default() };
        section.pool("relay test").unwrap()
    }

    fn relay(&self) -> Running {
        self.relay_with(100)
    }

    fn relay_with(&self, page_messages_max: usize) -> Running {
        self.relay_on(&KafkaSection::new(self.kafka.bootstrap()), page_messages_max)
    }

    fn relay_on(&self, kafka: &KafkaSection, page_messages_max: usize) -> Running {
        let section = RelaySection {
            lease_ttl: Duration::from_secs(1),
            page_messages_max: page_messages_max.try_into().unwrap(),
            ..RelaySection::default()
        };
        let relay = Relay::new(self.pool(), kafka, &section).unwrap();
        let shutdown = CancellationToken::new();
        Running { shutdown: shutdown.clone(), task: tokio::spawn(relay.run(shutdown)) }
    }

    fn record(&self, key: &str, payload: &str) -> OutboundRecord {
        OutboundRecord {
            topic: self.topic.clone(),
            key: Some(Bytes::copy_from_slice(key.as_bytes())),
            payload: Some(Bytes::copy_from_slice(payload.as_bytes())),
            headers: Headers::builder().text("idempotency-key", &format!("{key} {payload}")).build(),
        }
    }

    async fn enqueue(&self, records: &[OutboundRecord]) {
        let mut client = self.database.connect().await;
        let tx = client.transaction().await.unwrap();
        outbox::enqueue_all(&tx, records).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn published(&self) -> Vec<String> {
        payloads(&self.kafka.read_all(&self.topic).await)
    }

    async fn publishes(&self, expected: &[&str]) {
        eventually("the records are published", LIMIT, async || {
            let published = self.published().await;
            if published == expected { Ok(()) } else { Err(format!("{published:?}")) }
        })
        .await;
    }

    async fn outbox_is_empty(&self) {
        eventually("published rows are deleted", LIMIT, async || {
            let rows: i64 = self.database.scalar("SELECT count(*) FROM sekali.outbox").await;
            if rows == 0 { Ok(()) } else { Err(format!("{rows} rows")) }
        })
        .await;
    }
}

struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(LIMIT, self.task).await.expect("a relay stops when asked").unwrap();
    }

    /// As a crash does: nothing is finished, nothing is released.
    fn kill(self) {
        self.task.abort();
    }
}

fn payloads(records: &[Record]) -> Vec<String> {
    records.iter().map(|it| String::from_utf8_lossy(it.payload.as_deref().unwrap_or(b"null")).into_owned()).collect()
}

/// The first occurrence of each payload, by key: what consumers act on.
fn first_by_key(records: &[Record]) -> BTreeMap<String, Vec<u32>> {
    let mut seen = BTreeSet::new();
    let mut by_key: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for record in records {
        let key = String::from_utf8_lossy(record.key.as_deref().unwrap()).into_owned();
        let number: u32 = std::str::from_utf8(record.payload.as_deref().unwrap()).unwrap().parse().unwrap();
        if seen.insert((key.clone(), number)) {
            by_key.entry(key).or_default().push(number);
        }
    }
    by_key
}

#[tokio::test]
async fn a_row_that_commits_late_is_published_and_a_gap_stalls_nothing() {
    let bench = Bench::new("late", 1).await;
    let relay = bench.relay();
    let (mut late, mut rolled_back) = (bench.database.connect().await, bench.database.connect().await);
    let late = late.transaction().await.unwrap();
    outbox::enqueue(&late, &bench.record("late", "late")).await.unwrap();
    let gap = rolled_back.transaction().await.unwrap();
    outbox::enqueue(&gap, &bench.record("gap", "gap")).await.unwrap();
    gap.rollback().await.unwrap();
    bench.enqueue(&[bench.record("a", "1"), bench.record("b", "2")]).await;
    // The late transaction is still open, and has the lowest id.
    bench.publishes(&["1", "2"]).await;
    bench.enqueue(&[bench.record("a", "3")]).await;
    bench.publishes(&["1", "2", "3"]).await;
    late.commit().await.unwrap();
    bench.publishes(&["1", "2", "3", "late"]).await;
    bench.outbox_is_empty().await;
    relay.stop().await;
}

/// A cursor on transaction numbers would publish the second event of the key first, as long as a third transaction,
/// whose number is between theirs, stays open.
#[tokio::test]
async fn order_of_a_key_holds_whatever_the_transaction_numbers_are() {
    let bench = Bench::new("order", 1).await;
    bench.database.execute("CREATE TABLE stock (sku text PRIMARY KEY, version int)").await;
    bench.database.execute("INSERT INTO stock VALUES ('K', 0)").await;
    let mut clients = [bench.database.connect().await, bench.database.connect().await, bench.database.connect().await];
    let [early, foreign, first] = &mut clients;
    let early = early.transaction().await.unwrap();
    let numbered = "SELECT pg_current_xact_id()::text";
    early.query_one(numbered, &[]).await.unwrap();
    let foreign = foreign.transaction().await.unwrap();
    foreign.query_one(numbered, &[]).await.unwrap();

    let bump = "UPDATE stock SET version = version + 1 WHERE sku = 'K'";
    let first = first.transaction().await.unwrap();
    first.execute(bump, &[]).await.unwrap();
    outbox::enqueue(&first, &bench.record("K", "1")).await.unwrap();
    first.commit().await.unwrap();
    early.execute(bump, &[]).await.unwrap();
    outbox::enqueue(&early, &bench.record("K", "2")).await.unwrap();
    early.commit().await.unwrap();

    let relay = bench.relay();
    // While the foreign write transaction is open.
    bench.publishes(&["1", "2"]).await;
    bench.outbox_is_empty().await;
    foreign.commit().await.unwrap();
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_lose_nothing_and_keep_each_keys_order() {
    const WRITERS: usize = 8;
    const ROWS: usize = 500;
    const KEYS: usize = 13;
    let bench = Bench::new("writers", 4).await;
    bench.database.execute("CREATE TABLE counter (key int PRIMARY KEY, number int)").await;
    bench.database.execute(&format!("INSERT INTO counter SELECT it, 0 FROM generate_series(0, {}) it", KEYS - 1)).await;
    let (pool, topic) = (bench.pool(), bench.topic.clone());
    // The leader is killed on the way, so that a page is published twice.
    let (doomed, relay) = (bench.relay_with(37), bench.relay_with(37));
    let writers = (0..WRITERS).map(|writer| {
        let (pool, topic) = (pool.clone(), topic.clone());
        tokio::spawn(async move {
            let mut client = pool.get().await.unwrap();
            for row in 0..ROWS {
                let key = (writer * 7 + row * 5) % KEYS;
                let tx = client.transaction().await.unwrap();
                let bump = format!("UPDATE counter SET number = number + 1 WHERE key = {key} RETURNING number");
                let number: i32 = tx.query_one(&bump, &[]).await.unwrap().get(0);
                let record = OutboundRecord {
                    topic: topic.clone(),
                    key: Some(format!("K{key}").into()),
                    payload: Some(number.to_string().into()),
                    headers: Headers::default(),
                };
                outbox::enqueue(&tx, record).await.unwrap();
                if row % 10 == 9 {
                    tx.rollback().await.unwrap();
                } else {
                    tx.commit().await.unwrap();
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    eventually("some are published", LIMIT, async || !bench.published().await.is_empty()).await;
    doomed.kill();
    for writer in writers {
        writer.await.unwrap();
    }
    bench.outbox_is_empty().await;
    let by_key = first_by_key(&bench.kafka.read_all(&bench.topic).await);
    assert_eq!(by_key.values().map(Vec::len).sum::<usize>(), WRITERS * ROWS * 9 / 10);
    for (key, numbers) in by_key {
        let expected: Vec<u32> = (1..=numbers.len() as u32).collect();
        assert_eq!(numbers, expected, "{key}");
    }
    relay.stop().await;
}

#[tokio::test]
async fn one_relay_leads_and_another_takes_over() {
    let bench = Bench::new("leader", 1).await;
    let owner = "SELECT coalesce((SELECT owner::text FROM sekali.lock WHERE name = 'relay'), '')";
    let first = bench.relay();
    let leader: String = eventually("one leads", LIMIT, async || {
        Some(bench.database.scalar::<String>(owner).await).filter(|it| !it.is_empty())
    })
    .await;
    let second = bench.relay();
    bench.enqueue(&[bench.record("k", "1")]).await;
    bench.publishes(&["1"]).await;
    assert_eq!(bench.database.scalar::<String>(owner).await, leader, "the second one waits");

    let killed_at = Instant::now();
    first.kill();
    bench.enqueue(&[bench.record("k", "2")]).await;
    bench.publishes(&["1", "2"]).await;
    assert_ne!(bench.database.scalar::<String>(owner).await, leader);
    assert!(killed_at.elapsed() < Duration::from_secs(10), "{:?}", killed_at.elapsed());

    second.stop().await;
    assert_eq!(bench.database.scalar::<String>(owner).await, "", "a relay that stops releases its lease");
}

#[tokio::test]
async fn a_relay_without_its_lease_moves_nothing() {
    let bench = Bench::new("fenced", 1).await;
    let relay = bench.relay();
    bench.enqueue(&[bench.record("k", "1")]).await;
    bench.publishes(&["1"]).await;
    bench.outbox_is_empty().await;
    let steal = "UPDATE sekali.lock SET owner = gen_random_uuid(), fence = nextval('sekali.fence'), \
                 until = now() + interval '2 s' WHERE name = 'relay'";
    bench.database.execute(steal).await;
    let thief: i64 = bench.database.scalar("SELECT fence FROM sekali.lock").await;
    bench.enqueue(&[bench.record("k", "2")]).await;
    let held = "SELECT coalesce((SELECT now() <= until FROM sekali.lock WHERE fence = ";
    let begin = Instant::now();
    loop {
        let published = bench.published().await;
        // In this order: the lease may run out while the topic is read.
        if !bench.database.scalar::<bool>(&format!("{held}{thief}), false)")).await {
            break;
        }
        assert_eq!(published, ["1"], "the thief leads, and publishes nothing");
        assert!(begin.elapsed() < LIMIT);
    }
    bench.publishes(&["1", "2"]).await;
    assert!(thief < bench.database.scalar::<i64>("SELECT fence FROM sekali.lock").await);
    relay.stop().await;
}

#[tokio::test]
async fn a_record_that_kafka_refuses_becomes_a_dead_letter_and_blocks_nobody() {
    let mut bench = Bench::new("refused", 1).await;
    bench.topic = unique("small");
    bench.kafka.create_exactly(&[(&bench.topic, 1)], &[("max.message.bytes", "2000")]).await;
    // Bytes that do not compress: the limit is on what the broker gets.
    let noise = |bytes: usize| -> Bytes {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    };
    let mut refused_by_broker = bench.record("k", "large");
    refused_by_broker.payload = Some(noise(5_000));
    let mut refused_by_client = bench.record("k", "larger");
    refused_by_client.payload = Some(noise(2_000_000));
    let mut records: Vec<OutboundRecord> = (0..20).map(|it| bench.record("k", &it.to_string())).collect();
    records.insert(7, refused_by_broker.clone());
    records.insert(15, refused_by_client.clone());
    bench.enqueue(&records).await;
    // Small batches: some are on their way behind the refused one, and must not overtake its other record.
    let mut kafka = KafkaSection::new(bench.kafka.bootstrap());
    kafka.properties.insert("batch.num.messages".to_owned(), "2".to_owned());
    let relay = bench.relay_on(&kafka, 100);
    bench.outbox_is_empty().await;
    let by_key = first_by_key(&bench.kafka.read_all(&bench.topic).await);
    assert_eq!(by_key["k"], (0..20).collect::<Vec<u32>>(), "also those that shared a batch with it, in order");

    let client = bench.database.connect().await;
    let sql = "SELECT payload, key_text, reason, class, code, state, origin_topic, origin_partition, resource_key, \
               header_names, name FROM sekali.dead_letter JOIN sekali.consumer ON consumer.id = consumer_id \
               ORDER BY origin_offset";
    let dead = client.query(sql, &[]).await.unwrap();
    assert_eq!(dead.len(), 2, "nobody else is blamed");
    for (row, record) in dead.iter().zip([&refused_by_broker, &refused_by_client]) {
        assert_eq!(row.get::<_, Option<&[u8]>>(0), record.payload.as_deref());
        assert_eq!(row.get::<_, Option<&str>>(1), record.headers.text("idempotency-key"));
        let texts: Vec<&str> = (2..=6).map(|it| row.get(it)).collect();
        assert_eq!(texts, ["unpublishable", "permanent", "MessageSizeTooLarge", "open", &bench.topic]);
        assert_eq!(row.get::<_, i32>(7), -1);
        assert_eq!(row.get::<_, Option<&[u8]>>(8), record.key.as_deref());
        assert_eq!(row.get::<_, Vec<&str>>(9), ["idempotency-key"]);
        assert_eq!(row.get::<_, &str>(10), "outbox");
    }
    relay.stop().await;
}

#[tokio::test]
async fn a_broker_that_is_away_costs_nothing_but_time() {
    let mut broker = match OwnBroker::start().await {
        Ok(broker) => broker,
        Err(reason) => skip!("{reason:#}"),
    };
    let kafka = broker.kafka().clone();
    let topic = kafka.topic("away", 1).await;
    let bench = Bench { database: TestDatabase::create().await, kafka, topic };
    let relay = bench.relay_with(10);
    bench.enqueue(&[bench.record("k", "0")]).await;
    bench.publishes(&["0"]).await;
    broker.kill();
    for number in 1..=30 {
        bench.enqueue(&[bench.record("k", &number.to_string())]).await;
    }
    // The lease outlives the outage.
    let fence = "SELECT coalesce((SELECT fence FROM sekali.lock WHERE now() <= until), 0)";
    let led: i64 = bench.database.scalar(fence).await;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        assert_eq!(bench.database.scalar::<i64>(fence).await, led);
    }
    broker.restart().await.unwrap();
    bench.outbox_is_empty().await;
    let by_key = first_by_key(&bench.kafka.read_all(&bench.topic).await);
    assert_eq!(by_key["k"], (0..=30).collect::<Vec<u32>>());
    assert_eq!(bench.database.scalar::<i64>("SELECT count(*) FROM sekali.dead_letter").await, 0);
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_stops_in_bounded_time_while_the_broker_is_away() {
    let bench = Bench::new("nowhere", 1).await;
    let section = RelaySection::default();
    let relay = Relay::new(bench.pool(), &KafkaSection::new("127.0.0.1:1"), &section).unwrap();
    let shutdown = CancellationToken::new();
    let running = Running { shutdown: shutdown.clone(), task: tokio::spawn(relay.run(shutdown)) };
    bench.enqueue(&[bench.record("k", "1")]).await;
    let open = "SELECT window_end IS NOT NULL FROM sekali.outbox_cursor";
    eventually("a page is in hand", LIMIT, async || bench.database.scalar::<bool>(open).await).await;
    running.stop().await;
    assert_eq!(bench.database.scalar::<i64>("SELECT count(*) FROM sekali.outbox").await, 1, "nothing is lost");
    let relay = bench.relay();
    bench.publishes(&["1"]).await;
    relay.stop().await;
}

#[tokio::test]
async fn nulls_and_headers_arrive_byte_for_byte() {
    let bench = Bench::new("exact", 1).await;
    let headers: Headers = [
        Header { name: "b", value: Some(&[0, 0xFF, b'\\', b'"'][..]) },
        Header { name: "a\"\\,{}", value: None },
        Header { name: "b", value: Some(b"") },
        Header { name: "", value: Some("ä".as_bytes()) },
        Header { name: "NULL", value: Some(b"NULL") },
    ]
    .into_iter()
    .collect();
    let nulls = OutboundRecord { topic: bench.topic.clone(), key: None, payload: None, headers };
    let empty = OutboundRecord { key: Some(Bytes::new()), payload: Some(Bytes::new()), ..nulls.clone() };
    let bare = OutboundRecord { headers: Headers::default(), ..bench.record("k", "bare") };
    let records = [nulls, empty, bare];
    // One by one and all at once: two statements, one result.
    let mut client = bench.database.connect().await;
    let tx = client.transaction().await.unwrap();
    for record in &records {
        outbox::enqueue(&tx, record).await.unwrap();
    }
    outbox::enqueue_all(&tx, &records).await.unwrap();
    outbox::enqueue_all::<OutboundRecord>(&tx, []).await.unwrap();
    tx.commit().await.unwrap();
    let relay = bench.relay();
    bench.outbox_is_empty().await;
    let published = bench.kafka.read_all(&bench.topic).await;
    assert_eq!(published.len(), 6);
    for (got, sent) in published.iter().zip(records.iter().chain(&records)) {
        assert_eq!(got.key, sent.key);
        assert_eq!(got.payload, sent.payload);
        assert_eq!(got.headers, sent.headers);
    }
    relay.stop().await;
}

#[tokio::test]
async fn an_outbox_from_another_cluster_is_published_again() {
    let bench = Bench::new("restored", 1).await;
    bench.enqueue(&[bench.record("k", "1")]).await;
    // As pg_dump brings them from a cluster with more transactions behind it.
    bench.database.execute("UPDATE sekali.outbox_cursor SET published = '900000000:900000000:'").await;
    let relay = bench.relay();
    bench.publishes(&["1"]).await;
    relay.stop().await;
    bench.enqueue(&[bench.record("k", "2")]).await;
    bench.database.execute("UPDATE sekali.outbox SET xid = '900000000'").await;
    let relay = bench.relay();
    bench.publishes(&["1", "2"]).await;
    bench.outbox_is_empty().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_page_has_its_limits_and_a_window_many_pages() {
    let bench = Bench::new("pages", 1).await;
    let mut records: Vec<OutboundRecord> = (0..50).map(|it| bench.record("k", &it.to_string())).collect();
    for record in &mut records {
        record.headers = Headers::builder().text("filler", &"x".repeat(700_000)).build();
    }
    bench.enqueue(&records).await;
    let relay = bench.relay_with(40);
    bench.outbox_is_empty().await;
    let by_key = first_by_key(&bench.kafka.read_all(&bench.topic).await);
    assert_eq!(by_key["k"], (0..50).collect::<Vec<u32>>());
    relay.stop().await;
}

/// Autovacuum counts apart.
#[tokio::test]
async fn the_leader_vacuums_the_outbox_after_many_rows() {
    const VACUUMED: &str = "SELECT pg_stat_get_vacuum_count('sekali.outbox'::regclass)";
    let bench = Bench::new("vacuum", 1).await;
    let fill = |rows: usize| {
        let topic = &bench.topic;
        format!("INSERT INTO sekali.outbox (topic, payload) SELECT '{topic}', 'x' FROM generate_series(1, {rows})")
    };
    bench.database.execute(&fill(40_000)).await;
    let relay = bench.relay_with(1000);
    bench.outbox_is_empty().await;
    assert_eq!(bench.database.scalar::<i64>(VACUUMED).await, 0, "few rows are left to autovacuum");
    bench.database.execute(&fill(20_000)).await;
    bench.outbox_is_empty().await;
    eventually("the outbox is vacuumed", LIMIT, async || 0 < bench.database.scalar::<i64>(VACUUMED).await).await;
    assert_eq!(bench.kafka.end_offsets(&bench.topic).await.values().sum::<i64>(), 60_000);
    relay.stop().await;
}
