//! Named locks: leases in `sekali.lock`, judged by the database's clock.
//!
//! A lock keeps two processes from working on one resource at a time, for as long as it takes and without a transaction
//! that stays open meanwhile. It is a row with an owner, a deadline and a *fence*, a number that rises with every
//! acquisition. A shared heartbeat moves the deadlines of all locks of a process by one statement.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use sekali_consumer::lock::{LockError, Locks, Name};
//!
//! # async fn call_the_warehouse() {}
//! # async fn example(pool: deadpool_postgres::Pool, mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::new(pool);
//! let name = Name::new("warehouse:7")?;
//! let guard = match locks.acquire(&name, Duration::from_secs(30), Duration::from_secs(5)).await {
//!     Err(LockError::Contended) => return Ok(()), // later
//!     guard => guard?,
//! };
//! // Ends when the lock is lost.
//! guard.run(call_the_warehouse()).await?;
//! let tx = client.transaction().await?;
//! // Refused when another process has taken over meanwhile; until the end of `tx`, none can.
//! guard.check(&tx).await?;
//! tx.execute("UPDATE warehouse SET called = now() WHERE id = 7", &[]).await?;
//! tx.commit().await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Safety.** A holder counts its time from before the request that renewed the lock, on its own monotonic clock, so that
//! it knows the lock as lost before the database lets another have it. A process that stands still (frozen, swapped out,
//! blocked in code that never yields) learns it late, and what it sends then arrives late: only [`Guard::check`] inside
//! the transaction that writes keeps such writes out. Where the resource is not this database, give it the fence and let
//! it refuse lower numbers.
//!
//! **Not re-entrant.** Whoever has a lock and asks for it again finds it taken, also the next message of a batch. What is all
//! in one transaction takes [`advisory`] locks instead, which the transaction may take again.
//!
//! **Poolers.** No session state, no named statements: works through PgBouncer in transaction mode.
//!
//! [`advisory`] is the other kind: a lock of the transaction, without row, deadline and heartbeat. ARCHITECTURE.md says which
//! is right when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::{Error, ErrorKind, metrics};

pub use self::advisory::{advisory, try_advisory};
pub(crate) use self::error::NoAnswer;
pub use self::error::{LockError, Lost};
pub use self::guard::{Fence, Guard};
pub use self::name::{InvalidName, Name};
use self::registry::{Held, Registry};

mod advisory;
mod beat;
mod error;
mod guard;
mod name;
mod registry;
mod table;

/// Shortest time to live: the heartbeat needs a few round trips within it.
pub const TTL_MIN: Duration = Duration::from_millis(100);
/// Longest: a crashed holder keeps everybody out for so long.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause between two looks at a lock that is taken: doubled from the first to the last, each half to the whole of it.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// Longest wait for an answer of the database.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The lock around the handling of a message: see [`Handler::lock_key`](crate::Handler::lock_key).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockKey {
    /// A named lock, which others may take with [`Locks`]. A message that meets it taken comes later, through the first
    /// retry topic, and burns no attempt.
    Named(Name),
    /// A lock of the transaction, as [`advisory`] takes it: the batch waits for it. For what is all in the database.
    Transaction(Name),
}

impl LockKey {
    pub(crate) fn named_name(&self) -> Option<&Name> {
        if let LockKey::Named(name) = self { Some(name) } else { None }
    }

    pub(crate) fn transaction_name(&self) -> Option<&Name> {
        if let LockKey::Transaction(name) = self { Some(name) } else { None }
    }
}

/// Where locks come from. Clones share the heartbeat; make one for each process and database.
#[derive(Clone)]
pub struct Locks {
    pool: Pool,
    registry: Arc<Registry>,
}

impl Locks {
    /// Locks in the database of a pool. Connects to nothing yet. The heartbeat has a connection of its own beside the
    /// pool's, while locks are held.
    pub fn new(pool: Pool) -> Locks {
        Locks { registry: Arc::new(Registry::new(pool.clone())), pool }
    }

    /// Takes a lock if nobody has it. `ttl`, within [`TTL_MIN`] and [`TTL_MAX`], is how long it outlives a holder that
    /// crashed: too short, and a hiccup of the database loses it; too long, and others wait for a dead process.
    ///
    /// # Errors
    /// `ttl` is out of bounds, or the database does not answer. A lock that it gave without our knowing runs out.
    pub async fn try_acquire(&self, name: &Name, ttl: Duration) -> Result<Option<Guard>, Error> {
        let mut guards = self.try_acquire_all(std::slice::from_ref(name), ttl).await?;
        Ok(guards.remove(name))
    }

