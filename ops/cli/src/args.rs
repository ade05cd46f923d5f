//! What can be typed.

mod operate;
mod signed;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::commands::{AuditArgs, DlqCommand};
use crate::demo::DemoArgs;
use crate::drill::DrillArgs;
use crate::output::Format;
use crate::produce::ProduceArgs;

pub(crate) use operate::*;
pub(crate) use signed::Signed;

/// Operates Sekali: tables, topics, lag, diagnosis.
///
/// Exit status: 0 done, 1 error, 2 usage or configuration, 3 done and found something that needs attention.
#[derive(Debug, Parser)]
#[command(name = "sekali", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Configuration file; ./sekali.toml by default, if there is one.
    #[arg(long, global = true, env = "SEKALI_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Form of the result on standard output.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORM")]
    pub(crate) output: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See the main job work, with a crash on the way: a broker and a database of its own, two workers, one killed.
    Demo(DemoArgs),
    /// Run one worker of the demo.
    #[command(hide = true)]
    DemoWorker,
    /// Measure on your broker and database: events a second and what they cost, beside loops written by hand. Works on
    /// topics and databases of its own, which it removes.
    Bench(Box<BenchArgs>),
    /// Run one program of the benchmark.
    #[command(hide = true)]
    BenchProgram {
        /// What it is, as JSON.
        description: String,
    },
    /// Bring the tables of schema sekali to the version of this program.
    Migrate(MigrateArgs),
    /// Source, retry and dead-letter topics of the group.
    #[command(subcommand)]
    Topics(TopicsCommand),
    /// Publish the outbox until SIGTERM. Any number of processes may: one leads, the others take over within seconds.
    Relay,
    /// Send the lines of a file to a topic, one record a line.
    Produce(Box<ProduceArgs>),
    /// Show how far the group is behind, by partition.
    Lag,
    /// Look for what would stop the group or lose messages; with --checklist, go through the ten points of production.
    #[command(after_help = "Runbook: ops/runbooks/SekaliConsumerStalled.md")]
    Doctor(DoctorArgs),
    /// Ask a process of this machine whether it is ready: for health checks of containers. Status 1 when it is not.
    Health(HealthArgs),
    /// Dead letters: find the cause, replay or discard the right ones.
    #[command(subcommand)]
    Dlq(Box<DlqCommand>),
    /// Who did what to which message, and why.
    Audit(AuditArgs),
    /// Dead letters in a browser, and the same as an API under /api/v1. Read-only, until console.read_only = false.
    #[command(after_help = "Runbook: ops/runbooks/SekaliDeadLettersWaiting.md")]
    Console,
    /// JSON Schemas of the event types: check, record, describe.
    #[command(subcommand)]
    Schemas(SchemasCommand),
    /// The configuration as the programs see it.
    #[command(subcommand)]
    Config(ConfigCommand),
    #[command(flatten)]
    Operate(OperateCommand),
    /// On a staging deployment: produce marked events, kill a worker in the middle, and see that each event was decided
    /// exactly once. The outcome is recorded for `sekali doctor --checklist`.
    #[command(after_help = "Runbook: ops/runbooks/SekaliCrashLooping.md")]
    Drill(Box<DrillArgs>),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Only this part: a service that publishes through the outbox and consumes nothing needs no other.
    #[arg(long, value_enum, value_name = "PART")]
    pub(crate) only: Option<PartArg>,
}

/// A part of the schema.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum PartArg {
    /// Outbox, relay, dead letters.
    Outbox,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicsCommand {
    /// Show what `topics apply` would do. Changes nothing.
    Plan {
        /// End with status 3 when something differs.
        #[arg(long)]
        exit_code: bool,
    },
    /// Create what is missing and adjust settings. Deletes nothing and never shortens a retention.
    Apply,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Run only this check (may be repeated).
    #[arg(long, value_name = "NAME")]
    pub(crate) check: Vec<String>,
    /// Hold the ten points of the checklist for production against the running deployment. Status 3 on a failure.
    #[arg(long, conflicts_with = "check")]
    pub(crate) checklist: bool,
    /// Address of Prometheus, http://host:9090: whether workers are scraped and rules loaded, and durations of all
    /// workers against their limits.
    #[arg(long, value_name = "URL", requires = "checklist")]
    pub(crate) prometheus: Option<String>,
    /// Admin port of a worker under load, http://host:9464: its durations against their limits, and whether it uses
    /// locks. By default the configured port of this machine, where a worker of the group answers.
    #[arg(long, value_name = "URL", requires = "checklist")]
    pub(crate) admin: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// What to ask: /readyz or /livez of the admin port, /login of the console.
    #[arg(long, value_name = "URL", env = "SEKALI_HEALTH_URL", default_value = "http://127.0.0.1:9464/readyz")]
    pub(crate) url: String,
    /// Longest wait for the answer.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchemasCommand {
    /// Look for changes after which documents of the recorded schemas could be refused. Status 3 when there are some.
    Check(CheckArgs),
    /// Record the schemas as they are now, on purpose: what `check` compares with from now on.
    Record(SchemaFiles),
    /// Print the AsyncAPI document of topics, headers and payloads.
    Asyncapi,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) files: SchemaFiles,
    /// Instead of the recorded schemas, hold open dead letters and pending messages of the group against the schemas.
    #[arg(long, conflicts_with = "baseline")]
    pub(crate) against_dlq: bool,
    /// How many refused ones to list.
    #[arg(long, default_value_t = 20, value_name = "N", requires = "against_dlq")]
    pub(crate) first: usize,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaFiles {
    /// Directory with the schemas, <type>.v<major>.json each; without it, the built-in ones with those of
    /// schemas.directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) schemas: Option<PathBuf>,
    /// Directory with the recorded schemas; schemas/baseline by default.
    #[arg(long, value_name = "DIR")]
    pub(crate) baseline: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and list every problem.
    Check,
    /// Print the configuration with every default; secrets are hidden.
    Print {
        /// Print the defaults alone, whatever is configured.
        #[arg(long)]
        defaults: bool,
    },
}
