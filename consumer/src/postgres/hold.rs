//! Held keys and the messages that wait behind their heads.
//!
//! Whoever parks a message, decides a head or applies what waits locks the hold's row first, in the order of
//! `(topic, resource_key)`: one sees what the others have done, and nobody deadlocks.
//!
//! Keys are asked for twice, as pairs and with `ANY`: the second is for the planner, which without it may read a whole table
//! to join it.

use deadpool_postgres::ClientWrapper;
use sekali_schemas::inbox::State;
use sekali_schemas::{Headers, Record, array_literal};
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::inbox;
use crate::incoming::Incoming;

/// A key of a source topic: the topic's name and the record's key.
pub(crate) type HoldKey<'a> = (&'a str, &'a [u8]);

const LOCK: &str = "SELECT topic, resource_key FROM sekali.held_key WHERE consumer_id = $1 \
     AND topic = ANY($2) AND resource_key = ANY($3) AND (topic, resource_key) IN \
     (SELECT * FROM unnest($2::text[], $3::bytea[])) ORDER BY topic, resource_key FOR UPDATE";

const COUNT: &str = "SELECT topic, resource_key, count(*) FROM sekali.held_message WHERE consumer_id = $1 \
     AND topic = ANY($2) AND resource_key = ANY($3) AND (topic, resource_key) IN \
     (SELECT * FROM unnest($2::text[], $3::bytea[])) GROUP BY topic, resource_key";

const PARK: &str = "INSERT INTO sekali.held_message (consumer_id, topic, resource_key, key, key_text, \"partition\", \
     \"offset\", timestamp_ms, payload, header_names, header_values) \
     SELECT $1, topic, resource_key, key, key_text, part, off, timestamp_ms, payload, names::text[], vals::bytea[] \
     FROM unnest($2::text[], $3::bytea[], $4::uuid[], $5::text[], $6::int[], $7::bigint[], $8::bigint[], $9::bytea[], \
     $10::text[], $11::text[]) WITH ORDINALITY \
     AS parked (topic, resource_key, key, key_text, part, off, timestamp_ms, payload, names, vals, nr) ORDER BY nr";

/// A key that is held already keeps its head.
const CREATE: &str = "INSERT INTO sekali.held_key (consumer_id, topic, resource_key, head) \
     SELECT $1, topic, resource_key, head FROM unnest($2::text[], $3::bytea[], $4::uuid[]) AS new (topic, resource_key, head) \
     ORDER BY topic, resource_key ON CONFLICT DO NOTHING";

const HEADS_DECIDED: &str = "WITH decided AS (SELECT topic, resource_key FROM sekali.held_key \
     WHERE consumer_id = $1 AND topic = ANY($2) AND resource_key = ANY($3) \
     AND (topic, resource_key, head) IN (SELECT * FROM unnest($2::text[], $3::bytea[], $4::uuid[])) \
     ORDER BY topic, resource_key FOR UPDATE) \
     UPDATE sekali.held_key AS hold SET ready = true FROM decided WHERE hold.consumer_id = $1 \
     AND hold.topic = ANY($2) AND hold.resource_key = ANY($3) \
     AND hold.topic = decided.topic AND hold.resource_key = decided.resource_key \
     RETURNING hold.topic, hold.resource_key";

/// A statement of its own, after the one that locked the holds: only then does it see everything that was parked.
const DELETE_EMPTY: &str = "DELETE FROM sekali.held_key AS hold USING unnest($2::text[], $3::bytea[]) \
     AS asked (topic, resource_key) WHERE hold.consumer_id = $1 AND hold.topic = ANY($2) \
     AND hold.resource_key = ANY($3) AND hold.topic = asked.topic \
     AND hold.resource_key = asked.resource_key AND hold.ready AND NOT EXISTS (SELECT FROM sekali.held_message AS it \
     WHERE it.consumer_id = $1 AND it.topic = hold.topic AND it.resource_key = hold.resource_key)";

const READ: &str = "SELECT topic, resource_key, ready FROM sekali.held_key WHERE consumer_id = $1";

const TAKE: &str = "SELECT topic, resource_key FROM sekali.held_key WHERE consumer_id = $1 AND ready \
     AND topic <> ALL ($3) ORDER BY since, topic, resource_key LIMIT $2 FOR UPDATE SKIP LOCKED";

