//! Breaks the core on purpose, one way at a time, and sees the simulation notice: `sekali-mutants`. A mutant that
//! survives is a missing invariant.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde_json::json;

/// File below `consumer/src/core`, what stands there, and what is put in its place.
const MUTANTS: &[(&str, &str, &str)] = &[
    ("assignment.rs", "owned.decided(entry.next, entry.count);", "owned.decided(entry.next + 1, entry.count);"),
    ("assignment.rs", ".filter(|it| it.epoch == entry.epoch)", ""),
    ("assignment.rs", "partitions.iter().any(|it| self.owned.get(it).is_some_and(|it| 0 < it.in_hand))", "false"),
    ("assignment.rs", "if !owned.leaving && self.stopping.is_none() {", "if true {"),
    ("assignment.rs", "owned.leaving = true;", ""),
    ("assignment.rs", "self.drop_redo(|partition| partitions.contains(&partition));", ""),
    ("assignment.rs", "(Some(_), None) => actions.push(Action::Resume(partition)),", "(Some(_), None) => {}"),
    (
        "assignment.rs",
        "(None, Some(reason)) => actions.push(Action::Pause(partition, reason)),",
        "(None, Some(_)) => {}",
    ),
    ("assignment.rs", "let again = self.recommit_at <= now;", "let again = false;"),
    ("assignment.rs", "actions.push(Action::Commit(positions));", ""),
    ("assignment.rs", "_ if not_due => Some(PauseReason::NotDue),", ""),
    (
        "assignment.rs",
        "let retry = if lane.last_was_retry { !has(false) } else { has(true) };",
        "let retry = has(true) && !has(false) && false;",
    ),
    ("assignment.rs", "&& items.len() == 1", ""),
    ("assignment.rs", "if it.leaving || stopping {\n                it.in_hand -= 1;\n            }", ""),
    (
        "assignment.rs",
        "Outcome::Interrupted | Outcome::Decided => lane.interrupted(now, items, &self.limits),",
        "_ => lane.failed(items),",
    ),
    ("assignment.rs", "let idle = self.lanes.iter().all(|it| it.stage != Stage::Busy);", "let idle = true;"),
    (
        "partition.rs",
        "if self.last_received.is_some_and(|last| record.offset <= last) {\n                continue;\n            }",
        "",
    ),
    ("partition.rs", "self.ready_at().is_some_and(|it| it <= now)", "self.ready_at().is_some()"),
    ("partition.rs", "self.in_hand -= count;", ""),
    ("partition.rs", "items.len() < max &&", ""),
    (
        "lane.rs",
        "self.redo.push_front(Chunk { items, suspect: true });",
        "self.redo.push_back(Chunk { items, suspect: true });",
    ),
    ("lane.rs", "for items in [second, first] {", "for items in [first, second] {"),
    ("lane.rs", "if !items.is_empty() {", "if true {"),
    ("lane.rs", "self.stage = Stage::Waiting(now.after(delay));\n", ""),
    ("lane.rs", "Stage::Waiting(until) => until <= now,", "Stage::Waiting(_) => false,"),
    ("lane.rs", "self.stage = Stage::Busy;", ""),
    ("retry.rs", "self.attempts_max <= attempt", "self.attempts_max < attempt"),
    ("retry.rs", "Decision::Retry { attempt: attempt + 1, tier,", "Decision::Retry { attempt, tier,"),
    (
        "retry.rs",
        "FailureKind::Permanent => Decision::Dead(Reason::Permanent),",
        "FailureKind::Permanent => Decision::Dead(Reason::Exhausted),",
    ),
    ("verdict.rs", "&& row.attempt == asking.attempt", ""),
    ("verdict.rs", "row.state == State::Retrying &&", ""),
    ("verdict.rs", "return if asking.retry { Arrival::Orphan } else { Arrival::Handle };", "return Arrival::Handle;"),
];

/// The sources that a mutant needs, copied aside so that nobody's work is touched.
const COPIED: [&str; 10] = [
    "Cargo.toml",
    "Cargo.lock",
    "schemas",
    "producer",
    "consumer",
    "ops/cli",
    "examples",
    "tests",
    "rustfmt.toml",
    "clippy.toml",
];

fn main() -> ExitCode {
    let root = Path::new("target/mutants/work");
    let (mut killed, mut survivors) = (0, Vec::new());
    for (file, from, to) in MUTANTS {
        if let Err(problem) = prepare(root, file, from, to) {
            eprintln!("{file}: {problem}");
            return ExitCode::FAILURE;
        }
        let what = format!("{file}: {from:?} -> {to:?}");
        if survives(root) {
            eprintln!("survived  {what}");
            survivors.push(what);
        } else {
            println!("killed    {what}");
            killed += 1;
        }
    }
    let ok = survivors.is_empty();
    let verdict = json!({ "mutants": MUTANTS.len(), "killed": killed, "survived": survivors.len(), "survivors": survivors, "ok": ok });
    let text = format!("{verdict:#}\n");
    println!("{text}");
    let written = std::fs::write("target/mutants/verdict.json", text);
    if ok && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn prepare(root: &Path, file: &str, from: &str, to: &str) -> Result<(), String> {
    std::fs::create_dir_all(root.join("ops")).map_err(|error| error.to_string())?;
    for name in COPIED {
        let into = root.join(name);
        let into = into.parent().unwrap_or(root);
        let copied = Command::new("cp").args(["-a", "--update", name]).arg(into).status();
        if !copied.is_ok_and(|it| it.success()) {
            return Err(format!("{name} cannot be copied to {}", into.display()));
        }
    }
    // The file of the mutant before is put back by hand: it is newer than its original.
    for each in ["assignment.rs", "partition.rs", "lane.rs", "retry.rs", "verdict.rs"] {
        let path = Path::new("consumer/src/core").join(each);
        let mut text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        if each == file {
            if text.matches(from).count() == 0 {
                return Err(format!("nothing reads {from:?}: adapt the list of mutants"));
            }
            text = text.replacen(from, to, 1);
        }
        let target = root.join(&path);
        if std::fs::read_to_string(&target).ok().as_deref() != Some(&text) {
            std::fs::write(target, text).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Whether the simulation and the core's unit tests still pass. What does not compile is no mutant.
fn survives(root: &Path) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&cargo);
        command.current_dir(root).env("CARGO_TARGET_DIR", "../target").args(arguments).stdout(Stdio::null());
        command.env("SEEDS", "4000").stderr(Stdio::null()).status().is_ok_and(|it| it.success())
    };
    assert!(run(&["build", "--quiet", "-p", "sekali-simulation"]), "the mutant does not compile");
    // A mutant may loop for ever.
    let mut simulation = Command::new("timeout");
    simulation.args(["120", "../target/debug/sekali-sim"]).current_dir(root).env("SEEDS", "4000");
    let simulated = simulation.stdout(Stdio::null()).stderr(Stdio::null()).status();
    simulated.is_ok_and(|it| it.success()) && run(&["test", "--quiet", "-p", "sekali-consumer", "--lib", "core::"])
}
