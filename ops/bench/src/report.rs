//! The table for people and the document for programs.

use std::path::Path;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value, json};

use crate::postgres::Latency;
use crate::program::Program;
use crate::run::Measured;
use crate::targets::{Spread, Target, number};

/// On a slower disk programs wait for commits, which hides what a runtime costs.
const FSYNC_US_MAX: u64 = 500;

/// Runs of one program in one case of a workload.
#[derive(Debug, Clone)]
pub struct Row {
    /// Such as `W3`.
    pub workload: &'static str,
    /// Such as `50 % copies`.
    pub case: String,
    /// The program.
    pub program: Program,
    /// Records of each run.
    pub records: usize,
    /// Each run.
    pub runs: Vec<Measured>,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// Every target.
    pub targets: Vec<Target>,
    /// Lines about what is in no column.
    pub notes: Vec<String>,
    /// Median time of a flush of the disk in µs, before and after.
    pub fsync_us: Vec<u64>,
    /// Runs that somebody disturbed, repeated ones included.
    pub disturbed: usize,
    /// More for the document.
    pub extra: Map<String, Value>,
}

impl Row {
    /// A row without runs.
    pub fn new(workload: &'static str, case: impl Into<String>, program: Program, records: usize) -> Row {
        Row { workload, case: case.into(), program, records, runs: Vec::new() }
    }

    /// Rates of the runs in their order.
    pub fn rates(&self) -> Vec<f64> {
        self.runs.iter().map(|it| it.events_per_second).collect()
    }

    /// Median and range of a number.
    pub fn spread(&self, field: impl Fn(&Measured) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(field).collect())
    }

    fn median(&self, field: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter_map(field).collect();
        (!values.is_empty()).then(|| Spread::of(values).median)
    }

    fn wrong(&self) -> Option<&str> {
        self.runs.iter().find_map(|it| it.wrong.as_deref())
    }

    fn latency(&self) -> Option<Latency> {
        let median = |field: fn(&Latency) -> f64| self.median(|it| it.latency.as_ref().map(field));
        Some(Latency {
            p50_ms: median(|it| it.p50_ms)?,
            p99_ms: median(|it| it.p99_ms)?,
            p999_ms: median(|it| it.p999_ms)?,
            max_ms: median(|it| it.max_ms)?,
        })
    }

    fn cells(&self) -> Vec<String> {
        let rate = self.spread(|it| it.events_per_second);
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let latency = self.latency().map(|it| [it.p50_ms, it.p99_ms, it.p999_ms].map(number).join("/"));
        vec![
            self.workload.to_owned(),
            self.case.clone(),
            self.program.name().to_owned(),
            number(self.records as f64),
            number(rate.median),
            format!("{}-{}", number(rate.min), number(rate.max)),
            cell(self.median(|it| Some(it.own_cpu_us_per_event))),
            cell(self.median(|it| it.postgres_cpu_us_per_event)),
            cell(self.median(|it| it.broker_cpu_us_per_event)),
            cell(self.median(|it| Some(it.wal_bytes_per_event))),
            cell(self.median(|it| Some(it.transactions_per_event))),
            cell(self.median(|it| it.round_trips_per_event)),
            cell(self.median(|it| it.fsyncs_per_event)),
            cell(self.median(|it| it.offset_commits_per_second)),
            cell(self.median(|it| Some(it.rss_mb))),
            latency.unwrap_or_else(|| "-".to_owned()),
            cell(self.median(|it| it.others_cores)),
            self.wrong().unwrap_or("ok").to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let rate = self.spread(|it| it.events_per_second);
        json!({
            "case": self.case,
            "program": self.program.name(),
            "records": self.records,
            "runs": self.runs.len(),
            "events_per_second": rate,
            "own_cpu_us_per_event": self.median(|it| Some(it.own_cpu_us_per_event)),
            "postgres_cpu_us_per_event": self.median(|it| it.postgres_cpu_us_per_event),
            "broker_cpu_us_per_event": self.median(|it| it.broker_cpu_us_per_event),
            "wal_bytes_per_event": self.median(|it| Some(it.wal_bytes_per_event)),
            "transactions_per_event": self.median(|it| Some(it.transactions_per_event)),
            "all_transactions": self.median(|it| Some(it.all_transactions as f64)),
            "round_trips_per_event": self.median(|it| it.round_trips_per_event),
            "fsyncs_per_event": self.median(|it| it.fsyncs_per_event),
            "offset_commits": self.median(|it| it.offset_commits.map(|it| it as f64)),
            "offset_commits_per_second": self.median(|it| it.offset_commits_per_second),
            "deadlocks": self.runs.iter().map(|it| it.deadlocks).sum::<i64>(),
            "rss_mb": self.median(|it| Some(it.rss_mb)),
            "latency": self.latency(),
            "others_cores": self.median(|it| it.others_cores),
            "oracle": self.wrong().unwrap_or("ok"),
        })
    }
}

