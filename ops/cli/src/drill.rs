//! A crash drill on a staging deployment.

mod events;
mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use sekali_consumer::config::{Config, Needs};
use sekali_consumer::deadpool_postgres::Pool;
use sekali_consumer::operate::drill::{self, Drill, Ledger};
use sekali_consumer::operate::{self, Actor};

use crate::args::{Global, Signed};
use crate::exit::{Failure, Outcome};
use crate::output;
use events::Events;
use worker::Worker;

/// What to do.
#[derive(Debug, Args)]
pub(crate) struct DrillArgs {
    /// Source topic of the staging deployment; the only one of the configuration by default.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Marked events.
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = clap::value_parser!(i32).range(10..=100_000))]
    events: i32,
    /// File with the payload of each event; {n} in it becomes the event's number, {drill} the drill's id. A small JSON
    /// document by default.
    #[arg(long, value_name = "FILE")]
    payload: Option<PathBuf>,
    /// Type of the events (ce_type).
    #[arg(long = "type", value_name = "TYPE", default_value = "sekali.drill.v1")]
    event_type: String,
    /// Command line of a worker of the group, which the drill starts, kills and starts again. Without it, the drill asks
    /// you to kill one.
    #[arg(long, value_name = "COMMAND")]
    worker_command: Option<String>,
    /// Where the worker's output goes; nowhere by default.
    #[arg(long, value_name = "FILE", requires = "worker_command")]
    worker_log: Option<PathBuf>,
    /// How often a worker is killed.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=20))]
    kills: i32,
    /// Time between two events.
    #[arg(long, default_value = "10ms", value_name = "TIME", value_parser = humantime::parse_duration)]
    pace: Duration,
    /// Longest time until all events are decided.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = humantime::parse_duration)]
    within: Duration,
    /// This is a staging deployment: its handlers get the marked events.
    #[arg(long, required = true)]
    staging: bool,
    #[command(flatten)]
    signed: Signed,
}

/// How often the ledger is looked at.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn run(global: &Global, args: DrillArgs) -> Result<Outcome, Failure> {
    let config = super::commands::load(global, Needs::Everything)?;
    let topic = topic(&config, args.topic.as_deref())?;
    let pool = operate::open(&config).await?;
    let actor = super::commands::actor(&args.signed);
    let drill = drill::begin(&pool, config.consumer_name(), &topic, args.events, &actor).await?;
    output::note(&format!("drill {}: {} events on topic {topic}", drill.id, args.events));
    let events = Events::new(&config, &drill, &topic, &args).await?;
    let mut stage = Stage { pool: &pool, drill: &drill, events: &events, kills: 0, ledger: Ledger::default() };
    let ended = stage.play(&args).await;
    let finding = match &ended {
        Ok(()) => stage.finding(),
        Err(failure) => failure.to_string(),
    };
    let Stage { kills, ledger, .. } = stage;
    record(global, &pool, &drill, (kills, ledger), &finding, &actor).await
}

async fn record(
    global: &Global,
    pool: &Pool,
    drill: &Drill,
    (kills, ledger): (i32, Ledger),
    finding: &str,
    actor: &Actor,
) -> Result<Outcome, Failure> {
    let ended = drill::end(pool, drill, kills, ledger, finding, actor).await?;
    output::show(global.output, &ended, |it| {
        let states: Vec<String> = it.ledger.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let (events, kills, states) = (it.events, it.kills, states.join(", "));
        match it.passed {
            true => {
                format!("passed: each of {events} events was decided exactly once through {kills} kills ({states})\n")
            }
            false => format!("failed: {}\n{events} events, {kills} kills: {states}\n", it.finding),
        }
    })?;
    Ok(if ended.passed { Outcome::Done } else { Outcome::Found })
}

fn topic(config: &Config, asked: Option<&str>) -> Result<String, Failure> {
    let topics = &config.consumer.topics;
    match (asked, &topics[..]) {
        (Some(topic), _) if topics.iter().any(|it| it == topic) => Ok(topic.to_owned()),
        (Some(topic), _) => {
            Err(Failure::usage(format!("the group does not read topic {topic}: {}", topics.join(", "))))
        }
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(Failure::usage(format!("name one of the topics with --topic: {}", topics.join(", ")))),
    }
}

/// A drill while it is played.
struct Stage<'a> {
    pool: &'a Pool,
    drill: &'a Drill,
    events: &'a Events,
    kills: i32,
    ledger: Ledger,
}

impl Stage<'_> {
    /// Produces, kills while that goes on, and waits until all is decided.
    async fn play(&mut self, args: &DrillArgs) -> Result<(), Failure> {
        let deadline = Instant::now() + args.within;
        let command = args.worker_command.as_deref();
        let start = || command.map(|it| Worker::start(it, args.worker_log.as_deref())).transpose();
        let mut worker = start()?;
        let producing = self.events.produce(args.pace);
        let killing = async {
            let total = u64::from(args.events.unsigned_abs());
            for kill in 1..=args.kills {
                // In the middle of what is still to come.
                self.wait_for(
                    total * u64::from(kill.unsigned_abs()) / (u64::from(args.kills.unsigned_abs()) + 1),
                    deadline,
                )
                .await?;
                match worker.take() {
                    Some(running) => running.kill().await?,
                    None => worker::ask_for_a_kill().await?,
                }
                self.kills = kill;
                output::note(&format!("killed a worker, {} of {total} events are decided", self.ledger.decided));
                worker = start()?;
            }
            self.wait_for(total, deadline).await
        };
        let (produced, decided) = tokio::join!(producing, killing);
        produced?;
        decided?;
        match worker {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    /// Waits until so many events are decided.
    async fn wait_for(&mut self, decided: u64, deadline: Instant) -> Result<(), Failure> {
        loop {
            self.ledger = drill::look(self.pool, self.drill, &self.events.keys).await?;
            if decided <= self.ledger.decided {
                return Ok(());
            }
            if deadline <= Instant::now() {
                let text = format!("only {} of {decided} events were decided in time", self.ledger.decided);
                return Err(Failure::error(text + ": does a worker run, and is the time long enough (--within)?"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn finding(&self) -> String {
        match self.ledger.twice {
            0 => String::new(),
            twice => format!("{twice} events were decided twice: look at their dead letters"),
        }
    }
}
