//! Committed positions in the database: the group's own clock, and its lag without Kafka.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Error;

/// `committed_at` is the moment up to which everything of the partition is committed (see `caught_up`), `-infinity` while
/// nobody knows. It never goes back, and the position only together with a later moment, when an operator set it back: a
/// late writer that lost its partition changes nothing.
const UPSERT: &str = "INSERT INTO sekali.progress AS row (consumer_id, topic, \"partition\", position, committed_at) \
     SELECT $1, topic, number, position, coalesce(to_timestamp(caught_up_ms / 1000.0), '-infinity') \
     FROM unnest($2::text[], $3::int[], $4::bigint[], $5::bigint[]) AS moved (topic, number, position, caught_up_ms) \
     ORDER BY topic, number \
     ON CONFLICT (consumer_id, topic, \"partition\") \
     DO UPDATE SET position = excluded.position, committed_at = greatest(row.committed_at, excluded.committed_at) \
     WHERE row.committed_at < excluded.committed_at OR row.position < excluded.position";

const CLOCKS: &str = "SELECT topic, \"partition\", \
     CASE WHEN isfinite(committed_at) THEN (extract(epoch FROM committed_at) * 1000)::bigint END \
     FROM sekali.progress WHERE consumer_id = $1";

/// A position that Kafka confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Next offset to read.
    pub(crate) offset: i64,
    /// Moment up to which everything of the partition is committed, as far as it is known.
    pub(crate) caught_up_ms: Option<i64>,
}

/// Notes positions: topic, partition, and how far it is.
pub(crate) async fn note(
    client: &ClientWrapper,
    consumer_id: i16,
    positions: &[(&str, i32, Position)],
) -> Result<(), Error> {
    let topics: Vec<&str> = positions.iter().map(|it| it.0).collect();
    let partitions: Vec<i32> = positions.iter().map(|it| it.1).collect();
    let offsets: Vec<i64> = positions.iter().map(|it| it.2.offset).collect();
    let moments: Vec<Option<i64>> = positions.iter().map(|it| it.2.caught_up_ms).collect();
    let statement = client.prepare_cached(UPSERT).await?;
    client.execute(&statement, &[&consumer_id, &topics, &partitions, &offsets, &moments]).await?;
    Ok(())
}

/// Moment up to which everything of each partition is committed, ms since the Unix epoch; `None` while nobody knows.
pub(crate) async fn clocks(client: &ClientWrapper, consumer_id: i16) -> Result<Vec<(String, i32, Option<i64>)>, Error> {
    let statement = client.prepare_cached(CLOCKS).await?;
    let rows = client.query(&statement, &[&consumer_id]).await?;
    Ok(rows.iter().map(|it| (it.get(0), it.get(1), it.get(2))).collect())
}
