//! One run of a sweep: a few pages of the inbox, in one transaction.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Error;

/// Pages of one run: at most about 5,000 rows.
pub(super) const PAGES: u32 = 48;

/// A scan of exactly these pages (PostgreSQL 14 and newer). The age is written so that no index serves it: the planner
/// would take the BRIN index for one statement in a hundred, and read the whole table. The second part sees the table as
/// it was before: the rows that stay, apart from those that are not finished.
const RUN: &str = "WITH gone AS (DELETE FROM sekali.inbox AS row \
     WHERE ctid >= $2::text::tid AND ctid < $3::text::tid \
     AND consumer_id = $1 AND extract(epoch FROM decided_at) * 1000 < $4::bigint \
     AND (state IN (1, 5) OR state = 4 AND NOT EXISTS (SELECT FROM sekali.dead_letter AS letter \
     WHERE letter.consumer_id = row.consumer_id AND letter.key = row.key AND letter.state IN ('open', 'replaying'))) \
     RETURNING 1) \
     SELECT (SELECT count(*) FROM gone), \
     (extract(epoch FROM min(decided_at) FILTER (WHERE consumer_id = $1 AND $4::bigint <= extract(epoch FROM decided_at) * 1000)) \
     * 1000)::bigint \
     FROM sekali.inbox WHERE ctid >= $2::text::tid AND ctid < $3::text::tid";

/// Failed attempts are forgotten with the decisions on their messages. They come in the order of time, so that what may go
/// stands first.
const ATTEMPTS: &str = "WITH old AS (SELECT id, consumer_id, key FROM sekali.attempt WHERE $2 < id \
     AND extract(epoch FROM at) * 1000 < $3::bigint ORDER BY id LIMIT $4), \
     gone AS (DELETE FROM sekali.attempt AS row USING old WHERE row.id = old.id AND old.consumer_id = $1 \
     AND NOT EXISTS (SELECT FROM sekali.dead_letter AS letter WHERE letter.consumer_id = old.consumer_id \
     AND letter.key = old.key AND letter.state IN ('open', 'replaying'))) \
     SELECT max(id) FROM old HAVING count(*) = $4";
/// Rows that are looked at in one transaction.
const ATTEMPTS_MAX: i64 = 5_000;

/// What a run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Swept {
    pub(super) deleted: u64,
    /// Of the rows that are too young, ms since the Unix epoch.
    pub(super) oldest_ms: Option<i64>,
}

/// Number of pages of the table.
pub(super) async fn pages(client: &ClientWrapper) -> Result<u32, Error> {
    const SQL: &str = "SELECT pg_relation_size('sekali.inbox') / current_setting('block_size')::bigint";
    let statement = client.prepare_cached(SQL).await?;
    let pages: i64 = client.query_one(&statement, &[]).await?.get(0);
    // A table has at most 2^32 - 2 of them.
    Ok(u32::try_from(pages).unwrap_or(u32::MAX))
}

/// Deletes the finished rows of a consumer that were decided before a moment, from the run that begins at `first`.
pub(super) async fn run(client: &ClientWrapper, consumer_id: i16, first: u32, before_ms: i64) -> Result<Swept, Error> {
    let place = |page: u32| format!("({page},0)");
    let statement = client.prepare_cached(RUN).await?;
    let bounds = (place(first), place(first.saturating_add(PAGES)));
    let row = client.query_one(&statement, &[&consumer_id, &bounds.0, &bounds.1, &before_ms]).await?;
    let deleted: i64 = row.get(0);
    Ok(Swept { deleted: deleted.unsigned_abs(), oldest_ms: row.get(1) })
}

/// Deletes attempts that failed before a moment, of messages that are finished, behind a place in the table; the place to
/// go on behind, until there is nothing more.
pub(super) async fn run_attempts(
    client: &ClientWrapper,
    consumer_id: i16,
    behind: i64,
    before_ms: i64,
) -> Result<Option<i64>, Error> {
    let statement = client.prepare_cached(ATTEMPTS).await?;
    let row = client.query_opt(&statement, &[&consumer_id, &behind, &before_ms, &ATTEMPTS_MAX]).await?;
    Ok(row.map(|it| it.get(0)))
}