impl Report {
    /// The row of a case.
    pub fn row(&self, workload: &str, case: &str, program: Program) -> Option<&Row> {
        self.rows.iter().find(|it| it.workload == workload && it.case == case && it.program == program)
    }

    /// Whether every run was right.
    pub fn oracle_ok(&self) -> bool {
        self.rows.iter().all(|it| it.wrong().is_none())
    }

    /// Whether every run was right and every target is reached.
    pub fn ok(&self) -> bool {
        self.oracle_ok() && self.targets.iter().all(|it| it.ok)
    }

    /// Whether rates say something about the programs rather than about the machine.
    pub fn is_quiet(&self) -> bool {
        self.fsync_us.iter().all(|it| *it <= FSYNC_US_MAX) && self.disturbed == 0
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header([
            "",
            "case",
            "program",
            "records",
            "events/s",
            "range",
            "own us",
            "PG us",
            "broker us",
            "WAL B",
            "tx/ev",
            "trips/ev",
            "fsync/ev",
            "commits/s",
            "RSS MB",
            "p50/p99/p99.9 ms",
            "others",
            "oracle",
        ]);
        for row in &self.rows {
            table.add_row(row.cells());
        }
        for column in table.column_iter_mut().skip(3).take(14) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text: String = table.lines().map(|it| it.trim_end().to_owned() + "\n").collect();
        text += "\nMedians of runs that took turns. CPU in us a record; trips: waits for an answer of PostgreSQL, \
                 counted in runs of their own; others: cores that\nsomebody else used; -: not measured here.\n";
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        if !self.fsync_us.is_empty() {
            let times: Vec<String> = self.fsync_us.iter().map(u64::to_string).collect();
            text += &format!("fdatasync took {} us (before, after)\n", times.join(" and "));
        }
        if !self.is_quiet() {
            text += &format!(
                "NOT QUIET: {} runs were disturbed by others, or the disk took more than {FSYNC_US_MAX} us; compare CPU and \
                 counts, not rates\n",
                self.disturbed
            );
        }
        for target in &self.targets {
            text += &format!("{}\n", target.line());
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let mut workloads: Map<String, Value> = Map::new();
        for row in &self.rows {
            let rows = workloads.entry(row.workload).or_insert_with(|| json!([]));
            if let Value::Array(rows) = rows {
                rows.push(row.json());
            }
        }
        let mut document = json!({
            "quiet": self.is_quiet(),
            "disturbed_runs": self.disturbed,
            "processors": std::thread::available_parallelism().map_or(1, usize::from),
            "fsync_us": self.fsync_us,
            "workloads": workloads,
            "targets": self.targets,
            "notes": self.notes,
            "oracle_ok": self.oracle_ok(),
            "ok": self.ok(),
        });
        if let Value::Object(document) = &mut document {
            document.extend(self.extra.clone());
        }
        document
    }

    /// Writes the document.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), anyhow::Error> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let text = serde_json::to_string_pretty(&self.json())? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
