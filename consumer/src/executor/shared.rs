//! What all executors of a process share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Pool};
use sekali_producer::Contract;
use sekali_producer::config::PostgresTls;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::OnKeyReuse;
use crate::core::hold::Rule;
use crate::core::retry::{Decision, RetryPolicy, failing_for};
use crate::core::{Outcome, Timestamp};
use crate::failure::{Failure, FailureClass};
use crate::incoming::Incoming;
use crate::kafka::Reader;
use crate::lock::Locks;
use crate::metrics::Metrics;
use crate::postgres::decision::Desk;
use crate::routes::Routes;

/// One for each process.
pub(crate) struct Shared<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) pool: Pool,
    /// For cancelling statements, which takes connections beside the pool.
    pub(crate) tls: PostgresTls,
    pub(crate) consumer_id: i16,
    pub(crate) routes: Arc<Routes>,
    pub(crate) policy: RetryPolicy,
    pub(crate) clock: Arc<Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) on_key_reuse: OnKeyReuse,
    pub(crate) rule: Rule,
    pub(crate) reader: Arc<Reader>,
    /// Messages that are held, as counted now and then and corrected by what this process did since.
    pub(crate) held: Arc<AtomicU64>,
    /// Most messages that wait behind one key, and behind all.
    pub(crate) held_per_key_max: u64,
    pub(crate) held_max: u64,
    pub(crate) handler_timeout: Duration,
    /// Longest wait for any answer of the database outside the handler: nobody else ends a wait on a dead connection.
    pub(crate) database_timeout: Duration,
    /// Locks for messages whose handler wants some, and how long they last without a heartbeat.
    pub(crate) locks: Locks,
    pub(crate) lock_ttl: Duration,
    /// What messages and events are held against; none when nothing is configured.
    pub(crate) contract: Option<Arc<Contract>>,
    /// Name of this process in the tables.
    pub(crate) worker: String,
    /// Wakes the relay of this process when a decision put something into the outbox.
    pub(crate) relay_wake: Option<Arc<Notify>>,
}

impl<H> Shared<H> {
    pub(crate) fn desk<'a>(&'a self, client: &'a ClientWrapper) -> Desk<'a> {
        let now_ms = self.clock.now_ms();
        let (consumer_id, worker) = (self.consumer_id, self.worker.as_str());
        Desk { client, consumer_id, routes: &self.routes, rule: self.rule, worker, now_ms }
    }

    /// The decision on a message that its handler refused before writing anything.
    ///
    /// # Errors
    /// The refusal is no verdict, and then neither is its transaction.
    pub(crate) fn decision_on(&self, incoming: &Incoming, failure: &Failure) -> Result<Decision, Failure> {
        let Outcome::Failed(kind) = failure.class().outcome() else {
            return Err(Failure::new(FailureClass::Interrupted, failure.info().message));
        };
        let first_failed_at = incoming.first_failed_at_ms().and_then(|it| u64::try_from(it).ok()).map(Timestamp);
        let age = failing_for(self.clock.now(), first_failed_at);
        // Only spreads delays: the key is as good as any number.
        let random = (incoming.key().as_u128() >> 32) as u64;
        Ok(self.policy.decide(incoming.attempt(), kind, age, random.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}
