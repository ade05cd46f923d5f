//! One action, once: the inbox for code that has no Kafka message, such as an HTTP handler.
//!
//! [`Inbox::once`] runs work in a transaction of yours, unless somebody has done it before under the same idempotency
//! key, and keeps its result: whoever comes again gets that. A consumer group of the same name shares the decisions, so
//! that an order that comes over HTTP and over Kafka is one action, as long as both give it the same key and the same
//! bytes.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use sekali_consumer::deadpool_postgres::{Pool, Transaction};
//! use sekali_consumer::once::{Inbox, Once, OnceError, until_decided};
//! use sekali_consumer::{Failure, IdempotencyKey, schemas};
//!
//! async fn pay(tx: &Transaction<'_>, account: &str, cents: i64) -> Result<i64, Failure> {
//!     let sql = "INSERT INTO payment (account, cents) VALUES ($1, $2) RETURNING id";
//!     Ok(tx.query_one(sql, &[&account, &cents]).await?.get(0))
//! }
//!
//! async fn pay_once(pool: &Pool, inbox: Inbox, key: &IdempotencyKey, body: &[u8]) -> Result<i64, OnceError<Failure>> {
//!     let fingerprint = schemas::fingerprint(Some(body));
//!     // Whoever comes while the first one works waits for its answer, without a connection.
//!     let answer = until_decided(Duration::from_secs(5), || async {
//!         let mut client = pool.get().await.map_err(Failure::from)?;
//!         let tx = client.transaction().await.map_err(Failure::from)?;
//!         let answer = inbox.once(&tx, key, fingerprint, pay(&tx, "a-1", 250)).await?;
//!         // Nothing has happened before this.
//!         tx.commit().await.map_err(Failure::from)?;
//!         Ok(answer)
//!     });
//!     Ok(match answer.await? {
//!         Once::Fresh(payment) | Once::Repeat(payment) => payment,
//!     })
//! }
//! ```

mod error;

use std::future::Future;
use std::time::Duration;

use futures_util::future;
use sekali_producer::outbox::InTransaction;
use sekali_schemas::inbox::State;
use sekali_schemas::{IdempotencyKey, fingerprint};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient};

use crate::postgres::inbox;
use crate::{Error, ErrorKind, SqlError, admin};
pub use error::OnceError;

/// The decisions of one consumer: the scope in which an idempotency key means one action.
///
/// Decisions of a consumer that is also a group of this name are forgotten as its configuration says
/// (`inbox.retention`); without such a group nobody forgets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inbox {
    consumer_id: i16,
}

/// What [`Inbox::once`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Once<T> {
    /// The work ran now.
    Fresh(T),
    /// It was done before: the stored result.
    Repeat(T),
}

impl<T> Once<T> {
    /// The result, whenever it was made.
    pub fn into_result(self) -> T {
        match self {
            Once::Fresh(it) | Once::Repeat(it) => it,
        }
    }
}

/// As long as a batch of a consumer group may be about to commit the same key: [`OnceError::InProgress`] after this.
const OTHERS_WAIT: &str = "50ms";

const LIMIT_WAITING: &str = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', $1, true)";
const RESTORE_WAITING: &str = "SELECT set_config('lock_timeout', $1, true)";

/// The lock tells at once that another call is at work on the key; a batch of a consumer group has none and is met at
/// the row. Whoever does not get the lock inserts nothing.
const CLAIM: &str = "WITH tried AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($4) AS mine) \
     INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT $1, $2, $3, 1, 1 FROM tried WHERE mine ON CONFLICT DO NOTHING";

const FOUND: &str = "SELECT state, fingerprint, result FROM sekali.inbox WHERE consumer_id = $1 AND key = $2";

const STORE: &str = "UPDATE sekali.inbox SET result = $3 WHERE consumer_id = $1 AND key = $2";

type Param<'a> = (&'a (dyn ToSql + Sync), Type);

