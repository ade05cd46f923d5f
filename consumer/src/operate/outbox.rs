//! How the outbox stands.

use deadpool_postgres::Pool;
use jiff::Timestamp;
use sekali_producer::{Error, ErrorKind};
use serde::Serialize;
use uuid::Uuid;

use super::rows;
use crate::admin;

/// Records that are counted, at most.
pub const PENDING_MAX: i64 = 100_000;

/// The outbox of a database and its relay.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outbox {
    /// Records that wait to be published, up to [`PENDING_MAX`].
    pub pending: i64,
    /// How long the oldest of them has waited, in seconds.
    pub oldest_seconds: f64,
    /// Records that wait for their time.
    pub delayed: i64,
    /// When the first of those is due.
    pub next_due_at: Option<Timestamp>,
    /// Who publishes; none when nobody does.
    pub leader: Option<Leader>,
    /// How far it is.
    pub cursor: Cursor,
    /// How long the oldest open transaction of the database has lasted, in seconds: vacuum waits for it.
    pub horizon_seconds: f64,
    /// Size of the table with its index.
    pub bytes: i64,
    /// Rows that vacuum has still to remove, as the server's statistics say.
    pub dead_rows: i64,
    /// Records that Kafka refused for good: open dead letters of consumer `outbox`.
    pub refused: i64,
}

/// The process that publishes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Leader {
    /// Its token.
    pub owner: Uuid,
    /// Number of its lease.
    pub fence: i64,
    /// Since when it leads.
    pub since: Timestamp,
    /// Until its lease runs out, unless it is prolonged, in seconds.
    pub left_seconds: f64,
}

/// How far the relay is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cursor {
    /// Everything that this snapshot sees is on Kafka.
    pub published: String,
    /// End of the window in hand.
    pub window_end: Option<String>,
    /// The last row of that window that Kafka acknowledged.
    pub window_position: i64,
    /// When it last moved.
    pub moved_at: Timestamp,
}

const SQL: &str = "SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8, \
       (SELECT count(*) FROM sekali.outbox_later), (SELECT min(due_at) FROM sekali.outbox_later), \
       (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(since)), 0)::float8 FROM ( \
          SELECT xact_start FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
             AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) \
          UNION ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) AS open (since)), \
       pg_total_relation_size('sekali.outbox'), \
       coalesce((SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = 'sekali.outbox'::regclass), 0), \
       (SELECT count(*) FROM sekali.dead_letter JOIN sekali.consumer ON consumer.id = consumer_id \
          WHERE consumer.name = 'outbox' AND state = 'open') FROM ( \
       SELECT created_at FROM sekali.outbox, sekali.outbox_cursor \
       WHERE NOT pg_visible_in_snapshot(xid, published) \
         AND NOT (window_end IS NOT NULL AND id <= window_position AND pg_visible_in_snapshot(xid, window_end)) \
       ORDER BY id LIMIT 100000) waiting";
const CURSOR: &str = "SELECT published::text, window_end::text, window_position, moved_at FROM sekali.outbox_cursor";
const LEADER: &str = "SELECT owner, fence, acquired_at, extract(epoch FROM until - now())::float8 FROM sekali.lock \
     WHERE name = 'relay' AND now() <= until";

/// Reads how the outbox stands. Changes nothing.
///
/// # Errors
/// PostgreSQL does not answer, or the cursor's row was deleted.
pub async fn status(pool: &Pool) -> Result<Outbox, Error> {
    let client = admin::connect(pool).await?;
    let doing = "read the outbox";
    let counts = rows::query(&client, doing, SQL, &[]).await?;
    let cursor = rows::query(&client, doing, CURSOR, &[]).await?;
    let leader = rows::query(&client, doing, LEADER, &[]).await?;
    let ([counts], [cursor]) = (&counts[..], &cursor[..]) else {
        let doing = "find the row of sekali.outbox_cursor: was it deleted by hand?";
        return Err(Error::new(ErrorKind::Migration, doing));
    };
    // A clock that was set back must not show a negative age.
    let seconds = |column: usize| counts.get::<_, f64>(column).max(0.0);
    Ok(Outbox {
        pending: counts.get(0),
        oldest_seconds: seconds(1),
        delayed: counts.get(2),
        next_due_at: counts.get(3),
        horizon_seconds: seconds(4),
        bytes: counts.get(5),
        dead_rows: counts.get(6),
        refused: counts.get(7),
        leader: leader.first().map(|it| Leader {
            owner: it.get(0),
            fence: it.get(1),
            since: it.get(2),
            left_seconds: it.get(3),
        }),
        cursor: Cursor {
            published: cursor.get(0),
            window_end: cursor.get(1),
            window_position: cursor.get(2),
            moved_at: cursor.get(3),
        },
    })
}
