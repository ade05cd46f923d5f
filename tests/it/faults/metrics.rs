//! What the admin port says, and what it must not go on saying.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::worker::Worker;

const LAG: &str = "sekali_consumer_lag_messages{";

fn event(it: usize) -> Outgoing {
    Outgoing::new(format!("s-{it}"), format!("{{\"sku\":\"s-{it}\",\"delta\":1}}")).id(&format!("m-{it}"))
}

/// Lag of each partition that has a number.
fn lags(text: &str) -> Vec<f64> {
    let values = text.lines().filter(|it| it.starts_with(LAG)).filter_map(|it| it.rsplit(' ').next()?.parse().ok());
    values.filter(|it: &f64| !it.is_nan()).collect()
}

/// MET-01.
#[tokio::test(flavor = "multi_thread")]
async fn the_lag_of_a_partition_that_was_lost_disappears() {
    let group = Group::new("lost-lag", 4, |_| {}).await;
    let url = group.database.url();
    group.produce((0..400).map(|it| event(it).partition((it % 4) as i32))).await;
    let mut first = Worker::start(&group, &url).await;
    eventually("one knows the lag of all", LIMIT, async || lags(&first.metrics().await) == [0.0; 4]).await;
    let mut second = Worker::start(&group, &url).await;
    eventually("each knows the lag of its own", LIMIT, async || {
        let found = (lags(&first.metrics().await), lags(&second.metrics().await));
        if found == (vec![0.0; 2], vec![0.0; 2]) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    for worker in [&mut first, &mut second] {
        worker.process.sigterm();
        assert!(worker.process.wait(LIMIT).await.success());
    }
}

/// Names and labels of every series.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|it| !it.starts_with('#') && !it.is_empty());
    lines.filter_map(|it| it.rsplit_once(' ')).map(|it| it.0.to_owned()).collect()
}

/// MET-03.
#[tokio::test(flavor = "multi_thread")]
async fn no_message_makes_a_new_series() {
    let group = Group::new("series", 1, |_| {}).await;
    let mut worker = Worker::start(&group, &group.database.url()).await;
    // One of each kind, so that what is labelled by partition is there.
    group.produce([event(0), Outgoing::new("k", "bad 0").id("b-0"), Outgoing::new("k", "{}")]).await;
    group.settled().await;
    eventually("the lag is known", LIMIT, async || lags(&worker.metrics().await).len() == 1).await;
    let before = series(&worker.metrics().await);
    let odd = |it: usize| {
        let record = Outgoing::new(format!("key-{it}"), format!("bad {it}")).id(&format!("odd-{it}"));
        record.header("topic", format!("topic-{it}")).header("sekali-group", format!("group-{it}"))
    };
    group.produce((1..300).map(event).chain((0..300).map(odd))).await;
    group.produce((0..50).map(|it| Outgoing::new(format!("no-id-{it}"), "{}"))).await;
    group.settled().await;
    let after = series(&worker.metrics().await);
    let new: Vec<&String> = after.difference(&before).collect();
    assert!(new.is_empty(), "{new:?}");
    assert!(before.is_subset(&after), "a series disappeared");
    worker.process.sigterm();
    assert!(worker.process.wait(LIMIT).await.success());
}

/// MET-04: records of a transaction that is open are not readable, and no lag.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_is_no_lag_until_it_commits() {
    const WAIT: Duration = Duration::from_secs(30);
    let group = Group::new("open", 1, |_| {}).await;
    let mut worker = Worker::start(&group, &group.database.url()).await;
    let mut config = group.kafka.client_config();
    config.set("transactional.id", group.name());
    let topic = group.topic.clone();
    let open = tokio::task::spawn_blocking(move || {
        let producer: BaseProducer = config.create().unwrap();
        producer.init_transactions(WAIT).unwrap();
        producer.begin_transaction().unwrap();
        for it in 0..100 {
            let (id, payload) = (format!("t-{it}"), format!("{{\"sku\":\"s-{it}\",\"delta\":1}}"));
            let headers = OwnedHeaders::new().insert(Header { key: "idempotency-key", value: Some(&id) });
            producer.send(BaseRecord::<str, str>::to(&topic).key("k").payload(&payload).headers(headers)).unwrap();
        }
        producer.flush(WAIT).unwrap();
        producer
    });
    let producer = open.await.unwrap();
    eventually("no lag", LIMIT, async || lags(&worker.metrics().await) == [0.0]).await;
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM stock_movement").await, 0);
    tokio::task::spawn_blocking(move || producer.commit_transaction(WAIT).unwrap()).await.unwrap();
    group.settled().await;
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM stock_movement").await, 100);
    eventually("no lag behind the marker", LIMIT, async || lags(&worker.metrics().await) == [0.0]).await;
    worker.process.sigterm();
    assert!(worker.process.wait(LIMIT).await.success());
}
