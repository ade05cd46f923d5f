//! W8, first half: the same records in few and in many partitions.

use std::num::NonZeroU16;

use sekali_benchmark::Program;
use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::Run;
use sekali_benchmark::targets::Target;

use crate::bench::Bench;

const WORKLOAD: &str = "W8";
const ROUNDS: usize = 3;

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let events = bench.options.events;
    let counts: &[u16] = if bench.options.large { &[1, 6, 24, 96] } else { &[1, 6, 24] };
    let load = Load::new(Shape::new(events));
    let mut cases = Vec::new();
    for partitions in counts.iter().filter_map(|it| NonZeroU16::new(*it)) {
        let topic = bench.topic(&load, partitions).await?;
        cases.push((partitions, topic, Row::new(WORKLOAD, format!("{partitions} partitions"), Program::M1, events)));
    }
    for _ in 0..bench.options.rounds_at_most(ROUNDS) {
        for (partitions, topic, row) in &mut cases {
            let run = Run::new(Program::M1, &load, topic, *partitions);
            row.runs.push(bench.measure(&row.case, &run).await?);
        }
    }
    let rate = |place: usize| cases[place].2.spread(|it| it.events_per_second).median;
    let mut targets = vec![
        Target::at_least("T13", "24 partitions by 6", rate(2) / rate(1), 0.9),
        Target::at_most("T13", "24 partitions by 1, apart from 1", (rate(2) / rate(0) - 1.0).abs(), 0.1),
    ];
    if bench.options.large {
        targets.push(Target::at_least("T13", "96 partitions by 1", rate(3) / rate(0), 0.8));
    }
    bench.report.targets.extend(targets);
    bench.report.rows.extend(cases.into_iter().map(|it| it.2));
    Ok(())
}
