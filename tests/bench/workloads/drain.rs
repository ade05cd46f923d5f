//! W1: every program drains a topic, in turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::Run;
use sekali_benchmark::targets::{Target, median_ratio};
use sekali_benchmark::{Pace, Program, retail};
use sekali_tests::harness::Proxy;

use crate::PARTITIONS;
use crate::bench::Bench;

const WORKLOAD: &str = "W1";
const CASE: &str = "drain";
const RETAIL: &str = "retail data";
const RETAIL_ROUNDS: usize = 2;
/// Records of the slowest programs, as a share of those of the fast ones.
const PIPELINED_PART: usize = 2;
const AWAITED_PART: usize = 10;
const SEQUENTIAL_PART: usize = 25;
/// Records of a run that counts round trips.
const COUNTED: usize = 20_000;
const COUNTED_QUICKLY: [Program; 2] = [Program::P1x, Program::M1];

const MIB: f64 = 1024.0 * 1024.0;
/// What the client may fetch ahead, and what waits behind it.
const PREFETCH_MB: f64 = 4.0;
const RECORD_BYTES: f64 = 420.0;

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let asked = &bench.options.programs;
    let programs: Vec<Program> = Program::ALL.into_iter().filter(|it| asked.is_empty() || asked.contains(it)).collect();
    let mut loads = BTreeMap::new();
    for program in &programs {
        let records = records(*program, bench.options.events);
        if let std::collections::btree_map::Entry::Vacant(entry) = loads.entry(records) {
            let load = Load::new(Shape::new(records));
            let topic = bench.topic(&load, PARTITIONS).await?;
            entry.insert((load, topic));
        }
    }
    let mut rows: Vec<Row> =
        programs.iter().map(|it| Row::new(WORKLOAD, CASE, *it, records(*it, bench.options.events))).collect();
    for round in 0..bench.options.rounds {
        // In turns: none always runs first.
        let count = rows.len();
        for place in (0..count).map(|it| (it + round) % count) {
            let (load, topic) = &loads[&rows[place].records];
            let run = Run::new(programs[place], load, topic, PARTITIONS);
            rows[place].runs.push(bench.measure(CASE, &run).await?);
        }
    }
    count_round_trips(bench, &mut rows).await?;
    bench.report.rows.extend(rows);
    drain_retail(bench).await?;
    targets(bench);
    Ok(())
}

fn records(program: Program, events: usize) -> usize {
    let part = match program.pace() {
        Pace::Sets => 1,
        Pace::Pipelined => PIPELINED_PART,
        Pace::Awaited if program == Program::P0 => SEQUENTIAL_PART,
        Pace::Awaited => AWAITED_PART,
    };
    (events / part).max(1)
}

/// Waits for PostgreSQL, counted by a proxy on the way there, in runs whose rates nobody looks at. Only those of the
/// drain: what connecting and preparing costs is counted in a run of one record and taken off.
async fn count_round_trips(bench: &Bench, rows: &mut [Row]) -> Result<(), anyhow::Error> {
    let (host, port) = bench.servers.postgres().address();
    let many = Load::new(Shape::new(COUNTED.min(bench.options.events)));
    let one = Load::new(Shape::new(1));
    let (many_topic, one_topic) = (bench.topic(&many, PARTITIONS).await?, bench.topic(&one, PARTITIONS).await?);
    let counted = rows.iter_mut().filter(|it| !bench.options.quick || COUNTED_QUICKLY.contains(&it.program));
    for row in counted {
        let count = async |load: &Arc<Load>, topic: &str| {
            let proxy = Proxy::to(&format!("{host}:{port}")).await?;
            let mut run = Run::new(row.program, load, topic, PARTITIONS);
            run.through = Some(proxy.port());
            run.once(bench.stage()).await?;
            anyhow::Ok(proxy.counts().turns)
        };
        let fixed = count(&one, &one_topic).await?;
        let turns = count(&many, &many_topic).await?.saturating_sub(fixed);
        for run in &mut row.runs {
            run.round_trips_per_event = Some(turns as f64 / many.len() as f64);
        }
    }
    Ok(())
}

/// The same with real events, where there are some.
async fn drain_retail(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let Some(path) = bench.options.data.clone() else {
        bench.report.notes.push("no file of real events (--data FILE): generated ones alone".to_owned());
        return Ok(());
    };
    let load = retail(&path, if bench.options.quick { bench.options.events } else { usize::MAX })?;
    let topic = bench.topic(&load, PARTITIONS).await?;
    let mut pair = [Program::P1x, Program::M1].map(|it| Row::new(WORKLOAD, RETAIL, it, load.len()));
    for round in 0..bench.options.rounds_at_most(RETAIL_ROUNDS) {
        for place in [round % 2, (round + 1) % 2] {
            let run = Run::new(pair[place].program, &load, &topic, PARTITIONS);
            pair[place].runs.push(bench.measure(RETAIL, &run).await?);
        }
    }
    bench.report.rows.extend(pair);
    Ok(())
}

fn targets(bench: &mut Bench) {
    let report = &bench.report;
    let row = |program| report.row(WORKLOAD, CASE, program);
    let mut targets = Vec::new();
    let mut ratio = |id, ours: Program, other: Program, goal| {
        if let (Some(ours), Some(other)) = (row(ours), row(other)) {
            let what = format!("{} by {}", ours.program.name(), other.program.name());
            targets.push(Target::at_least(id, what, median_ratio(&ours.rates(), &other.rates()), goal));
        }
    };
    ratio("T1", Program::M1, Program::P0c, 15.0);
    ratio("T3", Program::M1, Program::P1x, 0.85);
    ratio("T4", Program::M2, Program::P1e, 0.85);
    ratio("T5", Program::M3, Program::P1a, 0.85);
    ratio("T6", Program::M4, Program::P0, 2.5);
    if let Some(ours) = row(Program::M1) {
        let rate = ours.spread(|it| it.events_per_second).median;
        targets.push(Target::at_least("T2", "M1 events/s", rate, 100_000.0));
        let buffered = bench.servers.stage.config.consumer.buffer_messages_max.get() as f64 * RECORD_BYTES / MIB;
        let rss = ours.spread(|it| it.rss_mb).median;
        targets.push(Target::at_most("T19", "M1 RSS in MiB", rss, 48.0 + PREFETCH_MB + buffered));
        targets.extend(counters(ours));
        if let Some(hand) = row(Program::P1x) {
            let cpu = |row: &Row| row.spread(|it| it.own_cpu_us_per_event).median;
            let more = cpu(ours) - cpu(hand);
            targets.push(Target::at_most("T3", "M1 own CPU beyond that of P1x in us a record", more, 1.0));
        }
    }
    bench.report.targets.extend(targets);
}

/// T16, by the batches that were: `N` is the mean batch of the run.
fn counters(ours: &Row) -> Vec<Target> {
    let most = |field: fn(&sekali_benchmark::run::Measured) -> f64| ours.spread(field).max;
    let transactions = most(|it| it.transactions_per_event);
    let trips = most(|it| it.round_trips_per_event.unwrap_or(f64::NAN));
    let fsyncs = most(|it| it.fsyncs_per_event.unwrap_or(f64::NAN));
    let commits = most(|it| it.offset_commits_per_second.unwrap_or(f64::NAN));
    vec![
        Target::at_most("T16", "transactions an event", transactions, 1.0 / 500.0),
        Target::at_most("T16", "round trips an event", trips, 3.0 / 500.0),
        Target::at_most("T16", "fsyncs an event", fsyncs, 1.1 / 500.0),
        Target::at_most("T16", "offset commits a second", commits, 1.1),
    ]
}
