//! The result, for a person and for a program.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;

/// Texts of as many violations are kept.
const FAILURES_MAX: usize = 50;

/// The claim: whatever is killed, and wherever, nothing is lost and nothing doubled.
#[derive(Serialize)]
pub(crate) struct Verdict {
    points: BTreeMap<&'static str, OfPoint>,
    rounds: usize,
    violations: usize,
    /// Copies on the dead-letter topics beyond the first: the relay publishes at least once.
    republished: usize,
    seconds: f64,
    failures: Vec<String>,
    ok: bool,
    #[serde(skip)]
    begin: Instant,
}

#[derive(Default, Serialize)]
struct OfPoint {
    #[serde(flatten)]
    sum: Count,
    victims: BTreeMap<&'static str, Count>,
}

#[derive(Default, Serialize)]
struct Count {
    rounds: usize,
    violations: usize,
}

impl Count {
    fn add(&mut self, is_violated: bool) {
        self.rounds += 1;
        self.violations += usize::from(is_violated);
    }
}

impl Verdict {
    pub(crate) fn new() -> Verdict {
        Verdict {
            points: BTreeMap::new(),
            rounds: 0,
            violations: 0,
            republished: 0,
            seconds: 0.0,
            failures: Vec::new(),
            ok: false,
            begin: Instant::now(),
        }
    }

    /// Adds a round at one point. It is violated when something is wrong, and a point that was not reached is.
    pub(crate) fn add(
        &mut self,
        point: &'static str,
        victim: &'static str,
        number: usize,
        wrong: &[String],
        republished: usize,
    ) {
        let is_violated = !wrong.is_empty();
        let of_point = self.points.entry(point).or_default();
        of_point.sum.add(is_violated);
        of_point.victims.entry(victim).or_default().add(is_violated);
        self.rounds += 1;
        self.violations += usize::from(is_violated);
        self.republished += republished;
        if is_violated && self.failures.len() < FAILURES_MAX {
            self.failures.push(format!("round {}, {point}, {victim}: {}", number + 1, wrong.join("; ")));
        }
    }

    /// Ends the count and writes the file; whether the claim holds.
    pub(crate) fn close(&mut self, file: &Path) -> Result<bool, anyhow::Error> {
        self.seconds = (self.begin.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        self.ok = self.violations == 0 && 0 < self.rounds;
        self.print();
        let directory = file.parent().context("the verdict's file lies in a directory")?;
        std::fs::create_dir_all(directory)?;
        std::fs::write(file, serde_json::to_string_pretty(self)? + "\n").context("cannot write the verdict")?;
        Ok(self.ok)
    }

    fn print(&self) {
        println!("\n{:36} {:>7} {:>10}  rounds by victim", "point", "rounds", "violations");
        for (name, OfPoint { sum, victims }) in &self.points {
            let victims: Vec<String> = victims.iter().map(|(it, count)| format!("{it} {}", count.rounds)).collect();
            println!("{name:36} {:>7} {:>10}  {}", sum.rounds, sum.violations, victims.join(", "));
        }
        let word = if self.ok { "nothing lost, nothing doubled" } else { "THE CLAIM IS FALSE" };
        println!("{} rounds, {} violations in {} s: {word}", self.rounds, self.violations, self.seconds);
    }
}
