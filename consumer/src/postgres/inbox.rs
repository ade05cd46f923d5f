//! Rows of the inbox: those of retries, and what becomes of claimed ones.

use std::collections::HashMap;

use deadpool_postgres::ClientWrapper;
use futures_util::future;
use sekali_schemas::inbox::State;
use tokio_postgres::{Client, Error, Row as SqlRow};
use uuid::Uuid;

use crate::core::verdict::{Arrival, Asking, Row, arrival};

/// Rows of retry records, locked in the order of the keys, which come sorted. Looked up one by one, here and below: left
/// to itself, the planner may read all of a consumer's, as long as the statistics of a table that grows quickly say that
/// there are few.
const LOCK: &str = "SELECT row.key, state, attempt, fingerprint FROM unnest($2::uuid[]) AS asked (key) \
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

/// Begins the transaction and locks the rows of a retry batch. The answers are in the order of `requests`.
pub(super) async fn begin_and_lock(
    client: &ClientWrapper,
    consumer_id: i16,
    requests: &[Request],
) -> Result<Vec<Arrival>, Error> {
    let first_copies = sorted_first_copies(requests);
    let keys: Vec<Uuid> = first_copies.iter().map(|&it| requests[it].key).collect();
    let lock = client.prepare_cached(LOCK).await?;
    let (begun, rows) = future::join(client.batch_execute("BEGIN"), client.query(&lock, &[&consumer_id, &keys])).await;
    begun?;
    let mut rows: HashMap<Uuid, Row> = rows?.iter().map(row).collect();
    let arrivals: Vec<Arrival> = requests
        .iter()
        .map(|request| {
            let verdict = arrival(request.asking, rows.get(&request.key).copied());
            if verdict == Arrival::Handle
                && let Some(row) = rows.get_mut(&request.key)
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
