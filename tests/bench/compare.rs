//! The last results beside recorded ones: counts have to stay, rates may move with the machine.

use std::path::Path;

use anyhow::Context;
use sekali_benchmark::targets::number;
use sekali_tests::harness::target_dir;
use serde_json::Value;

/// Numbers of a row, by how much they may grow, and whether more is a failure.
const GROWTH: [(&str, f64, bool); 7] = [
    ("wal_bytes_per_event", 0.05, true),
    ("transactions_per_event", 0.25, true),
    ("round_trips_per_event", 0.25, true),
    ("fsyncs_per_event", 0.25, true),
    ("offset_commits_per_second", 0.25, true),
    ("own_cpu_us_per_event", 0.30, false),
    ("postgres_cpu_us_per_event", 0.30, false),
];
/// A rate may shrink by so much without a word.
const RATE_SHRINKS: f64 = 0.30;

/// Whether no count has grown beyond what it may.
pub(crate) fn compare(baseline: &Path) -> Result<bool, anyhow::Error> {
    let results = target_dir().join("bench").join("results.json");
    let (baseline, results) = (read(baseline)?, read(&results).context("run `make bench` first")?);
    let differences = differences(&baseline, &results)?;
    for it in &differences {
        println!("{}: {}", if it.fails { "GROWN" } else { "note" }, it.text);
    }
    let grown = differences.iter().filter(|it| it.fails).count();
    println!("{} differences, {grown} of them in counts", differences.len());
    Ok(grown == 0)
}

fn read(path: &Path) -> Result<Value, anyhow::Error> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

#[derive(Debug, PartialEq)]
struct Difference {
    text: String,
    fails: bool,
}

fn differences(baseline: &Value, results: &Value) -> Result<Vec<Difference>, anyhow::Error> {
    let mut found = Vec::new();
    let workloads = baseline["workloads"].as_object().context("the baseline has no workloads")?;
    for (workload, rows) in workloads {
        for old in rows.as_array().into_iter().flatten() {
            let is_same = |new: &&Value| new["case"] == old["case"] && new["program"] == old["program"];
            let text = |field: &str| old[field].as_str().unwrap_or("?");
            let name = format!("{workload} {} {}", text("case"), text("program"));
            match results["workloads"][workload].as_array().into_iter().flatten().find(is_same) {
                Some(new) => found.extend(of_row(&name, old, new)),
                None => found.push(Difference { text: format!("{name}: not measured this time"), fails: false }),
            }
        }
    }
    Ok(found)
}

fn of_row(name: &str, old: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    for (field, growth, fails) in GROWTH {
        if let (Some(old), Some(new)) = (old[field].as_f64(), new[field].as_f64())
            && old * (1.0 + growth) < new
        {
            let percent = (new / old - 1.0) * 100.0;
            let text = format!("{name}: {field} {} instead of {}, {percent:+.0} %", number(new), number(old));
            found.push(Difference { text, fails });
        }
    }
    let rate = |row: &Value| row["events_per_second"]["median"].as_f64();
    if let (Some(old), Some(new)) = (rate(old), rate(new))
        && new < old * (1.0 - RATE_SHRINKS)
    {
        let text = format!("{name}: {} events/s instead of {}", number(new), number(old));
        found.push(Difference { text, fails: false });
    }
    if new["oracle"] != "ok" {
        found.push(Difference { text: format!("{name}: {}", new["oracle"]), fails: true });
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(wal: f64, rate: f64, oracle: &str) -> Value {
        let row = json!({"case": "drain", "program": "M1", "wal_bytes_per_event": wal, "oracle": oracle,
            "events_per_second": {"median": rate}});
        json!({"workloads": {"W1": [row]}})
    }

    #[test]
    fn counts_are_held_tightly_and_rates_loosely() {
        let old = document(380.0, 100_000.0, "ok");
        let compared = |new: Value| differences(&old, &new).unwrap();
        assert_eq!(compared(document(390.0, 75_000.0, "ok")), []);
        let grown = compared(document(420.0, 60_000.0, "ok"));
        assert_eq!(grown.iter().map(|it| it.fails).collect::<Vec<_>>(), [true, false]);
        assert!(compared(document(380.0, 100_000.0, "2 events are lost"))[0].fails);
        assert!(!compared(json!({"workloads": {}}))[0].fails, "a part of the workloads can be compared");
    }
}
