//! The statements on `sekali.outbox` and its cursor.

use std::num::NonZeroUsize;

use bytes::Bytes;
use deadpool_postgres::Pool;
use sekali_schemas::idempotency::TEXT_BYTES_MAX;
use sekali_schemas::{Header, Headers, IdempotencyKey, cause, control};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::lease::{Lease, connect, failed};
use super::page::Refused;
use crate::{Error, OutboundRecord};

type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// Memory of a page. The first record of a page is taken whatever its size.
const PAGE_BYTES_MAX: i64 = 16 << 20;

/// Holds the lease's row until the end of the transaction, in its newest version: a statement of a former leader that
/// was delayed finds another owner there, and no new leader begins while it runs.
///
/// Nobody waits for the disk: a cursor that a crash sets back costs repetitions, as a crash of the relay does, and never
/// order or a record, since everything that it had seen was logged before it.
const IF_LEADING: &str = "WITH leader AS (SELECT set_config('synchronous_commit', 'off', true) FROM sekali.lock \
                          WHERE name = 'relay' AND owner = $1 AND fence = $2 FOR SHARE) ";

/// The window in hand: what `end` sees and `start` does not.
#[derive(Debug, Clone)]
pub(super) struct Window {
    start: String,
    end: String,
    pub(super) position: i64,
}

/// What the cursor says.
#[derive(Debug)]
pub(super) enum State {
    /// A window is open.
    Open(Window),
    /// Rows wait, no window is open.
    Waiting,
    /// Nothing waits.
    Idle,
}

/// One row of the outbox.
pub(super) struct Queued {
    pub(super) id: i64,
    pub(super) record: OutboundRecord,
}

/// Rows of a window in id order.
pub(super) struct Fetched {
    pub(super) rows: Vec<Queued>,
    /// Whether the window has no more after these.
    pub(super) is_last: bool,
}

/// Reads the cursor without writing anything, so that an idle relay costs no WAL.
pub(super) async fn state(pool: &Pool) -> Result<State, Error> {
    const SQL: &str = "SELECT published::text, window_end::text, window_position, \
         window_end IS NULL AND (SELECT id FROM sekali.outbox \
             WHERE NOT pg_visible_in_snapshot(xid, published) ORDER BY id LIMIT 1) IS NOT NULL \
         FROM sekali.outbox_cursor";
    let rows = connect(pool).await?.query_typed(SQL, &[]).await.map_err(|error| failed("read its cursor", &error))?;
    let row = rows.first().ok_or_else(|| {
        Error::new(crate::ErrorKind::Migration, "find the row of sekali.outbox_cursor; was it deleted by hand?")
    })?;
    Ok(match (row.get::<_, Option<String>>(1), row.get(3)) {
        (Some(end), _) => State::Open(Window { start: row.get(0), end, position: row.get(2) }),
        (None, true) => State::Waiting,
        (None, false) => State::Idle,
    })
}

/// Opens a window up to now. `None` when another leads or a window is open.
pub(super) async fn open(pool: &Pool, lease: &Lease) -> Result<Option<Window>, Error> {
    let sql = format!(
        "{IF_LEADING} UPDATE sekali.outbox_cursor \
         SET window_end = pg_current_snapshot(), window_position = 0, moved_at = now() \
         FROM leader WHERE window_end IS NULL RETURNING published::text, window_end::text"
    );
    let params: Params<'_> = &[(lease.owner(), Type::UUID), (&lease.fence(), Type::INT8)];
    let rows = connect(pool).await?.query_typed(&sql, params).await;
    let rows = rows.map_err(|error| failed("open a window", &error))?;
    Ok(rows.first().map(|row| Window { start: row.get(0), end: row.get(1), position: 0 }))
}

/// Reads the next page of a window.
pub(super) async fn fetch(
    pool: &Pool,
    window: &Window,
    after: i64,
    messages_max: NonZeroUsize,
) -> Result<Fetched, Error> {
    const SQL: &str = "SELECT id, topic, key, payload, header_names, header_values, total FROM ( \
           SELECT page.*, sum(bytes) OVER (ORDER BY id) - bytes AS bytes_before, count(*) OVER () AS total FROM ( \
             SELECT id, topic, key, payload, header_names, header_values, \
                    coalesce(octet_length(payload), 0) + pg_column_size(header_values) AS bytes \
             FROM sekali.outbox \
             WHERE $1 < id AND pg_visible_in_snapshot(xid, $3::text::pg_snapshot) \
               AND NOT pg_visible_in_snapshot(xid, $2::text::pg_snapshot) \
             ORDER BY id LIMIT $4) page) sized \
         WHERE bytes_before < $5 ORDER BY id";
    let limit = i64::try_from(messages_max.get()).unwrap_or(i64::MAX);
    let params: Params<'_> = &[
        (&after, Type::INT8),
        (&window.start, Type::TEXT),
        (&window.end, Type::TEXT),
        (&limit, Type::INT8),
        (&PAGE_BYTES_MAX, Type::INT8),
    ];
    let rows = connect(pool).await?.query_typed(SQL, params).await;
    let rows = rows.map_err(|error| failed("read the outbox", &error))?;
    let total: i64 = rows.first().map_or(0, |row| row.get(6));
    let is_last = total < limit && rows.len() as i64 == total;
    Ok(Fetched { rows: rows.iter().map(read).collect(), is_last })
}

