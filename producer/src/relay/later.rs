//! Records that were enqueued with a delay: the leader moves them into the outbox when they are due.

use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_postgres::types::Type;

use super::lease::{connect, failed};
use crate::Error;

/// How often to look for what is due.
const INTERVAL: Duration = Duration::from_secs(1);
/// Records moved by one statement.
const BATCH: i64 = 1000;

/// Nobody waits for the disk: what a crash of the server takes back is moved, and published, again.
const MOVE: &str = "WITH settings AS (SELECT set_config('synchronous_commit', 'off', true)), \
       due AS (DELETE FROM sekali.outbox_later USING settings WHERE id IN ( \
           SELECT id FROM sekali.outbox_later WHERE due_at <= now() ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED) \
         RETURNING id, due_at, topic, key, payload, header_names, header_values) \
     INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
     SELECT topic, key, payload, header_names, header_values FROM due ORDER BY due_at, id";

/// Moves what is due for as long as this process leads, and tells the relay.
pub(super) async fn keep_moving(pool: &Pool, wake: &Notify) {
    loop {
        match move_due(pool).await {
            Ok(0) => sleep(INTERVAL).await,
            Ok(moved) => {
                wake.notify_one();
                if moved < BATCH.unsigned_abs() {
                    sleep(INTERVAL).await;
                }
            }
            Err(error) => {
                tracing::warn!(error = %error.chain(), "delayed records wait");
                sleep(INTERVAL).await;
            }
        }
    }
}

async fn move_due(pool: &Pool) -> Result<u64, Error> {
    // Reading first: that costs an idle database nothing.
    const DUE: &str = "SELECT FROM sekali.outbox_later WHERE due_at <= now() LIMIT 1";
    let client = connect(pool).await?;
    let not_moved = |error| failed("move delayed records", &error);
    if client.query_typed(DUE, &[]).await.map_err(not_moved)?.is_empty() {
        return Ok(0);
    }
    client.execute_typed(MOVE, &[(&BATCH, Type::INT8)]).await.map_err(not_moved)
}