const MESSAGES: &str = "SELECT it.topic, it.resource_key, it.key, it.key_text, it.\"partition\", it.\"offset\", \
     it.timestamp_ms, it.payload, it.header_names, it.header_values \
     FROM unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS asked (topic, resource_key, nr) \
     CROSS JOIN LATERAL (SELECT * FROM sekali.held_message AS held WHERE held.consumer_id = $1 \
     AND held.topic = asked.topic AND held.resource_key = asked.resource_key ORDER BY seq LIMIT $4) AS it \
     ORDER BY asked.nr, it.seq LIMIT $4";

/// The first message behind each key.
const FIRST: &str = "SELECT it.topic, it.resource_key, it.key, it.key_text, it.\"partition\", it.\"offset\", \
     it.timestamp_ms, it.payload, it.header_names, it.header_values \
     FROM unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS asked (topic, resource_key, nr) \
     CROSS JOIN LATERAL (SELECT * FROM sekali.held_message AS held WHERE held.consumer_id = $1 \
     AND held.topic = asked.topic AND held.resource_key = asked.resource_key ORDER BY seq LIMIT 1) AS it \
     ORDER BY asked.nr";

/// Keys are looked up one by one, whatever the planner thinks of the table.
const REMOVE: &str = "DELETE FROM sekali.held_message AS held \
     USING (SELECT DISTINCT topic, resource_key FROM unnest($2::text[], $3::bytea[]) AS done (topic, resource_key)) AS done \
     CROSS JOIN LATERAL (SELECT ctid FROM sekali.held_message AS it WHERE it.consumer_id = $1 AND it.topic = done.topic \
     AND it.resource_key = done.resource_key AND it.key = ANY($4) OFFSET 0) AS found WHERE held.ctid = found.ctid";

const NEW_HEADS: &str = "UPDATE sekali.held_key AS hold SET head = asked.head, ready = false \
     FROM unnest($2::text[], $3::bytea[], $4::uuid[]) AS asked (topic, resource_key, head) \
     WHERE hold.consumer_id = $1 AND hold.topic = ANY($2) AND hold.resource_key = ANY($3) \
     AND hold.topic = asked.topic AND hold.resource_key = asked.resource_key";

fn columns<'a>(keys: impl IntoIterator<Item = HoldKey<'a>>) -> (Vec<&'a str>, Vec<&'a [u8]>) {
    keys.into_iter().unzip()
}

