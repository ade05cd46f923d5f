//! `make crash`: kills the worker, the relay, PostgreSQL and the broker at every named point of the life of a batch and
//! of a failed message, and looks whether the ledger is still right.
//!
//! Every point has a group of its own, and all of them stand at their points when something dies: a round costs one
//! restart for all. The groups live on, so that a later round would also show what an earlier one broke.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod child;
mod judge;
mod point;
mod round;
mod servers;
mod subject;
mod traffic;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use sekali_tests::harness::target_dir;

use round::{Death, Stage};
use verdict::Verdict;

const USAGE: &str = "usage: sekali-crash [--rounds N] [--only PART-OF-A-POINT'S-NAME] [--verdict FILE]";
const ROUNDS: usize = 100;
/// The servers could not be started: nothing was tried.
const NO_SERVERS: u8 = 3;

struct Options {
    /// Deaths of processes at each point. PostgreSQL dies in every second round, the broker in every fourth.
    rounds: usize,
    only: String,
    verdict: PathBuf,
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
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(crash(&options))
}

async fn crash(options: &Options) -> ExitCode {
    // An old verdict must not pass for the answer of this run.
    let _none = std::fs::remove_file(&options.verdict);
    let mut stage = match Stage::set(&options.only).await {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("error: the servers do not start: {error:#}");
            return ExitCode::from(NO_SERVERS);
        }
    };
    let mut verdict = Verdict::new();
    let rounds = async {
        for number in 0..options.rounds {
            for death in Death::ALL.into_iter().filter(|it| it.comes_in(number)) {
                stage.round(number, death, &mut verdict).await?;
            }
        }
        anyhow::Ok(())
    };
    let outcome = rounds.await.and_then(|()| verdict.close(&options.verdict));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, anyhow::Error> {
    let verdict = target_dir().join("crash/verdict.json");
    let mut options = Options { rounds: ROUNDS, only: String::new(), verdict };
    while let Some(argument) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--rounds" => {
                let rounds = value.parse().ok().filter(|it| 0 < *it);
                options.rounds = rounds.with_context(|| format!("--rounds {value}: not a number of rounds"))?;
            }
            "--only" => options.only = value,
            "--verdict" => options.verdict = value.into(),
            _ => bail!("unknown argument {argument}"),
        }
    }
    Ok(options)
}
