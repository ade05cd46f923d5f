//! What processes and the database say about their own cost.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use sekali_tests::harness::Kafka;
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
    status_mb(pid, "VmHWM:")
}

/// Resident memory now.
pub(crate) fn rss_mb(pid: i32) -> Result<f64, anyhow::Error> {
    status_mb(pid, "VmRSS:")
}

fn status_mb(pid: i32, name: &str) -> Result<f64, anyhow::Error> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|it| it.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} in the process's status"))?;
    let kb: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb / 1024.0)
}

/// Offset commits of one run.
pub(crate) struct OffsetCommits {
    pub(crate) count: usize,
    pub(crate) per_second: f64,
}

/// Offset commits of a group, counted where they end up: in the broker's own topic. A client's counter says what the
/// client was told, which for asynchronous commits may be nothing at all.
pub(crate) async fn offset_commits(kafka: &Kafka, group: &str) -> OffsetCommits {
    let records = kafka.read_all("__consumer_offsets").await;
    let of_group = records.iter().filter(|it| it.key.as_deref().is_some_and(|key| is_commit_of(key, group)));
    // One request writes a record for each of its partitions, all at one moment.
    let moments: BTreeSet<i64> = of_group.filter_map(|it| it.timestamp_ms).collect();
    let span_ms = moments.last().zip(moments.first()).map_or(0, |(last, first)| last - first);
    let per_second = match moments.len() {
        few @ (0 | 1) => few as f64,
        many => (many - 1) as f64 * 1000.0 / span_ms as f64,
    };
    OffsetCommits { count: moments.len(), per_second }
}

/// `OffsetCommitKey`: version 0 or 1, then the group as a text with a length of two bytes.
fn is_commit_of(key: &[u8], group: &str) -> bool {
    let Some((head, rest)) = key.split_at_checked(4) else { return false };
    let (version, length) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
    version <= 1 && usize::from(length) == group.len() && rest.starts_with(group.as_bytes())
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
