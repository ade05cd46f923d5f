//! What waits in the database, in a line.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{DeadLetters, answered};
use crate::Error;

/// Failed attempts that are looked at for retries: the newest. It bounds what a look costs.
const ATTEMPTS_MAX: i64 = 10_000;

/// What waits, of all consumers of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiting {
    /// Retries that should have run by now, among the newest 10,000 failed attempts.
    pub retries_overdue: u64,
    /// The moment at which the longest of these was decided.
    pub retry_since: Option<Timestamp>,
    /// Keys that wait behind a failed message.
    pub held_keys: u64,
    /// Messages that wait there.
    pub held_messages: u64,
    /// Since when the first of these keys waits.
    pub held_since: Option<Timestamp>,
    /// When the oldest record was enqueued that is not published.
    pub outbox_since: Option<Timestamp>,
    /// The database's clock.
    pub now: Timestamp,
}

/// A retry is overdue that was decided longer ago than `$1` milliseconds: the longest delay, and some more.
const SQL: &str = "WITH retry AS (SELECT DISTINCT row.consumer_id, row.key, row.decided_at \
     FROM (SELECT consumer_id, key FROM sekali.attempt ORDER BY id DESC LIMIT $2) AS attempt \
     JOIN sekali.inbox AS row USING (consumer_id, key) \
     WHERE row.state = 2 AND row.decided_at < now() - $1 * interval '1 ms') \
     SELECT (SELECT count(*) FROM retry), (SELECT min(decided_at) FROM retry), \
     (SELECT count(*) FROM sekali.held_key), (SELECT count(*) FROM sekali.held_message), \
     (SELECT min(since) FROM sekali.held_key), \
     (SELECT created_at FROM sekali.outbox, sekali.outbox_cursor WHERE NOT pg_visible_in_snapshot(xid, published) \
     AND (window_end IS NULL OR window_position < id OR NOT pg_visible_in_snapshot(xid, window_end)) \
     ORDER BY id LIMIT 1), now()";

impl DeadLetters {
    /// What waits. `retry_path` is how long after its decision a retry runs at the latest.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn waiting(&self, retry_path: Duration) -> Result<Waiting, Error> {
        let client = self.client().await?;
        let after_ms = retry_path.as_secs_f64() * 1000.0;
        let row = answered("see what waits", client.query_one(SQL, &[&after_ms, &ATTEMPTS_MAX])).await?;
        let count = |at: usize| row.get::<_, i64>(at).unsigned_abs();
        Ok(Waiting {
            retries_overdue: count(0),
            retry_since: row.get(1),
            held_keys: count(2),
            held_messages: count(3),
            held_since: row.get(4),
            outbox_since: row.get(5),
            now: row.get(6),
        })
    }
}