impl Inbox {
    /// The inbox of a consumer, which is made when it is new. Needs a connection only now.
    ///
    /// # Errors
    /// The tables are missing or too old, or the database does not answer.
    pub async fn open(client: &Client, consumer: &str) -> Result<Inbox, Error> {
        admin::require_schema(client).await?;
        let consumer_id = inbox::consumer_id(client, consumer)
            .await
            .map_err(|error| Error::new(ErrorKind::Postgres, "register the consumer").because(SqlError::of(&error)))?;
        Ok(Inbox { consumer_id })
    }

    /// Runs `work` inside `tx`, unless the action of this key was done before, and keeps its result in the inbox row.
    /// It has happened when you commit. `fingerprint` is that of what was asked for, [`crate::schemas::fingerprint`] of
    /// the bytes; a Kafka message has the one of its payload.
    ///
    /// A batch of the consumer group that meets the key waits for your commit, so that work here should be short.
    ///
    /// Never waits for another call that works on the same key, and for a batch of a consumer group 50 ms:
    /// [`OnceError::InProgress`], see [`until_decided`]. Everything runs under a savepoint and unnamed statements:
    /// after an error nothing of it is left in `tx`, which goes on, and nothing in the session, so that it may lie
    /// behind a pooler in transaction mode. The transaction must be READ COMMITTED, the default. When the future is
    /// dropped half-way, roll back.
    ///
    /// # Errors
    /// See [`OnceError`]; `E` is the error of `work`. A result with U+0000 in a text cannot be stored: SQLSTATE 22P05.
    pub fn once<T, E>(
        &self,
        tx: &impl InTransaction,
        key: &IdempotencyKey,
        fingerprint: i64,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<Once<T>, OnceError<E>>>
    where
        T: Serialize + DeserializeOwned,
    {
        // Else each layer of futures has room for it, and calls inside calls grow without need.
        let work = Box::pin(work);
        async move { self.under_savepoint(tx.connection(), key, fingerprint, work).await }
    }

    async fn under_savepoint<T, E>(
        &self,
        client: &(impl GenericClient + Sync),
        key: &IdempotencyKey,
        fingerprint: i64,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Once<T>, OnceError<E>>
    where
        T: Serialize + DeserializeOwned,
    {
        let limit: [Param<'_>; _] = [(&OTHERS_WAIT, Type::TEXT)];
        let (saved, limited) =
            future::join(client.batch_execute("SAVEPOINT sekali_once"), client.query_typed_one(LIMIT_WAITING, &limit))
                .await;
        // Nothing to undo: a savepoint of this name would be that of a call around this one.
        saved.map_err(sql)?;
        let done = match limited {
            Ok(before) => self.run(client, key, fingerprint, before.get(0), work).await,
            Err(error) => Err(sql(error)),
        };
        if done.is_err() {
            // A connection that is gone has undone more than this, and the first error is the one to report.
            let _gone = client.batch_execute("ROLLBACK TO SAVEPOINT sekali_once; RELEASE SAVEPOINT sekali_once").await;
        }
        done
    }

    async fn run<T, E>(
        &self,
        client: &(impl GenericClient + Sync),
        key: &IdempotencyKey,
        fingerprint: i64,
        lock_timeout: String,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Once<T>, OnceError<E>>
    where
        T: Serialize + DeserializeOwned,
    {
        if !self.claim(client, key, fingerprint, &lock_timeout).await? {
            let stored = self.find(client, key, fingerprint).await?;
            let result = serde_json::from_value(stored).map_err(|_| OnceError::Unreadable)?;
            client.batch_execute("RELEASE SAVEPOINT sekali_once").await.map_err(sql)?;
            return Ok(Once::Repeat(result));
        }
        let result = work.await.map_err(OnceError::Work)?;
        let value = serde_json::to_value(&result).map_err(|_| OnceError::Unreadable)?;
        let store = async {
            if value.is_null() {
                return Ok(());
            }
            let params: [Param<'_>; _] =
                [(&self.consumer_id, Type::INT2), (&key.uuid(), Type::UUID), (&value, Type::JSONB)];
            client.execute_typed(STORE, &params).await.map(drop)
        };
        // Of a transaction that is aborted, because the work has swallowed an error, no savepoint can be released.
        let (stored, released) = future::join(store, client.batch_execute("RELEASE SAVEPOINT sekali_once")).await;
        stored.map_err(sql)?;
        released.map_err(sql)?;
        Ok(Once::Fresh(result))
    }

    /// Whether the row is this transaction's to decide. Waiting is limited before and not after.
    async fn claim<E>(
        &self,
        client: &(impl GenericClient + Sync),
        key: &IdempotencyKey,
        fingerprint: i64,
        lock_timeout: &str,
    ) -> Result<bool, OnceError<E>> {
        let (uuid, lock) = (key.uuid(), self.lock_of(key));
        let params: [Param<'_>; _] =
            [(&uuid, Type::UUID), (&fingerprint, Type::INT8), (&self.consumer_id, Type::INT2), (&lock, Type::INT8)];
        let restore: [Param<'_>; _] = [(&lock_timeout, Type::TEXT)];
        // Sent together: one round trip.
        let (claimed, restored) =
            future::join(client.execute_typed(CLAIM, &params), client.query_typed_one(RESTORE_WAITING, &restore)).await;
        let claimed = claimed.map_err(|error| match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => OnceError::InProgress,
            _ => sql(error),
        })?;
        restored.map_err(sql)?;
        Ok(claimed == 1)
    }

    /// The stored result of a row that this transaction did not insert.
    async fn find<E>(
        &self,
        client: &(impl GenericClient + Sync),
        key: &IdempotencyKey,
        fingerprint: i64,
    ) -> Result<Value, OnceError<E>> {
        let params: [Param<'_>; _] = [(&self.consumer_id, Type::INT2), (&key.uuid(), Type::UUID)];
        // None: somebody has the lock and has not committed.
        let row = client.query_typed_opt(FOUND, &params).await.map_err(sql)?.ok_or(OnceError::InProgress)?;
        if row.get::<_, i64>(1) != fingerprint {
            return Err(OnceError::KeyReuse);
        }
        // A state that this version does not know was decided by a newer one.
        match State::from_i16(row.get(0)).unwrap_or(State::Processed) {
            State::Processed => Ok(row.get::<_, Option<Value>>(2).unwrap_or_default()),
            State::Leased => Err(OnceError::InProgress),
            state => Err(OnceError::Decided(state)),
        }
    }

    /// Number of the advisory lock. Two keys that share one only wait for each other.
    fn lock_of(&self, key: &IdempotencyKey) -> i64 {
        let mut bytes = [0; 18];
        bytes[..2].copy_from_slice(&self.consumer_id.to_be_bytes());
        bytes[2..].copy_from_slice(key.uuid().as_bytes());
        fingerprint(Some(&bytes))
    }
}

fn sql<E>(error: tokio_postgres::Error) -> OnceError<E> {
    OnceError::Sql(SqlError::of(&error))
}

/// First pause between two attempts; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(160);

/// Makes attempts until one is not [`OnceError::InProgress`], at most until `wait` has passed: so that repeats get the
/// answer of the first one. Each attempt is a transaction of its own; between them nothing is held.
///
/// # Errors
/// That of the last attempt.
pub async fn until_decided<T, E, F>(wait: Duration, mut attempt: impl FnMut() -> F) -> Result<T, OnceError<E>>
where
    F: Future<Output = Result<T, OnceError<E>>>,
{
    let deadline = Instant::now() + wait;
    let mut pause = PAUSE;
    loop {
        match attempt().await {
            Err(OnceError::InProgress) if Instant::now() < deadline => {}
            ended => return ended,
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}
