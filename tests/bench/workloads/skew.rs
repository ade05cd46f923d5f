//! W5: few keys have most of the events.

use std::num::NonZeroUsize;

use sekali_benchmark::Program;
use sekali_benchmark::load::{Load, Shape, Skus};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::Run;
use sekali_benchmark::targets::{Target, median_ratio};

use crate::PARTITIONS;
use crate::bench::Bench;

const WORKLOAD: &str = "W5";
const ROUNDS: usize = 2;
/// With so many transactions at once no two may wait for each other.
const EXECUTORS_MOST: usize = 4;

struct Case {
    name: String,
    program: Program,
    skus: Skus,
    spread: bool,
    executors: usize,
}

fn cases() -> Vec<Case> {
    let skus = [("uniform", Skus::Uniform), ("zipf 1.0", Skus::Zipf(1.0)), ("one key", Skus::One)];
    let mut cases = Vec::new();
    for executors in [1, 2, EXECUTORS_MOST] {
        for (name, skus) in skus {
            let name = format!("{name}, {executors} executors");
            cases.push(Case { name, program: Program::M1, skus, spread: false, executors });
        }
    }
    for (name, skus) in [skus[0], skus[2]] {
        let name = format!("{name}, 2 executors");
        cases.push(Case { name, program: Program::M2, skus, spread: false, executors: 2 });
    }
    // Every SKU in every partition, so that all executors write the same rows.
    for (name, skus) in skus {
        let name = format!("{name} in every partition");
        cases.push(Case { name, program: Program::M1, skus, spread: true, executors: EXECUTORS_MOST });
    }
    cases
}

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let cases = cases();
    let mut rows = Vec::new();
    let mut loads: Vec<(Shape, _, String)> = Vec::new();
    for case in &cases {
        let events = if case.program == Program::M1 { bench.options.events } else { bench.options.events / 2 };
        let shape = Shape { skus: case.skus, spread: case.spread, ..Shape::new(events) };
        if !loads.iter().any(|it| it.0 == shape) {
            let load = Load::new(shape);
            let topic = bench.topic(&load, PARTITIONS).await?;
            loads.push((shape, load, topic));
        }
        rows.push((Row::new(WORKLOAD, &case.name, case.program, events), shape));
    }
    for _ in 0..bench.options.rounds_at_most(ROUNDS) {
        for (case, (row, shape)) in cases.iter().zip(&mut rows) {
            let Some((_, load, topic)) = loads.iter().find(|it| it.0 == *shape) else { continue };
            let mut run = Run::new(case.program, load, topic, PARTITIONS);
            run.settings.executors = NonZeroUsize::new(case.executors);
            row.runs.push(bench.measure(&case.name, &run).await?);
        }
    }
    bench.report.rows.extend(rows.into_iter().map(|it| it.0));
    targets(bench);
    Ok(())
}

fn targets(bench: &mut Bench) {
    let report = &bench.report;
    let rates = |case: &str, program| report.row(WORKLOAD, case, program).map(Row::rates).unwrap_or_default();
    let hot = |program| median_ratio(&rates("one key, 2 executors", program), &rates("uniform, 2 executors", program));
    let of_workload = report.rows.iter().filter(|it| it.workload == WORKLOAD);
    let deadlocks: i64 = of_workload.flat_map(|it| &it.runs).map(|it| it.deadlocks).sum();
    let targets = [
        Target::at_least("T14", "M1 with one key by uniform keys", hot(Program::M1), 1.0),
        Target::at_least("T14", "M2 with one key by uniform keys", hot(Program::M2), 0.7),
        Target::at_most("T14", "deadlocks, four transactions at once included", deadlocks as f64, 0.0),
    ];
    bench.report.targets.extend(targets);
}
