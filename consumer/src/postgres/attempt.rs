//! The attempts that failed: one row each, for whoever asks later what happened to a message.

use deadpool_postgres::ClientWrapper;
use sekali_schemas::cause;
use tokio_postgres::Error;
use uuid::Uuid;

use super::decision::Failed;

const INSERT: &str = "INSERT INTO sekali.attempt (consumer_id, key, attempt, class, code, cause, worker) \
     SELECT $1, key, attempt, class, code, cause, $2 FROM unnest($3::uuid[], $4::smallint[], $5::text[], $6::text[], \
     $7::text[]) AS failed (key, attempt, class, code, cause)";

/// Notes failed attempts in the transaction that decides them.
pub(crate) async fn note(
    client: &ClientWrapper,
    consumer_id: i16,
    worker: &str,
    failed: &[&Failed<'_>],
) -> Result<(), Error> {
    let keys: Vec<Uuid> = failed.iter().map(|it| it.row_key()).collect();
    let attempts: Vec<i16> = failed.iter().map(|it| i16::try_from(it.incoming.attempt()).unwrap_or(i16::MAX)).collect();
    let classes: Vec<&str> = failed.iter().map(|it| it.error.class.as_str()).collect();
    let codes: Vec<&str> = failed.iter().map(|it| it.error.code.as_str()).collect();
    let causes: Vec<String> = failed.iter().map(|it| cause::normalise(&it.error.message)).collect();
    let statement = client.prepare_cached(INSERT).await?;
    client.execute(&statement, &[&consumer_id, &worker, &keys, &attempts, &classes, &codes, &causes]).await?;
    Ok(())
}
