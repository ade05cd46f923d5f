//! The relay's leadership: a row of `sekali.lock`, judged by the database's clock.

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::LastAnswer;
use crate::{Error, ErrorKind, SqlError};

/// Takes the row when there is none or it ran out. A follower only reads: it neither locks nor burns a fence.
const ACQUIRE: &str = "INSERT INTO sekali.lock AS held (name, owner, fence, until) \
     SELECT 'relay', $1, nextval('sekali.fence'), now() + $2 * interval '1 ms' \
     WHERE NOT EXISTS (SELECT FROM sekali.lock WHERE name = 'relay' AND now() <= until) \
     ON CONFLICT (name) DO UPDATE \
     SET owner = excluded.owner, fence = excluded.fence, until = excluded.until, acquired_at = now() \
     WHERE held.until < now() \
     RETURNING fence";
const RENEW: &str = "UPDATE sekali.lock SET until = now() + $3 * interval '1 ms' \
                     WHERE name = 'relay' AND owner = $1 AND fence = $2";
const RELEASE: &str = "DELETE FROM sekali.lock WHERE name = 'relay' AND owner = $1 AND fence = $2";

/// Proof of leadership. Every statement that moves the cursor checks owner and fence.
#[derive(Debug)]
pub(super) struct Lease {
    owner: Uuid,
    fence: i64,
    taken_at: Instant,
}

impl Lease {
    /// Takes the lease if it is free.
    pub(super) async fn acquire(pool: &Pool, ttl: Duration) -> Result<Option<Lease>, Error> {
        let client = connect(pool).await?;
        let (owner, taken_at) = (Uuid::new_v4(), Instant::now());
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&owner, Type::UUID), (&as_ms(ttl), Type::FLOAT8)];
        let row = client.query_typed(ACQUIRE, &params).await.map_err(|error| failed("acquire its lease", &error))?;
        Ok(row.first().map(|row| Lease { owner, fence: row.get(0), taken_at }))
    }

    pub(super) fn owner(&self) -> &Uuid {
        &self.owner
    }

    pub(super) fn fence(&self) -> i64 {
        self.fence
    }

    /// Renews the lease; resolves when it is lost. Counted from before the request that renewed it, so that this process
    /// always gives up before another one may begin.
    pub(super) async fn keep(&self, pool: &Pool, ttl: Duration, answered: &LastAnswer) {
        let mut valid_until = self.taken_at + ttl;
        let mut next = self.taken_at + ttl / 3;
        loop {
            sleep_until(next.min(valid_until)).await;
            let asked_at = Instant::now();
            match timeout_at(valid_until, self.renew(pool, ttl)).await {
                Ok(Ok(true)) => {
                    answered.note();
                    (valid_until, next) = (asked_at + ttl, asked_at + ttl / 3);
                }
                Ok(Ok(false)) | Err(_) => return,
                Ok(Err(error)) => {
                    tracing::warn!(error = %error.chain(), "the relay cannot renew its lease");
                    next = Instant::now() + ttl / 12;
                }
            }
        }
    }

    async fn renew(&self, pool: &Pool, ttl: Duration) -> Result<bool, Error> {
        let client = connect(pool).await?;
        let renewed = client
            .execute_typed(RENEW, &[(&self.owner, Type::UUID), (&self.fence, Type::INT8), (&as_ms(ttl), Type::FLOAT8)])
            .await;
        renewed.map(|rows| rows == 1).map_err(|error| failed("renew its lease", &error))
    }

    /// Lets the next leader begin at once.
    pub(super) async fn release(&self, pool: &Pool) -> Result<(), Error> {
        let client = connect(pool).await?;
        let released = client.execute_typed(RELEASE, &[(&self.owner, Type::UUID), (&self.fence, Type::INT8)]).await;
        released.map(drop).map_err(|error| failed("release its lease", &error))
    }
}

/// A connection of the pool.
pub(super) async fn connect(pool: &Pool) -> Result<Object, Error> {
    pool.get().await.map_err(|error| {
        let relay = Error::new(ErrorKind::Postgres, "connect the relay to postgres");
        match error {
            deadpool_postgres::PoolError::Backend(error) => relay.because(SqlError::of(&error)),
            error => relay.because(error),
        }
    })
}

/// What the relay could not do, and why.
pub(super) fn failed(doing: &str, error: &tokio_postgres::Error) -> Error {
    if error.code() == Some(&tokio_postgres::error::SqlState::UNDEFINED_TABLE) {
        return Error::new(ErrorKind::Migration, format!("let the relay {doing}"))
            .because("schema sekali is missing or older than this program: run `sekali migrate`");
    }
    Error::new(ErrorKind::Postgres, format!("let the relay {doing}")).because(SqlError::of(error))
}

fn as_ms(ttl: Duration) -> f64 {
    ttl.as_secs_f64() * 1000.0
}
