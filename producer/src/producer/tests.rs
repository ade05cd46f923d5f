use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{Offset, TopicPartitionList};
use sekali_schemas::{Header, Headers};

use super::*;
use crate::partition_for;

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster() -> (Cluster, KafkaSection) {
    let cluster = MockCluster::new(1).unwrap();
    let section = KafkaSection::new(cluster.bootstrap_servers());
    (cluster, section)
}

fn record(topic: &str, key: Option<&[u8]>) -> OutboundRecord {
    OutboundRecord {
        topic: topic.to_owned(),
        key: key.map(Bytes::copy_from_slice),
        payload: Some(Bytes::from_static(b"x")),
        headers: Headers::default(),
    }
}

#[tokio::test]
async fn keys_land_where_the_function_says() {
    let (cluster, section) = cluster();
    cluster.create_topic("spread", 7, 1).unwrap();
    let producer = Producer::connect(&section).await.unwrap();
    for key in (0..50).map(|it| format!("SKU-{it}")) {
        let delivery = producer.send_record(record("spread", Some(key.as_bytes()))).await.unwrap();
        assert_eq!(delivery.partition, partition_for(key.as_bytes(), 7), "{key}");
    }
    producer.flush(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test]
async fn nulls_and_header_bytes_arrive_as_they_were() {
    let (cluster, section) = cluster();
    cluster.create_topic("exact", 1, 1).unwrap();
    let producer = Producer::connect(&section).await.unwrap();
    let headers: Headers = [
        Header { name: "a", value: Some(&[0, 0xFF][..]) },
        Header { name: "a", value: None },
        Header { name: "", value: Some(b"") },
    ]
    .into_iter()
    .collect();
    let null = OutboundRecord { topic: "exact".to_owned(), key: None, payload: None, headers: headers.clone() };
    let empty = OutboundRecord { key: Some(Bytes::new()), payload: Some(Bytes::new()), ..null.clone() };
    let bare = OutboundRecord { headers: Headers::default(), ..null.clone() };
    for sent in [&null, &empty, &bare] {
        producer.send(sent).await.unwrap();
    }
    let consumer: BaseConsumer = section.client_config().unwrap().set("group.id", "g").create().unwrap();
    let mut all = TopicPartitionList::new();
    all.add_partition_offset("exact", 0, Offset::Beginning).unwrap();
    consumer.assign(&all).unwrap();
    for sent in [null, empty, bare] {
        let got = consumer.poll(Duration::from_secs(10)).expect("three records").unwrap();
        assert_eq!(got.key(), sent.key.as_deref());
        assert_eq!(got.payload(), sent.payload.as_deref());
        let headers: Headers = got
            .headers()
            .map_or_else(Headers::default, |it| it.iter().map(|it| Header { name: it.key, value: it.value }).collect());
        assert_eq!(headers, sent.headers);
    }
}

#[tokio::test]
async fn a_refused_record_is_an_error_with_a_remedy() {
    let (cluster, section) = cluster();
    cluster.create_topic("t", 1, 1).unwrap();
    let producer = Producer::connect(&section).await.unwrap();
    let mut large = record("t", Some(b"k"));
    large.payload = Some(Bytes::from(vec![0; 2_000_000]));
    let error = producer.send_record(large).await.unwrap_err().chain();
    assert!(error.contains("raise max.message.bytes"), "{error}");
    cluster.request_errors(
        rdkafka::types::RDKafkaApiKey::Produce,
        &[rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
    );
    let error = producer.send_record(record("t", Some(b"k"))).await.unwrap_err().chain();
    assert!(error.contains("grant it"), "{error}");
    let error = producer.send_record(record("not a topic", None)).await.unwrap_err().chain();
    assert!(error.contains("not a legal topic name"), "{error}");
    let nul: Headers = [Header { name: "a\0b", value: None }].into_iter().collect();
    let error = producer.send_record(OutboundRecord { headers: nul, ..record("t", None) }).await.unwrap_err().chain();
    assert!(error.contains("NUL"), "{error}");
}

#[tokio::test]
async fn nobody_at_the_address_is_said() {
    // The port is free: it was bound a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let section = KafkaSection::new(format!("127.0.0.1:{port}"));
    let config = section.producer_config().unwrap();
    let causes = section.causes();
    let client = PolledProducer::create(&config, &causes).unwrap();
    let producer = Producer { client, causes, contract: None };
    let error = tokio::task::spawn_blocking(move || producer.wait_for_broker()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Kafka);
    assert!(error.chain().contains("check kafka.brokers"), "{error:?}");
}

#[test]
fn a_refused_property_names_its_key() {
    let mut section = KafkaSection::new("a:1");
    section.properties = [("no.such.key".to_owned(), "x".to_owned())].into();
    let error = PolledProducer::create(&section.producer_config().unwrap(), &section.causes()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.chain().contains("no.such.key"), "{error:?}");
    section.properties = [("ssl.keystore.password".to_owned(), "hunter2".to_owned())].into();
    let shown = PolledProducer::create(&section.producer_config().unwrap(), &section.causes())
        .err()
        .map(|it| it.chain())
        .unwrap_or_default();
    assert!(!shown.contains("hunter2"), "{shown}");
    let mut section = KafkaSection::new("a:1");
    section.security_protocol = crate::config::SecurityProtocol::Ssl;
    section.ssl_ca_file = Some("/no/such/file".into());
    let error = PolledProducer::create(&section.producer_config().unwrap(), &section.causes()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.chain().contains("check kafka.ssl_ca_file"), "{error:?}");
    let unknown = rdkafka::error::KafkaError::Global(RDKafkaErrorCode::InvalidArgument);
    assert!(!explain(&unknown, &KafkaCauses::new()).chain().is_empty());
}
