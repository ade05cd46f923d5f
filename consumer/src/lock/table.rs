//! The statements on `sekali.lock`.
//!
//! Each is a transaction of its own, without a name and with the types of its parameters: one round trip, and nothing that
//! a pooler could lose. Rows that another transaction has locked are passed over, so that no statement waits for anybody's
//! business; only an insert waits, for another insert of the same name, and those come in the order of the names.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, Pool, PoolError};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error as Failed, GenericClient};
use uuid::Uuid;

use super::registry::Held;
use super::{Fence, Name, NoAnswer};
use crate::{Error, ErrorKind, SqlError};

/// `FOR UPDATE` keeps out of a row whose owner has checked its fence in a transaction that is still open.
const ACQUIRE: &str = "WITH expired AS (SELECT name FROM sekali.lock WHERE name = ANY ($1) AND until < now() \
     ORDER BY name FOR UPDATE SKIP LOCKED), \
     taken_over AS (UPDATE sekali.lock AS it SET owner = $2, fence = nextval('sekali.fence'), \
     until = now() + $3 * interval '1 ms', acquired_at = now() FROM expired WHERE it.name = expired.name \
     RETURNING it.name, it.fence), \
     fresh AS (INSERT INTO sekali.lock (name, owner, fence, until) \
     SELECT name, $2, nextval('sekali.fence'), now() + $3 * interval '1 ms' \
     FROM (SELECT DISTINCT name FROM unnest($1) AS asked (name)) AS asked \
     WHERE NOT EXISTS (SELECT FROM sekali.lock AS it WHERE it.name = asked.name) ORDER BY name \
     ON CONFLICT DO NOTHING RETURNING name, fence) \
     SELECT name, fence, true FROM taken_over UNION ALL SELECT name, fence, false FROM fresh";

/// A lock that ran out is never revived. One that somebody else has locked is still the owner's, and not renewed.
const RENEW: &str = "WITH mine AS (SELECT it.name FROM sekali.lock AS it \
     JOIN unnest($1::text[], $2::uuid[], $3::bigint[]) AS asked (name, owner, fence) USING (name, owner, fence) \
     WHERE now() <= until ORDER BY it.name FOR NO KEY UPDATE OF it SKIP LOCKED), \
     renewed AS (UPDATE sekali.lock AS it SET until = now() + asked.ttl_ms * interval '1 ms' \
     FROM mine JOIN unnest($1::text[], $4::float8[]) AS asked (name, ttl_ms) USING (name) WHERE it.name = mine.name \
     RETURNING it.fence) \
     SELECT asked.fence, renewed.fence IS NOT NULL, it.name IS NOT NULL \
     FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS asked (name, owner, fence) \
     LEFT JOIN sekali.lock AS it USING (name, owner, fence) LEFT JOIN renewed ON renewed.fence = asked.fence";

const RELEASE: &str = "DELETE FROM sekali.lock AS it USING unnest($1::text[], $2::uuid[]) AS gone (name, owner) \
     WHERE it.name = gone.name AND it.owner = gone.owner";

/// As [`RELEASE`], without those that a transaction still uses.
const FORGET: &str = "WITH gone AS (SELECT it.name FROM sekali.lock AS it \
     JOIN unnest($1::text[], $2::uuid[]) AS gone (name, owner) USING (name, owner) FOR UPDATE OF it SKIP LOCKED) \
     DELETE FROM sekali.lock AS it USING gone WHERE it.name = gone.name RETURNING it.owner, it.name";

/// The relay's row stays: its statements are its own.
const SWEEP: &str = "WITH old AS (SELECT name FROM sekali.lock WHERE until < now() - interval '1 minute' \
     AND name <> 'relay' LIMIT 1000 FOR UPDATE SKIP LOCKED) \
     DELETE FROM sekali.lock AS it USING old WHERE it.name = old.name";

/// `FOR KEY SHARE` keeps everybody else out until the transaction ends, and lets the heartbeat move the deadline.
const CHECK: &str = "SELECT FROM sekali.lock WHERE name = $1 AND owner = $2 AND fence = $3 \
     AND clock_timestamp() <= until FOR KEY SHARE";

/// A lock that was taken.
pub(super) struct Acquired {
    pub(super) name: Name,
    pub(super) fence: i64,
    /// Its owner had let it run out.
    pub(super) was_expired: bool,
}

/// What a heartbeat found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    Renewed,
    /// Another transaction has locked the row at the moment.
    Busy,
    /// The row is gone, or another's.
    Gone,
}

