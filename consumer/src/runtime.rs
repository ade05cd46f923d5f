//! From a configuration and a handler to a running consumer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use sekali_producer::{Contract, Error, ErrorKind, Relay, SqlError};
use sekali_schemas::idempotency::KeyError;
use sekali_schemas::{IdempotencyKey, Record};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caught_up::CaughtUp;
use crate::clock::{self, Clock};
use crate::config::{self, Config, ConsumerSection};
use crate::core::hold::{AfterDeadLetter, Rule};
use crate::core::retry::RetryPolicy;
use crate::core::{Core, Event, Limits, Order, Timestamp};
use crate::driver::Driver;
use crate::effects::{LeaseOrder, Leases, Performer};
use crate::executor::{self, Executor, Shared, Work};
use crate::holds::Holds;
use crate::housekeeping::{Housekeeping, Progress};
use crate::incoming::Incoming;
use crate::kafka::{CHUNKS_MAX, Clients, Lookout, Polled, Reader, Role, consumer_config};
use crate::lock::Locks;
use crate::metrics::Metrics;
use crate::pauses::{self, Pauses};
use crate::postgres::{inbox, route};
use crate::probes::{self, Status};
use crate::process_name::process_name;
use crate::retention::Purge;
use crate::routes::Routes;
use crate::{Effect, Handler, Performing, admin};

/// A consumer group's member: connected, checked, not yet running.
pub struct Consumer<H> {
    config: Config,
    handler: H,
    pool: Pool,
    routes: Arc<Routes>,
    consumer_id: i16,
    clock: Arc<Clock>,
    contract: Option<Arc<Contract>>,
    /// Topics that the group reads, with their numbers of partitions.
    partitions: Partitions,
    /// How long their records are kept, in seconds, -1 for ever; empty where the broker does not say.
    kept: BTreeMap<String, f64>,
    /// What an operator had paused when the group was looked up.
    paused: BTreeSet<String>,
}

impl<H: Handler> Consumer<H> {
    /// Connects to PostgreSQL and Kafka and checks that tables and topics are there. Joins nothing yet.
    ///
    /// # Errors
    /// One sentence with the remedy: an unreachable server, a refused login, missing tables or topics, a configuration
    /// that does not fit together.
    pub async fn connect(config: Config, handler: H) -> Result<Consumer<H>, Error> {
        Consumer::connect_as(config, |_, _, _| handler).await
    }

    /// Joins the group and works until `shutdown` completes; then takes nothing new, finishes what is in hand, commits,
    /// and leaves the group.
    ///
    /// # Errors
    /// The Kafka client reports a fatal error, or the admin port cannot be opened. Work in hand is drained first.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let limits = limits(&self.config);
        let start = |shared: &Arc<Shared<H>>, side: &Side, events: &mpsc::UnboundedSender<Event<Incoming>>| {
            let run = |lane, orders| Executor::new(lane, shared.clone()).run(orders, events.clone());
            (executor::start(limits.lanes, &side.executors, run), None)
        };
        self.run_as(shutdown, limits.clone(), H::idempotency_key, start).await
    }
}

impl<E: Effect> Consumer<Performing<E>> {
    /// As [`Consumer::connect`], for messages whose effect happens outside the database.
    ///
    /// # Errors
    /// As [`Consumer::connect`].
    pub async fn connect_effect(config: Config, effect: E) -> Result<Consumer<Performing<E>>, Error> {
        let performing = |config: &Config, pool: &Pool, consumer_id| {
            let leases = Leases::new(pool.clone(), consumer_id, config.effects.lease_ttl);
            Performing::new(effect, config.effects.perform_timeout, Arc::new(leases))
        };
        Consumer::connect_as(config, performing).await
    }

    /// As [`Consumer::run`] for a handler. At shutdown effects in progress have `consumer.drain_timeout` to end; what is
    /// still running then is dropped, and performed again once its lease has run out.
    ///
    /// # Errors
    /// As [`Consumer::run`] for a handler.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let effects_max = self.config.effects.concurrent_max.get();
        let leases_ahead_max = effects_max.div_ceil(2);
        let limits = Limits { effects_max: Some(effects_max), leases_ahead_max, ..limits(&self.config) };
        let start =
            |shared: &Arc<Shared<Performing<E>>>, side: &Side, events: &mpsc::UnboundedSender<Event<Incoming>>| {
                let (orders_in, orders) = mpsc::unbounded_channel();
                let (shared, results) = (shared.clone(), events.clone());
                let leases = shared.handler.leases().clone();
                let stop = side.stop.clone();
                side.running.spawn(async move { leases.keep(stop).await });
                let run = |lane, orders| Executor::new(lane, shared.clone()).run_effects(orders, events.clone());
                let lanes = executor::start(limits.lanes, &side.executors, run);
                let performer = Performer { shared, results, abort: side.abort.clone() };
                side.executors.spawn(performer.run(orders));
                (lanes, Some(orders_in))
            };
        self.run_as(shutdown, limits.clone(), Performing::idempotency_key, start).await
    }
}

