//! A client that looks healthy and hands out nothing.

use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use sekali::private_postgres::free_port;
use sekali_tests::group::{Group, LIMIT, member_process};
use sekali_tests::harness::{TestDatabase, eventually, unique};
use sekali_tests::scripted::LEDGER;

/// More refusals than a client asks for in the time of the test.
const REFUSALS: usize = 100_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hands_out_nothing_is_made_anew_and_work_goes_on() {
    let cluster = MockCluster::new(1).unwrap();
    let port = free_port().unwrap();
    let (topic, database) = (unique("stall"), TestDatabase::create().await);
    database.execute(LEDGER).await;
    let config = Group::configure(&cluster.bootstrap_servers(), &database.url(), &topic, |config| {
        config.consumer.stall_timeout = Duration::from_secs(3);
        config.admin.listen = Some(([127, 0, 0, 1], port).into());
        config.retry.delays = Vec::new();
        config.inbox.retention = None;
        config.kafka.properties.insert("statistics.interval.ms".to_owned(), "500".to_owned());
    });
    for name in [&topic, &config.group_topics().unwrap().topics[0].dlq] {
        cluster.create_topic(name, 1, 1).unwrap();
    }
    let producer: BaseProducer =
        rdkafka::ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create().unwrap();
    let produce = |ids: std::ops::Range<usize>| {
        for id in ids {
            let id = id.to_string();
            let headers = rdkafka::message::OwnedHeaders::new()
                .insert(rdkafka::message::Header { key: "idempotency-key", value: Some(&id) });
            producer.send(BaseRecord::to(&topic).key("k").payload("{}").headers(headers)).unwrap();
        }
        producer.flush(Duration::from_secs(10)).unwrap();
    };
    let effects = async || database.scalar::<i64>("SELECT count(*) FROM effect").await;

    let mut member = member_process(&config, &database);
    produce(0..10);
    eventually("the first records are handled", LIMIT, async || effects().await == 10).await;
    let admin = async |path: &str| {
        let url = format!("http://127.0.0.1:{port}{path}");
        tokio::task::spawn_blocking(move || {
            let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            agent.get(&url).call().unwrap().body_mut().read_to_string().unwrap()
        })
        .await
        .unwrap()
    };
    cluster.request_errors(RDKafkaApiKey::Fetch, &vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR__TIMED_OUT; REFUSALS]);
    produce(10..20);
    eventually("the client is made anew", LIMIT, async || {
        let metrics = admin("/metrics").await;
        let line = metrics.lines().find(|it| it.starts_with("sekali_kafka_clients_renewed_total")).unwrap_or_default();
        if line.ends_with(" 0") { Err(line.to_owned()) } else { Ok(()) }
    })
    .await;
    assert_eq!(effects().await, 10);
    cluster.clear_request_errors(RDKafkaApiKey::Fetch);
    eventually("work goes on", LIMIT, async || effects().await == 20).await;
    eventually("it is ready again", LIMIT, async || admin("/readyz").await == "ok\n").await;
    member.sigterm();
    assert!(member.wait(Duration::from_secs(20)).await.success(), "{}", member.stderr());
    assert_eq!(effects().await, 20, "nothing twice");
}
