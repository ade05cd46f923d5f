//! From a configuration and a handler to a running consumer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use sekali_producer::{Error, ErrorKind, KafkaCauses, Relay, SqlError, explain};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{self, Clock};
use crate::config::Config;
use crate::core::retry::RetryPolicy;
use crate::core::{Core, LaneId, Limits};
use crate::driver::Driver;
use crate::executor::{Executor, Shared};
use crate::housekeeping::Housekeeping;
use crate::kafka::{Poller, Reader, consumer_config};
use crate::metrics::Metrics;
use crate::postgres::inbox;
use crate::probes::{self, Status};
use crate::routes::Routes;
use crate::{Handler, admin};

/// A consumer group's member: connected, checked, not yet running.
pub struct Consumer<H> {
    config: Config,
    handler: H,
    pool: Pool,
    routes: Arc<Routes>,
    consumer_id: i16,
    clock: Arc<Clock>,
}

impl<H: Handler> Consumer<H> {
    /// Connects to PostgreSQL and Kafka and checks that tables and topics are there. Joins nothing yet.
    ///
    /// # Errors
    /// One sentence with the remedy: an unreachable server, a refused login, missing tables or topics, a configuration
    /// that does not fit together.
    pub async fn connect(config: Config, handler: H) -> Result<Consumer<H>, Error> {
        let topics = config
            .group_topics()
            .map_err(|error| Error::new(ErrorKind::Config, "name the topics of the group").because(error))?;
        let routes = Arc::new(Routes::new(&config.consumer.group, &topics, &config.retry.delays));
        let pool = config.postgres.pool("sekali-consumer")?;
        let client = admin::connect(&pool).await?;
        admin::require_schema(&**client).await?;
        let name = config.consumer_name();
        let failed = |doing: &str, error: &tokio_postgres::Error| {
            Error::new(ErrorKind::Postgres, doing).because(SqlError::of(error))
        };
        let consumer_id = inbox::consumer_id(&client, name).await.map_err(|it| failed("register the consumer", &it))?;
        let now_ms = clock::database_ms(&client).await.map_err(|it| failed("read the database's clock", &it))?;
        drop(client);
        require_topics(&config, &routes).await?;
        Ok(Consumer { config, handler, pool, routes, consumer_id, clock: Arc::new(Clock::new(now_ms)) })
    }

    /// Joins the group and works until `shutdown` completes; then takes nothing new, finishes what is in hand, commits,
    /// and leaves the group.
    ///
    /// # Errors
    /// The Kafka client reports a fatal error, or the admin port cannot be opened. Work in hand is drained first.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let config = self.config;
        let section = &config.consumer;
        let policy = RetryPolicy::new(
            config.retry.delays.clone(),
            config.max_attempts().into(),
            config.retry.jitter,
            config.retry.contended_age_max,
        );
        let recorder = config.admin.listen.map(|_| probes::recorder(&section.group));
        let metrics = Arc::new(Metrics::register(&self.routes, config.retry.delays.len()));
        let status = Arc::new(Status::new(metrics.clone()));
        let stop = CancellationToken::new();
        let helpers = TaskTracker::new();

        if let Some(listen) = config.admin.listen {
            let serving = probes::serve(listen, recorder.flatten(), status.clone(), stop.clone()).await?;
            helpers.spawn(serving);
        }
        let relay = match config.relay.embedded {
            true => Some(Relay::new(self.pool.clone(), &config.kafka, &config.relay)?),
            false => None,
        };
        let relay_wake = relay.as_ref().map(Relay::wake_handle);
        if let Some(relay) = relay {
            helpers.spawn(relay.run(stop.clone()));
        }
        let housekeeping = Housekeeping::new(
            self.pool.clone(),
            self.consumer_id,
            self.routes.clone(),
            self.clock.clone(),
            status.clone(),
        );
        let progress = housekeeping.progress();
        helpers.spawn(housekeeping.run(stop.clone()));

        let handler = Arc::new(self.handler);
        let own_key = {
            let handler = handler.clone();
            Box::new(move |record: &sekali_schemas::Record| handler.idempotency_key(record))
        };
        let reader = Arc::new(Reader { routes: self.routes.clone(), key_from: section.key_from, own_key });
        let link = Poller::start(&consumer_config(&config)?, reader, metrics.clone(), section.drain_timeout)?;
        crate::metrics::MAX_POLL_INTERVAL.level(&[]).set(section.max_poll_interval.as_secs_f64());

