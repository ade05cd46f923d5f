//! Claiming the messages of a source batch: as a rule one statement, two where some are known.

use std::collections::HashMap;

use deadpool_postgres::ClientWrapper;
use futures_util::future;
use sekali_schemas::inbox::State;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::expectation::Expectation;
use super::inbox::{Request, begin_and_lock, row, sorted_first_copies};
use crate::core::verdict::{Arrival, Row, arrival};

/// Rows go in as processed, so that the happy path never updates one. Keys come sorted: two batches that share some
/// wait for each other in the same order and cannot deadlock. A key that is known after all fails the statement.
const INSERT_NEW: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, 1, 1 FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fingerprint)";

/// Row by row, for the planner's sake, as all statements on the inbox.
const LOOK_UP: &str = "SELECT row.key, state, attempt, fingerprint FROM unnest($2::uuid[]) AS asked (key) \
     CROSS JOIN LATERAL (SELECT key, state, attempt, fingerprint FROM sekali.inbox AS it \
     WHERE it.consumer_id = $1 AND it.key = asked.key OFFSET 0) AS row";

/// What a batch wants to insert, without its second copies, sorted by key.
struct Claims<'a> {
    client: &'a ClientWrapper,
    consumer_id: i16,
    keys: Vec<Uuid>,
    fingerprints: Vec<i64>,
}

/// Begins the transaction and claims the messages of a batch. The answers are in the order of `requests`.
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
    let keys = first_copies.iter().map(|&it| requests[it].key).collect();
    let fingerprints = first_copies.iter().map(|&it| requests[it].asking.fingerprint).collect();
    let claims = Claims { client, consumer_id, keys, fingerprints };
    let was_bold = expectation.is_bold();
    let is_done = was_bold && claims.expecting_none_known().await?;
    let known = if is_done {
        HashMap::new()
    } else {
        match claims.after_a_look().await? {
            Some(known) => known,
            None => claims.beside_somebody_else().await?,
        }
    };
    expectation.note(known.is_empty() && is_done == was_bold);
    if known.is_empty() && first_copies.len() == requests.len() {
        return Ok(vec![Arrival::Handle; requests.len()]);
    }
    let answer = |(index, request): (usize, &Request)| {
        if let Some(row) = known.get(&request.key) {
            return arrival(request.asking, Some(*row));
        }
        match first_copies.binary_search_by_key(&request.key, |&it| requests[it].key) {
            Ok(place) if first_copies[place] == index => Arrival::Handle,
            // A second copy in the batch meets what the first one will have decided.
            Ok(place) => arrival(request.asking, Some(inserted(claims.fingerprints[place]))),
            Err(_) => Arrival::Duplicate,
        }
    };
    Ok(requests.iter().enumerate().map(answer).collect())
}

/// A row as a claim inserts it.
fn inserted(fingerprint: i64) -> Row {
    Row { state: State::Processed, attempt: 1, fingerprint }
}

impl Claims<'_> {
    /// Inserts them all. `false`: some are known, and no transaction is open.
    async fn expecting_none_known(&self) -> Result<bool, Error> {
        let statement = self.client.prepare_cached(INSERT_NEW).await?;
        let values: [&(dyn ToSql + Sync); 3] = [&self.consumer_id, &self.keys, &self.fingerprints];
        // Sent together, in the order of the first poll: one round trip.
        let (begun, inserted) = future::join(self.begin(), self.client.execute(&statement, &values)).await;
        begun?;
        self.unless_known(inserted).await
    }

    /// Looks which are known, and inserts the others. `None`: somebody else inserted one meanwhile, and no transaction is
    /// open.
    async fn after_a_look(&self) -> Result<Option<HashMap<Uuid, Row>>, Error> {
        let statement = self.client.prepare_cached(LOOK_UP).await?;
        let values: [&(dyn ToSql + Sync); 2] = [&self.consumer_id, &self.keys];
        let (begun, rows) = future::join(self.begin(), self.client.query(&statement, &values)).await;
        begun?;
        let known: HashMap<Uuid, Row> = rows?.iter().map(row).collect();
        let is_new = |it: &(&Uuid, &i64)| !known.contains_key(it.0);
        let (keys, fingerprints): (Vec<Uuid>, Vec<i64>) =
            self.keys.iter().zip(&self.fingerprints).filter(is_new).unzip();
        if keys.is_empty() {
            return Ok(Some(known));
        }
        let statement = self.client.prepare_cached(INSERT_NEW).await?;
        let inserted = self.client.execute(&statement, &[&self.consumer_id, &keys, &fingerprints]).await;
        Ok(self.unless_known(inserted).await?.then_some(known))
    }

    /// Inserts those that nobody else has inserted by the time that his transaction ends.
    async fn beside_somebody_else(&self) -> Result<HashMap<Uuid, Row>, Error> {
        // At almost twice the price.
        let insert = format!("{INSERT_NEW} ON CONFLICT DO NOTHING RETURNING key");
        let statement = self.client.prepare_cached(&insert).await?;
        let values: [&(dyn ToSql + Sync); 3] = [&self.consumer_id, &self.keys, &self.fingerprints];
        let (begun, ours) = future::join(self.begin(), self.client.query(&statement, &values)).await;
        begun?;
        let ours = ours?;
        let statement = self.client.prepare_cached(LOOK_UP).await?;
        let rows = self.client.query(&statement, &[&self.consumer_id, &self.keys]).await?;
        let mut known: HashMap<Uuid, Row> = rows.iter().map(row).collect();
        for it in &ours {
            known.remove(&it.get(0));
        }
        Ok(known)
    }

    async fn begin(&self) -> Result<(), Error> {
        self.client.batch_execute("BEGIN").await
    }

    async fn unless_known(&self, inserted: Result<u64, Error>) -> Result<bool, Error> {
        match inserted {
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                // In a transaction that failed nothing can be prepared.
                self.client.batch_execute("ROLLBACK").await?;
                Ok(false)
            }
            inserted => inserted.map(|_| true),
        }
    }
}
