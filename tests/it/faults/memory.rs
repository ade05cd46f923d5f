//! Memory under a backlog of large records.

use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::proxy::Direction;
use sekali_tests::harness::{Proxy, eventually};
use sekali_tests::worker::Worker;

const RECORDS: usize = 2_500;
const RECORD_BYTES: usize = 175 * 1024;
const MIB: f64 = 1024.0 * 1024.0;

/// MEM-01: 430 MB wait on the topic while the database is silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_large_records_stays_on_the_broker() {
    let group = Group::new("large-backlog", 12, |_| {}).await;
    let (host, port) = group.database.server().address();
    let proxy = Proxy::to(&format!("{host}:{port}")).await.unwrap();
    let mut worker = Worker::start(&group, &group.database.url_through(proxy.port())).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.stall(direction);
    }
    let (config, topic) = (group.kafka.client_config(), group.topic.clone());
    tokio::task::spawn_blocking(move || produce(config, &topic)).await.unwrap();
    let buffered = async || {
        let text = worker.metrics().await;
        let line = text.lines().find(|it| it.starts_with("sekali_buffered_bytes") && it.contains("\"source\""));
        line.and_then(|it| it.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    eventually("the buffer is full", LIMIT, async || {
        let bytes = buffered().await;
        if 90.0 * MIB < bytes { Ok(()) } else { Err(format!("{:.0} MiB", bytes / MIB)) }
    })
    .await;
    for _second in 0..4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (bytes, resident) = (buffered().await / MIB, resident_bytes(&worker) / MIB);
        assert!(bytes < 105.0, "{bytes:.0} MiB are buffered");
        assert!(resident < 330.0, "{resident:.0} MiB are resident, {bytes:.0} MiB of them buffered");
    }
    assert_eq!(worker.get("/livez").await.unwrap().0, 200);
    proxy.heal();
    eventually("all of them are handled", LIMIT, async || {
        let count: i64 = group.database.scalar("SELECT count(*) FROM stock_movement").await;
        if count == RECORDS as i64 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    group.settled().await;
    worker.process.sigterm();
    assert!(worker.process.wait(LIMIT).await.success());
}

fn produce(mut config: ClientConfig, topic: &str) {
    config.set("compression.type", "zstd").set("linger.ms", "20");
    let producer: BaseProducer = config.create().unwrap();
    let padding = "x".repeat(RECORD_BYTES);
    for it in 0..RECORDS {
        let (id, key) = (format!("m-{it}"), format!("s-{it}"));
        let payload = format!("{{\"sku\":\"{key}\",\"delta\":1,\"padding\":\"{padding}\"}}");
        let headers = OwnedHeaders::new().insert(Header { key: "idempotency-key", value: Some(&id) });
        let mut record = BaseRecord::<str, str>::to(topic).key(&key).payload(&payload).headers(headers);
        while let Err((_full, back)) = producer.send(record) {
            producer.poll(Duration::from_millis(50));
            record = back;
        }
    }
    producer.flush(Duration::from_secs(60)).unwrap();
}

fn resident_bytes(worker: &Worker) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.process.pid())).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
    let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
    kib * 1024.0
}
