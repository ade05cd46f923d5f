//! Runs the simulation and writes a verdict: `sekali-sim` explores the small worlds, runs many seeds (`SEEDS=n`) and one
//! world for a long time (`HOURS=n`); `SEED=n` runs one seed. `QUICK=1` explores fewer worlds and stops at the first
//! broken promise.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sekali_simulation::{Explored, SMALL_WORLDS, SmallWorld, Stats, explore_all, last, simulate};
use serde_json::{Value, json};

/// What was seen so far.
#[derive(Default)]
struct Seen {
    worlds: usize,
    states: usize,
    transitions: usize,
    total: Stats,
    lasted: u64,
    first_failing_seed: Option<u64>,
    violations: Vec<String>,
}

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let quick = number("QUICK").is_some_and(|it| it != 0);
    let (first, seeds) = match number("SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("SEEDS").unwrap_or(10_000)),
    };
    let hours = number("HOURS").unwrap_or(if quick { 0 } else { 24 });
    let started = Instant::now();
    let mut seen = Seen::default();
    let mut ran = 0;
    for seed in first..first + seeds {
        if quick && seen.is_broken() {
            break;
        }
        seen.run(seed);
        ran += 1;
    }
    if number("SEED").is_none() && !(quick && seen.is_broken()) {
        seen.explore(quick);
        seen.wait(hours);
    }
    let verdict = seen.verdict(ran, started.elapsed());
    let text = format!("{verdict:#}\n");
    let written = std::fs::create_dir_all("target/sim").and_then(|()| std::fs::write("target/sim/verdict.json", &text));
    print!("{text}");
    for violation in seen.violations.iter().take(5) {
        eprintln!("{violation}");
    }
    if let Err(error) = &written {
        eprintln!("target/sim/verdict.json could not be written: {error}");
    }
    if !seen.is_broken() && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Seen {
    fn is_broken(&self) -> bool {
        !self.violations.is_empty()
    }

    fn explore(&mut self, quick: bool) {
        let worlds: Vec<&SmallWorld> = SMALL_WORLDS.iter().filter(|it| it.quick || !quick).collect();
        for (world, explored) in explore_all(&worlds, quick) {
            match explored {
                Ok(explored) => {
                    let Explored { states, transitions, rests, depth, .. } = explored;
                    println!(
                        "{states:7} states, {transitions:7} transitions, {rests:4} at rest, {depth:2} deep: {}",
                        world.name
                    );
                    self.worlds += 1;
                    self.states += states;
                    self.transitions += transitions;
                    if !explored.is_plausible(world) {
                        self.violations.push(format!("{}: too little happened: {explored:?}", world.name));
                    }
                }
                Err(counterexample) => self.violations.push(counterexample.to_string()),
            }
        }
    }

    /// One world of each rule for so many of its hours.
    fn wait(&mut self, hours: u64) {
        for seed in (1..=3).filter(|_| 0 < hours) {
            match last(seed, Duration::from_secs(3_600 * hours)) {
                Ok(_) => self.lasted += hours,
                Err(violation) => self.violations.push(format!("for {hours} hours, {violation}")),
            }
        }
    }

    fn run(&mut self, seed: u64) {
        match simulate(seed) {
            Ok(stats) => self.total.add(&stats),
            Err(violation) => {
                self.first_failing_seed.get_or_insert(seed);
                self.violations.push(violation.to_string());
            }
        }
    }

    fn verdict(&self, seeds: u64, took: Duration) -> Value {
        json!({
            "seeds": seeds,
            "steps": self.total.steps,
            "faults": self.total.faults,
            "retried": self.total.retried,
            "duplicates": self.total.duplicates,
            "dead": self.total.dead,
            "held": self.total.held,
            "replays": self.total.replays,
            "discarded": self.total.discarded,
            "small_worlds": self.worlds,
            "small_states": self.states,
            "small_transitions": self.transitions,
            "hours": self.lasted,
            "violations": self.violations.len(),
            "first_failing_seed": self.first_failing_seed,
            "seconds": took.as_secs_f64(),
            "ok": !self.is_broken(),
        })
    }
}
