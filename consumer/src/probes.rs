//! The admin port: `/livez`, `/readyz`, `/metrics`.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sekali_producer::{Error, ErrorKind};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, Metrics, unix_ms};

/// What the probes need to know.
pub(crate) struct Status {
    metrics: Arc<Metrics>,
    assigned: AtomicUsize,
    database: AtomicBool,
    stopping: AtomicBool,
    stalled: AtomicBool,
    interruptions: AtomicU32,
}

/// A loop that has not turned for this long stands still: its longest sleep is a fraction of a second, its longest legal
/// wait the hand-over in a rebalance, which counts as turning.
const STANDSTILL_MS: u64 = 60_000;

/// What the probes ask.
pub(crate) trait Health: Send + Sync + 'static {
    /// Why a restart is the remedy, if it is.
    fn dead(&self) -> Option<&'static str>;
    /// Why it does not work at the moment, if it does not.
    fn unready(&self) -> Option<&'static str>;
}

impl Status {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Status {
        Status {
            metrics,
            assigned: AtomicUsize::new(0),
            database: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            interruptions: AtomicU32::new(0),
        }
    }

    pub(crate) fn assigned(&self, count: usize) {
        self.assigned.store(count, Ordering::Relaxed);
    }

    pub(crate) fn database(&self, up: bool) {
        self.database.store(up, Ordering::Relaxed);
    }

    pub(crate) fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    pub(crate) fn interruptions(&self, count: u32) {
        self.interruptions.store(count, Ordering::Relaxed);
    }
}

impl Health for Status {
    /// Alive: both loops turn. Neither Kafka nor PostgreSQL being away makes a process dead.
    fn dead(&self) -> Option<&'static str> {
        let now = unix_ms();
        let still = |at: u64| STANDSTILL_MS < now.saturating_sub(at);
        if still(self.metrics.polled_at_ms()) {
            return Some("a poll loop stands still");
        }
        still(self.metrics.driven_at_ms.load(Ordering::Relaxed)).then_some("the driver stands still")
    }

    /// Ready: working, or idle because others have all the partitions.
    fn unready(&self) -> Option<&'static str> {
        if self.stopping.load(Ordering::Relaxed) {
            return Some("shutting down");
        }
        if !self.database.load(Ordering::Relaxed) {
            return Some("the database does not answer");
        }
        if self.stalled.load(Ordering::Relaxed) {
            return Some("a partition with a backlog gets nothing");
        }
        let stuck = 5 < self.interruptions.load(Ordering::Relaxed);
        stuck.then_some("no verdict on any message for several tries")
    }
}

/// The process-wide recorder with buckets for every histogram. `None` when the embedding program has one of its own.
pub(crate) fn recorder(group: Option<&str>) -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let install = || {
        let mut builder = PrometheusBuilder::new();
        if let Some(group) = group {
            builder = builder.add_global_label("consumer_group", group);
        }
        for metric in metrics::ALL.iter().chain(sekali_producer::metrics::ALL) {
            if let Some(buckets) = metric.buckets() {
                // Fails only for an empty list.
                builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets).ok()?;
            }
        }
        match builder.install_recorder() {
            Ok(handle) => Some(handle),
            Err(error) => {
                tracing::warn!(%error, "metrics go to the recorder of the embedding program, /metrics is empty here");
                None
            }
        }
    };
    HANDLE.get_or_init(install).clone()
}

#[derive(Clone)]
struct Shared {
    health: Arc<dyn Health>,
    recorder: Option<PrometheusHandle>,
    process: metrics_process::Collector,
}

/// Opens the port, and gives the future that serves it.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn serve(
    listen: SocketAddr,
    recorder: Option<PrometheusHandle>,
    health: Arc<dyn Health>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send + 'static, Error> {
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Error::new(ErrorKind::System, format!("open the admin port {listen} (set admin.listen to another one)"))
            .because(error)
    })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "admin port open");
    }
    let process = metrics_process::Collector::default();
    process.describe();
    let upkeep = recorder.clone();
    let shared = Shared { health, recorder, process };
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
        .with_state(shared);
    Ok(async move {
        let keep = async {
            loop {
                // Drains the histograms, which otherwise grow until the next scrape.
                tokio::time::sleep(Duration::from_secs(5)).await;
                if let Some(handle) = &upkeep {
                    handle.run_upkeep();
                }
            }
        };
        let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::select! {
            ended = serving => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the admin port failed");
                }
            }
            () = stop.cancelled() => {}
            () = keep => {}
        }
    })
}

async fn livez(State(shared): State<Shared>) -> impl IntoResponse {
    verdict(shared.health.dead())
}

async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    verdict(shared.health.unready())
}

async fn render(State(shared): State<Shared>) -> impl IntoResponse {
    shared.process.collect();
    let text = shared.recorder.map(|it| it.render()).unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

fn verdict(problem: Option<&'static str>) -> (StatusCode, String) {
    match problem {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Routes;

    /// K8S-01.
    #[test]
    fn a_loop_that_stands_still_is_dead_and_one_without_work_is_not() {
        let topics = sekali_schemas::topics::TopicTemplates::default().all(&["t".to_owned()], "g", &[]).unwrap();
        let status = Status::new(Arc::new(Metrics::register(&Routes::new("g", &topics, &[]), 0)));
        assert_eq!((status.dead(), status.unready()), (None, None), "without partitions and without retry topics");
        let long_ago = unix_ms() - STANDSTILL_MS - 1;
        status.metrics.driven_at_ms.store(long_ago, Ordering::Relaxed);
        assert_eq!(status.dead(), Some("the driver stands still"));
        status.metrics.driven();
        assert_eq!(status.dead(), None);
        status.database(false);
        assert_eq!(status.dead(), None, "a restart would not bring the database back");
        assert!(status.unready().is_some());
    }
}
