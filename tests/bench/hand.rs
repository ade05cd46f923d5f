//! The hand-written loop: what a careful engineer writes for this one group, without a runtime.
//!
//! One poll thread reads records straight into rows and hands them over in batches of a thousand; two tasks with one
//! connection each own half of the partitions. Claim, ledger and quantities are one statement each, pipelined into two
//! round trips. No retries, no dead letters, no metrics, no rebalancing: it is the bound, not an alternative.

mod lane;
mod poll;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use rdkafka::ClientConfig;
use sekali_consumer::shutdown_signal;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::child::Child;

const LANES: usize = 2;
const BATCH_MAX: usize = 1_000;
/// Batches that wait for a lane.
const WAITING_MAX: usize = 16;

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
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Next offset of each partition, committed in the database.
    positions: Mutex<BTreeMap<i32, i64>>,
    /// Batches that a lane has been given and not committed.
    unfinished: [AtomicUsize; LANES],
}

impl Shared {
    fn positions(&self) -> MutexGuard<'_, BTreeMap<i32, i64>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drains the topic until SIGTERM.
pub(crate) fn run(child: &Child) -> Result<(), anyhow::Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(LANES).enable_all().build()?;
    runtime.block_on(async {
        let shared = Arc::new(Shared::default());
        let (mut senders, mut lanes) = (Vec::new(), Vec::new());
        for index in 0..LANES {
            let (sender, batches) = mpsc::channel(WAITING_MAX);
            let lane = lane::Lane::connect(index, child, shared.clone()).await?;
            senders.push(sender);
            lanes.push(tokio::spawn(lane.run(batches)));
        }
        let consumer = client_config(child).create().context("cannot create the consumer")?;
        let poller = poll::Poller::new(consumer, &child.topic, senders, shared.clone())?;
        let polling = std::thread::spawn(move || poller.run());
        shutdown_signal().await;
        shared.stop.store(true, Ordering::Relaxed);
        let polled = tokio::task::spawn_blocking(|| polling.join()).await?;
        let poller = polled.map_err(|_| anyhow::anyhow!("the poll thread panicked"))??;
        for lane in lanes {
            lane.await??;
        }
        poller.commit_the_rest()?;
        Ok(())
    })
}

/// The same tuning as the product's.
fn client_config(child: &Child) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (key, value) in [
        ("bootstrap.servers", child.brokers.as_str()),
        ("group.id", &child.group),
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
    config
}
