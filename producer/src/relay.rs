//! Publishes the outbox: one leader per database, in order per key, at least once.
//!
//! **Windows.** Ids are drawn when a row is inserted and become visible when its transaction commits, in another order.
//! A reader that remembers the last id would pass over rows that commit late. The relay remembers a *snapshot* instead:
//! a window is every row that a new snapshot sees and the last one did not, in id order. Nothing is lost, since a row is
//! first seen by exactly one snapshot, however late it commits; a transaction that stays open delays only itself. Order
//! holds per key: whoever enqueues second for a key could do so only after the first had committed, so a snapshot that
//! sees the second sees the first, and within a window the ids tell.
//!
//! **Progress.** `sekali.outbox_cursor` moves only when Kafka has acknowledged all of a page, in a statement that also
//! proves the lease. A crash repeats at most a page.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::Pool;
use rdkafka::ClientConfig;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::lease::Lease;
use self::publisher::Publisher;
use self::term::{Step, Term};
use self::vacuum::Deleted;
use crate::config::{KafkaSection, RelaySection};
use crate::{Error, metrics};

mod cursor;
mod later;
mod lease;
mod page;
mod publisher;
mod term;
mod vacuum;

/// A follower looks this often whether the lease is free.
const FOLLOW_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Pause after a failure: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// At shutdown, the page in hand has this long to be acknowledged. What is not is published again by the next leader.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// After a window, the pause is so many times as long as the database was busy with it, or as it took where the relay gives
/// way: while much comes, the relay works on a part of its time, and windows grow instead of their number.
const REST: u32 = 6;
/// And never longer than this where it does not give way, so that what is enqueued is published soon.
const REST_MAX: Duration = Duration::from_millis(15);
/// Of the producer of a relay that does not give way, when the user says nothing: a page is handed over at once, and nothing
/// that comes later is worth waiting for.
const LINGER: Duration = Duration::from_millis(1);
/// How often the leader counts what waits.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(5);

/// Publishes `sekali.outbox` while it is the leader, and waits to become it while another is.
pub struct Relay {
    pool: Pool,
    client: ClientConfig,
    kafka: KafkaSection,
    section: RelaySection,
    wake: Arc<Notify>,
    answered: LastAnswer,
    gives_way: bool,
}

/// When the database last told a relay who leads.
#[derive(Debug, Clone, Default)]
pub struct LastAnswer(Arc<Mutex<Option<Instant>>>);

