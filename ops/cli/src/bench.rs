//! `sekali bench`: the benchmark on a user's own broker and database.

use std::io::{BufRead, IsTerminal, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::Args;
use sekali_benchmark::child::{Child, Origin};
use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::produce::fill;
use sekali_benchmark::report::{Report, Row};
use sekali_benchmark::run::Run;
use sekali_benchmark::stage::{PREFIX, Stage};
use sekali_benchmark::targets::{Target, median_ratio, number};
use sekali_benchmark::{Program, retail};
use sekali_consumer::config::{Config, Needs};
use sekali_consumer::{admin, shutdown_signal};

use crate::args::Global;
use crate::commands;
use crate::exit::{Failure, Outcome};
use crate::output;

const WORKLOAD: &str = "W1";
const CASE: &str = "drain";
/// One transaction an event is so much slower that a part of the records will do.
const SLOW_PART: usize = 10;

/// Options of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Records of each run; programs with a transaction an event get a tenth.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    events: u32,
    /// How often each program runs, in turns.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Programs: P0, P0c, P1, P1x, P1x-plain, P1e, P1a by hand, M1, M2, M3, M4 with Sekali.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "P0c,P1x,M1", value_parser = program)]
    programs: Vec<Program>,
    /// Partitions of the topic.
    #[arg(long, value_name = "N", default_value = "12")]
    partitions: NonZeroU16,
    /// Real events instead of generated ones: JSON lines with sku and delta, plain or .gz.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// File for the results, as JSON.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Also where a group of Sekali is at work: it will feel the load.
    #[arg(long)]
    beside_live_data: bool,
}

fn program(name: &str) -> Result<Program, String> {
    Program::named(name).ok_or_else(|| {
        let names = Program::ALL.map(Program::name);
        format!("there are {}", names.join(", "))
    })
}

/// Runs the programs in turns, prints the table, and removes what it made.
pub(crate) async fn run(global: &Global, args: BenchArgs) -> Result<Outcome, Failure> {
    let config = commands::load(global, Needs::Relay)?;
    if !args.beside_live_data {
        refuse_live_data(&config).await?;
    }
    say_plan(&args);
    if !args.yes && !agreed()? {
        return Err(Failure::error("nothing was done"));
    }
    let origin = Origin { file: commands::file(global), with_environment: true };
    let stage = Stage::new(origin, None).map_err(failure)?;
    let measured = tokio::select! {
        measured = measure(&stage, &args) => measured.map_err(failure),
        () = shutdown_signal() => Err(Failure::error("interrupted; what the benchmark made is removed")),
    };
    // Also after a failure and an interruption.
    stage.sweep().await.map_err(failure)?;
    let report = measured?;
    if let Some(file) = &args.results {
        report.write(file).map_err(failure)?;
    }
    output::show(global.output, &report.json(), |_| report.text())?;
    if report.oracle_ok() {
        return Ok(Outcome::Done);
    }
    Err(Failure::error("a program lost events or wrote them twice: see the last column"))
}

/// Runs one program: the hidden command that the benchmark starts.
pub(crate) fn run_program(text: &str) -> std::process::ExitCode {
    Child::run_text(text)
}

fn failure(error: anyhow::Error) -> Failure {
    Failure::error(format!("{error:#}"))
}

