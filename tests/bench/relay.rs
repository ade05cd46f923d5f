//! How fast the relay drains a backlog, beside a bare librdkafka producer of the same records; how soon it publishes under
//! a steady load; what it costs when nothing comes; and how large the outbox grows behind a window.
//!
//! Rates and delays are told by the broker, whose topics note when a record was appended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use sekali_benchmark::child::{Child, Settings};
use sekali_benchmark::postgres::Usage;
use sekali_benchmark::targets::Target;
use sekali_benchmark::{Program, machine};
use sekali_producer::config::{KafkaSection, PostgresSection, RelaySection};
use sekali_producer::{Event, IntoRecord, OutboundRecord, Relay, ResourceId, outbox};
use sekali_schemas::Record;
use sekali_schemas::events::StockAdjusted;
use sekali_tests::harness::{TestDatabase, eventually, target_dir, unique};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::PARTITIONS;
use crate::bench::Bench;
use crate::servers::Servers;

const KEYS: usize = 5_000;
/// Events of one transaction that fills the outbox.
const TOGETHER: usize = 1_000;
const ROUNDS: usize = 2;
const LIMIT: Duration = Duration::from_secs(300);

/// One of the goals on the drain has to be reached.
const DRAIN_GOAL: f64 = 40_000.0;
const RATIO_GOAL: f64 = 0.60;

const STEADY_RATE: usize = 5_000;
/// Events of one transaction of the steady load.
const STEADY_TOGETHER: usize = 25;
const STEADY_TIME: Duration = Duration::from_secs(15);
const QUICK_TIME: Duration = Duration::from_secs(8);
const STEADY_P99_GOAL_MS: i64 = 50;

const IDLE_GOAL: f64 = 0.01;

/// Rows that wait at once while the table's size is watched.
const WINDOW: usize = 1_000_000;
const SIZE_GOAL: f64 = 1.3;

/// A database with an outbox, and a topic that notes when records are appended.
struct Stage {
    database: TestDatabase,
    kafka: sekali_tests::harness::Kafka,
    topic: String,
}

impl Stage {
    async fn new(servers: &Servers) -> Stage {
        let topic = unique("relay");
        let settings = [("message.timestamp.type", "LogAppendTime")];
        servers.kafka().create_exactly(&[(&topic, PARTITIONS.get().into())], &settings).await;
        Stage { database: TestDatabase::create_on(&servers.postgres()).await, kafka: servers.kafka().clone(), topic }
    }

    fn relay(&self) -> Result<Running, anyhow::Error> {
        let postgres = PostgresSection { url: Some(self.database.url().into()), ..PostgresSection::default() };
        let kafka = KafkaSection::new(self.kafka.bootstrap());
        let relay = Relay::new(postgres.pool("relay")?, &kafka, &RelaySection::default())?;
        let stop = CancellationToken::new();
        Ok(Running { stop: stop.clone(), task: tokio::spawn(relay.run(stop)) })
    }

    async fn enqueue(&self, events: impl Iterator<Item = OutboundRecord>) -> Result<(), anyhow::Error> {
        let mut client = self.database.connect().await;
        let mut events = events.peekable();
        while events.peek().is_some() {
            let tx = client.transaction().await?;
            outbox::enqueue_all(&tx, events.by_ref().take(TOGETHER)).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    async fn published(&self) -> usize {
        self.kafka.end_offsets(&self.topic).await.values().sum::<i64>().try_into().unwrap_or_default()
    }

    async fn is_drained(&self, count: usize) {
        eventually("everything is published", LIMIT, async || count <= self.published().await).await;
    }
}

struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) -> Result<(), anyhow::Error> {
        self.stop.cancel();
        Ok(self.task.await?)
    }
}

/// Event `number`, as a service would enqueue it.
fn event(topic: &str, number: usize) -> OutboundRecord {
    let sku = format!("SKU-{:05}", number % KEYS);
    let sold = StockAdjusted { sku: sku.clone(), delta: number as i64, occurred_at: None };
    let resource = ResourceId::new(sku).expect("a SKU is not empty");
    let event = Event::of(topic, resource, &sold).expect("it is an event");
    event.into_record().expect("it is a record")
}

