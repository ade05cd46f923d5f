//! A rolling restart under a steady load: every worker is asked to end and started again, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::judge::Before;
use crate::main_work::wait_for_owners;
use crate::owners::Coordinator;
use crate::stack::{GRACE, Stack, TOPIC};
use crate::traffic::Traffic;

const WORKERS: usize = 3;
/// Enough for as long as three restarts take; what is left when they are over is sent at once.
const EVENTS: usize = 40_000;
const CHUNK: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// The group works undisturbed for so long between two restarts.
const SETTLE: Duration = Duration::from_secs(3);
/// Longest time without an owner.
const GAP_MAX: Duration = Duration::from_secs(5);

#[derive(Serialize)]
pub(crate) struct Figures {
    events: usize,
    copies: usize,
    restarts: Vec<Restart>,
    /// The longest time that any partition had no owner, by the state of the group.
    longest_gap_seconds: f64,
    /// Looks at the state of the group.
    samples: usize,
    /// The longest time between two movements of one partition in the ledger, while records came all the time.
    longest_silence_seconds: f64,
    seconds: f64,
}

#[derive(Serialize)]
struct Restart {
    worker: String,
    /// From SIGTERM to the end of the process.
    stop_seconds: f64,
    exit_status: i32,
}

pub(crate) async fn run(stack: &Stack) -> Result<(Figures, Vec<String>), anyhow::Error> {
    let begin = Instant::now();
    let traffic = Traffic::good(EVENTS, 2);
    let before = Before::look(stack).await?;
    let workers = stack.workers().await?;
    ensure!(workers.len() == WORKERS, "{WORKERS} workers are expected, and there are {workers:?}");
    wait_for_owners(stack, WORKERS).await?;
    let hurry = Arc::new(AtomicBool::new(false));
    let watch = Coordinator::of(stack)?.watch(hurry.clone());
    let since: std::time::SystemTime = stack.client.query_one("SELECT now()", &[]).await?.get(0);
    let (under_load, restarts) = tokio::join!(send(stack, &traffic, &hurry), restart_each(stack, &workers, &hurry));
    let restarts = restarts?;
    let (owners, samples) = watch.join().map_err(|_| anyhow::anyhow!("the watch of the group panicked"))??;
    before.wait_for_rest(stack, &traffic).await?;
    let mut wrong = before.judge(stack, &traffic).await?;
    for it in &restarts {
        if it.exit_status != 0 || GRACE.as_secs_f64() <= it.stop_seconds {
            wrong.push(format!("{} ended with {} after {:.1} s", it.worker, it.exit_status, it.stop_seconds));
        }
    }
    let gap = owners.longest_gap();
    if GAP_MAX < gap {
        wrong.push(format!("a partition had no owner for {:.1} s", gap.as_secs_f64()));
    }
    if traffic.order.len() <= under_load {
        wrong.push("the load ended before the last restart".to_owned());
    }
    let figures = Figures {
        events: traffic.events.len(),
        copies: traffic.copies(),
        restarts,
        longest_gap_seconds: gap.as_secs_f64(),
        samples,
        longest_silence_seconds: silence(stack, since).await?,
        seconds: begin.elapsed().as_secs_f64(),
    };
    Ok((figures, wrong))
}

/// Sends at a steady pace until the restarts are over, and then the rest. Returns how many were sent by then.
async fn send(stack: &Stack, traffic: &Traffic, hurry: &AtomicBool) -> usize {
    let mut under_load = 0;
    for places in traffic.order.chunks(CHUNK) {
        stack.kafka.produce(TOPIC, places.iter().map(|it| traffic.events[*it].record())).await;
        if !hurry.load(Ordering::Relaxed) {
            under_load += places.len();
            tokio::time::sleep(PAUSE).await;
        }
    }
    under_load
}

async fn restart_each(stack: &Stack, workers: &[String], over: &AtomicBool) -> Result<Vec<Restart>, anyhow::Error> {
    let restarted = async {
        let mut restarts = Vec::new();
        for worker in workers {
            tokio::time::sleep(SETTLE).await;
            let stopped = stack.stop(worker).await?;
            restarts.push(Restart {
                worker: worker.clone(),
                stop_seconds: stopped.seconds,
                exit_status: stopped.status,
            });
            stack.start(worker).await?;
            wait_for_owners(stack, WORKERS).await.with_context(|| format!("after the restart of {worker}"))?;
        }
        tokio::time::sleep(SETTLE).await;
        Ok(restarts)
    };
    let outcome = restarted.await;
    // Whatever came of it: the load and the watch end.
    over.store(true, Ordering::Relaxed);
    outcome
}

/// By the clock of the database.
async fn silence(stack: &Stack, since: std::time::SystemTime) -> Result<f64, anyhow::Error> {
    let sql = "SELECT coalesce(max(extract(epoch FROM step)), 0)::float8 FROM (SELECT recorded_at - lag(recorded_at) \
               OVER (PARTITION BY \"partition\" ORDER BY recorded_at) AS step FROM public.stock_movement \
               WHERE $1 <= recorded_at) AS steps";
    Ok(stack.client.query_one(sql, &[&since]).await?.get(0))
}
