//! The main work of the product through containers, with a crash on the way.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use crate::judge::Before;
use crate::owners::{Coordinator, Owners};
use crate::stack::{PARTITIONS, Stack, TOPIC};
use crate::traffic::{End, Traffic};

const EVENTS: usize = 20_000;
/// The kill comes when so many per cent of what will count is in the ledger.
const KILL_AT_PERCENT: i64 = 40;
/// So many records are sent at once, and then none for a while: there must be some left to come when the worker dies.
const CHUNK: usize = 250;
const PAUSE: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Serialize)]
pub(crate) struct Figures {
    records: usize,
    events: usize,
    copies: usize,
    retried: usize,
    dead: usize,
    /// Movements in the ledger when the worker was killed.
    killed_at: i64,
    /// From the kill until the group had given all partitions to the other worker.
    takeover_seconds: f64,
    seconds: f64,
}

pub(crate) async fn run(stack: &Stack) -> Result<(Figures, Vec<String>), anyhow::Error> {
    let begin = Instant::now();
    let traffic = Traffic::with_failures(EVENTS, 1);
    let before = Before::look(stack).await?;
    traffic.prepare(&stack.client).await?;
    let workers = stack.workers().await?;
    ensure!(workers.len() == 2, "two workers are expected, and there are {workers:?}");
    wait_for_owners(stack, 2).await?;
    let (_, crash) = tokio::try_join!(send(stack, &traffic), crash(stack, &before, &traffic, &workers[0]))?;
    before.wait_for_rest(stack, &traffic).await?;
    let mut wrong = before.judge(stack, &traffic).await?;
    if traffic.ending(End::Ledger) as i64 <= crash.counted {
        wrong.push("the worker was killed when there was nothing left to do".to_owned());
    }
    // As it was, for whoever looks at the containers next.
    stack.start(&workers[0]).await?;
    let figures = Figures {
        records: traffic.order.len(),
        events: traffic.events.len(),
        copies: traffic.copies(),
        retried: traffic.retried(),
        dead: traffic.ending(End::Dead),
        killed_at: crash.counted,
        takeover_seconds: crash.takeover.as_secs_f64(),
        seconds: begin.elapsed().as_secs_f64(),
    };
    Ok((figures, wrong))
}

async fn send(stack: &Stack, traffic: &Traffic) -> Result<(), anyhow::Error> {
    for places in traffic.order.chunks(CHUNK) {
        stack.kafka.produce(TOPIC, places.iter().map(|it| traffic.events[*it].record())).await;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

struct Crash {
    counted: i64,
    takeover: Duration,
}

/// Kills a worker in the middle, and waits until the other one has its partitions.
async fn crash(stack: &Stack, before: &Before, traffic: &Traffic, victim: &str) -> Result<Crash, anyhow::Error> {
    let kill_at = traffic.ending(End::Ledger) as i64 * KILL_AT_PERCENT / 100;
    let deadline = Instant::now() + LIMIT;
    let mut counted = 0;
    while counted < kill_at {
        ensure!(Instant::now() < deadline, "only {counted} of {kill_at} movements came within {LIMIT:?}");
        tokio::time::sleep(LOOK).await;
        counted = before.since(stack).await?;
    }
    stack.kill(victim).await?;
    let killed = Instant::now();
    wait_for_owners(stack, 1).await?;
    Ok(Crash { counted, takeover: killed.elapsed() })
}

/// Waits until so many members share all partitions.
pub(crate) async fn wait_for_owners(stack: &Stack, members: usize) -> Result<(), anyhow::Error> {
    let coordinator = Coordinator::of(stack)?;
    tokio::task::spawn_blocking(move || {
        let (begin, mut owners) = (Instant::now(), Owners::default());
        loop {
            owners.see(begin.elapsed(), &coordinator.look()?);
            let shares = owners.assigned();
            if shares.len() == members && shares.iter().sum::<usize>() == PARTITIONS {
                return Ok(());
            }
            ensure!(begin.elapsed() < LIMIT, "{members} members do not share {PARTITIONS} partitions: {shares:?}");
            std::thread::sleep(LOOK);
        }
    })
    .await?
}
