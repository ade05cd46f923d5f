//! The loops by hand: what a careful engineer writes for this one group, without a runtime.
//!
//! One poll thread reads records straight into rows and hands them over in batches; a lane owns a connection and its
//! share of the partitions. No retries, no dead letters, no metrics, no rebalancing: they are the bound, no alternative.

mod lane;
mod poll;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use rdkafka::ClientConfig;
use sekali_consumer::shutdown_signal;
use sekali_producer::config::KafkaSection;
use tokio::sync::mpsc;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::child::Child;

/// Batches that wait for a lane.
const WAITING_MAX: usize = 16;

/// What kind of loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Connections, each with a share of the partitions.
    pub(crate) lanes: usize,
    pub(crate) batch_max: usize,
    pub(crate) claim: Claim,
    pub(crate) writing: Writing,
}

/// How inbox rows come into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// `ON CONFLICT DO NOTHING`.
    Speculative,
    /// `WHERE NOT EXISTS`, again with `ON CONFLICT` when somebody else was faster.
    Plain,
}

/// How ledger and quantities are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// One statement each for the batch.
    Sets,
    /// Two statements an event, sent at once.
    Pipelined,
    /// Two statements an event, each awaited.
    Awaited,
}

impl Shape {
    /// Two connections and batches of a thousand, by sets.
    pub(crate) const BEST: Shape =
        Shape { lanes: 2, batch_max: 1_000, claim: Claim::Speculative, writing: Writing::Sets };
}

/// One event, ready for the statements.
struct Row {
    key: Uuid,
    fingerprint: i64,
    sku: String,
    delta: i64,
    occurred_at: Option<jiff::Timestamp>,
    partition: i32,
    offset: i64,
}

/// What poll thread and lanes share.
struct Shared {
    stop: AtomicBool,
    /// Next offset of each partition, committed in the database.
    positions: Mutex<BTreeMap<i32, i64>>,
    /// Batches that a lane has been given and not committed.
    unfinished: Vec<AtomicUsize>,
}

impl Shared {
    fn new(lanes: usize) -> Shared {
        let unfinished = (0..lanes).map(|_| AtomicUsize::default()).collect();
        Shared { stop: AtomicBool::default(), positions: Mutex::default(), unfinished }
    }

    fn positions(&self) -> MutexGuard<'_, BTreeMap<i32, i64>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drains the topic until SIGTERM.
pub(crate) fn run(child: &Child, shape: Shape) -> Result<(), anyhow::Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(shape.lanes).enable_all().build()?;
    runtime.block_on(async {
        let config = child.config()?;
        let shared = Arc::new(Shared::new(shape.lanes));
        let (mut senders, mut lanes) = (Vec::new(), Vec::new());
        for index in 0..shape.lanes {
            let (sender, batches) = mpsc::channel(WAITING_MAX);
            let client = config.postgres.connect(child.program.name()).await?;
            let lane = lane::Lane::prepare(index, shape, client, child, shared.clone()).await?;
            senders.push(sender);
            lanes.push(tokio::spawn(lane.run(batches)));
        }
        let consumer = consumer_config(&config.kafka, child)?.create().context("cannot create the consumer")?;
        let poller = poll::Poller::new(consumer, &child.topic, shape.batch_max, senders, shared.clone())?;
        let polling = std::thread::spawn(move || poller.run());
        tokio::select! {
            () = shutdown_signal() => {}
            () = ended(&lanes) => {}
        }
        shared.stop.store(true, Ordering::Relaxed);
        let polled = tokio::task::spawn_blocking(|| polling.join()).await?;
        let poller = polled.map_err(|_| anyhow::anyhow!("the poll thread panicked"))?;
        for lane in lanes {
            lane.await??;
        }
        poller?.commit_the_rest()?;
        Ok(())
    })
}

/// Returns when a lane has ended, which only an error makes it do.
async fn ended(lanes: &[tokio::task::JoinHandle<Result<(), anyhow::Error>>]) {
    while lanes.iter().all(|it| !it.is_finished()) {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// The number under which the inbox knows the program.
pub(crate) async fn consumer_id(client: &Client, child: &Child) -> Result<i16, anyhow::Error> {
    let name = &child.program.name();
    client.execute("INSERT INTO sekali.consumer (name) VALUES ($1) ON CONFLICT DO NOTHING", &[name]).await?;
    Ok(client.query_one("SELECT id FROM sekali.consumer WHERE name = $1", &[name]).await?.get(0))
}

/// The same tuning as the product's.
pub(crate) fn consumer_config(kafka: &KafkaSection, child: &Child) -> Result<ClientConfig, anyhow::Error> {
    let mut config = kafka.client_config()?;
    for (key, value) in [
        ("group.id", child.group.as_str()),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "earliest"),
        ("fetch.queue.backoff.ms", "10"),
        ("fetch.wait.max.ms", "100"),
        ("queued.max.messages.kbytes", "24576"),
        ("queued.min.messages", "20000"),
    ] {
        config.set(key, value);
    }
    Ok(config)
}
