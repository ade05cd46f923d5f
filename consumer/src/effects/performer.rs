//! Performs effects, each in a task of its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use sekali_schemas::Message;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Effect, Ended, Lease, Performing};
use crate::core::{Event, Fence, Leased, Outcome, Performed};
use crate::executor::Shared;
use crate::executor::handling::contained;
use crate::incoming::Incoming;
use crate::lock::LockError;
use crate::{Failure, metrics};

/// What is to be done about leases.
pub(crate) enum LeaseOrder {
    Perform(Leased<Incoming>),
    /// Nothing was begun under them.
    GiveBack(Vec<Fence>),
}

/// One for each process.
pub(crate) struct Performer<E: Effect> {
    pub(crate) shared: Arc<Shared<Performing<E>>>,
    pub(crate) results: mpsc::UnboundedSender<Event<Incoming>>,
    /// Ends what is still in progress when the drain timeout has passed.
    pub(crate) abort: CancellationToken,
}

impl<E: Effect> Performer<E> {
    /// Performs what comes until the sender is gone, or until the abort.
    pub(crate) async fn run(self, mut orders: mpsc::UnboundedReceiver<LeaseOrder>) {
        let tasks = TaskTracker::new();
        let this = Arc::new(self);
        while let Some(order) = orders.recv().await {
            let this = this.clone();
            tasks.spawn(async move {
                match order {
                    LeaseOrder::Perform(leased) => tokio::select! {
                        () = this.abort.cancelled() => {}
                        () = this.perform(leased) => {}
                    },
                    LeaseOrder::GiveBack(fences) => this.shared.handler.leases.give_back(&fences).await,
                }
            });
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn perform(&self, leased: Leased<Incoming>) {
        let (fence, started) = (leased.fence, Instant::now());
        let performing = &self.shared.handler;
        let lease = Lease { fence, lost: performing.leases.lost(fence) };
        let ended = tokio::select! {
            biased;
            () = lease.lost.cancelled() => None,
            ended = self.attempt(&leased, &lease) => Some(ended),
        };
        let (outcome, result) = match ended {
            Some(Ok(outcome)) => {
                performing.ended().insert(fence, Ended::Done(Arc::new(outcome)));
                (Performed::Done, "ok")
            }
            Some(Err(failure)) => match failure.class().outcome() {
                Outcome::Failed(kind) => {
                    performing.ended().insert(fence, Ended::Failed(failure.class(), failure.info()));
                    (Performed::Failed(kind), "failed")
                }
                Outcome::Interrupted | Outcome::Decided | Outcome::Full => {
                    performing.leases.give_back(&[fence]).await;
                    (Performed::Interrupted, "interrupted")
                }
            },
            None => {
                performing.leases.forget(&[fence]);
                (Performed::Interrupted, "lost")
            }
        };
        let topic = self.shared.routes.source_name(leased.item.partition.topic);
        metrics::distribution(&metrics::EFFECT_DURATION, &[("topic", topic), ("result", result)])
            .record(started.elapsed().as_secs_f64());
        // The driver is gone only when nothing is to be done any more.
        let _gone = self.results.send(Event::Performed { leased, outcome });
    }

    async fn attempt(&self, leased: &Leased<Incoming>, lease: &Lease) -> Result<E::Outcome, Failure> {
        let performing = &self.shared.handler;
        match &leased.item.record.message {
            Incoming::Message(message) => {
                self.shared.message_against_contract(message).await?;
                let work = self.locked(message, performing.effect.perform(message, lease));
                contained(performing.timeout, &self.shared.metrics, work).await
            }
            Incoming::Invalid { reason, .. } => Err(Failure::invalid(reason)),
        }
    }
}

impl<E: Effect> Performer<E> {
    /// Performs under the lock that the message wants, if any; ends when the lock is lost.
    async fn locked<T>(&self, message: &Message, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let shared = &self.shared;
        let Some(name) = shared.handler.effect.lock_key(message)? else { return work.await };
        let guard = shared.locks.try_acquire(&name, shared.lock_ttl).await?.ok_or(LockError::Contended)?;
        let performed = guard.run(work).await?;
        // Lost by now or not: the effect is there.
        if guard.release().await.is_err() {
            tracing::debug!("a lock was not released, it runs out by itself");
        }
        performed
    }
}
