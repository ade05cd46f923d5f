//! Retry topics, dead letters, and what their headers may do.

use std::time::Duration;

use bytes::Bytes;
use sekali_consumer::schemas::control;
use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::scripted::{SCRIPT, Scripted};
use sekali_tests::worker::Worker;

use super::bench::{noise, scripted, took_effect_once};

/// Fails for ever, at length, and in letters of two and three bytes.
struct Talkative;

impl Handler for Talkative {
    async fn handle(&self, _: &Message, _: &Transaction<'_>) -> Result<Reply, Failure> {
        Err(Failure::transient("ü€ ".repeat(50 * 1024 / 6)))
    }
}

/// RTY-01.
#[tokio::test(flavor = "multi_thread")]
async fn headers_do_not_grow_with_the_hops_or_the_error() {
    let group = Group::new("talkative", 1, |config| {
        config.retry.delays = vec![Duration::from_millis(50), Duration::from_millis(100)];
        config.retry.max_attempts = 6.try_into().ok();
    })
    .await;
    group.produce([scripted("m", "any")]).await;
    let member = group.start(Talkative).await;
    group.settled().await;
    member.stop().await.unwrap();
    let mut hops = Vec::new();
    for topic in group.retry_topics() {
        hops.extend(group.kafka.read_all(&topic).await);
    }
    assert_eq!(hops.len(), 5, "five hops");
    let counts: Vec<usize> = hops.iter().map(|it| it.headers.len()).collect();
    assert!(counts.iter().all(|it| *it == counts[0]), "{counts:?}");
    let first_failed: Vec<_> = hops.iter().map(|it| it.headers.text(control::FIRST_FAILED_AT)).collect();
    assert!(first_failed[0].is_some() && first_failed.iter().all(|it| *it == first_failed[0]), "{first_failed:?}");
    let letters = group.kafka.read_all(&group.dlq()).await;
    for record in hops.iter().chain(&letters) {
        let size = record.headers.size_bytes();
        assert!(size <= 8 * 1024, "{size} bytes of headers");
        let message = record.headers.text(control::ERROR_MESSAGE).expect("cut between characters");
        assert!(message.starts_with("ü€ ") && message.len() <= control::ERROR_MESSAGE_BYTES_MAX, "{}", message.len());
    }
}

/// RTY-02.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_outgrows_the_dead_letter_topic_blocks_and_loses_nothing() {
    const LIMIT_BYTES: usize = 100_000;
    let mut group = Group::new("outgrows", 1, |_| {}).await;
    // Topics whose limit is that of their source, as somebody made them by hand.
    group.topic = sekali_tests::harness::unique("outgrows");
    group.config.consumer.topics = vec![group.topic.clone()];
    let names = group.config.group_topics().unwrap().topics.remove(0);
    let all: Vec<(&str, i32)> = [&names.source, &names.dlq]
        .into_iter()
        .chain(names.retry.iter().map(|it| &it.1))
        .map(|it| (it.as_str(), 1))
        .collect();
    group.kafka.create_exactly(&all, &[("max.message.bytes", &LIMIT_BYTES.to_string())]).await;
    let large = noise(LIMIT_BYTES - 400);
    let small = |it: usize| scripted(&format!("small-{it}"), "permanent");
    group.produce((0..25).map(small)).await;
    // Alone: the limit is on a batch of the producer.
    group.produce([Outgoing { payload: Some(large.clone()), ..scripted("large", "permanent") }]).await;
    group.produce((25..50).map(small)).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    let letters = group.kafka.read_all(&group.dlq()).await;
    assert_eq!(letters.len(), 50, "its neighbours are all there");
    let sql = "SELECT payload, reason, consumer.name FROM sekali.dead_letter JOIN sekali.consumer ON consumer.id = consumer_id \
               WHERE octet_length(payload) > 1000 ORDER BY reason";
    let rows = group.database.connect().await.query(sql, &[]).await.unwrap();
    let found: Vec<(&str, bool)> = rows.iter().map(|it| (it.get(1), it.get::<_, &[u8]>(0) == large)).collect();
    assert_eq!(found, [("permanent", true), ("unpublishable", true)], "its body is in the table, and why");
    assert_eq!(group.dead_letters().await.len(), 52);
}

/// RTY-04.
#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_the_attempt_lets_a_message_run_again() {
    let group = Group::new("spelling", 1, |_| {}).await;
    let spellings: [&[&[u8]]; 14] = [
        &[],
        &[b""],
        &[b"abc"],
        &[b"-1"],
        &[b"0"],
        &[b"1"],
        &[b"127"],
        &[b"128"],
        &[b"65538"],
        &[b"999999999999"],
        &[&[0xFF]],
        &[&[0, 0, 0, 2]],
        &[b"2", b"3"],
        &[b" 2"],
    ];
    let mut records = Vec::new();
    for (index, spelling) in spellings.iter().enumerate() {
        let mut record = scripted(&format!("m-{index}"), "ok");
        for value in *spelling {
            record = record.header(control::ATTEMPT, Bytes::copy_from_slice(value));
        }
        for (name, value) in [
            (control::DUE_AT, "0"),
            (control::GROUP, group.name()),
            (control::ORIGIN_TOPIC, &group.topic),
            (control::ORIGIN_PARTITION, "0"),
            (control::ORIGIN_OFFSET, "7"),
            (control::FIRST_FAILED_AT, "0"),
        ] {
            record = record.header(name, value.to_owned());
        }
        records.push(record);
    }
    // Each of them is waited for as its second attempt, and decided ones must not come back.
    let client = group.database.connect().await;
    let sql = format!("INSERT INTO sekali.consumer (name) VALUES ('{}') RETURNING id", group.name());
    let consumer: i16 = client.query_one(&sql, &[]).await.unwrap().get(0);
    let insert = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) VALUES ($1, $2, $3, 1, 1)";
    for index in 0..spellings.len() {
        let key = sekali_consumer::IdempotencyKey::new(format!("m-{index}")).unwrap().uuid();
        let fingerprint = sekali_consumer::schemas::fingerprint(Some(b"{}"));
        client.execute(insert, &[&key, &fingerprint, &consumer]).await.unwrap();
    }
    group.kafka.produce(&group.retry_topics()[0], records).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.settled().await;
    member.stop().await.unwrap();
    for (index, spelling) in spellings.iter().enumerate() {
        assert!(handler.seen(&format!("m-{index}")).is_empty(), "{spelling:?} ran");
    }
    let dead = group.dead_letters().await;
    assert!(dead.iter().all(|it| it.1 == "invalid"), "{dead:?}");
    assert_eq!(dead.len(), 11, "unreadable ones are dead letters, readable ones duplicates: {dead:?}");
}