/// Topics with their numbers of partitions.
type Partitions = Vec<(Arc<str>, usize)>;

/// Where orders for executors go, and those about effects.
type Started = (Vec<mpsc::Sender<Work>>, Option<mpsc::UnboundedSender<LeaseOrder>>);

impl<H: Send + Sync + 'static> Consumer<H> {
    async fn connect_as(config: Config, handler: impl FnOnce(&Config, &Pool, i16) -> H) -> Result<Consumer<H>, Error> {
        let topics = config
            .group_topics()
            .map_err(|error| Error::new(ErrorKind::Config, "name the topics of the group").because(error))?;
        let contract = Contract::new(&config.schemas, &config.registry)?.map(Arc::new);
        let routes = Arc::new(Routes::new(&config.consumer.group, &topics, &config.retry.delays));
        let pool = config.postgres.pool("sekali-consumer")?;
        let client = admin::connect(&pool).await?;
        admin::require_schema(&client).await?;
        let name = config.consumer_name();
        let failed = |doing: &str, error: &tokio_postgres::Error| {
            Error::new(ErrorKind::Postgres, doing).because(SqlError::of(error))
        };
        let consumer_id = inbox::consumer_id(&client, name).await.map_err(|it| failed("register the consumer", &it))?;
        let ordered = rule(&config) != Rule::Never;
        let registered = route::register(&client, consumer_id, &routes, ordered).await;
        registered.map_err(|it| failed("register the topics of the consumer", &it))?;
        let now_ms = clock::database_ms(&client).await.map_err(|it| failed("read the database's clock", &it))?;
        let paused = pauses::read(&client, consumer_id).await.map_err(|it| failed("read the paused topics", &it))?;
        drop(client);
        let (partitions, kept) = require_topics(&config, &routes).await?;
        let handler = handler(&config, &pool, consumer_id);
        let clock = Arc::new(Clock::new(now_ms));
        Ok(Consumer { config, handler, pool, routes, consumer_id, clock, contract, partitions, kept, paused })
    }

    async fn run_as(
        self,
        shutdown: impl Future<Output = ()> + Send,
        limits: Limits,
        own_key: fn(&H, &Record) -> Option<Result<IdempotencyKey, KeyError>>,
        start: impl FnOnce(&Arc<Shared<H>>, &Side, &mpsc::UnboundedSender<Event<Incoming>>) -> Started,
    ) -> Result<(), Error> {
        let (section, side) = (&self.config.consumer, Side::default());
        let (metrics, status) = self.start_admin(&side).await?;
        let relay_wake = self.start_relay(&side)?;
        let (events, results) = mpsc::unbounded_channel();
        let holds = self.holds(&events);
        let progress = self.start_housekeeping(&side, status.clone(), holds.clone());
        let (policy, handler) = (policy(&self.config), Arc::new(self.handler));
        let reader = reader(&handler, own_key, &self.routes, section, self.contract.as_deref());
        let (clients, polled) = clients(&self.config, &reader, &metrics)?;
        let links = clients.settings.iter().map(|it| clients.start(it.0)).collect::<Result<_, _>>()?;
        let shared = Shared {
            handler,
            locks: Locks::new(self.pool.clone()),
            lock_ttl: section.lock_ttl,
            pool: self.pool,
            tls: self.config.postgres.tls()?,
            consumer_id: self.consumer_id,
            routes: self.routes.clone(),
            policy: policy.clone(),
            clock: self.clock.clone(),
            metrics: metrics.clone(),
            on_key_reuse: section.on_key_reuse,
            rule: rule(&self.config),
            reader,
            held: holds.held.clone(),
            held_per_key_max: section.held_messages_per_key_max.get().into(),
            held_max: section.held_messages_max.get().into(),
            handler_timeout: section.handler_timeout,
            database_timeout: DATABASE_TIMEOUT,
            contract: self.contract,
            worker: process_name(),
            relay_wake,
        };
        let (lanes, effects) = start(&Arc::new(shared), &side, &events);
        let driver = Driver {
            core: Core::new(policy, limits, uuid::Uuid::new_v4().as_u64_pair().0),
            polled,
            links,
            closed: Vec::new(),
            clients,
            reconnecting: Vec::new(),
            fetched: HashMap::new(),
            lookout: Lookout::new(&self.config.kafka, self.routes.clone())?,
            look_at: Timestamp::default(),
            look_interval: section.stall_timeout / 4,
            stopping: false,
            lanes,
            effects,
            results,
            holds,
            routes: self.routes,
            clock: self.clock,
            metrics,
            status,
            progress,
            drain: section.drain_timeout,
            confirmed: HashMap::new(),
            caught_up: CaughtUp::default(),
        };
        let ended = driver.run(shutdown).await;
        side.end().await;
        ended
    }

    /// Opens the admin port, unless configured away.
    async fn start_admin(&self, side: &Side) -> Result<(Arc<Metrics>, Arc<Status>), Error> {
        let recorder = self.config.admin.listen.map(|_| probes::recorder(Some(&self.config.consumer.group)));
        let metrics = self.metrics();
        let status = Arc::new(Status::new(metrics.clone()));
        if let Some(listen) = self.config.admin.listen {
            let serving = probes::serve(listen, recorder.flatten(), status.clone(), side.stop.clone()).await?;
            side.running.spawn(serving);
        }
        Ok((metrics, status))
    }

    /// Registers every metric, and those that never change.
    fn metrics(&self) -> Arc<Metrics> {
        let metrics = Arc::new(Metrics::register(&self.routes, self.config.retry.delays.len()));
        for (topic, count) in self.partitions.iter().filter(|it| self.routes.source_names().any(|name| *name == it.0)) {
            crate::metrics::level(&crate::metrics::TOPIC_PARTITIONS, &[("topic", topic)]).set(*count as f64);
            if let Some(seconds) = self.kept.get(&**topic) {
                crate::metrics::level(&crate::metrics::TOPIC_RETENTION, &[("topic", topic)]).set(*seconds);
            }
        }
        crate::metrics::MAX_POLL_INTERVAL.level(&[]).set(self.config.consumer.max_poll_interval.as_secs_f64());
        metrics
    }

    /// The relay of this process, unless configured away; returns what wakes it.
    fn start_relay(&self, side: &Side) -> Result<Option<Arc<Notify>>, Error> {
        if !self.config.relay.embedded {
            return Ok(None);
        }
        let relay = Relay::new(self.pool.clone(), &self.config.kafka, &self.config.relay)?.giving_way();
        let wake = relay.wake_handle();
        side.running.spawn(relay.run(side.stop.clone()));
        Ok(Some(wake))
    }

    fn start_purge(&self, side: &Side) {
        let Some(retention) = self.config.inbox.retention else {
            crate::metrics::RETENTION_CLOCK.level(&[]).set(f64::NAN);
            return;
        };
        let (pool, partitions) = (self.pool.clone(), self.partitions.clone());
        let purge = Purge::new(pool, self.consumer_id, retention, partitions, self.clock.now_ms());
        side.running.spawn(purge.run(side.stop.clone()));
    }

    fn holds(&self, events: &mpsc::UnboundedSender<Event<Incoming>>) -> Holds {
        Holds {
            pool: self.pool.clone(),
            consumer_id: self.consumer_id,
            routes: self.routes.clone(),
            events: events.clone(),
            held: Arc::default(),
        }
    }

    /// What is slow and regular, among it the purge.
    fn start_housekeeping(&self, side: &Side, status: Arc<Status>, holds: Holds) -> Progress {
        self.start_purge(side);
        let (routes, clock) = (self.routes.clone(), self.clock.clone());
        let pauses = Pauses::new(self.consumer_id, routes.clone(), holds.events.clone(), &self.paused);
        let housekeeping = Housekeeping::new(self.pool.clone(), self.consumer_id, routes, clock, status, holds, pauses);
        let progress = housekeeping.progress();
        side.running.spawn(housekeeping.run(side.stop.clone()));
        progress
    }
}

