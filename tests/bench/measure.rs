//! What processes and the database say about their own cost.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio_postgres::Client;

/// `USER_HZ`: the kernel counts CPU time for user space in hundredths of a second on every architecture Rust knows.
const TICK: Duration = Duration::from_millis(10);

/// Counters of the database server at one moment.
pub(crate) struct Usage {
    pub(crate) postgres_cpu: Duration,
    pub(crate) wal_bytes: i64,
    /// Committed in the present database.
    pub(crate) transactions: i64,
}

impl Usage {
    pub(crate) async fn now(client: &Client, postmaster: u32) -> Result<Usage, anyhow::Error> {
        let sql = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
        let wal_bytes = client.query_one(sql, &[]).await?.get(0);
        Ok(Usage { postgres_cpu: server_cpu(postmaster)?, wal_bytes, transactions: transactions(client).await? })
    }
}

/// Committed transactions of the present database, those of ended sessions included.
pub(crate) async fn transactions(client: &Client) -> Result<i64, anyhow::Error> {
    client.batch_execute("SELECT pg_stat_force_next_flush()").await?;
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// The time that the ledger took to fill, and in how many transactions.
pub(crate) struct Drain {
    pub(crate) seconds: f64,
    pub(crate) transactions: i64,
}

/// From the begin of the first transaction (`now()` in it) to the commit of the last one.
pub(crate) async fn drain(client: &Client) -> Result<Drain, anyhow::Error> {
    let sql = "SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xid)) - min(begun))::float8, count(*) \
               FROM (SELECT xmin AS xid, min(recorded_at) AS begun FROM public.stock_movement GROUP BY xmin) AS it";
    let row = client.query_one(sql, &[]).await?;
    let seconds: f64 = row.get(0);
    ensure!(0.0 < seconds, "the drain took no time");
    Ok(Drain { seconds, transactions: row.get(1) })
}

/// User and system time of a process since its start.
pub(crate) fn cpu(pid: i32) -> Result<Duration, anyhow::Error> {
    let stat = Stat::of(&pid.to_string()).context("the process has ended")?;
    Ok(stat.own)
}

/// CPU time of a postmaster, its present children and its ended ones.
fn server_cpu(postmaster: u32) -> Result<Duration, anyhow::Error> {
    let stat = Stat::of(&postmaster.to_string()).context("the database server has ended")?;
    let mut total = stat.own + stat.ended_children;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let child = entry.file_name().to_str().and_then(Stat::of);
        if let Some(child) = child.filter(|it| it.parent == postmaster) {
            total += child.own;
        }
    }
    Ok(total)
}

/// Largest resident set of a process so far.
pub(crate) fn peak_rss_mb(pid: i32) -> Result<f64, anyhow::Error> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).context("no VmHWM in the process's status")?;
    let kb: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb / 1024.0)
}

/// The product's own counter.
pub(crate) async fn offset_commits(admin_port: u16) -> Result<u64, anyhow::Error> {
    let url = format!("http://127.0.0.1:{admin_port}/metrics");
    let text = tokio::task::spawn_blocking(move || ureq::get(&url).call()?.body_mut().read_to_string()).await??;
    let is_wanted = |it: &&str| it.starts_with("sekali_offset_commits_total{") && it.contains("result=\"ok\"");
    let line = text.lines().find(is_wanted).context("no sekali_offset_commits_total among the metrics")?;
    let value = line.rsplit(' ').next().unwrap_or_default();
    value.parse().with_context(|| format!("offset commits: {value}"))
}

struct Stat {
    parent: u32,
    own: Duration,
    ended_children: Duration,
}

impl Stat {
    fn of(pid: &str) -> Option<Stat> {
        pid.parse::<u32>().ok()?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold spaces.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        // proc(5): field 3 is the first one here.
        let field = |number: usize| fields.get(number - 3)?.parse::<u32>().ok();
        let ticks = |number: usize| Some(TICK * (field(number)? + field(number + 1)?));
        Some(Stat { parent: field(4)?, own: ticks(14)?, ended_children: ticks(16)? })
    }
}
