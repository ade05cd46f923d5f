//! Bytes that nobody expected.

use bytes::Bytes;
use sekali_consumer::schemas::control;
use sekali_tests::group::Group;
use sekali_tests::harness::Outgoing;
use sekali_tests::scripted::Scripted;

use super::bench::{noise, scripted, took_effect_once};

/// Headers by the thousand, large, empty, null, twice, and no text.
fn headers() -> Vec<(String, Option<Bytes>)> {
    let mut headers: Vec<(String, Option<Bytes>)> =
        (0..1_000).map(|it| (format!("h-{it}"), Some(Bytes::from(format!("value {it}"))))).collect();
    headers.extend([
        ("large".to_owned(), Some(noise(500_000))),
        ("null".to_owned(), None),
        ("bytes".to_owned(), Some(Bytes::from_static(&[0xC3, 0x28, 0]))),
        (String::new(), Some(Bytes::from_static(b"no name"))),
        ("twice".to_owned(), Some(Bytes::from_static(b"1"))),
        ("twice".to_owned(), None),
    ]);
    headers
}

/// SCH-02.
#[tokio::test(flavor = "multi_thread")]
async fn any_headers_reach_handlers_and_dead_letters_unchanged() {
    let group = Group::new("headers", 1, |_| {}).await;
    let record = |id: &str, script: &str| {
        let mut record = scripted(id, script);
        record.headers.extend(headers());
        record
    };
    group.produce([record("ok", "ok"), record("later", "transient=1"), record("dies", "permanent")]).await;
    group.produce([scripted("behind", "ok")]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    took_effect_once(&group, 3).await;
    let letters = group.kafka.read_all(&group.dlq()).await;
    assert_eq!(letters.len(), 1);
    let kept: Vec<(String, Option<Bytes>)> = letters[0]
        .headers
        .iter()
        .skip(2)
        .take(1_006)
        .map(|it| (it.name.to_owned(), it.value.map(Bytes::copy_from_slice)))
        .collect();
    assert!(kept == headers(), "user headers are carried byte for byte");
    let sql = "SELECT header_names, header_values FROM sekali.dead_letter";
    let row = group.database.connect().await.query_one(sql, &[]).await.unwrap();
    let (names, values): (Vec<String>, Vec<Option<Vec<u8>>>) = (row.get(0), row.get(1));
    let stored: Vec<_> = names.into_iter().zip(values.into_iter().map(|it| it.map(Bytes::from))).skip(2).collect();
    assert!(stored == headers(), "and so they are in the table");
}

/// SCH-03: during a rolling update, a newer version's retry record has headers that this one does not know.
#[tokio::test(flavor = "multi_thread")]
async fn control_headers_of_a_newer_version_do_not_disturb() {
    let group = Group::new("newer", 1, |config| config.retry.delays.truncate(1)).await;
    let sql = format!("INSERT INTO sekali.consumer (name) VALUES ('{}') RETURNING id", group.name());
    let consumer: i16 = group.database.scalar(&sql).await;
    let key = sekali_consumer::IdempotencyKey::new("m").unwrap().uuid();
    let fingerprint = sekali_consumer::schemas::fingerprint(Some(b"{}"));
    let insert = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) VALUES ($1, $2, $3, 2, 2)";
    group.database.connect().await.execute(insert, &[&key, &fingerprint, &consumer]).await.unwrap();
    let mut record: Outgoing = scripted("m", "ok").header("sekali-version", "2").header("sekali-new", vec![0xFF_u8]);
    for (name, value) in [
        (control::ATTEMPT, "2"),
        (control::DUE_AT, "0"),
        (control::GROUP, group.name()),
        (control::ORIGIN_TOPIC, &group.topic),
        (control::ORIGIN_PARTITION, "0"),
        (control::ORIGIN_OFFSET, "7"),
        (control::FIRST_FAILED_AT, "0"),
    ] {
        record = record.header(name, value.to_owned());
    }
    group.kafka.produce(&group.retry_topics()[0], [record]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    took_effect_once(&group, 1).await;
    assert!(group.dead_letters().await.is_empty());
}
