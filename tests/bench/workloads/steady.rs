//! Records sent at a steady rate, whatever becomes of them: a delay counts from the moment at which a record should have
//! been sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use sekali_benchmark::load::Load;
use sekali_benchmark::produce::Filler;
use sekali_benchmark::stage::Stage;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use uuid::Uuid;

/// When each record was to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Seconds since the Unix epoch.
    pub(crate) begin: f64,
    rate: f64,
    /// The first record of them.
    first: usize,
}

impl Pace {
    fn moment(&self, record: usize) -> f64 {
        self.begin + (record - self.first) as f64 / self.rate
    }
}

/// Sends the records of a load from `first` on, so many a second. Returns when they are on their way.
pub(crate) fn send(
    stage: &Stage,
    topic: &str,
    load: &Arc<Load>,
    first: usize,
    rate: f64,
    linger: Duration,
) -> Result<(Pace, JoinHandle<Result<(), anyhow::Error>>), anyhow::Error> {
    let filler = Filler::new(&stage.config.kafka, topic, linger)?;
    let load = load.clone();
    let began = Instant::now();
    let begin = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let sending = tokio::task::spawn_blocking(move || {
        for record in first..load.len() {
            let due = Duration::from_secs_f64((record - first) as f64 / rate);
            if let Some(early) = due.checked_sub(began.elapsed()) {
                std::thread::sleep(early);
            }
            filler.send(&load.record(record))?;
        }
        filler.finish()
    });
    Ok((Pace { begin, rate, first }, sending))
}

/// Sends the first records and waits until they took effect: the program is ready then.
pub(crate) async fn begin_with(
    stage: &Stage,
    topic: &str,
    load: &Load,
    count: usize,
    client: &Client,
) -> Result<(), anyhow::Error> {
    let filler = Filler::new(&stage.config.kafka, topic, Duration::ZERO)?;
    for record in 0..count {
        filler.send(&load.record(record))?;
    }
    tokio::task::spawn_blocking(|| filler.finish()).await??;
    applied(client, count).await
}

/// Waits until so many events took effect.
pub(crate) async fn applied(client: &Client, count: usize) -> Result<(), anyhow::Error> {
    let begin = Instant::now();
    loop {
        let sql = "SELECT coalesce(sum(version), 0)::bigint FROM public.stock";
        let found: i64 = client.query_one(sql, &[]).await?.get(0);
        if count as i64 <= found {
            return Ok(());
        }
        anyhow::ensure!(begin.elapsed() < sekali_benchmark::run::LIMIT, "only {found} of {count} events took effect");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An event that was sent at a pace and took effect.
pub(crate) struct Arrived {
    /// Seconds after the begin at which it was to be sent.
    pub(crate) sent: f64,
    /// Seconds after the begin at which its transaction was committed.
    pub(crate) committed: f64,
    pub(crate) partition: i32,
    /// Process id of PostgreSQL's backend, where the ledger has it.
    pub(crate) backend: Option<i32>,
}

impl Arrived {
    pub(crate) fn delay_ms(&self) -> f64 {
        (self.committed - self.sent) * 1_000.0
    }
}

/// All of them, from the ledger. `backend` is an expression.
pub(crate) async fn arrived(
    client: &Client,
    load: &Load,
    pace: Pace,
    backend: &str,
) -> Result<Vec<Arrived>, anyhow::Error> {
    let places: HashMap<Uuid, usize> = load.events().iter().enumerate().map(|it| (it.1.key, it.0)).collect();
    let sql = format!(
        "SELECT key, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8, \"partition\", {backend} \
         FROM public.stock_movement"
    );
    let mut found = Vec::new();
    for row in client.query(&sql, &[]).await? {
        let place = *places.get(&row.get::<_, Uuid>(0)).context("an event that was never produced")?;
        if pace.first <= place {
            let committed = row.get::<_, f64>(1) - pace.begin;
            let sent = pace.moment(place) - pace.begin;
            found.push(Arrived { sent, committed, partition: row.get(2), backend: row.get(3) });
        }
    }
    Ok(found)
}
