//! Runs batches: claim, handle, seal, commit. One at a time, on one database connection.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{Client, ClientWrapper, Pool};
use futures_util::FutureExt;
use sekali_schemas::Message;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_postgres::NoTls;

use crate::batch::{Batch, Fate, Written};
use crate::clock::Clock;
use crate::config::OnKeyReuse;
use crate::core::retry::{Decision, RetryPolicy};
use crate::core::{Event, Item, LaneId, Outcome};
use crate::failure::FailureClass;
use crate::incoming::Incoming;
use crate::metrics::Metrics;
use crate::postgres::decision::{self, Failed, Guard};
use crate::postgres::inbox;
use crate::routes::Routes;
use crate::{Failure, Handler, Reply, Transaction};

/// What all executors of a process share.
pub(crate) struct Shared<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) pool: Pool,
    pub(crate) consumer_id: i16,
    pub(crate) routes: Arc<Routes>,
    pub(crate) policy: RetryPolicy,
    pub(crate) clock: Arc<Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) on_key_reuse: OnKeyReuse,
    pub(crate) handler_timeout: Duration,
    /// Longest wait for any answer of the database outside the handler: nobody else ends a wait on a dead connection.
    pub(crate) database_timeout: Duration,
    /// Wakes the relay of this process when a decision put something into the outbox.
    pub(crate) relay_wake: Option<Arc<Notify>>,
}

/// An order from the core.
pub(crate) enum Work {
    Run(Vec<Item<Incoming>>),
    Decide(Item<Incoming>, Decision),
}

pub(crate) struct Executor<H> {
    lane: LaneId,
    shared: Arc<Shared<H>>,
    client: Option<Client>,
    /// Why the last batch failed: the text of the decision that may follow.
    failure: Option<Failure>,
}

impl<H: Handler> Executor<H> {
    pub(crate) fn new(lane: LaneId, shared: Arc<Shared<H>>) -> Executor<H> {
        Executor { lane, shared, client: None, failure: None }
    }