/// Measures all of it: the drain in pairs.
pub(crate) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let servers = &bench.servers;
    let drain = bench_drain(servers, bench.options.events, bench.options.rounds_at_most(ROUNDS)).await?;
    let time = if bench.options.quick { QUICK_TIME } else { STEADY_TIME };
    let steady = bench_steady(servers, time).await?;
    let idle = bench_idle(servers, time).await?;
    let value = |of: &serde_json::Value, key: &str| of[key].as_f64().unwrap_or(f64::NAN);
    let enough = if DRAIN_GOAL <= value(&drain, "per_second") {
        Target::at_least("T17", "drain of the outbox, records/s", value(&drain, "per_second"), DRAIN_GOAL)
    } else {
        Target::at_least("T17", "drain of the outbox by a bare producer", value(&drain, "of_bare"), RATIO_GOAL)
    };
    bench.report.targets.extend([
        enough,
        Target::at_most(
            "T17",
            "5,000/s, commit to append, p99 in ms",
            value(&steady, "p99_ms"),
            STEADY_P99_GOAL_MS as f64,
        ),
        Target::at_most("T17", "idle relay, cores", value(&idle, "cores"), IDLE_GOAL),
    ]);
    bench.report.extra.insert("relay".to_owned(), json!([drain, steady, idle]));
    Ok(())
}

fn write(file: &str, results: &[serde_json::Value]) -> Result<bool, anyhow::Error> {
    let ok = results.iter().all(|it| it["ok"] == true);
    let path = target_dir().join("bench").join(file);
    std::fs::create_dir_all(target_dir().join("bench"))?;
    std::fs::write(&path, serde_json::to_string_pretty(&json!({"results": results, "ok": ok}))? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(ok)
}

fn say(text: &str, reached: bool) {
    println!("{text}: {}", if reached { "ok" } else { "MISSED" });
}

async fn bench_drain(servers: &Servers, events: usize, rounds: usize) -> Result<serde_json::Value, anyhow::Error> {
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    // The first pair pays for a cold broker and cold caches, and is thrown away.
    for round in 0..=rounds {
        let bare = bare(servers, events).await?;
        let relay = drain(servers, events).await?;
        println!("drain of {events}: {relay:.0} a second; bare producer: {bare:.0}");
        if 0 < round {
            rates.push(relay);
            ratios.push(relay / bare);
        }
    }
    let median = |mut it: Vec<f64>| {
        it.sort_by(f64::total_cmp);
        it[it.len() / 2]
    };
    let (rate, ratio) = (median(rates), median(ratios));
    let ok = DRAIN_GOAL <= rate || RATIO_GOAL <= ratio;
    say(&format!("drain {rate:.0} a second, goal {DRAIN_GOAL:.0}; or {ratio:.2} of bare, goal {RATIO_GOAL:.2}"), ok);
    Ok(json!({"what": "drain", "events": events, "per_second": rate, "of_bare": ratio, "ok": ok}))
}

async fn drain(servers: &Servers, events: usize) -> Result<f64, anyhow::Error> {
    let stage = Stage::new(servers).await;
    stage.enqueue((0..events).map(|it| event(&stage.topic, it))).await?;
    stage.database.execute("VACUUM ANALYZE sekali.outbox").await;
    stage.database.execute("CHECKPOINT").await;
    let relay = stage.relay()?;
    stage.is_drained(events).await;
    relay.stop().await?;
    judge(&stage, events).await
}

/// The same records by librdkafka alone, with the settings of the relay's producer.
async fn bare(servers: &Servers, events: usize) -> Result<f64, anyhow::Error> {
    let stage = Stage::new(servers).await;
    let records: Vec<OutboundRecord> = (0..events).map(|it| event(&stage.topic, it)).collect();
    let mut config = stage.kafka.client_config();
    config
        .set("enable.idempotence", "true")
        .set("enable.gapless.guarantee", "true")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "5")
        .set("compression.type", "lz4");
    let sent = tokio::task::spawn_blocking(move || {
        let producer: BaseProducer = config.create()?;
        for record in &records {
            send(&producer, record)?;
        }
        producer.flush(LIMIT)
    });
    sent.await??;
    judge(&stage, events).await
}

