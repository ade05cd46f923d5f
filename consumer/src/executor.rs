//! Runs batches: claim, handle, seal, commit. One at a time, on one database connection.

mod contract;
pub(crate) mod handling;
mod locking;
mod search;
mod shared;
mod transactions;
pub(crate) mod writing;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use deadpool_postgres::{Client, ClientWrapper};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::batch::{Batch, Ended, Fate, tally};
use crate::core::retry::Decision;
use crate::core::{Care, Event, Findings, Item, LaneId, Outcome, Recorded};
use crate::failure::FailureClass;
use crate::held::Refusals;
use crate::incoming::Incoming;
use crate::lock::Guard;
use crate::postgres::expectation::Expectation;
use crate::{Failure, Handler};

pub(crate) use shared::Shared;

/// An order from the core.
pub(crate) enum Work {
    Run(Vec<Item<Incoming>>, How),
    /// Messages that were held.
    RunHeld(HeldOrder, How),
    Decide(Item<Incoming>, Decision),
    /// Outcomes of effects.
    Record(Vec<Recorded<Incoming>>),
}

/// Which messages that were held.
#[derive(Debug)]
pub(crate) struct HeldOrder {
    /// At most so many.
    pub(crate) messages_max: usize,
    /// Not of these topics.
    pub(crate) except: Vec<Arc<str>>,
}

impl HeldOrder {
    pub(crate) fn except(&self) -> Vec<&str> {
        self.except.iter().map(|it| &**it).collect()
    }
}

/// How messages are to be run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) care: Care,
    /// Most dead letters that may come of them.
    pub(crate) dead_max: usize,
}

/// What an order came to.
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) items: Vec<Item<Incoming>>,
    pub(crate) findings: Findings,
}

impl Finished {
    pub(crate) fn decided(findings: Findings) -> Finished {
        Finished { outcome: Outcome::Decided, items: Vec::new(), findings }
    }
}

/// Whether a transaction that was rolled back runs again at once.
pub(crate) enum Again {
    /// With what is known about some of its messages now.
    With(BTreeMap<usize, Failure>),
    Not(Outcome, Findings),
}

pub(crate) struct Executor<H> {
    pub(crate) lane: LaneId,
    pub(crate) shared: Arc<Shared<H>>,
    pub(crate) client: Option<Client>,
    /// Why the last batch failed: the text of the decision that may follow.
    pub(crate) failure: Option<Failure>,
    /// Whether the next batch brings new keys only.
    expectation: Expectation,
    /// Locks of the transaction under way.
    locked: Vec<Guard>,
}

impl<H: Handler> Executor<H> {
    /// Works until the sender of orders is gone.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Work>,
        results: mpsc::UnboundedSender<Event<Incoming>>,
    ) {
        while let Some(work) = orders.recv().await {
            let Finished { outcome, items, findings } = match work {
                Work::Run(items, how) => self.run_batch(items, how).await,
                Work::RunHeld(order, how) => self.run_held(&order, how).await,
                Work::Decide(item, decision) => self.decide(item, decision).await,
                // A handler has no effects but those in its transaction.
                Work::Record(_) => Finished::decided(Findings::default()),
            };
            if results.send(Event::Finished { lane: self.lane, outcome, items, findings }).is_err() {
                return;
            }
        }
    }

    async fn run_batch(&mut self, items: Vec<Item<Incoming>>, how: How) -> Finished {
        let started = Instant::now();
        let mut refused = match self.shared.against_contract(&items).await {
            Ok(refused) => refused,
            Err(failure) => return self.undecided(&failure, items),
        };
        let batch = Batch::of(&items, &self.shared.routes);
        loop {
            let ended = self.transact(&batch, &refused, how).await;
            match ended {
                Ok((fates, findings)) => {
                    self.unlock().await;
                    self.report(&batch, &fates, started.elapsed());
                    return Finished::decided(findings);
                }
                Err(ended) => {
                    let again = self.end(ended).await;
                    self.unlock().await;
                    match again {
                        Again::With(more) => refused.extend(more),
                        Again::Not(outcome, findings) => return Finished { outcome, items, findings },
                    }
                }
            }
        }
    }

    /// Messages that were held and may run now.
    async fn run_held(&mut self, order: &HeldOrder, how: How) -> Finished {
        let mut refused = Refusals::new();
        loop {
            let mut items = Vec::new();
            let ended = self.transact_held(order, how, &mut refused, &mut items).await;
            match ended {
                Ok((fates, findings)) => {
                    self.unlock().await;
                    self.report_held(&items, &fates);
                    return Finished::decided(findings);
                }
                Err(ended) => {
                    let again = self.end(ended).await;
                    self.unlock().await;
                    if let Again::Not(outcome, findings) = again {
                        return Finished { outcome, items, findings };
                    }
                }
            }
        }
    }
}

impl<H> Executor<H> {
    pub(crate) fn new(lane: LaneId, shared: Arc<Shared<H>>) -> Executor<H> {
        Executor { lane, shared, client: None, failure: None, expectation: Expectation::default(), locked: Vec::new() }
    }

