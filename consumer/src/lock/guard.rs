//! What the holder of a lock has in hand.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use sekali_producer::InTransaction;
use tokio::time::timeout;
use uuid::Uuid;

use super::registry::{Held, Loss};
use super::{ANSWER_MAX, LockError, Locks, Lost, Name, table};
use crate::metrics;

/// A lock that this process has, until it is lost.
///
/// Dropping it leaves the release to the heartbeat, soon and without waiting; outside a running heartbeat the lock runs out
/// by itself. A handler drops it before its transaction ends, and may: once [checked](Guard::check) there, it is released
/// after the end. [`release`](Guard::release) says whether it worked.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    held: Arc<Held>,
    locks: Locks,
}

/// Which acquisition of a lock a piece of work belongs to, for whoever must refuse an earlier one.
#[derive(Debug, Clone)]
pub struct Fence {
    name: Name,
    owner: Uuid,
    number: i64,
}

impl Guard {
    pub(super) fn new(held: Arc<Held>, locks: Locks) -> Guard {
        locks.registry.add(held.clone());
        Guard { held, locks }
    }

    /// What is locked.
    pub fn name(&self) -> &Name {
        &self.held.name
    }

    /// The token of this acquisition.
    pub fn owner(&self) -> Uuid {
        self.held.owner
    }

    /// The fence of this acquisition, for statements and systems that know nothing of guards.
    pub fn fence(&self) -> Fence {
        Fence { name: self.held.name.clone(), owner: self.held.owner, number: self.held.fence }
    }

    /// Whether the lock is lost. A lock that is lost never comes back.
    pub fn is_lost(&self) -> bool {
        self.held.is_lost()
    }

    /// Resolves when the lock is lost: it could not be renewed in time, or its row was taken or deleted.
    pub async fn lost(&self) {
        self.held.lost().await;
    }

    /// Runs work, and drops it at the await where it stands when the lock is lost. `Ok` means that the lock was this
    /// process's from beginning to end.
    ///
    /// # Errors
    /// The lock was lost, even if the work ended in the same moment: what it did may have met another holder.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        match select(pin!(self.lost()), pin!(work)).await {
            Either::Right((done, _)) if !self.is_lost() => Ok(done),
            _ => Err(Lost),
        }
    }

    /// As [`Fence::check`]; a guard that is refused knows its lock as lost.
    ///
    /// # Errors
    /// As [`Fence::check`].
    pub async fn check(&self, tx: &impl InTransaction) -> Result<(), LockError> {
        let checked = self.fence().check(tx).await;
        if matches!(checked, Err(LockError::Lost(_))) {
            self.locks.registry.lose(self.held.fence, Loss::Taken);
        }
        checked
    }

    /// Gives the lock back. Only the row of this acquisition is deleted. Commit or roll back a transaction that has checked
    /// the lock before: until it ends, the row cannot be deleted.
    ///
    /// # Errors
    /// [`Lost`]: it was not this process's any more. [`LockError::Failed`]: the database does not answer; the lock runs out
    /// by itself.
    pub async fn release(self) -> Result<(), LockError> {
        let locks = self.locks.clone();
        match locks.release_all([self]).await? {
            0 => Err(LockError::Lost(Lost)),
            _ => Ok(()),
        }
    }

    /// Ends the heartbeat of this lock; what is left to delete, unless it was lost.
    pub(super) fn disarm(self) -> Option<Arc<Held>> {
        self.locks.registry.remove(self.held.fence)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(held) = self.locks.registry.remove(self.held.fence) {
            self.locks.registry.leave(held.name.clone(), held.owner, held.ttl);
        }
    }
}

impl Fence {
    /// The number, which rises with every acquisition of any lock. Give it to systems outside this database, which
    /// refuse one that is lower than what they have seen.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// What is locked.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The token of the acquisition.
    pub fn owner(&self) -> Uuid {
        self.owner
    }

    /// Proves inside a transaction of yours that the lock is still this acquisition's. From then on nobody else gets it
    /// until the transaction ends, even if it runs out meanwhile: what you write is committed before another holder
    /// begins, or never. Needs READ COMMITTED, which is the default.
    ///
    /// # Errors
    /// [`Lost`]: roll back. [`LockError::Failed`]: the statement failed, and with it your transaction.
    pub async fn check(&self, tx: &impl InTransaction) -> Result<(), LockError> {
        let checked = timeout(ANSWER_MAX, table::check(tx.connection(), self)).await;
        match checked.map_err(|_| table::silence("check a lock"))? {
            Ok(true) => Ok(()),
            Ok(false) => {
                metrics::LOCK_FENCED.count(&[]).increment(1);
                Err(LockError::Lost(Lost))
            }
            Err(error) => Err(LockError::Failed(table::failed("check a lock", &error))),
        }
    }
}