impl LastAnswer {
    /// How long ago that was; `None` before the first time.
    pub fn age(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|it| it.elapsed())
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Relay {
    /// Prepares a relay; touches neither Kafka nor the database yet.
    ///
    /// # Errors
    /// A file of the Kafka section cannot be read, or librdkafka refuses one of its properties.
    pub fn new(pool: Pool, kafka: &KafkaSection, section: &RelaySection) -> Result<Relay, Error> {
        let mut client = kafka.producer_config()?;
        client
            // What is in the outbox is tried until the broker answers; giving up on one record while the next one of its
            // key goes through would break their order. For the same reason a refused batch stops the producer.
            .set("message.timeout.ms", "0")
            .set("enable.gapless.guarantee", "true")
            // The relay has its own patience with missing topics.
            .set("topic.metadata.propagation.max.ms", "2000");
        client.create_native_config().map_err(|error| crate::explain(&error, &crate::KafkaCauses::new()))?;
        let (kafka, section) = (kafka.clone(), section.clone());
        Ok(Relay {
            pool,
            client,
            kafka,
            section,
            wake: Arc::default(),
            answered: LastAnswer::default(),
            gives_way: false,
        })
    }

    /// Lets it work on a smaller part of its time while much comes: for a process that has something more urgent to do than
    /// to publish. Then a record may wait for up to `relay.poll_idle` longer.
    pub fn giving_way(mut self) -> Relay {
        self.gives_way = true;
        self
    }

    /// Call `notify_one` on it after a transaction that enqueued has committed: the relay looks at once.
    pub fn wake_handle(&self) -> Arc<Notify> {
        self.wake.clone()
    }

    /// Shows for as long as it lives whether the relay reaches its database.
    pub fn last_answer(&self) -> LastAnswer {
        self.answered.clone()
    }

    /// Runs until `shutdown`. Outages of Kafka or the database are waited out; then it goes on by itself.
    ///
    /// At shutdown the page in hand is finished, for at most 5 seconds, and the lease released. Dropping the future
    /// instead is like a crash: the lease runs out, and the page is published again.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut backoff = Backoff::default();
        while !shutdown.is_cancelled() {
            let pause = match Lease::acquire(&self.pool, self.section.lease_ttl).await {
                Ok(Some(lease)) => {
                    self.answered.note();
                    backoff = Backoff::default();
                    Box::pin(self.lead(lease, &shutdown)).await;
                    BACKOFF.0
                }
                Ok(None) => {
                    self.answered.note();
                    backoff = Backoff::default();
                    FOLLOW_INTERVAL_MAX.min(self.section.lease_ttl / 3)
                }
                Err(error) => {
                    tracing::warn!(error = %error.chain(), "the relay cannot ask for its lease");
                    backoff.next()
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = shutdown.cancelled() => {}
            }
        }
    }

    async fn lead(&self, lease: Lease, shutdown: &CancellationToken) {
        tracing::info!(fence = lease.fence(), "this relay leads");
        metrics::OUTBOX_LEADER.level(&[]).set(1.0);
        let _gauges = LeaderGauges;
        let deleted = Deleted::default();
        let shutdown_seen = tokio::select! {
            biased;
            () = lease.keep(&self.pool, self.section.lease_ttl, &self.answered) => {
                tracing::warn!(fence = lease.fence(), "the relay lost its lease: publishing stops here");
                false
            }
            () = self.publish(&lease, &deleted, shutdown) => shutdown.is_cancelled(),
            () = self.observe() => false,
            () = later::keep_moving(&self.pool, &self.wake) => false,
            () = vacuum::keep_small(&self.pool, &deleted) => false,
        };
        if shutdown_seen && let Err(error) = lease.release(&self.pool).await {
            tracing::warn!(error = %error.chain(), "the relay cannot release its lease; it runs out by itself");
        }
    }

    /// Publishes until shutdown, or until the database says that another leads.
    async fn publish(&self, lease: &Lease, deleted: &Deleted, shutdown: &CancellationToken) {
        let mut client = self.client.clone();
        if !self.gives_way && self.kafka.linger.is_none() {
            client.set("linger.ms", LINGER.as_millis().to_string());
        }
        let publisher = Publisher::new(client, self.kafka.clone());
        let mut term = Term::new(&self.pool, lease, publisher, deleted, self.section.page_messages_max);
        let mut pause = self.section.poll_busy;
        let mut backoff = Backoff::default();
        let (mut began, mut waited) = (Instant::now(), Duration::ZERO);
        loop {
            let mut step = Box::pin(term.step());
            let done = tokio::select! {
                done = &mut step => done,
                () = shutdown.cancelled() => {
                    // Too late is no failure: the next leader publishes that page again.
                    let _ = timeout(SHUTDOWN_GRACE, step).await;
                    return;
                }
            };
            drop(step);
            waited += term.take_waited();
            let wait = match done {
                Ok(Step::Published) => {
                    (pause, backoff) = (self.section.poll_busy, Backoff::default());
                    continue;
                }
                Ok(Step::WindowEnded) => {
                    (pause, backoff) = (self.section.poll_busy, Backoff::default());
                    let rest = self.rest(began.elapsed(), waited);
                    tokio::select! {
                        () = sleep(rest) => {}
                        () = shutdown.cancelled() => return,
                    }
                    pause
                }
                Ok(Step::Idle) => {
                    pause = (pause * 2).min(self.section.poll_idle);
                    pause
                }
                Ok(Step::NotLeading) => return,
                Err(error) => {
                    tracing::warn!(error = %error.chain(), "the relay waits");
                    backoff.next()
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.wake.notified() => pause = self.section.poll_busy,
                () = shutdown.cancelled() => return,
            }
            (began, waited) = (Instant::now(), Duration::ZERO);
        }
    }

    /// After a window that took so long, with so much of it spent waiting for Kafka.
    fn rest(&self, took: Duration, waited: Duration) -> Duration {
        let rest = if self.gives_way { took * REST } else { (took.saturating_sub(waited) * REST).min(REST_MAX) };
        rest.min(self.section.poll_idle)
    }

    /// Keeps the gauges right for as long as this process leads, also while Kafka is away.
    async fn observe(&self) {
        loop {
            match cursor::pending(&self.pool).await {
                Ok(pending) => {
                    metrics::OUTBOX_PENDING.level(&[]).set(pending.messages as f64);
                    metrics::OUTBOX_OLDEST_PENDING.level(&[]).set(pending.oldest_seconds);
                    metrics::OUTBOX_HORIZON_AGE.level(&[]).set(pending.horizon_seconds);
                    metrics::OUTBOX_BYTES.level(&[]).set(pending.bytes as f64);
                    metrics::OUTBOX_DEAD_ROWS.level(&[]).set(pending.dead_rows as f64);
                }
                Err(error) => tracing::debug!(error = %error.chain(), "the relay cannot count the outbox"),
            }
            sleep(OBSERVE_INTERVAL).await;
        }
    }
}

/// Sets the leader's gauges back when its term ends, however it ends.
struct LeaderGauges;

impl Drop for LeaderGauges {
    fn drop(&mut self) {
        for gauge in metrics::OF_LEADER {
            gauge.level(&[]).set(0.0);
        }
    }
}

/// Growing pauses between failures.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(BACKOFF.0)
    }
}

impl Backoff {
    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (self.0 * 2).min(BACKOFF.1);
        pause
    }
}
