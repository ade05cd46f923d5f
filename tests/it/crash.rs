//! `make crash` with a few rounds: whatever is killed, and wherever, nothing is lost and nothing doubled.

use std::collections::BTreeMap;
use std::time::Duration;

use sekali::private_postgres::BINARIES_VARIABLE;
use sekali_tests::harness::Program;
use sekali_tests::harness::versions::KAFKA_VARIABLE;
use sekali_tests::skip;
use serde::Deserialize;

/// With those in which a server dies, every point has its turn ten times.
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(600);
/// The program's word for servers that cannot be started here.
const NO_SERVERS: i32 = 3;

#[derive(Deserialize)]
struct Verdict {
    points: BTreeMap<String, OfPoint>,
    violations: usize,
    ok: bool,
}

#[derive(Deserialize)]
struct OfPoint {
    victims: BTreeMap<String, Count>,
}

#[derive(Deserialize)]
struct Count {
    rounds: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_wherever_something_dies() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("verdict.json");
    let rounds = ROUNDS.to_string();
    let mut crash = Program::of_workspace("sekali-crash").args(["--rounds", &rounds, "--verdict"]).arg(&file);
    // It starts servers of its own, of the versions that this run is about.
    for variable in [BINARIES_VARIABLE, KAFKA_VARIABLE] {
        if let Some(value) = std::env::var_os(variable) {
            crash = crash.env(variable, value);
        }
    }
    let mut crash = crash.spawn();
    let status = crash.wait(LIMIT).await;
    if status.code() == Some(NO_SERVERS) {
        skip!("{}", crash.stderr().trim());
    }
    assert!(status.success(), "{status}: {} {}", crash.stdout(), crash.stderr());
    let verdict: Verdict = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(verdict.ok && verdict.violations == 0);
    assert!(20 <= verdict.points.len(), "{} points", verdict.points.len());
    for (name, OfPoint { victims }) in &verdict.points {
        for (victim, rounds) in [("worker", ROUNDS), ("postgres", 3), ("broker", 2)] {
            assert!(victims.get(victim).is_some_and(|it| rounds <= it.rounds), "{name}: {victim} did not die");
        }
        assert_eq!(victims.contains_key("relay"), name.starts_with("relay."), "{name}");
    }
}