/// RTY-04: the counter is wider than a signed byte.
#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_counted_beyond_a_byte_and_end() {
    let group = Group::new("byte", 1, |config| {
        config.retry.delays = vec![Duration::from_millis(1)];
        config.retry.max_attempts = 135.try_into().ok();
    })
    .await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce([scripted("never", "transient")]).await;
    group.settled().await;
    member.stop().await.unwrap();
    let attempts: Vec<u32> = handler.attempts("never").iter().map(|it| it.0).collect();
    assert_eq!(attempts, (1..=135).collect::<Vec<u32>>());
    assert_eq!(group.dead_letters().await, [("never".to_owned(), "exhausted".to_owned(), "transient".to_owned(), 135)]);
}

/// RTY-10: the outbox row is the confirmation; the topic gets its record when it is there again.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_topic_that_is_away_loses_nothing_and_stops_nobody() {
    const GOOD: usize = 300;
    let group = Group::new("no-dlq", 2, |_| {}).await;
    let mut worker = Worker::start(&group, &group.database.url()).await;
    group.kafka.delete_topics(&[&group.dlq()]).await;
    let good = |it: usize| {
        let payload = format!("{{\"sku\":\"s-{}\",\"delta\":1}}", it % 7);
        Outgoing::new(format!("s-{}", it % 7), payload).id(&format!("m-{it}"))
    };
    group.produce([Outgoing::new("s-0", "no json").id("poison").partition(0)]).await;
    group.produce((0..GOOD).map(good)).await;
    let ledger = "SELECT count(*) FROM stock_movement";
    eventually("the good ones are handled", LIMIT, async || {
        let count: i64 = group.database.scalar(ledger).await;
        if count == GOOD as i64 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    let letters = "SELECT count(*) FROM sekali.dead_letter";
    eventually("the poison is a dead letter", LIMIT, async || group.database.scalar::<i64>(letters).await == 1).await;
    let waiting = "SELECT count(*) FROM sekali.outbox";
    assert_eq!(group.database.scalar::<i64>(waiting).await, 1, "its record waits");
    worker.process.sigkill().await;
    group.kafka.create_exactly(&[(&group.dlq(), 2)], &[]).await;
    let mut worker = Worker::start(&group, &group.database.url()).await;
    group.settled().await;
    worker.process.sigterm();
    assert!(worker.process.wait(LIMIT).await.success(), "{}", worker.process.stderr());
    let records = group.kafka.read_all(&group.dlq()).await;
    assert!(!records.is_empty() && records.iter().all(|it| it.headers.text("idempotency-key") == Some("poison")));
    assert_eq!(group.database.scalar::<i64>(ledger).await, GOOD as i64);
    assert_eq!(group.database.scalar::<i64>(letters).await, 1, "and nobody blames the outbox");
}

/// RTY-05: a source topic whose own name looks like that of a retry topic.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_topic_with_the_name_of_a_retry_topic_is_a_source_topic() {
    let mut group = Group::new("looks", 1, |_| {}).await;
    group.topic = format!("{}.other.retry.2s", sekali_tests::harness::unique("looks"));
    group.config.consumer.topics = vec![group.topic.clone()];
    let names = group.config.group_topics().unwrap().topics.remove(0);
    let all: Vec<(&str, i32)> = [&names.source, &names.dlq]
        .into_iter()
        .chain(names.retry.iter().map(|it| &it.1))
        .map(|it| (it.as_str(), 1))
        .collect();
    group.kafka.create_exactly(&all, &[]).await;
    // As another group's record would look, whose attempt is none of ours.
    let theirs = scripted("theirs", "transient=1").header(control::ATTEMPT, "3").header(control::GROUP, "other");
    group
        .produce([theirs, scripted("dies", "permanent"), Outgoing::new("k", "{}").header(SCRIPT, "ok").id("ok")])
        .await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.kafka.end_offsets(&group.topic).await[&0], 3, "nothing goes back to the source");
    assert_eq!(group.kafka.end_offsets(&group.dlq()).await[&0], 1);
    took_effect_once(&group, 2).await;
    let attempt = "SELECT attempt FROM effect WHERE key_text = 'theirs'";
    assert_eq!(group.database.scalar::<i32>(attempt).await, 2);
}
