//! The commands, each with its result.

mod config;
mod dlq;
mod doctor;
mod health;
mod lag;
mod migrate;
mod operate;
mod relay;
mod schemas;
mod topics;

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use sekali_consumer::config::{Config, Needs};

use crate::args::{Cli, Command, Global};
use crate::exit::{Failure, Outcome};
use crate::{bench, console, demo, drill, output, produce};

pub(crate) use dlq::{AuditArgs, DlqCommand, moment};

const DEFAULT_FILE: &str = "sekali.toml";

pub(crate) use operate::actor;

pub(crate) async fn run(cli: Cli) -> Result<Outcome, Failure> {
    let global = &cli.global;
    match cli.command {
        Command::Demo(args) => demo::run(global, args).await,
        Command::DemoWorker => demo::run_worker(global).await,
        Command::Bench(args) => bench::run(global, *args).await,
        // It has a runtime of its own, and was run before there was this one.
        Command::BenchProgram { .. } => Err(Failure::usage("bench-program is started by `sekali bench`")),
        Command::Migrate(args) => migrate::run(global, &args).await,
        Command::Topics(command) => topics::run(global, command).await,
        Command::Relay => relay::run(global).await,
        Command::Produce(args) => produce::run(global, *args).await,
        Command::Lag => lag::run(global).await,
        Command::Doctor(args) => doctor::run(global, args).await,
        Command::Health(args) => health::run(args).await,
        Command::Dlq(command) => dlq::run(global, *command).await,
        Command::Audit(args) => dlq::audit(global, args).await,
        Command::Console => console::run(global).await,
        Command::Schemas(command) => schemas::run(global, command).await,
        Command::Config(command) => config::run(global, &command),
        Command::Drill(args) => drill::run(global, *args).await,
        Command::Operate(command) => operate::run(global, command).await,
        Command::Completions { shell } => completions(shell),
    }
}

/// The configuration, complete as far as the command needs it.
pub(crate) fn load(global: &Global, needs: Needs) -> Result<Config, Failure> {
    Ok(Config::load_for(file(global).as_deref(), needs)?)
}

/// The file that was named, or the one in the working directory.
pub(crate) fn file(global: &Global) -> Option<PathBuf> {
    global.config.clone().or_else(|| Path::new(DEFAULT_FILE).exists().then(|| PathBuf::from(DEFAULT_FILE)))
}

fn completions(shell: clap_complete::Shell) -> Result<Outcome, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sekali", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(Outcome::Done)
}