/// Which of the keys are held. Their rows stay locked to the end of the transaction, so that what is parked behind them
/// does not miss its release.
pub(crate) async fn lock(
    client: &ClientWrapper,
    consumer_id: i16,
    keys: &[HoldKey<'_>],
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let (topics, resource_keys) = columns(keys.iter().copied());
    let statement = client.prepare_cached(LOCK).await?;
    let rows = client.query(&statement, &[&consumer_id, &topics, &resource_keys]).await?;
    Ok(rows.iter().map(|it| (it.get(0), it.get(1))).collect())
}

/// How many messages wait behind each of the keys; none for a key that is not in the answer.
pub(crate) async fn count(
    client: &ClientWrapper,
    consumer_id: i16,
    keys: &[HoldKey<'_>],
) -> Result<Vec<(String, Vec<u8>, u64)>, Error> {
    let (topics, resource_keys) = columns(keys.iter().copied());
    let statement = client.prepare_cached(COUNT).await?;
    let rows = client.query(&statement, &[&consumer_id, &topics, &resource_keys]).await?;
    Ok(rows.iter().map(|it| (it.get(0), it.get(1), it.get::<_, i64>(2).unsigned_abs())).collect())
}

/// Parks messages that this transaction has claimed, in their order.
pub(crate) async fn park(client: &ClientWrapper, consumer_id: i16, parked: &[&Incoming]) -> Result<(), Error> {
    let keys: Vec<Uuid> = parked.iter().map(|it| it.key()).collect();
    let (states, attempts) = (vec![State::Held as i16; keys.len()], vec![1; keys.len()]);
    inbox::decide_claimed(client, consumer_id, &keys, &states, &attempts).await?;
    let topics: Vec<&str> = parked.iter().map(|it| &*it.record().topic).collect();
    let resource_keys: Vec<Option<&[u8]>> = parked.iter().map(|it| it.record().key.as_deref()).collect();
    // Text holds no NUL; whoever reads the message again finds its identity in its headers first.
    let texts: Vec<String> = parked.iter().map(|it| it.key_text().unwrap_or_default().replace('\0', " ")).collect();
    let partitions: Vec<i32> = parked.iter().map(|it| it.record().partition).collect();
    let offsets: Vec<i64> = parked.iter().map(|it| it.record().offset).collect();
    let timestamps: Vec<Option<i64>> = parked.iter().map(|it| it.record().timestamp_ms).collect();
    let payloads: Vec<Option<&[u8]>> = parked.iter().map(|it| it.record().payload.as_deref()).collect();
    let names: Vec<String> = parked.iter().map(|it| array_literal::names(&it.record().headers)).collect();
    let values: Vec<String> = parked.iter().map(|it| array_literal::values(&it.record().headers)).collect();
    let params: [(&(dyn ToSql + Sync), Type); 11] = [
        (&consumer_id, Type::INT2),
        (&topics, Type::TEXT_ARRAY),
        (&resource_keys, Type::BYTEA_ARRAY),
        (&keys, Type::UUID_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&partitions, Type::INT4_ARRAY),
        (&offsets, Type::INT8_ARRAY),
        (&timestamps, Type::INT8_ARRAY),
        (&payloads, Type::BYTEA_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&values, Type::TEXT_ARRAY),
    ];
    client.execute_typed(PARK, &params).await?;
    Ok(())
}

/// A message that holds its key, by the key of its inbox row.
pub(crate) type Head<'a> = (HoldKey<'a>, Uuid);

fn head_columns<'a>(heads: &[Head<'a>]) -> (Vec<&'a str>, Vec<&'a [u8]>, Vec<Uuid>) {
    let (topics, resource_keys) = columns(heads.iter().map(|it| it.0));
    (topics, resource_keys, heads.iter().map(|it| it.1).collect())
}

