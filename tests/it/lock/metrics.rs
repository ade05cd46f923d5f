//! What operators see of locks.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use sekali_consumer::lock::LockError;
use sekali_consumer::metrics::ALL;
use sekali_tests::harness::{TestDatabase, eventually};
use sekali_tests::worker::value;

use super::{LIMIT, LONG, locks, name, take};

const TTL: Duration = Duration::from_secs(1);

/// On one thread, which the heartbeat shares, so that this test has a recorder of its own.
#[tokio::test]
async fn every_turn_of_a_lock_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    ALL.iter().for_each(|it| it.describe_and_register());
    let read = |series: &str| value(&recorder.handle().render(), &format!("sekali_lock{series} ")).unwrap_or(f64::NAN);
    assert_eq!(read("_acquisitions_total{result=\"contended\"}"), 0.0, "registered before anything happens");

    let database = TestDatabase::create().await;
    let locks = locks(&database.url());
    let guard = take(&locks, "a", TTL).await;
    assert_eq!(read("s_held"), 1.0);
    assert!(locks.try_acquire(&name("a"), TTL).await.unwrap().is_none());
    eventually("it is renewed", LIMIT, async || read("_renewals_total{result=\"ok\"}") >= 1.0).await;
    guard.release().await.unwrap();
    assert_eq!((read("s_held"), read("_hold_seconds_count")), (0.0, 1.0));
    assert!(locks.try_acquire(&name("b"), Duration::ZERO).await.is_err());
    let results = ["acquired", "contended", "error"].map(|it| read(&format!("_acquisitions_total{{result=\"{it}\"}}")));
    assert_eq!((results, read("_wait_seconds_count")), ([1.0, 1.0, 1.0], 1.0));

    // Somebody lets one run out, and another is stolen.
    let insert = "INSERT INTO sekali.lock (name, owner, fence, until) VALUES ('old', gen_random_uuid(), 0, now() - interval '1 s')";
    database.execute(insert).await;
    let guard = take(&locks, "old", LONG).await;
    assert_eq!(read("_expirations_total"), 1.0);
    database.execute("UPDATE sekali.lock SET owner = gen_random_uuid() WHERE name = 'old'").await;
    let mut client = database.connect().await;
    let tx = client.transaction().await.unwrap();
    assert!(matches!(guard.check(&tx).await, Err(LockError::Lost(_))));
    assert_eq!(read("_fenced_total"), 1.0);
    assert!(guard.is_lost());
    assert_eq!((read("_losses_total{reason=\"taken\"}"), read("s_held")), (1.0, 0.0));
    assert_eq!((read("_losses_total{reason=\"expired\"}"), read("_hold_seconds_count")), (0.0, 2.0));
}
