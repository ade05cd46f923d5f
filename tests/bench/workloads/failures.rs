//! W4: what failing events cost, beside a run without.

use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::Run;
use sekali_benchmark::targets::{Target, median_ratio};
use sekali_benchmark::{Fault, Program};

use crate::PARTITIONS;
use crate::bench::Bench;

const WORKLOAD: &str = "W4";
const ROUNDS: usize = 2;

/// Kind, failing events in a thousand, and the share of the clean rate that is to be reached.
const CASES: [(Fault, u64, f64); 5] = [
    (Fault::Reject, 10, 0.95),
    (Fault::Reject, 100, 0.80),
    (Fault::Sql, 1, 0.75),
    (Fault::Sql, 10, 0.45),
    (Fault::Sql, 100, 0.20),
];

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let events = bench.options.events;
    let mut loads = vec![("none fails".to_owned(), Load::new(Shape::new(events)))];
    for (fault, share, _) in CASES {
        let case = format!("{} {} %", fault.name(), share as f64 / 10.0);
        loads.push((case, Load::new(Shape { fault: Some((fault, share)), ..Shape::new(events) })));
    }
    let mut rows = Vec::new();
    let mut topics = Vec::new();
    for (case, load) in &loads {
        topics.push(bench.topic(load, PARTITIONS).await?);
        rows.push(Row::new(WORKLOAD, case, Program::M1, events));
    }
    for _ in 0..bench.options.rounds_at_most(ROUNDS) {
        for ((row, (case, load)), topic) in rows.iter_mut().zip(&loads).zip(&topics) {
            row.runs.push(bench.measure(case, &Run::new(Program::M1, load, topic, PARTITIONS)).await?);
        }
    }
    for (row, (_, _, goal)) in rows[1..].iter().zip(CASES) {
        let ratio = median_ratio(&row.rates(), &rows[0].rates());
        bench.report.targets.push(Target::at_least("T11", format!("{} by none", row.case), ratio, goal));
    }
    bench.report.rows.extend(rows);
    Ok(())
}
