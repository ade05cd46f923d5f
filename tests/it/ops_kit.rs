//! The operations kit says nothing that the programs do not know: commands, metrics, alerts, runbooks, keys.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use sekali_tests::harness::{program, workspace_root};

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files under a directory whose name ends so.
fn files(directory: &str, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![workspace_root().join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no {end} in {directory}");
    found.sort();
    found
}

/// Commands of the operator in a runbook: lines of code, and what stands between backticks.
fn commands(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|it| it.strip_prefix("    ")).map(str::trim);
    let inline = text.lines().filter(|it| !it.starts_with("    ")).flat_map(|it| it.split('`').skip(1).step_by(2));
    let all = lines.chain(inline).map(|it| it.split("  #").next().unwrap_or(it).trim());
    all.filter(|it| it.starts_with("sekali ")).map(str::to_owned).collect()
}

/// Whether the program understands a command, down to its options. Nothing is run: `--help` ends it after parsing.
fn parses(command: &str) -> Result<(), String> {
    let words = command.split_whitespace().skip(1).map(|word| match word {
        "ID" => "0198f2a4-0000-7000-8000-000000000000",
        other => other,
    });
    let output = Command::new(program("sekali")).args(words).arg("--help").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(error.lines().next().unwrap_or_default().to_owned()) }
}

#[test]
fn every_command_of_the_runbooks_and_the_chart_exists() {
    let notes = workspace_root().join("ops/helm/sekali/templates/NOTES.txt");
    let mut found = Vec::new();
    let mut checked = BTreeSet::new();
    for path in files("ops/runbooks", ".md").into_iter().chain([workspace_root().join("ops/helm/sekali/README.md")]) {
        for command in commands(&std::fs::read_to_string(&path).unwrap()) {
            if let Err(error) = parses(&command) {
                found.push(format!("{}: {command}: {error}", path.display()));
            }
            checked.insert(command);
        }
    }
    for line in std::fs::read_to_string(notes).unwrap().lines().filter_map(|it| it.split("{{ $exec }} ").nth(1)) {
        if let Err(error) = parses(&format!("sekali {line}")) {
            found.push(format!("NOTES.txt: {line}: {error}"));
        }
    }
    assert!(15 < checked.len(), "only {checked:?}");
    assert!(found.is_empty(), "write commands that exist:\n{}", found.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    assert_eq!(parses("sekali lag"), Ok(()));
    assert!(parses("sekali lagg").is_err() && parses("sekali doctor --chek kafka").is_err());
    assert!(parses("sekali topics plan --exit-code now").is_err(), "one word too many");
    let text = "Do `sekali a` or\n\n    sekali b --c  # why\n    psql\n";
    assert_eq!(commands(text), ["sekali a", "sekali b --c"].map(str::to_owned).into());
}

/// Names of metrics in a text, without those of recording rules.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_' && it != ':' && it != '-');
    words.filter(|it| it.starts_with("sekali_") && !it.contains([':', '-'])).collect()
}

#[test]
fn every_metric_of_rules_dashboards_and_runbooks_exists() {
    let all = sekali_consumer::metrics::ALL.iter().chain(sekali_producer::metrics::ALL);
    let known: BTreeSet<&str> = all.map(|it| it.name).collect();
    let is_known = |name: &str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it));
        // Crates of the project are named in texts, too.
        known.contains(name) || base.is_some_and(|it| known.contains(it)) || ["sekali_producer"].contains(&name)
    };
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (directory, end) in [("ops/prometheus", ".yaml"), ("ops/grafana", ".json"), ("ops/runbooks", ".md")] {
        for path in files(directory, end) {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(
                metrics_in(&text).iter().filter(|it| !is_known(it)).map(|it| format!("{}: {it}", path.display())),
            );
            seen.extend(metrics_in(&text).into_iter().map(str::to_owned));
        }
    }
    assert!(found.is_empty(), "no such metric:\n{}", found.join("\n"));
    let base = |it: &str| seen.iter().any(|name| name.starts_with(it));
    let unseen: Vec<&&str> = known.iter().filter(|it| !base(it)).collect();
    assert!(unseen.is_empty(), "neither a rule nor a panel shows {unseen:?}");
}

#[test]
fn every_runbook_url_leads_to_a_runbook_of_its_alert() {
    let rules = read("ops/prometheus/rules.yaml");
    let alerts: Vec<&str> = rules.lines().filter_map(|it| it.trim().strip_prefix("- alert: ")).collect();
    let urls: Vec<&str> = rules.lines().filter_map(|it| it.trim().strip_prefix("runbook_url: ")).collect();
    assert!(40 <= alerts.len() && alerts.len() == urls.len(), "{} alerts, {} URLs", alerts.len(), urls.len());
    for (alert, url) in alerts.iter().zip(urls) {
        let place = url.split("/blob/main/").nth(1).unwrap_or_else(|| panic!("{url} is not in the repository"));
        let text = read(place);
        assert_eq!(Path::new(place).file_stem().unwrap().to_str(), Some(*alert));
        let sections: Vec<&str> = text.lines().filter_map(|it| it.strip_prefix("## ")).collect();
        assert_eq!(sections, ["Meaning", "Impact", "Diagnosis", "Mitigation", "Prevention"], "{place}");
        for link in text.split("](").skip(1).filter_map(|it| it.split(')').next()).filter(|it| it.ends_with(".md")) {
            assert!(alerts.contains(&link.trim_end_matches(".md")), "{place} leads to {link}");
        }
    }
}

#[test]
fn the_chart_knows_the_sections_of_the_configuration() {
    let output = Command::new(program("sekali")).args(["config", "print", "--defaults"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&read("ops/helm/sekali/values.schema.json")).unwrap();
    let known = schema["definitions"]["config"]["properties"].as_object().unwrap();
    // The chart sets the port for probes and metrics itself.
    let sections = printed.lines().filter_map(|it| it.strip_prefix('[')?.strip_suffix(']')).filter(|it| *it != "admin");
    let missing: Vec<&str> = sections.filter(|it| !known.contains_key(*it)).collect();
    assert!(missing.is_empty(), "values.schema.json does not know the sections {missing:?}");
}
