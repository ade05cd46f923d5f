//! The demo as a user runs it: with a good inbox, with a broken one, and interrupted.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn demo(dir: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("sekali"));
    // What belongs to a real cluster must not reach the demo.
    command.current_dir(dir).env("SEKALI_KAFKA__BROKERS", "127.0.0.1:1").env_remove("SEKALI_CONFIG");
    command.args(["demo", "--events", "2000"]);
    command
}

/// Without PostgreSQL's programs there is nothing to run: said aloud, and a failure where all must run.
fn can_run() -> bool {
    let Err(error) = sekali::private_postgres::find_binaries() else { return true };
    assert!(std::env::var_os("CI").is_none(), "{error:#}");
    eprintln!("skipped: {error:#}");
    false
}

fn verdict(dir: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("target/demo/verdict.json")).unwrap()).unwrap()
}

#[test]
fn every_event_takes_effect_once_although_a_worker_is_killed() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = demo(dir.path()).args(["--output", "json"]).output().unwrap();
    let story = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{story}");
    let verdict = verdict(dir.path());
    assert_eq!(verdict, serde_json::from_slice::<Value>(&output.stdout).unwrap());
    let expected = [
        ("produced", 2_000),
        ("distinct", 1_900),
        ("processed", 1_894),
        ("duplicates", 100),
        ("retried", 24),
        ("dead", 6),
        ("lost", 0),
        ("doubled", 0),
        ("skus_wrong", 0),
        ("workers_killed", 1),
    ];
    for (key, value) in expected {
        assert_eq!(verdict[key], value, "{key}: {verdict:#}\n{story}");
    }
    assert_eq!(verdict["ok"], true);
    assert!(verdict["seconds"].as_f64().unwrap() < 60.0, "{verdict:#}");
}

#[test]
fn a_broken_inbox_does_not_pass() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = demo(dir.path()).arg("--break-inbox").output().unwrap();
    let story = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{story}");
    assert!(story.contains("error: not as it must be: doubled effects: "), "{story}");
    let verdict = verdict(dir.path());
    assert_eq!(verdict["ok"], false);
    assert!(0 < verdict["doubled"].as_u64().unwrap(), "{verdict:#}");
    assert!(0 < verdict["skus_wrong"].as_u64().unwrap(), "{verdict:#}");
    assert_eq!(verdict["lost"], 0, "{verdict:#}\n{story}");
}

#[test]
fn nothing_is_left_behind_when_it_is_interrupted_or_killed() {
    if !can_run() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        // As /tmp is: the user that the database runs as can delete its own directory there, and nothing else.
        let shared = std::fs::Permissions::from_mode(0o1777);
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), shared).unwrap();
        let mut demo =
            demo(dir.path()).env("TMPDIR", dir.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let workers = workers(&mut demo);
        assert!(workers.iter().all(|it| is_running(*it)));
        kill(Pid::from_raw(demo.id().cast_signed()), signal).unwrap();
        let status = demo.wait().unwrap();
        assert_eq!(status.code(), (signal == Signal::SIGINT).then_some(1));
        let started = Instant::now();
        while workers.iter().any(|it| is_running(*it)) || std::fs::read_dir(dir.path()).unwrap().next().is_some() {
            assert!(started.elapsed() < Duration::from_secs(10), "{signal}: workers or directories are left");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!dir.path().join("target").exists(), "a verdict on half a demo");
    }
}

/// The process ids that the story names.
fn workers(demo: &mut Child) -> Vec<Pid> {
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|it| it.starts_with("Workers 1 (process ")).unwrap();
    let pids = line.split("(process ").skip(1).map(|it| it.split(')').next().unwrap().parse().unwrap());
    let pids: Vec<Pid> = pids.map(Pid::from_raw).collect();
    assert_eq!(pids.len(), 2, "{line}");
    // Somebody must read on, or the demo would find its standard error closed.
    std::thread::spawn(move || lines.for_each(drop));
    pids
}

fn is_running(process: Pid) -> bool {
    kill(process, None).is_ok()
}
