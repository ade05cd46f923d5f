//! W9: what retries cost the others, how late they are, and what waiting for them costs.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Context;
use sekali_benchmark::load::{Load, Shape, Skus};
use sekali_benchmark::postgres::{self, Latency};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::{Measured, Run};
use sekali_benchmark::stage::Scratch;
use sekali_benchmark::targets::{Target, median_ratio};
use sekali_benchmark::{Fault, Program, child::Child, machine};
use tokio::time::sleep;
use uuid::Uuid;

use crate::PARTITIONS;
use crate::bench::{Bench, say};

const WORKLOAD: &str = "W9";
const ROUNDS: usize = 3;
const DELAYS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];
/// Of a thousand events, the first attempt fails.
const FAILING: u64 = 10;
/// Events of a SKU: those behind a failed one wait with it.
const EVENTS_OF_A_SKU: usize = 4;
const IDLE_PARTITIONS: NonZeroU16 = NonZeroU16::new(24).unwrap();
const SETTLING: Duration = Duration::from_secs(5);
const IDLE_TIME: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let clean = Shape { skus: Skus::Few(EVENTS_OF_A_SKU), ..Shape::new(bench.options.events) };
    let loads = [clean, Shape { fault: Some((Fault::Once, FAILING)), ..clean }].map(Load::new);
    let mut topics = Vec::new();
    for load in &loads {
        topics.push(bench.topic(load, PARTITIONS).await?);
    }
    // Events on which no failed one has any influence, the same in both loads.
    let failing: BTreeSet<String> = failing_skus(&loads[1]);
    let quoted: Vec<String> = failing.iter().map(|it| format!("'{it}'")).collect();
    let main_path = format!("sku NOT IN ({})", quoted.join(", "));
    let mut rows = ["no retries", "1 % retried once"].map(|it| Row::new(WORKLOAD, it, Program::M1, clean.records));
    for round in 0..bench.options.rounds_at_most(ROUNDS) {
        for place in [round % 2, (round + 1) % 2] {
            let measured = measure(bench, &loads[place], &topics[place], &main_path).await?;
            say(&rows[place].case, Program::M1, &measured);
            rows[place].runs.push(measured);
        }
    }
    let ratio = median_ratio(&rows[1].rates(), &rows[0].rates());
    let late = rows[1].runs.iter().filter_map(|it| it.latency).map(|it| it.p99_ms).fold(f64::NAN, f64::max);
    let idle = idle_cores(bench).await?;
    let targets = [
        Target::at_least("T18", "main path with 1 % retries by none", ratio, 0.97),
        Target::at_most("T18", "lateness of retries, p99 in ms", late, 250.0),
        Target::at_most("T18", "idle with 3 tiers of 24 partitions, cores", idle, 0.01),
    ];
    bench.report.targets.extend(targets);
    bench.report.rows.extend(rows);
    bench.report.notes.push("W9: the delay of a row is the lateness of its retries, from due to commit".to_owned());
    Ok(())
}

fn failing_skus(load: &Load) -> BTreeSet<String> {
    let failing = load.events().iter().enumerate().filter(|it| it.1.fails);
    failing.map(|(place, _)| load.record(place).key).collect()
}

/// The rate of the main path, and the lateness of what was retried.
async fn measure(bench: &Bench, load: &Load, topic: &str, main_path: &str) -> Result<Measured, anyhow::Error> {
    let stage = bench.stage();
    let scratch = stage.scratch().await?;
    let mut run = Run::new(Program::M1, load, topic, PARTITIONS);
    run.settings.delays = Some(DELAYS.to_vec());
    run.settings.with_faults = true;
    let child = run.child(stage, &scratch)?;
    let mut measured = run.on_as(stage, &scratch, &child).await?;
    let main = postgres::drain(&scratch.client, main_path).await?;
    measured.seconds = main.seconds;
    measured.events_per_second = load.len() as f64 / main.seconds;
    measured.latency = Latency::of(lateness_ms(bench, &scratch, &child).await?);
    stage.forget(&child).await?;
    scratch.remove(stage).await?;
    Ok(measured)
}

/// From the moment that each retry record says to the commit of its event.
async fn lateness_ms(bench: &Bench, scratch: &Scratch, child: &Child) -> Result<Vec<f64>, anyhow::Error> {
    let sql =
        "SELECT key, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 * 1000 FROM public.stock_movement";
    let rows = scratch.client.query(sql, &[]).await?;
    let committed: HashMap<Uuid, f64> = rows.iter().map(|it| (it.get(0), it.get(1))).collect();
    let mut late = Vec::new();
    for topic in &child.config()?.group_topics()?.topics {
        for (_, retry) in &topic.retry {
            for record in bench.servers.kafka().read_all(retry).await {
                let header = |name: &str| record.headers.text(name).context("a retry record without its headers");
                let (key, due): (Uuid, f64) = (header("idempotency-key")?.parse()?, header("sekali-due-at")?.parse()?);
                late.push(committed.get(&key).context("a retry that took no effect")? - due);
            }
        }
    }
    Ok(late)
}

/// What a member costs that has nothing to do.
async fn idle_cores(bench: &Bench) -> Result<f64, anyhow::Error> {
    let stage = bench.stage();
    let load = Load::new(Shape::new(1));
    let topic = bench.topic(&load, IDLE_PARTITIONS).await?;
    let scratch = stage.scratch().await?;
    let mut run = Run::new(Program::M1, &load, &topic, IDLE_PARTITIONS);
    run.settings.delays = Some(DELAYS.to_vec());
    let child = run.child(stage, &scratch)?;
    stage.apply_topics(&child).await?;
    let mut process = child.spawn()?;
    super::steady::applied(&scratch.client, 1).await?;
    sleep(SETTLING).await;
    let before = machine::cpu(process.pid().unsigned_abs())?;
    sleep(IDLE_TIME).await;
    let used = machine::cpu(process.pid().unsigned_abs())?.saturating_sub(before);
    process.sigterm(END_LIMIT).await?;
    stage.forget(&child).await?;
    scratch.remove(stage).await?;
    Ok(used.as_secs_f64() / IDLE_TIME.as_secs_f64())
}
