//! One run: a fresh database, a fresh group, a fresh process.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::ensure;
use sekali_consumer::admin::lag;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_postgres::Client;

use crate::child::{Child, Settings};
use crate::load::Load;
use crate::machine::{self, Moment};
use crate::offsets;
use crate::oracle;
use crate::postgres::{self, Latency, Usage};
use crate::process::Process;
use crate::program::Program;
use crate::stage::{Scratch, Stage};

/// No drain takes this long.
pub const LIMIT: Duration = Duration::from_secs(300);
const END_LIMIT: Duration = Duration::from_secs(60);
/// Cores that others may use during a run. Beyond, it says more about them.
const OTHERS_MAX: f64 = 0.15;
/// How often a disturbed run is repeated.
const REPEATS_MAX: usize = 2;

/// What one run cost. What is unknown on a user's servers is `None`.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// From the begin of the first transaction to the commit of the last one.
    pub seconds: f64,
    /// Records a second, copies included.
    pub events_per_second: f64,
    /// Of the program, from its start.
    pub own_cpu_us_per_event: f64,
    /// Of the database server.
    pub postgres_cpu_us_per_event: Option<f64>,
    /// Of the broker.
    pub broker_cpu_us_per_event: Option<f64>,
    /// Written to PostgreSQL's log.
    pub wal_bytes_per_event: f64,
    /// Of the transactions that wrote events.
    pub transactions_per_event: f64,
    /// Of all transactions in the database, its housekeeping included.
    pub all_transactions: i64,
    /// Waits for the disk.
    pub fsyncs_per_event: Option<f64>,
    /// Waits for an answer of PostgreSQL, from a run that counted them.
    pub round_trips_per_event: Option<f64>,
    /// Requests that wrote offsets.
    pub offset_commits: Option<usize>,
    /// The same a second.
    pub offset_commits_per_second: Option<f64>,
    /// Transactions that PostgreSQL ended because they waited for each other.
    pub deadlocks: i64,
    /// Largest resident memory.
    pub rss_mb: f64,
    /// Cores that somebody else used meanwhile.
    pub others_cores: Option<f64>,
    /// From sending to commit, where the workload has it.
    pub latency: Option<Latency>,
    /// What the oracle found wrong.
    pub wrong: Option<String>,
}

impl Measured {
    /// So many records in so much time, of which nothing else is known.
    pub fn rate(records: usize, seconds: f64) -> Measured {
        Measured {
            seconds,
            events_per_second: records as f64 / seconds,
            own_cpu_us_per_event: f64::NAN,
            postgres_cpu_us_per_event: None,
            broker_cpu_us_per_event: None,
            wal_bytes_per_event: f64::NAN,
            transactions_per_event: f64::NAN,
            all_transactions: 0,
            fsyncs_per_event: None,
            round_trips_per_event: None,
            offset_commits: None,
            offset_commits_per_second: None,
            deadlocks: 0,
            rss_mb: f64::NAN,
            others_cores: None,
            latency: None,
            wrong: None,
        }
    }
}

/// What to run.
#[derive(Clone)]
pub struct Run<'a> {
    /// The program.
    pub program: Program,
    /// What it reads.
    pub load: &'a Load,
    /// Where that lies.
    pub topic: &'a str,
    /// Partitions of the topic.
    pub partitions: NonZeroU16,
    /// Settings of the product.
    pub settings: Settings,
    /// Port on 127.0.0.1 that leads to the database server, for one that counts what passes.
    pub through: Option<u16>,
}

