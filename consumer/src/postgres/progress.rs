//! Committed positions in the database: the group's own clock, and its lag without Kafka.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Error;

/// Positions never go back: a late writer that lost its partition changes nothing.
const UPSERT: &str = "INSERT INTO sekali.progress AS row (consumer_id, topic, \"partition\", position) \
     SELECT $1, topic, number, position FROM unnest($2::text[], $3::int[], $4::bigint[]) AS moved (topic, number, position) \
     ORDER BY topic, number \
     ON CONFLICT (consumer_id, topic, \"partition\") DO UPDATE SET position = excluded.position, committed_at = now() \
     WHERE row.position < excluded.position";

/// Notes positions that Kafka confirmed: topic, partition, next offset to read.
pub(crate) async fn note(
    client: &ClientWrapper,
    consumer_id: i16,
    positions: &[(&str, i32, i64)],
) -> Result<(), Error> {
    let topics: Vec<&str> = positions.iter().map(|it| it.0).collect();
    let partitions: Vec<i32> = positions.iter().map(|it| it.1).collect();
    let offsets: Vec<i64> = positions.iter().map(|it| it.2).collect();
    let statement = client.prepare_cached(UPSERT).await?;
    client.execute(&statement, &[&consumer_id, &topics, &partitions, &offsets]).await?;
    Ok(())
}
