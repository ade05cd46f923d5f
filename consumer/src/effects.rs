//! Effects outside the database: mail, HTTP, whatever cannot be rolled back.

mod executor;
mod leases;
mod performer;
mod record;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sekali_schemas::control::ErrorInfo;
use sekali_schemas::idempotency::KeyError;
use sekali_schemas::{IdempotencyKey, Message, Record};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::core::Fence;
use crate::failure::FailureClass;
use crate::lock::Name;
use crate::{Failure, Reply, Transaction};

pub(crate) use leases::Leases;
pub(crate) use performer::{LeaseOrder, Performer};

/// An effect that a message asks for and that happens outside the database.
///
/// [`perform`](Effect::perform) runs outside any transaction, under a lease that is prolonged while it runs; what came of
/// it is written by [`record`](Effect::record) in one transaction with the inbox row, and only by who still has the lease.
///
/// An effect happens *at least* once: after a crash, or when its outcome is not known, it is performed again. Whoever
/// receives it tells repeats by the message's [idempotency key](Message::idempotency_key), which must therefore travel
/// with it: as the `Idempotency-Key` header of a request, as the `Message-ID` of a mail.
///
/// Messages of one key come one after another; of different keys, up to `effects.concurrent_max` at once.
pub trait Effect: Send + Sync + 'static {
    /// What performing it gives, for [`record`](Effect::record).
    type Outcome: Send + Sync + 'static;

    /// Has the effect. No transaction is open; the future is dropped when the lease is lost, or at
    /// `effects.perform_timeout`.
    ///
    /// # Errors
    /// Any error given to `?` becomes a [`Failure`]: transient unless said otherwise. A failure is an attempt, also when
    /// nobody knows whether the effect happened.
    fn perform(&self, message: &Message, lease: &Lease) -> impl Future<Output = Result<Self::Outcome, Failure>> + Send;

    /// Writes what came of it, in the transaction that also decides the message. May run again with the same outcome when
    /// the transaction is rolled back.
    ///
    /// # Errors
    /// As [`Handler::handle`](crate::Handler::handle). The attempt has failed then, although the effect is there.
    fn record(
        &self,
        message: &Message,
        outcome: &Self::Outcome,
        tx: &Transaction<'_>,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// As [`Handler::idempotency_key`](crate::Handler::idempotency_key).
    fn idempotency_key(&self, record: &Record) -> Option<Result<IdempotencyKey, KeyError>> {
        let _ = record;
        None
    }

    /// A named lock around performing, where the order of its key is not enough. A message that meets it taken comes
    /// later, through the first retry topic, and burns no attempt. `None`, the default, takes none.
    ///
    /// # Errors
    /// The message says nothing that could be locked: that is its failure.
    fn lock_key(&self, message: &Message) -> Result<Option<Name>, Failure> {
        let _ = message;
        Ok(None)
    }
}

/// The right to perform an effect: for as long as it lasts, nobody else performs it.
#[derive(Debug)]
pub struct Lease {
    fence: Fence,
    lost: CancellationToken,
}

impl Lease {
    /// A number that is higher for every later owner of a lease, over all messages. A receiver that remembers the highest
    /// one that it saw of a message can refuse an owner that woke up too late.
    pub fn fence(&self) -> i64 {
        self.fence.0
    }

    /// Completes when the lease is lost. The future of `perform` is dropped then anyway; this is for what runs beside it.
    pub fn lost(&self) -> WaitForCancellationFuture<'_> {
        self.lost.cancelled()
    }

    /// Whether the lease is lost by now.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

/// An effect with what this process has in progress of it.
pub struct Performing<E: Effect> {
    effect: E,
    timeout: Duration,
    leases: Arc<Leases>,
    /// What ended and is not yet written.
    ended: Mutex<HashMap<Fence, Ended<E::Outcome>>>,
}

/// What an effect came to.
enum Ended<O> {
    Done(Arc<O>),
    Failed(FailureClass, ErrorInfo),
}

impl<O> Clone for Ended<O> {
    fn clone(&self) -> Ended<O> {
        match self {
            Ended::Done(outcome) => Ended::Done(outcome.clone()),
            Ended::Failed(class, info) => Ended::Failed(*class, info.clone()),
        }
    }
}

impl<E: Effect> Performing<E> {
    pub(crate) fn new(effect: E, timeout: Duration, leases: Arc<Leases>) -> Performing<E> {
        Performing { effect, timeout, leases, ended: Mutex::default() }
    }

    pub(crate) fn idempotency_key(&self, record: &Record) -> Option<Result<IdempotencyKey, KeyError>> {
        self.effect.idempotency_key(record)
    }

    pub(crate) fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    fn ended(&self) -> MutexGuard<'_, HashMap<Fence, Ended<E::Outcome>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is to be done about these leases.
    fn forget(&self, fences: &[Fence]) {
        let mut ended = self.ended();
        fences.iter().for_each(|it| drop(ended.remove(it)));
        self.leases.forget(fences);
    }
}