impl<'a> Run<'a> {
    /// A program with its defaults.
    pub fn new(program: Program, load: &'a Load, topic: &'a str, partitions: NonZeroU16) -> Run<'a> {
        let settings = Settings { with_faults: load.has_faults(), ..Settings::default() };
        Run { program, load, topic, partitions, settings, through: None }
    }

    /// Runs on a database of its own until nobody disturbed it, at most three times. Also: how often it was disturbed.
    ///
    /// # Errors
    /// The program fails, or does not drain the topic.
    pub async fn quietly(&self, stage: &Stage) -> Result<(Measured, usize), anyhow::Error> {
        for disturbed in 0.. {
            let measured = self.once(stage).await?;
            let is_quiet = measured.others_cores.is_none_or(|it| it <= OTHERS_MAX);
            if is_quiet || disturbed == REPEATS_MAX {
                return Ok((measured, disturbed + usize::from(!is_quiet)));
            }
        }
        unreachable!("the loop returns")
    }

    /// Runs once on a database of its own.
    ///
    /// # Errors
    /// The program fails, or does not drain the topic.
    pub async fn once(&self, stage: &Stage) -> Result<Measured, anyhow::Error> {
        let scratch = stage.scratch().await?;
        let measured = self.on(stage, &scratch).await;
        scratch.remove(stage).await?;
        measured
    }

    /// Runs once on a database that is there.
    ///
    /// # Errors
    /// The program fails, or does not drain the topic.
    pub async fn on(&self, stage: &Stage, scratch: &Scratch) -> Result<Measured, anyhow::Error> {
        let child = self.child(stage, scratch)?;
        let measured = self.on_as(stage, scratch, &child).await;
        stage.forget(&child).await?;
        measured
    }

    /// The program as a process, with a group of its own.
    ///
    /// # Errors
    /// No port is free for its metrics.
    pub fn child(&self, stage: &Stage, scratch: &Scratch) -> Result<Child, anyhow::Error> {
        let mut child = stage.child(self.program, scratch, self.topic, self.partitions)?;
        (child.settings, child.through) = (self.settings.clone(), self.through);
        Ok(child)
    }

    /// Runs a child that [`Run::child`] made. Its group and topics stay.
    ///
    /// # Errors
    /// The program fails, or does not drain the topic.
    pub async fn on_as(&self, stage: &Stage, scratch: &Scratch, child: &Child) -> Result<Measured, anyhow::Error> {
        stage.apply_topics(child).await?;
        if stage.own.is_some() {
            scratch.client.batch_execute("CHECKPOINT").await?;
        }
        self.measure(stage, scratch, child).await
    }

    async fn measure(&self, stage: &Stage, scratch: &Scratch, child: &Child) -> Result<Measured, anyhow::Error> {
        let client = &scratch.client;
        let (before, usage) = (Costs::now(stage, None)?, Usage::now(client).await?);
        let mut process = child.spawn()?;
        let looks = wait_until_drained(client, &mut process, self.load.expected()).await?;
        let after = Costs::now(stage, Some(process.pid()))?;
        let rss_mb = machine::peak_rss_mb(process.pid())?;
        // Commits follow within a second or so. Those of the end of the program are not counted.
        wait_until_committed(child, &mut process).await?;
        let offset_commits = match stage.own {
            Some(_) => {
                let (kafka, group) = (stage.config.kafka.clone(), child.group.clone());
                Some(tokio::task::spawn_blocking(move || offsets::of_group(&kafka, &group)).await??)
            }
            None => None,
        };
        process.sigterm(END_LIMIT).await?;
        let wrong = oracle::check(client, self.load).await?;

        let records = self.load.len() as f64;
        let drain = postgres::drain(client, "true").await?;
        let ended = Usage::now(client).await?;
        let us = |it: Duration| it.as_secs_f64() * 1e6 / records;
        let fsyncs = ended.fsyncs.zip(usage.fsyncs).map(|(ended, begun)| (ended - begun) as f64 / records);
        Ok(Measured {
            seconds: drain.seconds,
            events_per_second: records / drain.seconds,
            own_cpu_us_per_event: us(after.program),
            postgres_cpu_us_per_event: after.postgres_since(&before).map(us),
            broker_cpu_us_per_event: after.broker_since(&before).map(us),
            wal_bytes_per_event: (ended.wal_bytes - usage.wal_bytes) as f64 / records,
            transactions_per_event: drain.transactions as f64 / records,
            all_transactions: ended.transactions - usage.transactions - looks,
            fsyncs_per_event: fsyncs.filter(|_| stage.own.is_some()),
            round_trips_per_event: None,
            offset_commits: offset_commits.map(|it| it.count),
            offset_commits_per_second: offset_commits.map(|it| it.per_second),
            deadlocks: ended.deadlocks - usage.deadlocks,
            rss_mb,
            others_cores: stage.own.map(|_| after.others_since(&before)),
            latency: None,
            wrong,
        })
    }
}

