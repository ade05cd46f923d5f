//! Claiming messages: one statement for a batch.

use std::collections::HashMap;

use deadpool_postgres::ClientWrapper;
use futures_util::future;
use sekali_schemas::inbox::State;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row as SqlRow};
use uuid::Uuid;

use super::expectation::Expectation;
use crate::core::verdict::{Arrival, Asking, Row, arrival};

/// Rows go in as processed, so that the happy path never updates one. Keys come sorted: two batches that share some
/// wait for each other in the same order and cannot deadlock.
const INSERT: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, 1, 1 FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fingerprint) \
     ON CONFLICT DO NOTHING";

/// The same where all keys are expected to be new, for half the price: looking each key up before it is inserted costs
/// as much as inserting it. A key that is known after all fails the statement.
const INSERT_NEW: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, 1, 1 FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fingerprint)";

/// Which of the keys this transaction inserted, and what the others are. `xmin` has 32 bits of the transaction's 64.
///
/// Rows are looked up one by one, here and below: left to itself, the planner may read all of a consumer's, as long as the
/// statistics of a table that grows quickly say that there are few.
const STATES: &str = "SELECT row.key, state, attempt, fingerprint, mine FROM unnest($2::uuid[]) AS asked (key) \
     CROSS JOIN LATERAL (SELECT key, state, attempt, fingerprint, \
     xmin::text::bigint = (pg_current_xact_id()::text::bigint & 4294967295) AS mine \
     FROM sekali.inbox AS it WHERE it.consumer_id = $1 AND it.key = asked.key OFFSET 0) AS row";

/// Rows of retry records, locked in the order of the keys, which come sorted.
const LOCK: &str = "SELECT row.key, state, attempt, fingerprint, false AS mine FROM unnest($2::uuid[]) AS asked (key) \
     CROSS JOIN LATERAL (SELECT key, state, attempt, fingerprint FROM sekali.inbox AS it \
     WHERE it.consumer_id = $1 AND it.key = asked.key FOR UPDATE) AS row";

const FINISH: &str = "UPDATE sekali.inbox AS row SET state = 1, decided_at = now() \
     FROM unnest($2::uuid[]) AS asked (key) CROSS JOIN LATERAL (SELECT ctid FROM sekali.inbox AS it \
     WHERE it.consumer_id = $1 AND it.key = asked.key AND it.state = $3 OFFSET 0) AS found WHERE row.ctid = found.ctid";

/// Rows that this transaction has claimed, so that there is nothing to insert: the index finds each.
const DECIDE_CLAIMED: &str = "INSERT INTO sekali.inbox AS row (consumer_id, key, state, attempt, fingerprint) \
     SELECT $1, key, state, attempt, 0 FROM unnest($2::uuid[], $3::smallint[], $4::smallint[]) AS asked (key, state, attempt) \
     ON CONFLICT (consumer_id, key) DO UPDATE \
     SET state = excluded.state, attempt = excluded.attempt, decided_at = now()";

const STORE_RESULTS: &str = "UPDATE sekali.inbox AS row SET result = given.result \
     FROM unnest($2::uuid[], $3::jsonb[]) AS given (key, result) CROSS JOIN LATERAL (SELECT ctid FROM sekali.inbox AS it \
     WHERE it.consumer_id = $1 AND it.key = given.key OFFSET 0) AS found WHERE row.ctid = found.ctid";

/// One message that wants to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) key: Uuid,
    pub(crate) asking: Asking,
}

/// Begins the transaction and claims the messages of a source batch. The answers are in the order of `requests`.
/// `expectation` only chooses the cheaper of two ways to the same answers.
pub(crate) async fn begin_and_claim(
    client: &ClientWrapper,
    consumer_id: i16,
    requests: &[Request],
    expectation: &mut Expectation,
) -> Result<Vec<Arrival>, Error> {
    if requests.is_empty() {
        client.batch_execute("BEGIN").await?;
        return Ok(Vec::new());
    }
    if requests[0].asking.retry {
        return begin_and_lock(client, consumer_id, requests).await;
    }
    let first_copies = sorted_first_copies(requests);
    let keys: Vec<Uuid> = first_copies.iter().map(|&it| requests[it].key).collect();
    let fingerprints: Vec<i64> = first_copies.iter().map(|&it| requests[it].asking.fingerprint).collect();
    let begin_and_insert = async |sql| {
        let statement = client.prepare_cached(sql).await?;
        let values: [&(dyn ToSql + Sync); 3] = [&consumer_id, &keys, &fingerprints];
        // Sent together, in the order of the first poll: one round trip.
        let (begun, inserted) = future::join(client.batch_execute("BEGIN"), client.execute(&statement, &values)).await;
        begun?;
        inserted
    };
    let inserted = if expectation.is_bold() {
        match begin_and_insert(INSERT_NEW).await {
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                // Ended first: in a transaction that failed no statement can be prepared.
                client.batch_execute("ROLLBACK").await?;
                begin_and_insert(INSERT).await?
            }
            inserted => inserted?,
        }
    } else {
        begin_and_insert(INSERT).await?
    };
    expectation.note(inserted == keys.len() as u64);
    if inserted == requests.len() as u64 {
        return Ok(vec![Arrival::Handle; requests.len()]);
    }
    let states = client.prepare_cached(STATES).await?;
    let rows = client.query(&states, &[&consumer_id, &keys]).await?;
    let rows: HashMap<Uuid, (Row, bool)> = rows.iter().map(read).collect();
    let mut arrivals = vec![Arrival::Duplicate; requests.len()];
    for (index, request) in requests.iter().enumerate() {
        arrivals[index] = match rows.get(&request.key) {
            Some((_, true))
                if first_copies.binary_search_by_key(&(request.key, index), |&it| (requests[it].key, it)).is_ok() =>
            {
                Arrival::Handle
            }
            row => arrival(request.asking, row.map(|(row, _)| *row)),
        };
    }
    Ok(arrivals)
}

