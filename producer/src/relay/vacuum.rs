//! Gives the space of published rows back in time.
//!
//! Autovacuum looks once a minute. A relay that publishes 50,000 rows a second has left three million dead ones by then,
//! and every statement that reads the outbox in id order begins by walking over them. So the leader vacuums itself, as
//! often as its own deletions call for it; while it publishes little, it leaves that to autovacuum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::{Object, Pool};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::lease::{connect, failed};
use crate::Error;

/// Fewer dead rows are not worth a statement.
const DEAD_ROWS_MIN: u64 = 50_000;
/// And in a large table fewer than one in so many: each vacuum reads all of the index.
const LIVE_PER_DEAD_MAX: u64 = 10;
/// The rest after a vacuum, so many times as long as it took: one that an open transaction makes useless must not run
/// all the time.
const REST: u32 = 4;
const REST_MIN: Duration = Duration::from_millis(500);

/// What the leader has deleted since the outbox was vacuumed last.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    rows: AtomicU64,
    many: Notify,
}

impl Deleted {
    pub(super) fn add(&self, rows: usize) {
        let before = self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        if DEAD_ROWS_MIN <= before + rows as u64 {
            self.many.notify_one();
        }
    }
}

/// Vacuums when it is worth it for as long as this process leads. Costs nothing while nothing is published.
pub(super) async fn keep_small(pool: &Pool, deleted: &Deleted) {
    loop {
        deleted.many.notified().await;
        let began = Instant::now();
        match vacuum(pool, deleted).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(
                    "the relay's role does not own sekali.outbox and leaves it to autovacuum; after bursts the table stays \
                     larger for longer"
                );
                return std::future::pending().await;
            }
            Err(error) => tracing::warn!(error = %error.chain(), "the outbox waits for autovacuum"),
        }
        sleep((began.elapsed() * REST).max(REST_MIN)).await;
    }
}

/// Vacuums if enough was deleted. Whether the role may.
async fn vacuum(pool: &Pool, deleted: &Deleted) -> Result<bool, Error> {
    const TABLE: &str = "SELECT pg_has_role(relowner, 'USAGE'), greatest(pg_stat_get_live_tuples(oid), 0) \
                         FROM pg_class WHERE oid = 'sekali.outbox'::regclass";
    // Cutting off the end of the file locks writers out for a moment, and the next burst needs it again: autovacuum may.
    const VACUUM: &str = "VACUUM (TRUNCATE false, SKIP_LOCKED true) sekali.outbox";
    let not_vacuumed = |error| failed("vacuum the outbox", &error);
    let client = connect(pool).await?;
    let rows = client.query_typed(TABLE, &[]).await.map_err(not_vacuumed)?;
    let Some((true, live)) = rows.first().map(|row| (row.get(0), row.get::<_, i64>(1))) else {
        return Ok(false);
    };
    let dead = deleted.rows.load(Ordering::Relaxed);
    if dead < live.unsigned_abs() / LIVE_PER_DEAD_MAX {
        return Ok(true);
    }
    // Out of the pool: when the term ends in the middle, nobody else must wait for this connection.
    let client = Object::take(client);
    client.batch_execute(VACUUM).await.map_err(not_vacuumed)?;
    deleted.rows.fetch_sub(dead, Ordering::Relaxed);
    Ok(true)
}
