use bytes::Bytes;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use sekali_schemas::Headers;

use super::*;
use crate::OutboundRecord;
use crate::config::{KafkaSection, PostgresSection, RelaySection};
use crate::relay::Relay;
use crate::relay::page::Page;

fn publisher(cluster: &MockCluster<'_, DefaultProducerContext>) -> Publisher {
    let postgres = PostgresSection { url: Some("postgres://u@localhost/d".into()), ..PostgresSection::default() };
    let section = KafkaSection::new(cluster.bootstrap_servers());
    let relay = Relay::new(postgres.pool("test").unwrap(), &section, &RelaySection::default()).unwrap();
    Publisher::new(relay.client, relay.kafka)
}

fn rows(topics: &[&str]) -> Vec<Queued> {
    let record = |topic: &str| OutboundRecord {
        topic: topic.to_owned(),
        key: Some(Bytes::from_static(b"k")),
        payload: Some(Bytes::from_static(b"x")),
        headers: Headers::default(),
    };
    topics.iter().zip(1..).map(|(topic, id)| Queued { id, record: record(topic) }).collect()
}

/// Sends until all are decided; returns what was refused and the number of runs.
async fn decide(publisher: &mut Publisher, rows: Vec<Queued>) -> (Vec<(i64, String)>, usize) {
    let mut page = Page::new(rows);
    let mut runs = 0;
    loop {
        let run = page.next_run();
        if run.is_empty() {
            break;
        }
        runs += 1;
        assert!(runs < 100, "no end");
        let answers = publisher.publish(&run).await.unwrap();
        page.apply(answers.outcomes);
    }
    (page.into_refused().into_iter().map(|it| (it.id, it.code)).collect(), runs)
}

#[tokio::test]
async fn a_refused_batch_is_sent_again_one_by_one() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let mut publisher = publisher(&cluster);
    decide(&mut publisher, rows(&["t"])).await;
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    let (refused, runs) = decide(&mut publisher, rows(&["t"; 5])).await;
    assert_eq!(refused, [], "the broker took each of them alone");
    assert_eq!(runs, 6, "a refused batch of five, then each alone");
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD; 2]);
    let (refused, _) = decide(&mut publisher, rows(&["t"; 3])).await;
    assert_eq!(refused, [(1, "InvalidRecord".to_owned())]);
}

#[tokio::test]
async fn what_is_too_large_for_the_client_does_not_stop_the_others() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let mut rows = rows(&["t"; 3]);
    rows[1].record.payload = Some(Bytes::from(vec![0; 2_000_000]));
    let (refused, runs) = decide(&mut publisher(&cluster), rows).await;
    assert_eq!((refused, runs), (vec![(2, "MessageSizeTooLarge".to_owned())], 2));
}

#[tokio::test]
async fn a_missing_topic_gets_patience_and_then_a_verdict() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    cluster.create_topic("gone", 1, 1).unwrap();
    cluster.topic_error("gone", RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let mut publisher = publisher(&cluster);
    let rows = rows(&["gone", "t", "gone"]);
    let run: Vec<&Queued> = rows.iter().collect();
    let answers = publisher.publish(&run).await.unwrap();
    assert_eq!(answers.outcomes, [Outcome::Failed, Outcome::Delivered, Outcome::Failed]);
    assert!(answers.trouble.unwrap().chain().contains("does not exist"));
    // Half a minute later.
    publisher.unusable_since.insert("gone".to_owned(), Instant::now().checked_sub(TOPIC_PATIENCE * 2).unwrap());
    let answers = publisher.publish(&run[..1]).await.unwrap();
    assert!(matches!(&answers.outcomes[..], [Outcome::Refused(_)]), "{:?}", answers.outcomes);
    // Somebody creates it.
    cluster.topic_error("gone", RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    let (refused, _) = decide(&mut publisher, rows).await;
    assert!(refused.len() <= 2, "{refused:?}");
    let (refused, _) = decide(&mut publisher, self::rows(&["gone"])).await;
    assert_eq!(refused, [], "it is found once it is there");
    assert!(publisher.unusable_since.is_empty());
}

#[tokio::test]
async fn an_absent_broker_is_waited_for() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let mut publisher = publisher(&cluster);
    decide(&mut publisher, rows(&["t"])).await;
    cluster.broker_down(1).unwrap();
    let back = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.broker_up(1).unwrap();
    };
    let ((refused, runs), ()) = tokio::join!(decide(&mut publisher, rows(&["t"; 10])), back);
    assert_eq!((refused, runs), (vec![], 1), "librdkafka waits by itself and keeps the order");
}
