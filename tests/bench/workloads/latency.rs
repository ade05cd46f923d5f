//! W2: from the moment at which an event should be sent to the commit of its transaction.

use std::time::Duration;

use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::postgres::Latency;
use sekali_benchmark::report::Row;
use sekali_benchmark::run::{Measured, Run, wait_until_committed};
use sekali_benchmark::targets::Target;
use sekali_benchmark::{Program, machine, oracle};

use crate::PARTITIONS;
use crate::bench::{Bench, say};
use crate::servers::fsync_us;
use crate::workloads::steady;

const WORKLOAD: &str = "W2";
const IDLE: &str = "idle, 50/s";
const IDLE_RATE: f64 = 50.0;
/// Shares of the rate at which a topic is drained.
const SHARES: [(f64, &str); 3] = [(0.1, "10 % load"), (0.5, "50 % load"), (0.8, "80 % load")];
const IDLE_TIME: f64 = 15.0;
const TIME: f64 = 8.0;
/// Not looked at: the first seconds after the begin.
const WARM_S: f64 = 1.0;
const FIRST: usize = 200;
const END_LIMIT: Duration = Duration::from_secs(60);

struct Case<'a> {
    name: &'a str,
    rate: f64,
    seconds: f64,
    linger: Duration,
}

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let full = match bench.report.row("W1", "drain", Program::M1) {
        Some(row) => row.spread(|it| it.events_per_second).median,
        None => drain_once(bench).await?,
    };
    let part = if bench.options.quick { 0.4 } else { 1.0 };
    let idle = Case { name: IDLE, rate: IDLE_RATE, seconds: IDLE_TIME * part, linger: Duration::ZERO };
    let loaded = SHARES.iter().map(|(share, name)| Case {
        name,
        rate: full * share,
        seconds: TIME * part,
        linger: Duration::from_millis(5),
    });
    let before = fsync_us()?;
    for case in std::iter::once(idle).chain(loaded) {
        let (measured, records) = measure(bench, &case).await?;
        say(case.name, Program::M1, &measured);
        let mut row = Row::new(WORKLOAD, case.name, Program::M1, records);
        row.runs.push(measured);
        bench.report.rows.push(row);
    }
    let fsync_ms = before.max(fsync_us()?) as f64 / 1_000.0;
    targets(bench, fsync_ms);
    Ok(())
}

async fn drain_once(bench: &mut Bench) -> Result<f64, anyhow::Error> {
    let load = Load::new(Shape::new(bench.options.events));
    let topic = bench.topic(&load, PARTITIONS).await?;
    Ok(bench.measure("drain", &Run::new(Program::M1, &load, &topic, PARTITIONS)).await?.events_per_second)
}

async fn measure(bench: &Bench, case: &Case<'_>) -> Result<(Measured, usize), anyhow::Error> {
    let stage = bench.stage();
    let load = Load::new(Shape::new(FIRST + (case.rate * case.seconds) as usize));
    let topic = stage.topic(PARTITIONS).await?;
    let scratch = stage.scratch().await?;
    let run = Run::new(Program::M1, &load, &topic, PARTITIONS);
    let child = run.child(stage, &scratch)?;
    stage.apply_topics(&child).await?;
    let mut process = child.spawn()?;
    let client = &scratch.client;
    steady::begin_with(stage, &topic, &load, FIRST, client).await?;
    let before = machine::cpu(process.pid().unsigned_abs())?;
    let (pace, sending) = steady::send(stage, &topic, &load, FIRST, case.rate, case.linger)?;
    sending.await??;
    steady::applied(client, load.len()).await?;
    let cpu = machine::cpu(process.pid().unsigned_abs())?.saturating_sub(before);
    wait_until_committed(&child, &mut process).await?;
    let rss_mb = machine::peak_rss_mb(process.pid())?;
    process.sigterm(END_LIMIT).await?;
    stage.forget(&child).await?;

    let arrived = steady::arrived(client, &load, pace, "NULL::int").await?;
    let delays = arrived.iter().filter(|it| WARM_S <= it.sent).map(steady::Arrived::delay_ms).collect();
    let end = arrived.iter().map(|it| it.committed).fold(0.0, f64::max);
    let mut measured = Measured::rate(arrived.len(), end);
    measured.latency = Latency::of(delays);
    measured.own_cpu_us_per_event = cpu.as_secs_f64() * 1e6 / arrived.len() as f64;
    measured.rss_mb = rss_mb;
    measured.wrong = oracle::check(client, &load).await?;
    scratch.remove(stage).await?;
    Ok((measured, load.len()))
}

fn targets(bench: &mut Bench, fsync_ms: f64) {
    let report = &bench.report;
    let latency = |case| report.row(WORKLOAD, case, Program::M1).and_then(|it| it.runs.first()?.latency);
    let p50 = latency(IDLE).map_or(f64::NAN, |it| it.p50_ms);
    let p99 = |case| latency(case).map_or(f64::NAN, |it| it.p99_ms);
    let targets = [
        Target::at_most("T15", "idle, p50 in ms", p50, 2.0 + fsync_ms),
        Target::at_most("T15", "idle, p99 in ms", p99(IDLE), 6.0 + fsync_ms),
        Target::at_most("T15", "50 % load, p99 in ms", p99(SHARES[1].1), 25.0),
        Target::at_most("T15", "80 % load, p99 in ms", p99(SHARES[2].1), 80.0),
    ];
    bench.report.targets.extend(targets);
}