        let shared = Arc::new(Shared {
            handler,
            pool: self.pool,
            consumer_id: self.consumer_id,
            routes: self.routes.clone(),
            policy: policy.clone(),
            clock: self.clock.clone(),
            metrics: metrics.clone(),
            on_key_reuse: section.on_key_reuse,
            handler_timeout: section.handler_timeout,
            database_timeout: DATABASE_TIMEOUT,
            relay_wake,
        });
        let limits = limits(&config);
        let (results_in, results) = mpsc::unbounded_channel();
        let executors = TaskTracker::new();
        let mut lanes = Vec::new();
        for lane in (0..limits.lanes).map(LaneId) {
            let (orders_in, orders) = mpsc::channel(1);
            lanes.push(orders_in);
            executors.spawn(Executor::new(lane, shared.clone()).run(orders, results_in.clone()));
        }
        drop(results_in);
        let core = Core::new(policy, limits, rand_seed());
        let driver = Driver {
            core,
            link,
            lanes,
            results,
            routes: self.routes,
            clock: self.clock,
            metrics,
            status,
            progress,
            drain: section.drain_timeout,
        };
        let ended = driver.run(shutdown).await;
        executors.close();
        // A handler that ignores the drain timeout is left behind; its transaction never commits.
        let _late = tokio::time::timeout(Duration::from_secs(1), executors.wait()).await;
        stop.cancel();
        helpers.close();
        let _late = tokio::time::timeout(Duration::from_secs(5), helpers.wait()).await;
        ended
    }
}

/// Longest wait for any answer of the database outside a handler.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the brokers at start.
const METADATA_TIMEOUT: Duration = Duration::from_secs(10);

fn limits(config: &Config) -> Limits {
    let section = &config.consumer;
    Limits {
        lanes: section.executors.get(),
        batch_max: section.batch_messages_max.get(),
        buffered_max: section.buffer_messages_max.get(),
        commit_interval: Duration::from_secs(1),
        interrupted_delay: Duration::from_millis(100),
        interrupted_delay_max: Duration::from_secs(5),
    }
}

fn rand_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// Topics are never made by accident: one that is missing is an error with the command that makes it.
async fn require_topics(config: &Config, routes: &Arc<Routes>) -> Result<(), Error> {
    let client = config.kafka.client_config()?;
    let routes = routes.clone();
    let check = tokio::task::spawn_blocking(move || {
        let causes = KafkaCauses::new();
        let consumer: BaseConsumer<KafkaCauses> =
            client.create_with_context(causes.clone()).map_err(|error| explain(&error, &causes))?;
        let metadata = fetch_metadata(&consumer, &causes)?;
        let exists = |name: &str| metadata.topics().iter().any(|it| it.name() == name && !it.partitions().is_empty());
        let subscribed = routes.subscribed().iter().map(|it| &*it.name);
        let missing: Vec<&str> = subscribed.chain(routes.dlqs()).filter(|it| !exists(it)).collect();
        for source in routes.source_names() {
            let partitions =
                metadata.topics().iter().find(|it| it.name() == &**source).map_or(0, |it| it.partitions().len());
            crate::metrics::level(&crate::metrics::TOPIC_PARTITIONS, &[("topic", source)]).set(partitions as f64);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let text = format!("missing: {}; run `sekali topics apply`", missing.join(", "));
        Err(Error::new(ErrorKind::Kafka, "find the topics of the group").because(text))
    });
    check.await.map_err(|error| Error::new(ErrorKind::System, "ask kafka for its topics").because(error))?
}

/// Asks until the brokers answer; the true cause of a refusal arrives beside the result.
fn fetch_metadata(
    consumer: &BaseConsumer<KafkaCauses>,
    causes: &KafkaCauses,
) -> Result<rdkafka::metadata::Metadata, Error> {
    let started = std::time::Instant::now();
    loop {
        // Serves the error callback.
        let _nothing = consumer.poll(Duration::ZERO);
        match consumer.fetch_metadata(None, Duration::from_secs(2)) {
            Ok(metadata) => return Ok(metadata),
            Err(error) if causes.is_login_refused() || METADATA_TIMEOUT < started.elapsed() => {
                let _nothing = consumer.poll(Duration::ZERO);
                return Err(explain(&error, causes));
            }
            Err(_) => {}
        }
    }
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