    /// Rolls back, and says what follows.
    pub(crate) async fn end(&mut self, ended: Ended) -> Again {
        let (outcome, findings) = match ended {
            Ended::Failed(failure) => {
                let failure = self.roll_back(failure).await;
                let outcome = failure.class().outcome();
                tracing::debug!(class = failure.class().as_str(), "batch rolled back");
                self.shared.metrics.batch_failed(failure.class());
                self.failure = Some(failure);
                return Again::Not(outcome, Findings::default());
            }
            Ended::Overtaken(refused) => {
                let rolled_back = self.roll_back(Failure::transient("overtaken")).await;
                if rolled_back.class() != FailureClass::Interrupted {
                    return Again::With(refused);
                }
                (Outcome::Interrupted, Findings::default())
            }
            Ended::Full(full) => (Outcome::Full, Findings { full, ..Findings::default() }),
            Ended::OverBudget => (Outcome::Interrupted, Findings { over_budget: true, ..Findings::default() }),
        };
        let rolled_back = self.roll_back(Failure::transient("no room")).await;
        self.shared.metrics.batch_failed(FailureClass::Interrupted);
        match rolled_back.class() {
            FailureClass::Interrupted => Again::Not(Outcome::Interrupted, Findings::default()),
            _ => Again::Not(outcome, findings),
        }
    }

    /// Writes the decision on a message that failed alone.
    pub(crate) async fn decide(&mut self, item: Item<Incoming>, decision: Decision) -> Finished {
        let failure = self.failure.take().unwrap_or_else(|| Failure::transient("unknown"));
        match self.transact_decision(&item, decision, &failure).await {
            Ok((taken, ready)) => {
                let topic = self.shared.routes.source_name(item.partition.topic);
                let fate = if taken { Fate::Failed(decision, failure.class()) } else { Fate::Duplicate };
                self.shared.metrics.decided(topic, &item.record.message, fate, self.shared.clock.now_ms());
                self.wake_relay();
                let mut findings = Findings { ready: ready.then_some(true), ..tally(&[fate]) };
                // Not ours any more, or held by it: in both cases look before the next message of its key.
                if !item.partition.retry {
                    findings.held.extend(item.record.key.filter(|_| !taken || self.shared.rule.holds(decision)));
                }
                Finished::decided(findings)
            }
            Err(trouble) => {
                // Whatever it was, the message gets no blame for the trouble of recording its failure.
                let trouble = self.roll_back(trouble).await;
                tracing::warn!(error = %trouble.info().message, code = %trouble.info().code, "a decision could not be written, trying again");
                self.shared.metrics.batch_failed(FailureClass::Interrupted);
                Finished { outcome: Outcome::Interrupted, items: vec![item], findings: Findings::default() }
            }
        }
    }

    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        if self.client.as_ref().is_some_and(|it| !it.is_closed()) {
            return Ok(());
        }
        self.client = None;
        self.client = Some(answered(self.shared.database_timeout, self.shared.pool.get()).await??);
        Ok(())
    }

    /// Ends the transaction, or the connection when that does not work. A failure that cannot be told from trouble with
    /// the database becomes one: the message is not to blame.
    pub(crate) async fn roll_back(&mut self, failure: Failure) -> Failure {
        let Some(client) = self.client.take() else { return failure };
        let ended = async {
            if failure.class() == FailureClass::Timeout {
                // The statement that hangs is still running, and the rollback would wait behind it.
                self.shared.tls.cancel(&client.cancel_token()).await?;
            }
            client.batch_execute("ROLLBACK").await
        };
        match timeout(ROLLBACK_TIMEOUT, ended).await {
            Ok(Ok(())) => {
                self.client = Some(client);
                failure
            }
            Ok(Err(_)) | Err(_) => {
                // Not back to the pool: nobody knows what state the session is in.
                drop(Client::take(client));
                Failure::new(FailureClass::Interrupted, "the database connection did not answer")
            }
        }
    }

    fn report(&self, batch: &Batch<'_>, fates: &[Fate], elapsed: Duration) {
        let now_ms = self.shared.clock.now_ms();
        self.shared.metrics.batch_decided(&batch.source_topic, batch.items(), fates, elapsed, now_ms);
        if fates.iter().any(|it| matches!(it, Fate::Failed(..))) {
            self.wake_relay();
        }
    }

    fn report_held(&self, items: &[Item<Incoming>], fates: &[Option<Fate>]) {
        let now_ms = self.shared.clock.now_ms();
        let decided = items.iter().zip(fates).filter_map(|(item, fate)| Some((item, (*fate)?)));
        for (item, fate) in decided.clone() {
            let topic = self.shared.routes.source_name(item.partition.topic);
            self.shared.metrics.released(topic, &item.record.message, fate, now_ms);
        }
        self.shared.metrics.committed(items.len());
        if decided.clone().any(|(_, it)| matches!(it, Fate::Failed(..))) {
            self.wake_relay();
        }
        let count = decided.count() as u64;
        let _before =
            self.shared.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| Some(it.saturating_sub(count)));
    }

    pub(crate) fn wake_relay(&self) {
        if let Some(wake) = &self.shared.relay_wake {
            wake.notify_one();
        }
    }
}

/// Starts so many executors, each with a channel for one order.
pub(crate) fn start<F>(
    count: usize,
    executors: &TaskTracker,
    run: impl Fn(LaneId, mpsc::Receiver<Work>) -> F,
) -> Vec<mpsc::Sender<Work>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let start = |lane| {
        let (orders_in, orders) = mpsc::channel(1);
        executors.spawn(run(lane, orders));
        orders_in
    };
    (0..count).map(LaneId).map(start).collect()
}

const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Ends the transaction with a statement that must succeed: a bare `COMMIT` of an aborted transaction answers `Ok` and
/// rolls back. One round trip.
pub(crate) async fn seal_and_commit(client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("SELECT 1; COMMIT").await
}

/// Waits for the database, but not for ever.
pub(crate) async fn answered<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Failure> {
    let too_late = |_| Failure::new(FailureClass::Interrupted, "the database did not answer in time");
    timeout(limit, work).await.map_err(too_late)
}

pub(crate) fn disconnected() -> Failure {
    Failure::new(FailureClass::Interrupted, "no database connection")
}
