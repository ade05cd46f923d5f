//! Rows of the dead-letter store.

use deadpool_postgres::ClientWrapper;
use sekali_schemas::control::ErrorInfo;
use sekali_schemas::{Headers, Origin, array_literal, cause};
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::core::retry::Reason;
use crate::incoming::Incoming;

/// One that was replayed and failed for good again is open again, as it came and with its new failure.
const INSERT: &str = "INSERT INTO sekali.dead_letter (id, consumer_id, key, key_text, reason, class, code, message, \
     attempts, origin_topic, origin_partition, origin_offset, origin_timestamp, resource_key, payload, header_names, \
     header_values, group_fingerprint, first_failed_at, cause) \
     SELECT id, $1, key, key_text, reason, class, code, message, attempts, topic, part, off, \
     to_timestamp(timestamp_ms / 1000.0), resource_key, payload, names::text[], vals::bytea[], fingerprint, \
     to_timestamp(first_failed_ms / 1000.0), cause \
     FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::smallint[], \
     $10::text[], $11::int[], $12::bigint[], $13::bigint[], $14::bytea[], $15::bytea[], $16::text[], $17::text[], \
     $18::bigint[], $19::bigint[], $20::text[]) AS dead (id, key, key_text, reason, class, code, message, attempts, topic, \
     part, off, timestamp_ms, resource_key, payload, names, vals, fingerprint, first_failed_ms, cause) \
     ON CONFLICT (id) DO UPDATE SET state = 'open', reason = excluded.reason, class = excluded.class, \
     code = excluded.code, message = excluded.message, cause = excluded.cause, attempts = excluded.attempts, \
     group_fingerprint = excluded.group_fingerprint, last_failed_at = now()";

/// Says in the audit how replays ended. Those that took effect are resolved.
const RESOLVE: &str = "WITH ended AS (UPDATE sekali.dead_letter SET state = 'resolved' \
     WHERE id = ANY($1) RETURNING id, consumer_id, key, operation_id) \
     INSERT INTO sekali.audit (who, action, reason, consumer_id, key, outcome, dead_letter_id, operation_id) \
     SELECT $2, 'replay', coalesce((SELECT reason FROM sekali.operation AS it WHERE it.id = operation_id), ''), \
     consumer_id, key, 'resolved', id, operation_id FROM ended";
const REOPENED: &str = "INSERT INTO sekali.audit (who, action, reason, consumer_id, key, outcome, dead_letter_id, \
     operation_id) \
     SELECT $2, 'replay', coalesce((SELECT reason FROM sekali.operation AS it WHERE it.id = operation_id), ''), \
     consumer_id, key, 'open_again', id, operation_id FROM sekali.dead_letter WHERE id = ANY($1)";

/// One dead letter.
pub(crate) struct DeadLetter<'a> {
    pub(crate) incoming: &'a Incoming,
    /// Of its inbox row.
    pub(crate) key: Uuid,
    pub(crate) reason: Reason,
    pub(crate) error: &'a ErrorInfo,
    pub(crate) first_failed_at_ms: i64,
}

/// Inserts dead letters; their inbox rows were decided in the same transaction. `worker` is who gave up.
pub(crate) async fn insert_all(
    client: &ClientWrapper,
    consumer_id: i16,
    dead: &[DeadLetter<'_>],
    worker: &str,
) -> Result<(), Error> {
    if dead.is_empty() {
        return Ok(());
    }
    let replayed = |it: &DeadLetter<'_>| it.incoming.replay().map(|it| it.letter);
    let ids: Vec<Uuid> = dead.iter().map(|it| replayed(it).unwrap_or_else(Uuid::now_v7)).collect();
    let keys: Vec<Uuid> = dead.iter().map(|it| it.key).collect();
    let texts: Vec<Option<String>> =
        dead.iter().map(|it| it.incoming.key_text().map(|it| it.replace('\0', " "))).collect();
    let reasons: Vec<&str> = dead.iter().map(|it| it.reason.as_str()).collect();
    let classes: Vec<&str> = dead.iter().map(|it| it.error.class.as_str()).collect();
    let codes: Vec<&str> = dead.iter().map(|it| it.error.code.as_str()).collect();
    let messages: Vec<&str> = dead.iter().map(|it| it.error.message.as_str()).collect();
    let attempts: Vec<i16> = dead.iter().map(|it| i16::try_from(it.incoming.attempt()).unwrap_or(i16::MAX)).collect();
    let origins: Vec<Origin> = dead.iter().map(|it| it.incoming.origin()).collect();
    let topics: Vec<&str> = origins.iter().map(|it| &*it.topic).collect();
    let partitions: Vec<i32> = origins.iter().map(|it| it.partition).collect();
    let offsets: Vec<i64> = origins.iter().map(|it| it.offset).collect();
    let timestamps: Vec<Option<i64>> = origins.iter().map(|it| it.timestamp_ms).collect();
    let resource_keys: Vec<Option<&[u8]>> = dead.iter().map(|it| it.incoming.record().key.as_deref()).collect();
    let payloads: Vec<Option<&[u8]>> = dead.iter().map(|it| it.incoming.record().payload.as_deref()).collect();
    let headers: Vec<Headers> = dead.iter().map(|it| it.incoming.headers_to_keep()).collect();
    let names: Vec<String> = headers.iter().map(array_literal::names).collect();
    let values: Vec<String> = headers.iter().map(array_literal::values).collect();
    let causes: Vec<String> = dead.iter().map(|it| cause::normalise(&it.error.message)).collect();
    let groups: Vec<i64> =
        dead.iter().zip(&causes).map(|(it, cause)| cause::group(&it.error.class, &it.error.code, cause)).collect();
    let first_failed: Vec<i64> = dead.iter().map(|it| it.first_failed_at_ms).collect();
    let statement = client.prepare_cached(INSERT).await?;
    let params: [&(dyn ToSql + Sync); 20] = [
        &consumer_id,
        &ids,
        &keys,
        &texts,
        &reasons,
        &classes,
        &codes,
        &messages,
        &attempts,
        &topics,
        &partitions,
        &offsets,
        &timestamps,
        &resource_keys,
        &payloads,
        &names,
        &values,
        &groups,
        &first_failed,
        &causes,
    ];
    client.execute(&statement, &params).await?;
    let reopened: Vec<Uuid> = dead.iter().filter_map(replayed).collect();
    tell(client, REOPENED, &reopened, worker).await
}

/// Closes dead letters whose replay took effect in this transaction.
pub(crate) async fn resolve(client: &ClientWrapper, replayed: &[Uuid], worker: &str) -> Result<(), Error> {
    tell(client, RESOLVE, replayed, worker).await
}

async fn tell(client: &ClientWrapper, sql: &'static str, letters: &[Uuid], worker: &str) -> Result<(), Error> {
    if letters.is_empty() {
        return Ok(());
    }
    let statement = client.prepare_cached(sql).await?;
    client.execute(&statement, &[&letters, &worker]).await?;
    Ok(())
}
