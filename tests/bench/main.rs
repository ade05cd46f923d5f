//! `make bench`: how fast the product drains a topic, beside the best loops that one would write by hand, and what
//! copies, failures, skew, a large inbox and rebalances cost.
//!
//! What is compared runs in turns, on one broker and one database server of the bench's own. See `ops/bench` for the
//! programs, the loads and the measures.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod compare;
mod effects;
mod options;
mod relay;
mod servers;
mod soak;
mod workloads;

use std::num::NonZeroU16;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use sekali_benchmark::child::Child;

use bench::Bench;
use options::{Instead, Options};

/// Spread over this many partitions, where nothing else is said.
const PARTITIONS: NonZeroU16 = NonZeroU16::new(12).unwrap();

fn main() -> ExitCode {
    if let Some(status) = Child::run_if_asked() {
        return status;
    }
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error:#}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<bool, anyhow::Error> {
    if let Some(Instead::Compare(baseline)) = &options.instead {
        return compare::compare(baseline);
    }
    if cfg!(debug_assertions) {
        bail!("this is a debug build, whose numbers mean nothing: use `make bench`");
    }
    match &options.instead {
        None => Box::pin(Bench::start(options).await?.run()).await,
        Some(Instead::Effects) => effects::bench().await,
        Some(Instead::RelaySize) => relay::bench_size(options.events).await,
        Some(Instead::Soak(duration)) => soak::soak(*duration).await,
        Some(Instead::Crash) => {
            let program = sekali_tests::harness::program("sekali-crash");
            Ok(Command::new(program).status().context("cannot run sekali-crash")?.success())
        }
        Some(Instead::Compare(_)) => unreachable!("compared above"),
    }
}