    /// Works until the sender of orders is gone.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Work>,
        results: mpsc::UnboundedSender<Event<Incoming>>,
    ) {
        while let Some(work) = orders.recv().await {
            let (outcome, items) = match work {
                Work::Run(items) => self.run_batch(items).await,
                Work::Decide(item, decision) => self.decide(item, decision).await,
            };
            if results.send(Event::Finished { lane: self.lane, outcome, items }).is_err() {
                return;
            }
        }
    }

    async fn run_batch(&mut self, items: Vec<Item<Incoming>>) -> (Outcome, Vec<Item<Incoming>>) {
        let started = Instant::now();
        let batch = Batch::of(&items, &self.shared.routes);
        match self.transact(&batch).await {
            Ok(written) => {
                self.report(&batch, &written, started.elapsed());
                (Outcome::Decided, Vec::new())
            }
            Err(failure) => {
                let failure = self.roll_back(failure).await;
                let outcome = failure.class().outcome();
                tracing::debug!(class = failure.class().as_str(), messages = items.len(), "batch rolled back");
                self.shared.metrics.batch_failed(failure.class());
                self.failure = Some(failure);
                (outcome, items)
            }
        }
    }

    /// The whole transaction of a batch. On an error the connection is still in it.
    async fn transact(&mut self, batch: &Batch<'_>) -> Result<Written, Failure> {
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let deadline = shared.database_timeout;
        let claim = inbox::begin_and_claim(client, shared.consumer_id, batch.requests());
        let arrivals = answered(deadline, claim).await??;
        let settled = batch.settle(&arrivals, shared.on_key_reuse);
        let replies = self.handle(client, &settled.messages).await?;
        let written = answered(deadline, settled.write(client, &shared, replies)).await??;
        answered(deadline, seal_and_commit(client)).await??;
        Ok(written)
    }

    /// Calls the handler, with everything that it may do wrong contained.
    async fn handle(&self, client: &ClientWrapper, messages: &[Message]) -> Result<Vec<Reply>, Failure> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let tx = Transaction::over(client);
        let work = AssertUnwindSafe(self.shared.handler.handle_batch(messages, &tx)).catch_unwind();
        let limit = self.shared.handler_timeout;
        let replies = match timeout(limit, work).await {
            Ok(Ok(replies)) => replies?,
            // The panic's own message may quote the payload; it is in the log of the panic hook.
            Ok(Err(_panic)) => {
                self.shared.metrics.panicked();
                return Err(Failure::new(FailureClass::Panic, "the handler panicked"));
            }
            Err(_elapsed) => {
                let text = format!("the handler took longer than {} ms", limit.as_millis());
                return Err(Failure::new(FailureClass::Timeout, text));
            }
        };
        if replies.len() != messages.len() {
            let text = format!("the handler gave {} replies for {} messages", replies.len(), messages.len());
            return Err(Failure::transient(text));
        }
        Ok(replies)
    }

    /// Writes the decision on a message that failed alone.
    async fn decide(&mut self, item: Item<Incoming>, decision: Decision) -> (Outcome, Vec<Item<Incoming>>) {
        let failure = self.failure.take().unwrap_or_else(|| Failure::transient("unknown"));
        match self.transact_decision(&item, decision, &failure).await {
            Ok(taken) => {
                let topic = self.shared.routes.source_name(item.partition.topic);
                let fate = if taken { Fate::Failed(decision, failure.class()) } else { Fate::Duplicate };
                self.shared.metrics.decided(topic, &item.record.message, fate, self.shared.clock.now_ms());
                self.wake_relay();
                (Outcome::Decided, Vec::new())
            }
            Err(trouble) => {
                // Whatever it was, the message gets no blame for the trouble of recording its failure.
                let trouble = self.roll_back(trouble).await;
                tracing::warn!(error = %trouble.info().message, code = %trouble.info().code, "a decision could not be written, trying again");
                self.shared.metrics.batch_failed(FailureClass::Interrupted);
                (Outcome::Interrupted, vec![item])
            }
        }
    }

    async fn transact_decision(
        &mut self,
        item: &Item<Incoming>,
        decision: Decision,
        failure: &Failure,
    ) -> Result<bool, Failure> {
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let incoming = &item.record.message;
        let guard =
            if item.partition.retry { Guard::Retrying(incoming.attempt()) } else { Guard::NoRow(incoming.key()) };
        let failed = [Failed { incoming, guard, decision, error: failure.info() }];
        let work = async {
            client.batch_execute("BEGIN").await?;
            let taken =
                decision::write(client, shared.consumer_id, &shared.routes, shared.clock.now_ms(), &failed).await?;
            seal_and_commit(client).await?;
            Ok::<bool, Failure>(taken[0])
        };
        answered(shared.database_timeout, work).await?
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        if self.client.as_ref().is_some_and(|it| !it.is_closed()) {
            return Ok(());
        }
        self.client = None;
        self.client = Some(answered(self.shared.database_timeout, self.shared.pool.get()).await??);
        Ok(())
    }

    /// Ends the transaction, or the connection when that does not work. A failure that cannot be told from trouble with
    /// the database becomes one: the message is not to blame.
    async fn roll_back(&mut self, failure: Failure) -> Failure {
        let Some(client) = self.client.take() else { return failure };
        let ended = async {
            if failure.class() == FailureClass::Timeout {
                // The statement that hangs is still running, and the rollback would wait behind it.
                client.cancel_token().cancel_query(NoTls).await?;
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

    fn report(&self, batch: &Batch<'_>, written: &Written, elapsed: Duration) {
        let now_ms = self.shared.clock.now_ms();
        self.shared.metrics.batch_decided(&batch.source_topic, batch.items(), &written.fates, elapsed, now_ms);
        if written.enqueued {
            self.wake_relay();
        }
    }

    fn wake_relay(&self) {
        if let Some(wake) = &self.shared.relay_wake {
            wake.notify_one();
        }
    }
}

const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends the transaction with a statement that must succeed: a bare `COMMIT` of an aborted transaction answers `Ok` and
/// rolls back. One round trip.
async fn seal_and_commit(client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("SELECT 1; COMMIT").await
}

/// Waits for the database, but not for ever.
async fn answered<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Failure> {
    let too_late = |_| Failure::new(FailureClass::Interrupted, "the database did not answer in time");
    timeout(limit, work).await.map_err(too_late)
}

fn disconnected() -> Failure {
    Failure::new(FailureClass::Interrupted, "no database connection")
}
