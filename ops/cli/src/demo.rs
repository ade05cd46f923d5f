//! `sekali demo`: the main job in half a minute, on a broker and a database that the demo brings along.
//!
//! It publishes a known set of events, lets two worker processes consume them, kills one, and then holds the ledger
//! against what it published. It looks for what was lost or doubled in the business tables, not in the inbox.

mod behaviour;
mod found;
mod narration;
mod plan;
mod publish;
mod stage;
mod verdict;
mod watch;
mod workers;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use sekali_consumer::{Config, Consumer, shutdown_signal};
use sekali_worker::log;
use sekali_worker::stock::{Stock, StockMode};

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;
use behaviour::Troubled;
use found::Found;
use narration::{Narration, grouped};
use plan::{Kind, Plan, SKUS};
use publish::{Published, publish};
use stage::Stage;
use verdict::{Course, Verdict};
use watch::Watch;
use workers::Worker;

const TOPIC: &str = "stock";
const GROUP: &str = "demo";
/// The name that the default template gives it.
const DLQ_NAME: &str = "stock.demo.dlq";
const PARTITIONS: i32 = 6;
/// After so long without a sign of life a worker's partitions go to the other one. The shortest that a broker accepts
/// by default.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

/// Fewer leave nothing to do for the time after the kill; of more, the mock cluster would drop some unread: it keeps 5
/// MB of a partition.
const EVENTS: RangeInclusive<i64> = 1_000..=50_000;

/// Options of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Records to publish, duplicates included; 1,000 to 50,000.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(EVENTS))]
    events: u32,
    /// Start value of everything that looks random: the same one gives the same events.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File for the result, as JSON.
    #[arg(long, value_name = "FILE", default_value = "target/demo/verdict.json")]
    verdict: PathBuf,
    /// Leave broker, database and the surviving worker running until Ctrl-C, and say where they are.
    #[arg(long)]
    keep: bool,
    /// Break the inbox on purpose, so that the verdict must be bad.
    #[arg(long, hide = true)]
    break_inbox: bool,
}

/// Plays the demo. Ends with status 1 when the result is not as it must be.
pub(crate) async fn run(global: &Global, args: DemoArgs) -> Result<Outcome, Failure> {
    let plan = Plan::new(args.events as usize, args.seed);
    let narration = Narration::new(plan.events.len());
    // Whatever was started is stopped when it is dropped, the workers before their servers.
    let (stage, survivor, verdict) = tokio::select! {
        played = play(&args, &plan, &narration) => played?,
        () = shutdown_signal() => {
            narration.end();
            return Err(Failure::error("interrupted; everything that the demo started is stopped"));
        }
    };
    verdict.write(&args.verdict)?;
    output::show(global.output, &verdict, |verdict| narration::table(&plan, verdict))?;
    if args.keep {
        say_where(&narration, &stage, &survivor);
        shutdown_signal().await;
    }
    let stopped = tokio::task::spawn_blocking(move || survivor.shut_down()).await;
    stopped.map_err(|error| Failure::error(format!("cannot stop the worker: {error}")))??;
    drop(stage);
    let (file, seconds) = (args.verdict.display(), verdict.seconds);
    if verdict.ok {
        narration.say(format_args!("ok: every event took effect once, or is one dead letter ({seconds} s, {file})"));
        return Ok(Outcome::Done);
    }
    Err(Failure::error(format!("not as it must be: {} ({file})", verdict.problems.join("; "))))
}

/// Runs a worker of the demo: the hidden command `demo-worker`.
pub(crate) async fn run_worker(global: &Global) -> Result<Outcome, Failure> {
    let Some(file) = &global.config else {
        return Err(Failure::usage("demo-worker is started by `sekali demo`, with --config"));
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::error(format!("cannot read {}: {error}", file.display())))?;
    // Without the environment, which may be about a real cluster.
    let config = Config::from_toml(&text)?;
    log::init(&config.log)?;
    let handler = Troubled(Stock::new(StockMode::Batch));
    Consumer::connect(config, handler).await?.run(shutdown_signal()).await?;
    Ok(Outcome::Done)
}

async fn play(args: &DemoArgs, plan: &Plan, narration: &Narration) -> Result<(Stage, Worker, Verdict), Failure> {
    let started = Instant::now();
    narration.say(format_args!(
        "{} records about the stock of {SKUS} SKUs, two workers, and one of the workers will be killed.",
        grouped(plan.order.len())
    ));
    let stage = Stage::build().await?;
    narration.say(format_args!(
        "Kafka is librdkafka's mock cluster, inside this process, at {}. PostgreSQL {} is a private server at \
         127.0.0.1:{}. Both go away afterwards.",
        stage.brokers(),
        stage.database_version().await?,
        stage.postgres.port()
    ));
    if args.break_inbox {
        stage.break_inbox().await?;
        narration.say("The inbox is broken on purpose: it forgets what it has processed. The verdict must notice.");
    }
    let mut workers = [Worker::start(1, &stage)?, Worker::start(2, &stage)?];
    watch::wait_for_partitions(&mut workers).await?;
    let [victim, survivor] = workers;
    narration.say(format_args!(
        "Workers 1 (process {}) and 2 (process {}) share the {PARTITIONS} partitions of topic {TOPIC}.",
        victim.pid(),
        survivor.pid()
    ));
    say_plan(narration, plan);

    let published = Published::default();
    let mut watch = Watch::new(&stage, plan, narration, &published, victim, survivor);
    let (places, settled) = tokio::try_join!(publish(&stage, plan, &published), watch.run())?;
    let found = Found::read(&stage).await?;
    let course = Course {
        produced: published.acknowledged(),
        workers_killed: watch.killed(),
        redelivered: watch.redelivered(),
        takeover_seconds: watch.takeover_seconds(),
        seconds: started.elapsed().as_secs_f64(),
        settled,
    };
    let survivor = watch.survivor();
    let verdict = Verdict::new(plan, &places, &found, &course);
    Ok((stage, survivor, verdict))
}

fn say_plan(narration: &Narration, plan: &Plan) {
    narration.say(format_args!(
        "Publishing. {} records come twice, at once or much later. {} events fail twice and then succeed, {} fail \
         every time, {} cannot be read.",
        grouped(plan.duplicates()),
        grouped(plan.count(|it| it == Kind::FailsTwice)),
        grouped(plan.count(|it| it == Kind::AlwaysFails)),
        grouped(plan.count(|it| matches!(it, Kind::WithoutKey | Kind::CutShort)))
    ));
}

fn say_where(narration: &Narration, stage: &Stage, survivor: &Worker) {
    let config = survivor.config_file();
    narration.say(format_args!(
        "Still running, until Ctrl-C:\n  Kafka       {}\n  PostgreSQL  psql {}\n  \
         worker {}    http://{}/metrics, log in {}\n  to look     sekali --config {} lag",
        stage.brokers(),
        stage.database_url(),
        survivor.number,
        survivor.admin,
        survivor.log_file().display(),
        config.display()
    ));
}