fn read(row: &Row) -> Queued {
    let bytes = |index| row.get::<_, Option<&[u8]>>(index).map(Bytes::copy_from_slice);
    let names: Vec<&str> = row.get(4);
    let values: Vec<Option<&[u8]>> = row.get(5);
    let headers = names.into_iter().zip(values).map(|(name, value)| Header { name, value }).collect();
    let record = OutboundRecord { topic: row.get(1), key: bytes(2), payload: bytes(3), headers };
    Queued { id: row.get(0), record }
}

/// Notes that everything of the window up to the last of `ids` is decided, deletes those rows, and buries what Kafka
/// refused, together. With `is_last` the window is done. `false`: another leads, nothing was changed.
pub(super) async fn advance(
    pool: &Pool,
    lease: &Lease,
    window: &Window,
    ids: &[i64],
    is_last: bool,
    refused: &[Refused],
) -> Result<bool, Error> {
    let to =
        if is_last { "published = window_end, window_end = NULL, window_position = 0" } else { "window_position = $3" };
    let sql = format!(
        "{IF_LEADING}, moved AS (UPDATE sekali.outbox_cursor SET {to}, moved_at = now() FROM leader \
         WHERE window_end::text = $4 AND window_position <= $3 RETURNING 1), \
         gone AS (DELETE FROM sekali.outbox USING moved WHERE id = ANY($5)) SELECT FROM moved"
    );
    let position = ids.last().copied().unwrap_or(window.position);
    let params: Params<'_> = &[
        (lease.owner(), Type::UUID),
        (&lease.fence(), Type::INT8),
        (&position, Type::INT8),
        (&window.end, Type::TEXT),
        (&ids, Type::INT8_ARRAY),
    ];
    let not_moved = |error| failed("move its cursor", &error);
    let mut client = connect(pool).await?;
    if refused.is_empty() {
        return Ok(client.query_typed(&sql, params).await.map_err(not_moved)?.len() == 1);
    }
    let tx = client.transaction().await.map_err(not_moved)?;
    // Before their rows go. Whoever does not lead commits nothing of it.
    bury(&*tx, refused).await.map_err(|error| failed("write a dead letter", &error))?;
    let moved = tx.query_typed(&sql, params).await.map_err(not_moved)?.len() == 1;
    if moved {
        tx.commit().await.map_err(not_moved)?;
    }
    Ok(moved)
}

/// Moves refused records to `sekali.dead_letter`, with their bodies, under the consumer name `outbox`.
async fn bury(tx: &(impl GenericClient + Sync), refused: &[Refused]) -> Result<(), tokio_postgres::Error> {
    // Not ON CONFLICT alone: every attempt would use up a number, and there are 32767.
    const CONSUMER: &str = "INSERT INTO sekali.consumer (name) SELECT 'outbox' \
         WHERE NOT EXISTS (SELECT FROM sekali.consumer WHERE name = 'outbox') ON CONFLICT DO NOTHING";
    const BURY: &str = "INSERT INTO sekali.dead_letter (id, consumer_id, key, key_text, reason, class, code, message, \
             attempts, origin_topic, origin_partition, origin_offset, origin_timestamp, resource_key, payload, \
             header_names, header_values, group_fingerprint, first_failed_at, cause) \
         SELECT $2, consumer.id, $3, $4, 'unpublishable', 'permanent', $5, $6, \
             1, topic, -1, outbox.id, created_at, outbox.key, payload, header_names, header_values, $7, now(), $8 \
         FROM sekali.outbox, sekali.consumer WHERE outbox.id = $1 AND consumer.name = 'outbox'";
    tx.execute_typed(CONSUMER, &[]).await?;
    for it in refused {
        let key = identity(it.id, &it.headers);
        let code = control::clean(&it.code, control::ERROR_CODE_BYTES_MAX);
        let message = control::clean(&it.message, control::ERROR_MESSAGE_BYTES_MAX);
        let cause = cause::normalise(&message);
        let group = cause::group("unpublishable", &code, &cause);
        let params: Params<'_> = &[
            (&it.id, Type::INT8),
            (&Uuid::now_v7(), Type::UUID),
            (&key.uuid(), Type::UUID),
            (&key.as_str(), Type::TEXT),
            (&code, Type::TEXT),
            (&message, Type::TEXT),
            (&group, Type::INT8),
            (&cause, Type::TEXT),
        ];
        tx.execute_typed(BURY, params).await?;
    }
    Ok(())
}