    /// Takes those of the locks that nobody has, by one statement. Callers that share names cannot deadlock on each
    /// other, in whatever order they give them, and none of them waits for another's lock.
    ///
    /// # Errors
    /// As [`try_acquire`](Locks::try_acquire).
    pub async fn try_acquire_all(&self, names: &[Name], ttl: Duration) -> Result<BTreeMap<Name, Guard>, Error> {
        let begun = Instant::now();
        let acquired = self.ask(names, ttl).await;
        let count = |result, count: usize| {
            metrics::LOCK_ACQUISITIONS.count(&[("result", result)]).increment(count as u64);
        };
        match &acquired {
            Ok(guards) => {
                count("acquired", guards.len());
                // A name that is given twice is one lock.
                count("contended", names.len().saturating_sub(guards.len()));
                guards.iter().for_each(|_| metrics::LOCK_WAIT.spread(&[]).record(begun.elapsed()));
            }
            Err(_) => count("error", names.len()),
        }
        acquired
    }

    /// Takes a lock, and waits until `wait` has passed for whoever has it. Waiting holds no connection and no
    /// transaction; it is polling, in no order among those who wait. `ttl` as in [`try_acquire`](Locks::try_acquire).
    ///
    /// # Errors
    /// [`LockError::Contended`]: still taken after `wait`. [`LockError::Failed`]: as `try_acquire`.
    pub async fn acquire(&self, name: &Name, ttl: Duration, wait: Duration) -> Result<Guard, LockError> {
        let begun = Instant::now();
        let count = |result| metrics::LOCK_ACQUISITIONS.count(&[("result", result)]).increment(1);
        let mut pause = PAUSE.0;
        loop {
            match self.ask(std::slice::from_ref(name), ttl).await.inspect_err(|_| count("error"))?.remove(name) {
                Some(guard) => {
                    count("acquired");
                    metrics::LOCK_WAIT.spread(&[]).record(begun.elapsed());
                    return Ok(guard);
                }
                None if wait <= begun.elapsed() => {
                    count("contended");
                    return Err(LockError::Contended);
                }
                None => {}
            }
            sleep(jittered(pause).min(wait.saturating_sub(begun.elapsed()))).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Gives locks back by one statement; those that were lost meanwhile are passed over. Returns how many were still
    /// this process's.
    ///
    /// # Errors
    /// The database does not answer; then they run out by themselves.
    pub async fn release_all(&self, guards: impl IntoIterator<Item = Guard>) -> Result<usize, Error> {
        let held: Vec<Arc<Held>> = guards.into_iter().filter_map(Guard::disarm).collect();
        if held.is_empty() {
            return Ok(0);
        }
        let rows = held.iter().map(|it| (it.name.clone(), it.owner)).collect();
        let ttl = held.iter().map(|it| it.ttl).max().unwrap_or(TTL_MIN);
        let mut asked = Unanswered { registry: &self.registry, rows, ttl, client: None };
        let client = asked.client.insert(table::connect(&self.pool).await?);
        let released = timeout(ANSWER_MAX, table::release(client, &asked.rows)).await;
        let released = released.unwrap_or_else(|_| Err(table::silence("release locks")))?;
        asked.answered();
        Ok(released)
    }

    /// One try for each name. A future that is dropped on the way, or gets no answer, leaves rows that nobody knows to
    /// be owned: the heartbeat deletes them.
    async fn ask(&self, names: &[Name], ttl: Duration) -> Result<BTreeMap<Name, Guard>, Error> {
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            let text = "take a lock: its time to live must be between 100 ms and 24 hours";
            return Err(Error::new(ErrorKind::Config, text));
        }
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (owner, asked_at) = (Uuid::new_v4(), Instant::now());
        let client = table::connect(&self.pool).await?;
        let rows = names.iter().map(|it| (it.clone(), owner)).collect();
        let mut asked = Unanswered { registry: &self.registry, rows, ttl, client: None };
        let client = asked.client.insert(client);
        let answer = timeout(ANSWER_MAX, table::acquire(client, names, owner, ttl)).await;
        let rows = answer.unwrap_or_else(|_| Err(table::silence("take a lock")))?;
        asked.answered();
        let guards = rows.into_iter().map(|row| {
            if row.was_expired {
                metrics::LOCK_EXPIRATIONS.count(&[]).increment(1);
                tracing::info!(fence = row.fence, "took over a lock that its owner let run out");
            }
            let held = Arc::new(Held::new(row.name.clone(), owner, row.fence, ttl, asked_at));
            (row.name, Guard::new(held, self.clone()))
        });
        Ok(guards.collect())
    }
}

/// A statement whose answer has not come. If it never does, its rows are deleted by the heartbeat, and its connection is
/// closed: what is on its way there must not be in front of the next user's statements.
struct Unanswered<'a> {
    registry: &'a Arc<Registry>,
    rows: Vec<(Name, Uuid)>,
    ttl: Duration,
    client: Option<Object>,
}

impl Unanswered<'_> {
    /// All is known: the connection goes back to the pool.
    fn answered(mut self) {
        self.rows.clear();
        drop(self.client.take());
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        drop(self.client.take().map(Object::take));
        for (name, owner) in self.rows.drain(..) {
            self.registry.leave(name, owner, self.ttl);
        }
    }
}

/// Half of a pause to the whole of it, at random: those who wait for one lock do not come all at once.
fn jittered(pause: Duration) -> Duration {
    let random = Uuid::new_v4().as_u64_pair().1 as u32;
    pause.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}
