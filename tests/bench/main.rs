//! `make bench`: how fast the product drains a topic, beside the best loop that one would write by hand.
//!
//! Both do the same work on the same records with the same oracle, in turns, each in a process and a database of its
//! own. A run lasts from the begin of its first transaction to the commit of its last one, on PostgreSQL's clock
//! (`track_commit_timestamp`), so that neither program reports on itself.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod child;
mod effects;
mod failures;
mod hand;
mod load;
mod measure;
mod oracle;
mod relay;
mod report;
mod run;
mod servers;
mod soak;

use std::process::ExitCode;

use anyhow::{Context, bail};

use child::Program;
use load::Load;
use report::Report;
use servers::Servers;

const USAGE: &str = "usage: sekali-bench [--quick] [--failures] [--effects] [--relay] [--relay-size] [--soak SECONDS] [--events N] [--rounds N]";
/// Spread over this many partitions.
const PARTITIONS: i32 = 12;

/// What to measure.
struct Options {
    events: usize,
    rounds: usize,
    /// Measure what failing events cost instead of comparing with the hand-written loop.
    failures: bool,
    /// Measure how many effects outside the database are performed.
    effects: bool,
    /// Measure the relay.
    relay: bool,
    /// Watch the size of the outbox instead.
    relay_size: bool,
    /// Run under a steady load for so long instead, and look at memory.
    soak: Option<std::time::Duration>,
}

fn main() -> ExitCode {
    if let Some(child) = child::given() {
        return child.run();
    }
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error:#}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(bench(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(options: &Options) -> Result<bool, anyhow::Error> {
    if cfg!(debug_assertions) {
        bail!("this is a debug build, whose numbers mean nothing: use `make bench`");
    }
    if let Some(duration) = options.soak {
        return soak::soak(duration).await;
    }
    if options.relay {
        return relay::bench(options.events, options.rounds).await;
    }
    if options.relay_size {
        return relay::bench_size(options.events).await;
    }
    if options.effects {
        return effects::bench().await;
    }
    if options.failures {
        return failures::bench(options.events, options.rounds).await;
    }
    // First of all: it looks at the load that others make.
    let mut report = Report::new(options.events);
    let load = Load::new(options.events, None);
    let servers = Servers::start().await?;
    let topic = servers.kafka().topic("bench", PARTITIONS).await;
    println!("producing {} events of {} SKUs", load.events().len(), load.skus());
    servers.kafka().produce(&topic, load.records()).await;

    report.fsync_before(servers.fsync_us()?);
    // The first run pays for a cold broker and cold caches, and is thrown away.
    run::run(Program::Hand, &servers, &load, &topic).await.context("warm-up")?;
    for round in 0..options.rounds {
        let mut pair = [Program::Hand, Program::Product];
        // In turns: neither always runs first.
        pair.rotate_left(round % 2);
        for program in pair {
            let measured = run::run(program, &servers, &load, &topic).await;
            report.add(program, measured.with_context(|| format!("{} in round {}", program.name(), round + 1))?);
        }
    }
    report.fsync_after(servers.fsync_us()?);
    report.print();
    report.write()
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, anyhow::Error> {
    let mut options = Options {
        events: 200_000,
        rounds: 3,
        failures: false,
        effects: false,
        relay: false,
        relay_size: false,
        soak: None,
    };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().with_context(|| format!("{argument} needs a number"))?;
            value
                .parse::<usize>()
                .ok()
                .filter(|it| 0 < *it)
                .with_context(|| format!("{argument} {value}: not a number"))
        };
        match argument.as_str() {
            "--quick" => options = Options { events: 50_000, rounds: 1, ..options },
            "--failures" => options.failures = true,
            "--relay" => options.relay = true,
            "--relay-size" => options.relay_size = true,
            "--effects" => options.effects = true,
            "--soak" => options.soak = Some(std::time::Duration::from_secs(number()? as u64)),
            "--events" => options.events = number()?,
            "--rounds" => options.rounds = number()?,
            _ => bail!("unknown argument {argument}"),
        }
    }
    Ok(options)
}
