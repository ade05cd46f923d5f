//! One run: a fresh database, a fresh group, a fresh process.

use std::time::Duration;

use anyhow::{Context, ensure};
use sekali::private_postgres::free_port;
use sekali_consumer::admin::topics;
use sekali_tests::harness::{Process, TestDatabase, eventually, unique};
use sekali_worker::stock::create_tables;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_postgres::Client;

use crate::child::{Child, Program};
use crate::load::Load;
use crate::measure::{self, Usage};
use crate::oracle;
use crate::servers::Servers;

/// No drain takes this long.
const LIMIT: Duration = Duration::from_secs(300);
const END_LIMIT: Duration = Duration::from_secs(60);

/// What one run cost.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) events_per_second: f64,
    pub(crate) cpu_us_per_event: f64,
    pub(crate) postgres_cpu_us_per_event: f64,
    pub(crate) wal_bytes_per_event: f64,
    /// Of the transactions that wrote events.
    pub(crate) transactions_per_event: f64,
    /// Of all transactions in the database, its housekeeping included.
    pub(crate) all_transactions: i64,
    pub(crate) offset_commits: usize,
    pub(crate) offset_commits_per_second: f64,
    pub(crate) rss_mb: f64,
    /// What the oracle found wrong.
    pub(crate) wrong: Option<String>,
}

pub(crate) async fn run(
    program: Program,
    servers: &Servers,
    load: &Load,
    topic: &str,
) -> Result<Measured, anyhow::Error> {
    let database = TestDatabase::create_on(&servers.postgres()).await;
    let client = database.connect().await;
    create_tables(&client).await?;
    let child = Child {
        program,
        brokers: servers.kafka().bootstrap().to_owned(),
        postgres: database.url(),
        topic: topic.to_owned(),
        group: unique("bench"),
        admin_port: free_port()?,
    };
    if program == Program::Product {
        topics::apply(&child.config()?).await?;
    }
    client.batch_execute("CHECKPOINT").await?;
    let postmaster = servers.postmaster().context("the database server has ended")?;
    let before = Usage::now(&client, postmaster).await?;
    let mut process = child.spawn()?;
    let looks = wait_until_drained(&client, &mut process, load.expected()).await?;
    let after = Usage::now(&client, postmaster).await?;
    let (cpu, rss_mb) = (measure::cpu(process.pid())?, measure::peak_rss_mb(process.pid())?);
    // Commits follow within a second or so. Those of the end of the program are not counted.
    let lag = async || servers.kafka().lag(&child.group, topic).await;
    eventually("every offset is committed", END_LIMIT, async || match lag().await {
        0 => Ok(()),
        lag => Err(format!("lag {lag}")),
    })
    .await;
    let offset_commits = measure::offset_commits(servers.kafka(), &child.group).await;
    process.sigterm();
    let status = process.wait(END_LIMIT).await;
    ensure!(status.success(), "{} ended with {status}: {}", program.name(), process.stderr());
    let wrong = oracle::check(&client, load).await?;

    let events = load.events().len() as f64;
    let drain = measure::drain(&client).await?;
    let us_per_event = |it: Duration| it.as_secs_f64() * 1e6 / events;
    let measured = Measured {
        seconds: drain.seconds,
        events_per_second: events / drain.seconds,
        cpu_us_per_event: us_per_event(cpu),
        postgres_cpu_us_per_event: us_per_event(after.postgres_cpu.saturating_sub(before.postgres_cpu)),
        wal_bytes_per_event: (after.wal_bytes - before.wal_bytes) as f64 / events,
        transactions_per_event: drain.transactions as f64 / events,
        all_transactions: measure::transactions(&client).await? - before.transactions - looks,
        offset_commits: offset_commits.count,
        offset_commits_per_second: offset_commits.per_second,
        rss_mb,
        wrong,
    };
    drop(client);
    println!(
        "{:>7}: {:>7.0} events/s, own CPU {:.1} us, PostgreSQL CPU {:.1} us an event{}",
        program.name(),
        measured.events_per_second,
        measured.cpu_us_per_event,
        measured.postgres_cpu_us_per_event,
        measured.wrong.as_deref().map(|it| format!("; WRONG: {it}")).unwrap_or_default(),
    );
    Ok(measured)
}

/// Looks at the quantities from outside, ten times a second. Returns how many times.
async fn wait_until_drained(
    client: &Client,
    process: &mut Process,
    (events, dead): (usize, usize),
) -> Result<i64, anyhow::Error> {
    // A row a SKU, whose version counts the movements: cheap next to counting the ledger.
    let statement = client.prepare("SELECT coalesce(sum(version), 0)::bigint FROM public.stock").await?;
    let begin = Instant::now();
    let mut beat = interval(Duration::from_millis(100));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for looks in 1.. {
        beat.tick().await;
        let applied: i64 = client.query_one(&statement, &[]).await?.get(0);
        if events as i64 <= applied {
            let found: i64 = client.query_one("SELECT count(*) FROM sekali.dead_letter", &[]).await?.get(0);
            if dead as i64 <= found {
                return Ok(looks);
            }
        }
        ensure!(process.is_running(), "the program ended after {applied} events: {}", process.stderr());
        ensure!(begin.elapsed() < LIMIT, "only {applied} events after {LIMIT:?}: {}", process.stderr());
    }
    Ok(0)
}