pub(super) async fn acquire(
    client: &ClientWrapper,
    names: &[Name],
    owner: Uuid,
    ttl: Duration,
) -> Result<Vec<Acquired>, Error> {
    let texts: Vec<&str> = names.iter().map(Name::as_str).collect();
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&texts, Type::TEXT_ARRAY), (&owner, Type::UUID), (&as_ms(ttl), Type::FLOAT8)];
    let rows = client.query_typed(ACQUIRE, &params).await.map_err(|error| failed("take a lock", &error))?;
    let asked: HashMap<&str, &Name> = names.iter().map(|it| (it.as_str(), it)).collect();
    let read = |row: &tokio_postgres::Row| {
        let name = (*asked.get(row.get::<_, &str>(0))?).clone();
        Some(Acquired { name, fence: row.get(1), was_expired: row.get(2) })
    };
    Ok(rows.iter().filter_map(read).collect())
}

/// Renews locks; the answers are by fence.
pub(super) async fn renew(client: &ClientWrapper, held: &[&Held]) -> Result<Vec<(i64, Renewal)>, Error> {
    let names: Vec<&str> = held.iter().map(|it| it.name.as_str()).collect();
    let owners: Vec<Uuid> = held.iter().map(|it| it.owner).collect();
    let fences: Vec<i64> = held.iter().map(|it| it.fence).collect();
    let ttls: Vec<f64> = held.iter().map(|it| as_ms(it.ttl)).collect();
    let params: [(&(dyn ToSql + Sync), Type); 4] = [
        (&names, Type::TEXT_ARRAY),
        (&owners, Type::UUID_ARRAY),
        (&fences, Type::INT8_ARRAY),
        (&ttls, Type::FLOAT8_ARRAY),
    ];
    let rows = client.query_typed(RENEW, &params).await.map_err(|error| failed("renew locks", &error))?;
    let read = |row: &tokio_postgres::Row| {
        let renewal = match (row.get(1), row.get(2)) {
            (true, _) => Renewal::Renewed,
            (false, true) => Renewal::Busy,
            (false, false) => Renewal::Gone,
        };
        (row.get(0), renewal)
    };
    Ok(rows.iter().map(read).collect())
}

/// Deletes rows of these owners, and waits for transactions that use them. Returns how many there were.
pub(super) async fn release(client: &ClientWrapper, rows: &[(Name, Uuid)]) -> Result<usize, Error> {
    let (names, owners) = columns(rows);
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&names, Type::TEXT_ARRAY), (&owners, Type::UUID_ARRAY)];
    let released = client.execute_typed(RELEASE, &params).await.map_err(|error| failed("release locks", &error))?;
    Ok(usize::try_from(released).unwrap_or(usize::MAX))
}

/// Deletes rows of these owners that no transaction uses. Returns which.
pub(super) async fn forget(client: &ClientWrapper, rows: &[(Name, Uuid)]) -> Result<HashSet<(String, Uuid)>, Error> {
    let (names, owners) = columns(rows);
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&names, Type::TEXT_ARRAY), (&owners, Type::UUID_ARRAY)];
    let rows = client.query_typed(FORGET, &params).await.map_err(|error| failed("release locks", &error))?;
    Ok(rows.iter().map(|it| (it.get(1), it.get(0))).collect())
}

/// Deletes locks that ran out long ago.
pub(super) async fn sweep(client: &ClientWrapper) -> Result<u64, Error> {
    client.execute_typed(SWEEP, &[]).await.map_err(|error| failed("delete locks that ran out", &error))
}

/// Whether the lock is the owner's; if so, nobody takes it until the transaction ends.
pub(super) async fn check(client: &impl GenericClient, fence: &Fence) -> Result<bool, Failed> {
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&fence.name().as_str(), Type::TEXT), (&fence.owner(), Type::UUID), (&fence.number(), Type::INT8)];
    Ok(client.query_typed_opt(CHECK, &params).await?.is_some())
}

/// What could not be done with a lock, and why.
pub(super) fn failed(doing: &str, error: &Failed) -> Error {
    if error.code() == Some(&SqlState::UNDEFINED_TABLE) {
        return Error::new(ErrorKind::Migration, doing)
            .because("schema sekali is missing or older than this program: run `sekali migrate`");
    }
    Error::new(ErrorKind::Postgres, doing).because(SqlError::of(error))
}

/// The database did not answer.
pub(super) fn silence(doing: &str) -> Error {
    Error::new(ErrorKind::Postgres, doing).because(NoAnswer)
}

/// A connection of the pool.
pub(super) async fn connect(pool: &Pool) -> Result<Object, Error> {
    pool.get().await.map_err(|error| {
        let failed = Error::new(ErrorKind::Postgres, "get a database connection for a lock");
        match error {
            PoolError::Backend(error) => failed.because(SqlError::of(&error)),
            error => failed.because(error),
        }
    })
}

fn columns(rows: &[(Name, Uuid)]) -> (Vec<&str>, Vec<Uuid>) {
    rows.iter().map(|(name, owner)| (name.as_str(), *owner)).unzip()
}

fn as_ms(ttl: Duration) -> f64 {
    ttl.as_secs_f64() * 1000.0
}