/// What runs beside the driver until it has ended.
#[derive(Default)]
struct Side {
    stop: CancellationToken,
    /// Ends effects that are still in progress when the driver has ended.
    abort: CancellationToken,
    running: TaskTracker,
    executors: TaskTracker,
}

impl Side {
    async fn end(self) {
        self.abort.cancel();
        self.executors.close();
        // A handler that ignores the drain timeout is left behind; its transaction never commits.
        let _late = tokio::time::timeout(LATE_MAX, self.executors.wait()).await;
        self.stop.cancel();
        self.running.close();
        let _late = tokio::time::timeout(SIDE_END_MAX, self.running.wait()).await;
    }
}

/// One client for the source topics and, when there are any, one for the retry topics.
fn clients(
    config: &Config,
    reader: &Arc<Reader>,
    metrics: &Arc<Metrics>,
) -> Result<(Clients, mpsc::Receiver<Polled>), Error> {
    let (polled_in, polled) = mpsc::channel(CHUNKS_MAX);
    let used = Role::ALL.into_iter().filter(|it| reader.routes.of_role(*it).next().is_some());
    let settings = used.map(|it| Ok((it, consumer_config(config, it)?))).collect::<Result<_, Error>>()?;
    let (reader, metrics) = (reader.clone(), metrics.clone());
    let drain_timeout = config.consumer.drain_timeout;
    let kafka = config.kafka.clone();
    Ok((Clients { settings, kafka, reader, metrics, drain_timeout, polled: polled_in }, polled))
}

