//! Runs the simulation over many seeds and writes a verdict: `sekali-sim`, `SEED=n` for one seed, `SEEDS=n` for many.

use std::process::ExitCode;
use std::time::Instant;

use sekali_simulation::{Stats, simulate};

fn main() -> ExitCode {
    for world in sekali_simulation::SMALL_WORLDS {
        let started = Instant::now();
        match world.explore() {
            Ok(it) => println!("{}: {it:?} {:.1}", world.name, started.elapsed().as_secs_f64()),
            Err(it) => println!("{it}"),
        }
    }

    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let (first, seeds) = match number("SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("SEEDS").unwrap_or(10_000)),
    };
    let started = Instant::now();
    let mut total = Stats::default();
    let mut violations = Vec::new();
    for seed in first..first + seeds {
        match simulate(seed) {
            Ok(stats) => {
                total.steps += stats.steps;
                total.faults += stats.faults;
                total.retried += stats.retried;
                total.duplicates += stats.duplicates;
                total.dead += stats.dead;
                total.held += stats.held;
                total.replays += stats.replays;
                total.discarded += stats.discarded;
            }
            Err(violation) => violations.push(violation),
        }
    }
    let verdict = serde_json::json!({
        "seeds": seeds,
        "steps": total.steps,
        "faults": total.faults,
        "retried": total.retried,
        "duplicates": total.duplicates,
        "dead": total.dead,
        "held": total.held,
        "replays": total.replays,
        "discarded": total.discarded,
        "violations": violations.len(),
        "first_failing_seed": violations.first().map(|it| it.seed),
        "seconds": started.elapsed().as_secs_f64(),
        "ok": violations.is_empty(),
    });
    let text = format!("{verdict:#}\n");
    let written = std::fs::create_dir_all("target/sim").and_then(|()| std::fs::write("target/sim/verdict.json", &text));
    #[allow(clippy::print_stdout, clippy::print_stderr)]
    {
        print!("{text}");
        for violation in violations.iter().take(5) {
            eprintln!("{violation}");
        }
        if let Err(error) = &written {
            eprintln!("target/sim/verdict.json could not be written: {error}");
        }
    }
    if violations.is_empty() && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