/// Holds keys behind messages that came from a source topic.
pub(crate) async fn create(client: &ClientWrapper, consumer_id: i16, heads: &[Head<'_>]) -> Result<(), Error> {
    let (topics, resource_keys, keys) = head_columns(heads);
    let statement = client.prepare_cached(CREATE).await?;
    client.execute(&statement, &[&consumer_id, &topics, &resource_keys, &keys]).await?;
    Ok(())
}

/// Heads are decided and hold no longer: what waits behind them may run, and keys behind which nothing waits are free.
/// Returns whether something waits.
pub(crate) async fn heads_decided(client: &ClientWrapper, consumer_id: i16, heads: &[Head<'_>]) -> Result<bool, Error> {
    let (topics, resource_keys, keys) = head_columns(heads);
    let statement = client.prepare_cached(HEADS_DECIDED).await?;
    let rows = client.query(&statement, &[&consumer_id, &topics, &resource_keys, &keys]).await?;
    if rows.is_empty() {
        return Ok(false);
    }
    // Only what is locked now: of another hold somebody might be parking a message.
    let freed = delete_empty(client, consumer_id, rows.iter().map(|it| (it.get(0), it.get(1)))).await?;
    Ok(freed < rows.len() as u64)
}

/// Frees keys whose head is decided and behind which nothing waits any more. Their rows are locked.
pub(crate) async fn delete_empty<'a>(
    client: &ClientWrapper,
    consumer_id: i16,
    keys: impl IntoIterator<Item = HoldKey<'a>>,
) -> Result<u64, Error> {
    let (topics, resource_keys) = columns(keys);
    let statement = client.prepare_cached(DELETE_EMPTY).await?;
    client.execute(&statement, &[&consumer_id, &topics, &resource_keys]).await
}

/// Every held key, and whether what waits behind some of them may run.
pub(crate) async fn read(client: &ClientWrapper, consumer_id: i16) -> Result<(Vec<(String, Vec<u8>)>, bool), Error> {
    let statement = client.prepare_cached(READ).await?;
    let rows = client.query(&statement, &[&consumer_id]).await?;
    let ready = rows.iter().any(|it| it.get(2));
    Ok((rows.iter().map(|it| (it.get(0), it.get(1))).collect(), ready))
}

/// A message that was parked.
pub(crate) struct Held {
    pub(crate) key: Uuid,
    pub(crate) key_text: String,
    pub(crate) record: Record,
}

/// Keys that were taken up, and the first messages behind them.
pub(crate) struct Taken {
    pub(crate) keys: Vec<(String, Vec<u8>)>,
    pub(crate) messages: Vec<Held>,
}

/// Takes up keys whose head is decided and whom nobody else has taken up, but for those of some topics, and up to so many
/// of their messages: key by key, in the order in which they were parked.
pub(crate) async fn take(
    client: &ClientWrapper,
    consumer_id: i16,
    except: &[&str],
    keys_max: i64,
    max: i64,
) -> Result<Taken, Error> {
    let statement = client.prepare_cached(TAKE).await?;
    let rows = client.query(&statement, &[&consumer_id, &keys_max, &except]).await?;
    let keys: Vec<(String, Vec<u8>)> = rows.iter().map(|it| (it.get(0), it.get(1))).collect();
    if keys.is_empty() {
        return Ok(Taken { keys, messages: Vec::new() });
    }
    let (topics, resource_keys) = columns(keys.iter().map(|it| (it.0.as_str(), it.1.as_slice())));
    let statement = client.prepare_cached(MESSAGES).await?;
    let rows = client.query(&statement, &[&consumer_id, &topics, &resource_keys, &max]).await?;
    let messages = rows.iter().map(held).collect();
    Ok(Taken { keys, messages })
}

/// The first message behind each of these keys, which are locked.
pub(crate) async fn first_of(
    client: &ClientWrapper,
    consumer_id: i16,
    keys: Vec<(String, Vec<u8>)>,
) -> Result<Taken, Error> {
    if keys.is_empty() {
        return Ok(Taken { keys, messages: Vec::new() });
    }
    let (topics, resource_keys) = columns(keys.iter().map(|it| (it.0.as_str(), it.1.as_slice())));
    let statement = client.prepare_cached(FIRST).await?;
    let rows = client.query(&statement, &[&consumer_id, &topics, &resource_keys]).await?;
    let messages = rows.iter().map(held).collect();
    Ok(Taken { keys, messages })
}

fn held(row: &tokio_postgres::Row) -> Held {
    let (names, values): (Vec<String>, Vec<Option<Vec<u8>>>) = (row.get(8), row.get(9));
    let mut headers = Headers::builder();
    for (name, value) in names.iter().zip(&values) {
        headers.push(name, value.as_deref());
    }
    let record = Record {
        topic: row.get::<_, &str>(0).into(),
        key: row.get::<_, Option<Vec<u8>>>(1).map(Into::into),
        partition: row.get(4),
        offset: row.get(5),
        timestamp_ms: row.get(6),
        payload: row.get::<_, Option<Vec<u8>>>(7).map(Into::into),
        headers: headers.build(),
    };
    Held { key: row.get(2), key_text: row.get(3), record }
}

/// Takes messages out of the waiting: they are decided. Those in `processed` took effect.
pub(crate) async fn remove(
    client: &ClientWrapper,
    consumer_id: i16,
    decided: &[Head<'_>],
    processed: &[Uuid],
) -> Result<(), Error> {
    if !processed.is_empty() {
        inbox::finish(client, consumer_id, processed, State::Held).await?;
    }
    let (topics, resource_keys, keys) = head_columns(decided);
    let statement = client.prepare_cached(REMOVE).await?;
    client.execute(&statement, &[&consumer_id, &topics, &resource_keys, &keys]).await?;
    Ok(())
}

/// Messages that were held themselves now hold their keys.
pub(crate) async fn new_heads(client: &ClientWrapper, consumer_id: i16, heads: &[Head<'_>]) -> Result<(), Error> {
    let (topics, resource_keys, keys) = head_columns(heads);
    let statement = client.prepare_cached(NEW_HEADS).await?;
    client.execute(&statement, &[&consumer_id, &topics, &resource_keys, &keys]).await?;
    Ok(())
}