async fn begin_and_lock(client: &ClientWrapper, consumer_id: i16, requests: &[Request]) -> Result<Vec<Arrival>, Error> {
    let first_copies = sorted_first_copies(requests);
    let keys: Vec<Uuid> = first_copies.iter().map(|&it| requests[it].key).collect();
    let lock = client.prepare_cached(LOCK).await?;
    let (begun, rows) = future::join(client.batch_execute("BEGIN"), client.query(&lock, &[&consumer_id, &keys])).await;
    begun?;
    let mut rows: HashMap<Uuid, (Row, bool)> = rows?.iter().map(read).collect();
    let arrivals: Vec<Arrival> = requests
        .iter()
        .map(|request| {
            let verdict = arrival(request.asking, rows.get(&request.key).map(|(row, _)| *row));
            if verdict == Arrival::Handle
                && let Some((row, _)) = rows.get_mut(&request.key)
            {
                // A second copy in the same batch meets what the first one will have decided.
                row.state = State::Processed;
            }
            verdict
        })
        .collect();
    let runs = |(_, verdict): &(&Request, &Arrival)| **verdict == Arrival::Handle;
    let keys: Vec<Uuid> = requests.iter().zip(&arrivals).filter(runs).map(|(it, _)| it.key).collect();
    finish(client, consumer_id, &keys, State::Retrying).await?;
    Ok(arrivals)
}

/// Rows in this state, of messages that took effect now.
pub(crate) async fn finish(
    client: &ClientWrapper,
    consumer_id: i16,
    keys: &[Uuid],
    before: State,
) -> Result<(), Error> {
    let statement = client.prepare_cached(FINISH).await?;
    client.execute(&statement, &[&consumer_id, &keys, &(before as i16)]).await?;
    Ok(())
}

/// Gives rows that this transaction has claimed another state and attempt.
pub(crate) async fn decide_claimed(
    client: &ClientWrapper,
    consumer_id: i16,
    keys: &[Uuid],
    states: &[i16],
    attempts: &[i16],
) -> Result<(), Error> {
    let statement = client.prepare_cached(DECIDE_CLAIMED).await?;
    client.execute(&statement, &[&consumer_id, &keys, &states, &attempts]).await?;
    Ok(())
}

/// Stores what handlers answered.
pub(crate) async fn store_results(
    client: &ClientWrapper,
    consumer_id: i16,
    keys: &[Uuid],
    results: &[&serde_json::Value],
) -> Result<(), Error> {
    let statement = client.prepare_cached(STORE_RESULTS).await?;
    client.execute(&statement, &[&consumer_id, &keys, &results]).await?;
    Ok(())
}

/// Indexes of the first copy of each key, sorted by key.
pub(super) fn sorted_first_copies(requests: &[Request]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_unstable_by_key(|&it| (requests[it].key, it));
    order.dedup_by_key(|it| requests[*it].key);
    order
}

fn read(row: &SqlRow) -> (Uuid, (Row, bool)) {
    let (key, read) = self::row(row);
    (key, (read, row.get(4)))
}

/// Key, state, attempt and fingerprint.
pub(super) fn row(row: &SqlRow) -> (Uuid, Row) {
    let attempt: i16 = row.get(2);
    // A state that this version does not know was decided by a newer one.
    let state = State::from_i16(row.get(1)).unwrap_or(State::Processed);
    (row.get(0), Row { state, attempt: attempt.unsigned_abs().into(), fingerprint: row.get(3) })
}

/// The number that stands for a consumer's name in the tables.
pub(crate) async fn consumer_id(client: &Client, name: &str) -> Result<i16, Error> {
    const SQL: &str = "WITH made AS (INSERT INTO sekali.consumer (name) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id) \
         SELECT id FROM made UNION ALL SELECT id FROM sekali.consumer WHERE name = $1 LIMIT 1";
    // Two processes at once: the loser sees neither its own row nor the winner's, until it asks again.
    if let Some(row) = client.query_opt(SQL, &[&name]).await? {
        return Ok(row.get(0));
    }
    Ok(client.query_one("SELECT id FROM sekali.consumer WHERE name = $1", &[&name]).await?.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_copy_of_a_key_asks_for_all() {
        let request = |key: u128| Request {
            key: Uuid::from_u128(key),
            asking: Asking { retry: false, attempt: 1, fingerprint: 0 },
        };
        let requests = [3, 1, 3, 2, 1].map(request);
        assert_eq!(sorted_first_copies(&requests), [1, 3, 0]);
    }
}
