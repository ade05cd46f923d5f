//! The table for people and the file for programs.

use std::collections::BTreeMap;

use anyhow::Context;
use sekali_tests::harness::target_dir;
use serde_json::{Value, json};

use crate::child::Program;
use crate::run::Measured;

/// The product reaches this share of the hand-written loop's rate.
const RATIO_GOAL: f64 = 0.6;
const TRANSACTIONS_PER_EVENT_GOAL: f64 = 1.0 / 200.0;
const OFFSET_COMMITS_PER_SECOND_GOAL: f64 = 2.0;
/// On a slower disk both programs wait for commits, which hides what the runtime costs.
const FSYNC_US_MAX: u64 = 500;

pub(crate) struct Report {
    events: usize,
    runs: BTreeMap<Program, Vec<Measured>>,
    fsync_us: [u64; 2],
    /// Load average of the last minute, before the bench adds its own.
    load: f64,
    processors: usize,
}

/// A claim, and whether it holds.
struct Target {
    name: &'static str,
    value: f64,
    goal: f64,
    ok: bool,
}

impl Report {
    pub(crate) fn new(events: usize) -> Report {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|it| it.split(' ').next()?.parse().ok()).unwrap_or(f64::NAN);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Report { events, runs: BTreeMap::new(), fsync_us: [0; 2], load, processors }
    }

    pub(crate) fn add(&mut self, program: Program, measured: Measured) {
        self.runs.entry(program).or_default().push(measured);
    }

    pub(crate) fn fsync_before(&mut self, us: u64) {
        self.fsync_us[0] = us;
    }

    pub(crate) fn fsync_after(&mut self, us: u64) {
        self.fsync_us[1] = us;
    }

    pub(crate) fn print(&self) {
        println!(
            "\n{} events, fdatasync {} us before and {} us after",
            self.events, self.fsync_us[0], self.fsync_us[1]
        );
        println!(
            "{:8} {:>24} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}  oracle",
            "program", "events/s (min-max)", "own CPU", "PG CPU", "WAL B", "1/tx", "all tx", "commits/s", "RSS MB"
        );
        for (program, runs) in &self.runs {
            let median = |field: fn(&Measured) -> f64| spread(runs, field).median;
            let rate = spread(runs, |it| it.events_per_second);
            let rate = format!("{:.0} ({:.0}-{:.0})", rate.median, rate.min, rate.max);
            println!(
                "{:8} {rate:>24} {:>8.2} {:>8.2} {:>8.0} {:>8.0} {:>8.0} {:>9.1} {:>8.0}  {}",
                program.name(),
                median(|it| it.cpu_us_per_event),
                median(|it| it.postgres_cpu_us_per_event),
                median(|it| it.wal_bytes_per_event),
                1.0 / median(|it| it.transactions_per_event),
                median(|it| it.all_transactions as f64),
                median(|it| it.offset_commits_per_second),
                median(|it| it.rss_mb),
                runs.iter().find_map(|it| it.wrong.as_deref()).unwrap_or("ok"),
            );
        }
        println!("CPU in us an event; 1/tx: events of a transaction");
        if !self.is_quiet() {
            println!(
                "NOT QUIET: the disk took more than {FSYNC_US_MAX} us, or others used the processors (load {:.1} before \
                 the first run on {}); compare CPU and transactions, not rates",
                self.load, self.processors
            );
        }
        for Target { name, value, goal, ok } in self.targets() {
            println!("{name}: {value:.4}, goal {goal:.4}: {}", if ok { "ok" } else { "MISSED" });
        }
    }

    /// Writes the results; whether every claim holds.
    pub(crate) fn write(&self) -> Result<bool, anyhow::Error> {
        let dir = target_dir().join("bench");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let path = dir.join("results.json");
        let programs: serde_json::Map<String, Value> =
            self.runs.iter().map(|(program, runs)| (program.name().to_owned(), program_json(runs))).collect();
        let target = |it: &Target| (it.name.to_owned(), json!({"value": it.value, "goal": it.goal, "ok": it.ok}));
        let targets = self.targets();
        let oracle_ok = self.runs.values().flatten().all(|it| it.wrong.is_none());
        let results = json!({
            "events": self.events,
            "quiet": self.is_quiet(),
            "load_before": self.load,
            "processors": self.processors,
            "fsync_us": {"before": self.fsync_us[0], "after": self.fsync_us[1]},
            "workloads": {"W1": programs},
            "targets": targets.iter().map(target).collect::<serde_json::Map<String, Value>>(),
            "oracle_ok": oracle_ok,
        });
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        println!("results: {}", path.display());
        Ok(oracle_ok && targets.iter().all(|it| it.ok))
    }

    /// Whether rates of this run say something about the programs rather than about the machine.
    fn is_quiet(&self) -> bool {
        self.fsync_us.iter().all(|it| *it <= FSYNC_US_MAX) && self.load <= self.processors as f64 / 2.0
    }

    fn targets(&self) -> Vec<Target> {
        let none = Vec::new();
        let runs = |program| self.runs.get(&program).unwrap_or(&none);
        let (hand, product) = (runs(Program::Hand), runs(Program::Product));
        // Of runs that stood beside each other: the machine's moods cancel out.
        let ratios: Vec<f64> =
            hand.iter().zip(product).map(|(hand, ours)| ours.events_per_second / hand.events_per_second).collect();
        let ratio = Spread::of(ratios).median;
        let transactions = spread(product, |it| it.transactions_per_event).max;
        let Spread { max: commits, min: fewest_commits, .. } = spread(product, |it| it.offset_commits_per_second);
        let at_most = |name, value, goal| Target { name, value, goal, ok: value <= goal };
        vec![
            Target { name: "ratio_to_P1x", value: ratio, goal: RATIO_GOAL, ok: RATIO_GOAL <= ratio },
            at_most("transactions_per_event", transactions, TRANSACTIONS_PER_EVENT_GOAL),
            Target {
                name: "offset_commits_per_second",
                value: commits,
                goal: OFFSET_COMMITS_PER_SECOND_GOAL,
                // None at all would be no thrift but a fault.
                ok: 0.0 < fewest_commits && commits <= OFFSET_COMMITS_PER_SECOND_GOAL,
            },
        ]
    }
}

fn program_json(runs: &[Measured]) -> Value {
    let median = |field: fn(&Measured) -> f64| spread(runs, field).median;
    let rate = spread(runs, |it| it.events_per_second);
    json!({
        "events_per_second": {"median": rate.median, "min": rate.min, "max": rate.max},
        "cpu_us_per_event": median(|it| it.cpu_us_per_event),
        "postgres_cpu_us_per_event": median(|it| it.postgres_cpu_us_per_event),
        "rss_mb": median(|it| it.rss_mb),
        "wal_bytes_per_event": median(|it| it.wal_bytes_per_event),
        "transactions_per_event": median(|it| it.transactions_per_event),
        "all_transactions": median(|it| it.all_transactions as f64),
        "offset_commits": median(|it| it.offset_commits as f64),
        "offset_commits_per_second": median(|it| it.offset_commits_per_second),
        "seconds": median(|it| it.seconds),
        "runs": runs.len(),
    })
}

struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let (last, half) = (values.len().saturating_sub(1), values.len() / 2);
        let median = if values.len() % 2 == 1 { at(half) } else { (at(half.saturating_sub(1)) + at(half)) / 2.0 };
        Spread { median, min: at(0), max: at(last) }
    }
}

fn spread(runs: &[Measured], field: impl Fn(&Measured) -> f64) -> Spread {
    Spread::of(runs.iter().map(field).collect())
}
