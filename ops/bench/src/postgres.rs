//! What the database server says about its own cost.

use anyhow::{Context, ensure};
use serde::Serialize;
use tokio_postgres::Client;

/// Counters of the server at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Written to the log so far.
    pub wal_bytes: i64,
    /// Flushes of the log; unknown where the server does not count them.
    pub fsyncs: Option<i64>,
    /// Committed in the present database.
    pub transactions: i64,
    /// In the present database.
    pub deadlocks: i64,
}

impl Usage {
    /// Now, without what sessions have not reported yet: they do when they end, at the latest.
    ///
    /// # Errors
    /// The server does not tell.
    pub async fn now(client: &Client) -> Result<Usage, anyhow::Error> {
        client.batch_execute("SELECT pg_stat_force_next_flush()").await?;
        let sql = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, xact_commit, deadlocks, \
                   current_setting('server_version_num')::int \
                   FROM pg_stat_database WHERE datname = current_database()";
        let row = client.query_one(sql, &[]).await?;
        let fsyncs = match row.get::<_, i32>(3) {
            ..140_000 => None,
            140_000..180_000 => Some("SELECT wal_sync FROM pg_stat_wal"),
            _ => Some("SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"),
        };
        let fsyncs = match fsyncs {
            Some(sql) => Some(client.query_one(sql, &[]).await?.get(0)),
            None => None,
        };
        Ok(Usage { wal_bytes: row.get(0), fsyncs, transactions: row.get(1), deadlocks: row.get(2) })
    }
}

/// The time that the ledger took to fill, and in how many transactions.
#[derive(Debug, Clone, Copy)]
pub struct Drain {
    /// From the begin of the first transaction to the commit of the last one.
    pub seconds: f64,
    /// That wrote events.
    pub transactions: i64,
    /// Rows.
    pub events: i64,
}

/// From the begin of the first transaction (`now()` in it) to the commit of the last one; to its begin, where the server
/// does not keep the time of commits (`track_commit_timestamp`). `which` is a condition on the ledger's rows.
///
/// # Errors
/// The ledger is empty, or was filled by one transaction alone without that setting.
pub async fn drain(client: &Client, which: &str) -> Result<Drain, anyhow::Error> {
    let sql = "SELECT current_setting('track_commit_timestamp') = 'on'";
    let end = match client.query_one(sql, &[]).await?.get(0) {
        true => "pg_xact_commit_timestamp(xid)",
        false => "begun",
    };
    let sql = format!(
        "SELECT extract(epoch FROM max({end}) - min(begun))::float8, count(*), coalesce(sum(events), 0)::bigint \
         FROM (SELECT xmin AS xid, min(recorded_at) AS begun, count(*) AS events \
         FROM public.stock_movement WHERE {which} GROUP BY xmin) AS it"
    );
    let row = client.query_one(&sql, &[]).await?;
    let seconds: Option<f64> = row.get(0);
    let seconds = seconds.context("the ledger is empty")?;
    ensure!(0.0 < seconds, "the drain took no time: use more events");
    Ok(Drain { seconds, transactions: row.get(1), events: row.get(2) })
}

/// Delays, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Median.
    pub p50_ms: f64,
    /// 99 of 100 are shorter.
    pub p99_ms: f64,
    /// 999 of 1000 are shorter.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Latency {
    /// Of samples in any order; `None` when there are none.
    pub fn of(mut ms: Vec<f64>) -> Option<Latency> {
        ms.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| ms[((ms.len() - 1) as f64 * share).round() as usize];
        (!ms.is_empty()).then(|| Latency { p50_ms: at(0.5), p99_ms: at(0.99), p999_ms: at(0.999), max_ms: at(1.0) })
    }
}