fn rule(config: &Config) -> Rule {
    match (config.consumer.order, config.consumer.after_dead_letter) {
        (config::Order::None, _) => Rule::Never,
        (config::Order::Key, config::AfterDeadLetter::Continue) => Rule::ByKey(AfterDeadLetter::Continue),
        (config::Order::Key, config::AfterDeadLetter::Hold) => Rule::ByKey(AfterDeadLetter::Hold),
    }
}

fn reader<H: Send + Sync + 'static>(
    handler: &Arc<H>,
    own_key: fn(&H, &Record) -> Option<Result<IdempotencyKey, KeyError>>,
    routes: &Arc<Routes>,
    section: &ConsumerSection,
    contract: Option<&Contract>,
) -> Arc<Reader> {
    let buffer_bytes_max = usize::try_from(section.buffer_bytes_max.get()).unwrap_or(usize::MAX);
    let handler = handler.clone();
    let own_key = Box::new(move |record: &Record| own_key(&handler, record));
    let framing = contract.map(Contract::framing).unwrap_or_default();
    Arc::new(Reader { routes: routes.clone(), key_from: section.key_from, framing, buffer_bytes_max, own_key })
}

fn policy(config: &Config) -> RetryPolicy {
    let retry = &config.retry;
    RetryPolicy::new(retry.delays.clone(), config.max_attempts().into(), retry.jitter, retry.contended_age_max)
}

/// How long an executor may take to notice the end.
const LATE_MAX: Duration = Duration::from_secs(1);
/// How long relay, housekeeping and admin port may take to end.
const SIDE_END_MAX: Duration = Duration::from_secs(5);
/// Longest wait for any answer of the database outside a handler.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(30);

fn limits(config: &Config) -> Limits {
    let section = &config.consumer;
    Limits {
        lanes: section.executors.get(),
        batch_max: section.batch_messages_max.get(),
        buffered_max: section.buffer_messages_max.get(),
        commit_interval: Duration::from_secs(1),
        interrupted_delay: Duration::from_millis(100),
        interrupted_delay_max: Duration::from_secs(5),
        order: if section.order == config::Order::None { Order::None } else { Order::Key },
        full_delay: Duration::from_secs(1),
        stall_timeout: section.stall_timeout,
        holds_interval: Duration::from_secs(30),
        effects_max: None,
        leases_ahead_max: 0,
        dead_letters_ahead_max: Some(config.retry.dead_letters_ahead_max).filter(|it| 0 < *it),
        dead_letter_refill: Duration::from_secs(10),
    }
}

/// Topics are never made by accident: one that is missing is an error with the command that makes it. Nor may they keep
/// records for longer than decisions are remembered. Returns the topics that are read with their numbers of partitions,
/// and how long they keep records.
async fn require_topics(config: &Config, routes: &Routes) -> Result<(Partitions, BTreeMap<String, f64>), Error> {
    let cluster = admin::Cluster::connect(&config.kafka).await?;
    let metadata = cluster.metadata().await?;
    let partitions =
        |name: &str| metadata.topics().iter().find(|it| it.name() == name).map_or(0, |it| it.partitions().len());
    let subscribed = routes.subscribed().iter().map(|it| &*it.name);
    let missing: Vec<&str> = subscribed.chain(routes.dlqs()).filter(|it| partitions(it) == 0).collect();
    if missing.is_empty() {
        let kept = admin::require_inbox_retention(config, &cluster).await?;
        let partitions = routes.subscribed().iter().map(|it| (it.name.clone(), partitions(&it.name))).collect();
        return Ok((partitions, kept));
    }
    let text = format!("missing: {}; run `sekali topics apply`", missing.join(", "));
    Err(Error::new(ErrorKind::Kafka, "find the topics of the group").because(text))
}

/// Completes at SIGTERM or SIGINT.
pub async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be caught, only SIGINT stops this process gracefully");
                std::future::pending::<()>().await;
            }
        }
    };
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    futures_util::future::select(std::pin::pin!(terminated), std::pin::pin!(interrupted)).await;
}
