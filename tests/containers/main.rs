//! The judge of `make test-containers`: sends events through the product as containers, kills and restarts workers
//! meanwhile, and holds the ledger against what was sent.
//!
//! `sekali-containers main-work` does what `sekali demo` does: duplicates, failures, a killed worker.
//! `sekali-containers rolling` restarts every worker, one at a time, under a steady load, and watches the group.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod judge;
mod main_work;
mod owners;
mod rolling;
mod stack;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use sekali_tests::harness::target_dir;
use serde::Serialize;

use stack::Stack;

const USAGE: &str = "usage: sekali-containers main-work|rolling --project NAME --kafka HOST:PORT --postgres URL";

/// What a part found. It is good when nothing is wrong.
#[derive(Serialize)]
struct Found<T: Serialize> {
    ok: bool,
    wrong: Vec<String>,
    #[serde(flatten)]
    figures: T,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((part, rest)) => run(part, rest).await,
        None => Err(anyhow::anyhow!(USAGE)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(part: &str, options: &[String]) -> Result<bool, anyhow::Error> {
    let file = target_dir().join(format!("containers/{part}.json"));
    // An old verdict must not pass for the answer of this run.
    let _none = std::fs::remove_file(&file);
    let (project, kafka) = (option(options, "--project")?, option(options, "--kafka")?);
    let stack = Stack::connect(&project, &kafka, &option(options, "--postgres")?).await?;
    match part {
        "main-work" => {
            let (figures, wrong) = main_work::run(&stack).await?;
            close(file, figures, wrong)
        }
        "rolling" => {
            let (figures, wrong) = rolling::run(&stack).await?;
            close(file, figures, wrong)
        }
        _ => bail!(USAGE),
    }
}

fn option(options: &[String], name: &str) -> Result<String, anyhow::Error> {
    let place = options.iter().position(|it| it == name).with_context(|| format!("{name} is missing; {USAGE}"))?;
    options.get(place + 1).cloned().with_context(|| format!("{name} needs a value; {USAGE}"))
}

fn close<T: Serialize>(file: PathBuf, figures: T, wrong: Vec<String>) -> Result<bool, anyhow::Error> {
    let found = Found { ok: wrong.is_empty(), wrong, figures };
    let text = serde_json::to_string_pretty(&found)?;
    std::fs::create_dir_all(file.parent().context("the verdict's file lies in a directory")?)?;
    std::fs::write(&file, text.clone() + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    println!("{text}");
    Ok(found.ok)
}
