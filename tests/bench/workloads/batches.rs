//! W7: batches of fixed sizes beside those that the product chooses.

use std::num::NonZeroUsize;

use sekali_benchmark::Program;
use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::Run;
use sekali_benchmark::targets::Target;

use crate::PARTITIONS;
use crate::bench::Bench;

const WORKLOAD: &str = "W7";
const SIZES: [usize; 5] = [30, 100, 300, 1_000, 3_000];
const ROUNDS: usize = 2;
/// The product may be this much slower than with the best fixed limit.
const GOAL: f64 = 0.9;

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let events = bench.options.events;
    let load = Load::new(Shape::new(events));
    let topic = bench.topic(&load, PARTITIONS).await?;
    let limits: Vec<Option<usize>> = SIZES.into_iter().map(Some).chain([None]).collect();
    let case = |limit: &Option<usize>| limit.map_or_else(|| "default".to_owned(), |it| format!("at most {it}"));
    let mut rows: Vec<Row> = limits.iter().map(|it| Row::new(WORKLOAD, case(it), Program::M1, events)).collect();
    for _ in 0..bench.options.rounds_at_most(ROUNDS) {
        for (row, limit) in rows.iter_mut().zip(&limits) {
            let mut run = Run::new(Program::M1, &load, &topic, PARTITIONS);
            run.settings.batch_messages_max = limit.and_then(NonZeroUsize::new);
            row.runs.push(bench.measure(&row.case, &run).await?);
        }
    }
    let rate = |row: &Row| row.spread(|it| it.events_per_second).median;
    let best = rows[..SIZES.len()].iter().map(rate).fold(0.0, f64::max);
    let chosen = rows.last().map_or(f64::NAN, rate);
    bench.report.targets.push(Target::at_least("T22", "default by the best fixed limit", chosen / best, GOAL));
    bench.report.rows.extend(rows);
    Ok(())
}