fn identity(id: i64, headers: &Headers) -> IdempotencyKey {
    let of_headers = IdempotencyKey::from_headers(headers).ok().filter(|it| !it.as_str().contains('\0'));
    of_headers.unwrap_or_else(|| {
        let text = format!("outbox {id}");
        debug_assert!(text.len() <= TEXT_BYTES_MAX);
        IdempotencyKey::new(text).expect("a short text that is not empty is a key")
    })
}

/// Transaction numbers mean nothing in another cluster. After a restore by `pg_dump` the cursor could call rows
/// published that the future will write, and rows could wait for a number that is far away. Then everything in the
/// outbox is given new numbers and published again. Says whether that was necessary.
pub(super) async fn adopt_after_restore(pool: &Pool, lease: &Lease) -> Result<bool, Error> {
    const FOREIGN: &str = "SELECT FROM sekali.outbox_cursor, pg_snapshot_xmax(pg_current_snapshot()) AS next_xid \
         WHERE next_xid < pg_snapshot_xmax(published) OR next_xid < pg_snapshot_xmax(window_end) \
            OR next_xid <= (SELECT xid FROM sekali.outbox ORDER BY id DESC LIMIT 1) \
            OR next_xid <= (SELECT xid FROM sekali.outbox ORDER BY id LIMIT 1)";
    let not_adopted = |error| failed("check its cursor", &error);
    let mut client = connect(pool).await?;
    if client.query_typed(FOREIGN, &[]).await.map_err(not_adopted)?.is_empty() {
        return Ok(false);
    }
    let reset = format!(
        "{IF_LEADING} UPDATE sekali.outbox_cursor \
         SET published = '1:1:', window_end = NULL, window_position = 0, moved_at = now() FROM leader"
    );
    let params: Params<'_> = &[(lease.owner(), Type::UUID), (&lease.fence(), Type::INT8)];
    let tx = client.transaction().await.map_err(not_adopted)?;
    if tx.execute_typed(&reset, params).await.map_err(not_adopted)? == 1 {
        tx.execute_typed("UPDATE sekali.outbox SET xid = pg_current_xact_id()", &[]).await.map_err(not_adopted)?;
        tx.commit().await.map_err(not_adopted)?;
    }
    Ok(true)
}

/// What waits.
pub(super) struct Pending {
    pub(super) messages: i64,
    pub(super) oldest_seconds: f64,
    /// Of the oldest open transaction, as far as the role may see it.
    pub(super) horizon_seconds: f64,
    /// Of the table with its index.
    pub(super) bytes: i64,
    /// As the server's statistics say.
    pub(super) dead_rows: i64,
}

/// Counts what waits, up to 100,000 rows, and what becomes of the table.
pub(super) async fn pending(pool: &Pool) -> Result<Pending, Error> {
    const SQL: &str = "SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8, \
           (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(since)), 0)::float8 FROM ( \
              SELECT xact_start FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                 AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) \
              UNION ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) AS open (since)), \
           pg_total_relation_size('sekali.outbox'), \
           coalesce((SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = 'sekali.outbox'::regclass), 0) FROM ( \
           SELECT created_at FROM sekali.outbox, sekali.outbox_cursor \
           WHERE NOT pg_visible_in_snapshot(xid, published) \
             AND NOT (window_end IS NOT NULL AND id <= window_position AND pg_visible_in_snapshot(xid, window_end)) \
           ORDER BY id LIMIT 100000) waiting";
    let rows = connect(pool).await?.query_typed(SQL, &[]).await.map_err(|error| failed("count the outbox", &error))?;
    let row = rows.first().ok_or_else(|| Error::new(crate::ErrorKind::Postgres, "count the outbox"))?;
    // A clock that was set back must not show a negative age.
    Ok(Pending {
        messages: row.get(0),
        oldest_seconds: row.get::<_, f64>(1).max(0.0),
        horizon_seconds: row.get::<_, f64>(2).max(0.0),
        bytes: row.get(3),
        dead_rows: row.get(4),
    })
}