fn send(producer: &BaseProducer, record: &OutboundRecord) -> Result<(), KafkaError> {
    let mut headers = rdkafka::message::OwnedHeaders::new_with_capacity(record.headers.len());
    for it in record.headers.iter() {
        headers = headers.insert(rdkafka::message::Header { key: it.name, value: it.value });
    }
    let mut kafka = BaseRecord::<[u8], [u8]>::to(&record.topic).headers(headers);
    (kafka.key, kafka.payload) = (record.key.as_deref(), record.payload.as_deref());
    loop {
        match producer.send(kafka) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(10));
                kafka = back;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// The oracle: each event is there, and those of a key in order. The rate, from the first append to the last.
async fn judge(stage: &Stage, events: usize) -> Result<f64, anyhow::Error> {
    let records = stage.kafka.read_all(&stage.topic).await;
    let (mut seen, mut last) = (HashSet::new(), BTreeMap::<&[u8], i64>::new());
    for record in &records {
        let number = number(record)?;
        if seen.insert(number) {
            let last = last.insert(record.key.as_deref().unwrap_or_default(), number);
            ensure!(last.is_none_or(|it| it < number), "event {number} is out of order");
        }
    }
    ensure!(seen.len() == events, "{} of {events} events are on the topic", seen.len());
    let times = records.iter().filter_map(|it| it.timestamp_ms);
    let (first, last) = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
    Ok(events as f64 * 1000.0 / (last - first).max(1) as f64)
}

fn number(record: &Record) -> Result<i64, anyhow::Error> {
    Ok(serde_json::from_slice::<StockAdjusted>(record.payload.as_deref().unwrap_or_default())?.delta)
}

async fn bench_steady(servers: &Servers, time: Duration) -> Result<serde_json::Value, anyhow::Error> {
    let stage = Stage::new(servers).await;
    let relay = stage.relay()?;
    let mut client = stage.database.connect().await;
    let transactions = (STEADY_RATE / STEADY_TOGETHER) as u64 * time.as_secs();
    let mut committed_at = HashMap::new();
    let mut began = Instant::now();
    for transaction in 0..transactions {
        sleep_until(began + time * transaction as u32 / transactions as u32).await;
        if transaction == 1 {
            // The first one meets a relay that has yet to take its lease and to connect.
            stage.is_drained(STEADY_TOGETHER).await;
            began = Instant::now();
        }
        let numbers = (transaction as usize * STEADY_TOGETHER)..((transaction as usize + 1) * STEADY_TOGETHER);
        let tx = client.transaction().await?;
        outbox::enqueue_all(&tx, numbers.map(|it| event(&stage.topic, it))).await?;
        tx.commit().await?;
        committed_at.insert(transaction, SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64);
    }
    let late = began.elapsed().saturating_sub(time);
    let events = transactions as usize * STEADY_TOGETHER;
    stage.is_drained(events).await;
    relay.stop().await?;
    judge(&stage, events).await?;
    let mut delays = Vec::with_capacity(events);
    for record in stage.kafka.read_all(&stage.topic).await {
        let transaction = number(&record)? as u64 / STEADY_TOGETHER as u64;
        if 0 < transaction {
            delays.push(record.timestamp_ms.unwrap_or_default() - committed_at[&transaction]);
        }
    }
    delays.sort_unstable();
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
    let ok = p99 <= STEADY_P99_GOAL_MS && late < Duration::from_secs(1);
    let text = format!(
        "{STEADY_RATE} a second: from commit to append p50 {p50} ms, p99 {p99} ms, at most {most} ms, goal p99 \
         {STEADY_P99_GOAL_MS} ms"
    );
    say(&text, ok);
    Ok(json!({"what": "steady", "per_second": STEADY_RATE, "p50_ms": p50, "p99_ms": p99, "max_ms": most, "ok": ok}))
}

async fn bench_idle(servers: &Servers, time: Duration) -> Result<serde_json::Value, anyhow::Error> {
    let stage = Stage::new(servers).await;
    let child = Child {
        program: Program::Relay,
        origin: servers.stage.origin.clone(),
        database: stage.database.name().to_owned(),
        through: None,
        topic: stage.topic.clone(),
        partitions: PARTITIONS,
        group: "relay".to_owned(),
        admin_port: None,
        settings: Settings::default(),
    };
    let mut relay = child.spawn()?;
    stage.enqueue(std::iter::once(event(&stage.topic, 0))).await?;
    stage.is_drained(1).await;
    sleep(Duration::from_secs(3)).await;
    let own = relay.pid().unsigned_abs();
    let (client, postmaster) = (stage.database.connect().await, servers.postmaster().context("no postmaster")?);
    let before = (machine::cpu(own)?, machine::family_cpu(postmaster)?, Usage::now(&client).await?);
    sleep(time).await;
    let after = (machine::cpu(own)?, machine::family_cpu(postmaster)?, Usage::now(&client).await?);
    relay.sigkill().await?;
    let share = |it: Duration| it.as_secs_f64() / time.as_secs_f64();
    let relay = share(after.0 - before.0);
    let postgres = share(after.1.saturating_sub(before.1));
    let wal = after.2.wal_bytes - before.2.wal_bytes;
    let ok = relay <= IDLE_GOAL;
    let seconds = time.as_secs();
    let text = format!(
        "idle: {:.2} % of a core, goal {:.0} %; PostgreSQL for it {:.2} %, {wal} bytes of WAL in {seconds} s",
        relay * 100.0,
        IDLE_GOAL * 100.0,
        postgres * 100.0
    );
    say(&text, ok);
    Ok(json!({"what": "idle", "cores": relay, "postgres_cores": postgres, "wal_bytes": wal, "ok": ok}))
}

/// Sends `events` through an outbox in which a window waits all the time, autovacuum at its defaults, and watches its size.
pub(crate) async fn bench_size(events: usize) -> Result<bool, anyhow::Error> {
    let servers = Servers::start().await?;
    let stage = Stage::new(&servers).await;
    const SIZE: &str = "SELECT pg_total_relation_size('sekali.outbox')";
    stage.enqueue((0..WINDOW).map(|it| event(&stage.topic, it))).await?;
    let window: i64 = stage.database.scalar(SIZE).await;
    let relay = stage.relay()?;
    let (mut enqueued, mut peak, mut next_line) = (WINDOW, window, WINDOW);
    while enqueued < events {
        let published = stage.published().await;
        let room = (published + WINDOW).saturating_sub(enqueued).min(events - enqueued);
        stage.enqueue((enqueued..enqueued + room).map(|it| event(&stage.topic, it))).await?;
        enqueued += room;
        peak = peak.max(stage.database.scalar(SIZE).await);
        if next_line <= enqueued {
            println!("{enqueued} events: {:.2} of the window", peak as f64 / window as f64);
            next_line += WINDOW;
        }
        if room == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    stage.is_drained(events).await;
    relay.stop().await?;
    let published = stage.published().await;
    ensure!(published == events, "{published} of {events} events are on the topic");
    let grown = peak as f64 / window as f64;
    let ok = grown <= SIZE_GOAL;
    let window_mb = window as f64 / f64::from(1 << 20);
    say(&format!("{events} events: at most {grown:.2} of a window of {window_mb:.0} MiB, goal {SIZE_GOAL}"), ok);
    write("relay-size.json", &[json!({"what": "size", "events": events, "of_window": grown, "ok": ok})])
}
