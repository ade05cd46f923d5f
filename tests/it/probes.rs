//! The admin port of a worker process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sekali_consumer::metrics;
use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, Proxy, eventually};
use sekali_tests::worker::{Worker, value};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_described_and_there_from_the_start() {
    let group = Group::new("metrics", 2, |_| {}).await;
    let mut worker = Worker::start(&group, &group.database.url()).await;
    let text = worker.metrics().await;
    let described: BTreeSet<&str> =
        text.lines().filter_map(|it| it.strip_prefix("# HELP ")?.split(' ').next()).collect();
    let types: BTreeMap<&str, &str> =
        text.lines().filter_map(|it| it.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    // What has no value before something happened, and no label set that is known before.
    let later = ["sekali_consumer_lag_messages", "sekali_consumer_lag_seconds", "sekali_last_commit_timestamp_seconds"];
    for metric in metrics::ALL.iter().chain(sekali_producer::metrics::ALL) {
        let histogram = metric.buckets().is_some();
        if !later.contains(&metric.name) && !histogram {
            assert!(described.contains(metric.name), "{} is not described", metric.name);
            assert!(text.lines().any(|it| it.starts_with(metric.name)), "{} has no series", metric.name);
        }
    }
    assert!(types.values().all(|it| *it != "summary"), "a histogram without buckets became a summary: {types:?}");
    assert_eq!(value(&text, "sekali_messages_processed_total{"), Some(0.0), "counters begin at zero");

    let record = |it: usize| Outgoing::new("s", "{\"sku\":\"s\",\"delta\":1}").id(&format!("m-{}", it % 40));
    group.produce((0..50).map(record)).await;
    group.produce([Outgoing::new("s", "no json").id("bad")]).await;
    eventually("what happened is counted", LIMIT, async || {
        let text = worker.metrics().await;
        let count = |outcome: &str| {
            let series = text.lines().find(|it| {
                it.starts_with("sekali_messages_processed_total") && it.contains(&format!("outcome=\"{outcome}\""))
            });
            series.and_then(|it| it.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
        };
        let found = (count("ok"), count("duplicate"), count("dead_lettered"));
        if found == (40.0, 10.0, 1.0) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    eventually("lag is known", LIMIT, async || {
        let text = worker.metrics().await;
        value(&text, "sekali_consumer_lag_messages{").is_some_and(|it| it == 0.0)
            && value(&text, "sekali_last_commit_timestamp_seconds").is_some()
            && value(&text, "sekali_dlq_messages{").is_some_and(|it| it == 1.0)
    })
    .await;
    let text = worker.metrics().await;
    for forbidden in ["m-1", "\"s\"", "no json"] {
        assert!(!text.contains(forbidden), "a label holds {forbidden}");
    }
    worker.process.sigterm();
    assert!(worker.process.wait(LIMIT).await.success(), "{}", worker.process.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_makes_a_worker_unready_and_not_dead() {
    let group = Group::new("probes", 1, |_| {}).await;
    let (host, port) = group.database.server().address();
    let proxy = Proxy::to(&format!("{host}:{port}")).await.unwrap();
    let mut worker = Worker::start(&group, &group.database.url_through(proxy.port())).await;
    assert_eq!(worker.get("/livez").await.unwrap().0, 200);
    proxy.refuse(true);
    proxy.cut();
    eventually("not ready", LIMIT, async || worker.get("/readyz").await.is_some_and(|it| it.0 == 503)).await;
    assert_eq!(worker.get("/livez").await.unwrap().0, 200, "a restart would not bring the database back");
    proxy.refuse(false);
    eventually("ready again", LIMIT, async || worker.get("/readyz").await.is_some_and(|it| it.0 == 200)).await;
    worker.process.sigterm();
    assert!(worker.process.wait(LIMIT).await.success());
}