/// CPU time so far.
struct Costs {
    program: Duration,
    postgres: Option<Duration>,
    broker: Option<Duration>,
    moment: Moment,
}

impl Costs {
    fn now(stage: &Stage, program: Option<i32>) -> Result<Costs, anyhow::Error> {
        let postgres = stage.own.map(|it| machine::family_cpu(it.postmaster)).transpose()?;
        let broker = stage.own.map(|it| machine::cpu(it.broker)).transpose()?;
        let program = program.map_or(Ok(Duration::ZERO), |it| machine::cpu(it.unsigned_abs()))?;
        Ok(Costs { program, postgres, broker, moment: Moment::now()? })
    }

    fn postgres_since(&self, before: &Costs) -> Option<Duration> {
        Some(self.postgres?.saturating_sub(before.postgres?))
    }

    fn broker_since(&self, before: &Costs) -> Option<Duration> {
        Some(self.broker?.saturating_sub(before.broker?))
    }

    fn others_since(&self, before: &Costs) -> f64 {
        let servers = [self.postgres_since(before), self.broker_since(before)].into_iter().flatten();
        self.moment.others_since(&before.moment, self.program + servers.sum::<Duration>())
    }
}

/// Looks at the quantities from outside, ten times a second. Returns how many times.
///
/// # Errors
/// The program ends, or takes longer than [`LIMIT`].
pub async fn wait_until_drained(
    client: &Client,
    process: &mut Process,
    (events, dead): (usize, usize),
) -> Result<i64, anyhow::Error> {
    // A row a SKU, whose version counts the movements: cheap next to counting the ledger.
    let statement = client.prepare("SELECT coalesce(sum(version), 0)::bigint FROM public.stock").await?;
    let begin = Instant::now();
    let mut beat = interval(Duration::from_millis(100));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = 0;
    loop {
        beat.tick().await;
        looks += 1;
        let applied: i64 = client.query_one(&statement, &[]).await?.get(0);
        if events as i64 <= applied {
            looks += 1;
            let found: i64 = client.query_one("SELECT count(*) FROM sekali.dead_letter", &[]).await?.get(0);
            if dead as i64 <= found {
                return Ok(looks);
            }
        }
        process.require_running()?;
        ensure!(begin.elapsed() < LIMIT, "only {applied} events after {LIMIT:?}: {}", process.last_words());
    }
}

/// Waits until the group has committed the end of every partition.
///
/// # Errors
/// The program ends, or does not within a minute.
pub async fn wait_until_committed(child: &Child, process: &mut Process) -> Result<(), anyhow::Error> {
    let (config, begin) = (child.config()?, Instant::now());
    loop {
        // A topic that was made a moment ago may have no leader yet: any error may pass within the limit.
        let behind = match lag(&config).await {
            Ok(lag) => lag.iter().filter(|it| !it.delayed).map(|it| it.lag).sum::<i64>().to_string(),
            Err(error) => error.chain(),
        };
        if behind == "0" {
            return Ok(());
        }
        process.require_running()?;
        ensure!(begin.elapsed() < END_LIMIT, "records are not committed: {behind}; {}", process.last_words());
        sleep(Duration::from_millis(100)).await;
    }
}