/// Refuses servers on which the configured group is at work, or any other.
async fn refuse_live_data(config: &Config) -> Result<(), Failure> {
    const REMEDY: &str =
        "run the benchmark against a staging system, or add --beside-live-data if the load does no harm";
    let client = config.postgres.connect(PREFIX).await?;
    let there = "SELECT to_regclass('sekali.progress') IS NOT NULL";
    let progress = "SELECT count(DISTINCT consumer_id) FROM sekali.progress";
    let asked = async {
        let is_there: bool = client.query_one(there, &[]).await?.get(0);
        if is_there { client.query_one(progress, &[]).await.map(|it| it.get::<_, i64>(0)) } else { Ok(0) }
    };
    let groups = asked.await.map_err(|error| failure(anyhow::Error::new(error).context("look at the database")))?;
    if 0 < groups {
        let text =
            format!("this looks like production: {groups} groups of Sekali have worked on the configured database");
        return Err(Failure::error(format!("{text}; {REMEDY}")));
    }
    if config.consumer.group.is_empty() || config.consumer.topics.is_empty() {
        return Ok(());
    }
    // A topic that is missing has no group at work on it.
    let lag = admin::lag(config).await.unwrap_or_default();
    if lag.iter().any(|it| it.committed.is_some()) {
        let group = &config.consumer.group;
        return Err(Failure::error(format!(
            "this looks like production: group {group} has committed offsets; {REMEDY}"
        )));
    }
    Ok(())
}

fn say_plan(args: &BenchArgs) {
    let names: Vec<&str> = args.programs.iter().map(|it| it.name()).collect();
    output::note(&format!(
        "{} runs of {} with {} records on the configured broker and database server.\n\
         They make topics and groups {PREFIX}-<id> and databases {}_<id>, and remove them in the end.",
        args.rounds as usize * names.len(),
        names.join(", "),
        number(f64::from(args.events)),
        PREFIX.replace('-', "_"),
    ));
}

fn agreed() -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage("nobody can be asked: add --yes"));
    }
    let mut error = std::io::stderr();
    // Whoever cannot read the question does not answer it.
    let _ = write!(error, "Go on? [y/N] ").and_then(|()| error.flush());
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(|error| Failure::error(format!("cannot read the answer: {error}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

async fn measure(stage: &Stage, args: &BenchArgs) -> Result<Report, anyhow::Error> {
    let load = |records: usize| match &args.data {
        Some(file) => retail(file, records),
        None => Ok(Load::new(Shape::new(records))),
    };
    let all = args.events as usize;
    let loads = [load(all)?, load(all / SLOW_PART)?];
    let mut topics = Vec::new();
    for load in &loads {
        let topic = stage.topic(args.partitions).await?;
        fill(&stage.config.kafka, &topic, load.records()).await?;
        topics.push(topic);
    }
    let is_slow = |program: Program| usize::from(matches!(program, Program::P0 | Program::P0c | Program::M4));
    let row = |it: &Program| Row::new(WORKLOAD, CASE, *it, loads[is_slow(*it)].len());
    let mut rows: Vec<Row> = args.programs.iter().map(row).collect();
    for round in 0..args.rounds as usize {
        for place in (0..rows.len()).map(|it| (it + round) % args.programs.len()) {
            let program = rows[place].program;
            let (load, topic) = (&loads[is_slow(program)], &topics[is_slow(program)]);
            let measured = Run::new(program, load, topic, args.partitions).once(stage).await?;
            output::note(&format!("{}: {} events/s", program.name(), number(measured.events_per_second)));
            rows[place].runs.push(measured);
        }
    }
    stage.delete_topics(&topics.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    Ok(report(rows))
}

fn report(rows: Vec<Row>) -> Report {
    let mut report = Report { rows, ..Report::default() };
    let rates = |program| report.row(WORKLOAD, CASE, program).map(Row::rates);
    let beside = |other: Program, goal| {
        let ratio = median_ratio(&rates(Program::M1)?, &rates(other)?);
        Some(Target::at_least("", format!("M1 by {}", other.name()), ratio, goal))
    };
    report.targets = [beside(Program::P0c, 15.0), beside(Program::P1x, 0.85)].into_iter().flatten().collect();
    for program in report.rows.iter().map(|it| it.program) {
        report.notes.push(format!("{:<10} {}", program.name(), program.about()));
    }
    let text = "CPU of broker and database server is not known here; both are shared with the programs when they run on \
                one machine.";
    report.notes.push(text.to_owned());
    if cfg!(debug_assertions) {
        report.notes.push("This is a debug build, whose rates mean nothing.".to_owned());
    }
    report
}
