//! W3: records that come again, close behind their original, much later, or all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::{LIMIT, Measured, Run};
use sekali_benchmark::targets::{Target, median_ratio};
use sekali_benchmark::{Program, oracle};
use tokio::time::{Instant, sleep};

use crate::PARTITIONS;
use crate::bench::{Bench, say};
use crate::workloads::metrics;

const WORKLOAD: &str = "W3";
/// Copies in a thousand records.
const SHARES: [u64; 4] = [0, 10, 100, 500];
const ROUNDS: usize = 3;
const REPLAY: &str = "full replay";
const LOOK: Duration = Duration::from_millis(20);
const END_LIMIT: Duration = Duration::from_secs(60);
const DUPLICATES: &str = "sekali_messages_processed_total";

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let events = bench.options.events;
    let mut loads = Vec::new();
    for copies in SHARES {
        let load = Load::new(Shape { copies, ..Shape::new(events) });
        let topic = bench.topic(&load, PARTITIONS).await?;
        loads.push((format!("{} % copies", copies as f64 / 10.0), load, topic));
    }
    let mut rows: Vec<Row> = loads.iter().map(|it| Row::new(WORKLOAD, &it.0, Program::M1, events)).collect();
    rows.push(Row::new(WORKLOAD, REPLAY, Program::M1, events));
    for round in 0..bench.options.rounds_at_most(ROUNDS) {
        let count = rows.len();
        for place in (0..count).map(|it| (it + round) % count) {
            let measured = match loads.get(place) {
                Some((case, load, topic)) => {
                    bench.measure(case, &Run::new(Program::M1, load, topic, PARTITIONS)).await?
                }
                None => replay(bench, &loads[0].1, &loads[0].2).await.context(REPLAY)?,
            };
            rows[place].runs.push(measured);
        }
    }
    let ratio = |place: usize| median_ratio(&rows[place].rates(), &rows[0].rates());
    let targets = [
        Target::at_least("T10", "50 % copies by none", ratio(3), 1.0),
        Target::at_least("T10", "full replay by the first time", ratio(4), 1.3),
    ];
    bench.report.targets.extend(targets);
    bench.report.rows.extend(rows);
    Ok(())
}

/// Drains the topic, and then again in another Kafka group with the same inbox: every record is a duplicate. The ledger
/// does not grow, so that the program's own counter tells the rate.
async fn replay(bench: &mut Bench, load: &Load, topic: &str) -> Result<Measured, anyhow::Error> {
    let stage = bench.stage();
    let scratch = stage.scratch().await?;
    let mut run = Run::new(Program::M1, load, topic, PARTITIONS);
    run.settings.name = Some("replayed".to_owned());
    let first = run.on(stage, &scratch).await?;

    let child = run.child(stage, &scratch)?;
    stage.apply_topics(&child).await?;
    let begin = Instant::now();
    let mut process = child.spawn()?;
    let (mut seen, all) = (BTreeMap::new(), load.len() as u64);
    while seen.values().next_back().is_none_or(|it| *it < all) {
        sleep(LOOK).await;
        process.require_running()?;
        ensure!(begin.elapsed() < LIMIT, "{seen:?} of {all} records were found to be duplicates");
        let port = child.admin_port.context("the product has a port")?;
        if let Some(text) = metrics::scrape(port).await {
            let count = metrics::sum(&text, DUPLICATES, "outcome=\"duplicate\"");
            if 0.0 < count {
                seen.insert(begin.elapsed(), count as u64);
            }
        }
    }
    let cpu = sekali_benchmark::machine::cpu(process.pid().unsigned_abs())?;
    process.sigterm(END_LIMIT).await?;
    stage.forget(&child).await?;
    let wrong = oracle::check(&scratch.client, load).await?;
    scratch.remove(stage).await?;
    // Between the first look that found some and the first that found all.
    let (from, had) = seen.first_key_value().context("no duplicates")?;
    let (to, _) = seen.last_key_value().context("no duplicates")?;
    ensure!(from < to, "the replay was over at the first look: use more --events");
    let seconds = (*to - *from).as_secs_f64();
    let mut measured = Measured::rate((all - had) as usize, seconds);
    measured.own_cpu_us_per_event = cpu.as_secs_f64() * 1e6 / all as f64;
    measured.wrong = wrong.or(first.wrong);
    say(REPLAY, Program::M1, &measured);
    Ok(measured)
}
