//! What a dead letter carries, in the table and on its topic.

use bytes::Bytes;
use sekali_schemas::{Header, control};
use sekali_tests::group::Group;
use sekali_tests::harness::Outgoing;
use sekali_tests::scripted::{SCRIPT, Scripted};

/// Key, value and headers that software likes to damage.
fn odd(id: &str, script: &str, key: Option<&'static [u8]>, payload: Option<&'static [u8]>) -> Outgoing {
    let headers = vec![
        ("idempotency-key".to_owned(), Some(Bytes::copy_from_slice(id.as_bytes()))),
        (SCRIPT.to_owned(), Some(Bytes::copy_from_slice(script.as_bytes()))),
        (
            "traceparent".to_owned(),
            Some(Bytes::from_static(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
        ),
        ("null".to_owned(), None),
        (String::new(), Some(Bytes::from_static(&[0xC3, 0x28, 0]))),
        ("twice".to_owned(), Some(Bytes::from_static(b"1"))),
        ("twice".to_owned(), Some(Bytes::from_static(b"2"))),
        ("empty".to_owned(), Some(Bytes::new())),
    ];
    Outgoing {
        key: key.map(Bytes::from_static),
        payload: payload.map(Bytes::from_static),
        headers,
        partition: Some(1),
        timestamp_ms: Some(1_700_000_000_123),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_value_and_user_headers_stay_byte_equal_and_ours_name_the_origin() {
    let group = Group::new("odd", 2, |_| {}).await;
    let records = [
        odd("permanent", "permanent", None, None),
        odd("exhausted", "transient", Some(&[0xFF, 0, 1]), Some(b"\x00payload\xFF")),
        odd("empty", "permanent", Some(b""), Some(b"")),
    ];
    group.produce(records.clone()).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();

    let letters = group.kafka.read_all(&group.dlq()).await;
    assert_eq!(letters.len(), records.len());
    let mut counts = Vec::new();
    for (offset, sent) in records.iter().enumerate() {
        let id = sent.headers[0].1.as_deref().unwrap();
        let letter = letters.iter().find(|it| it.headers.get("idempotency-key") == Some(Some(id))).unwrap();
        assert_eq!((&letter.key, &letter.payload), (&sent.key, &sent.payload));
        let expected: Vec<Header<'_>> =
            sent.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect();
        let kept: Vec<Header<'_>> = letter.headers.iter().take(expected.len()).collect();
        assert!(kept == expected, "user headers stand first, byte for byte, in order");
        let text = |name| letter.headers.text(name).unwrap_or_else(|| panic!("header {name}"));
        let attempts = if sent.key.as_deref() == Some(&[0xFF, 0, 1]) { "3" } else { "1" };
        for (name, value) in [
            (control::ORIGIN_TOPIC, group.topic.as_str()),
            (control::ORIGIN_PARTITION, "1"),
            (control::ORIGIN_OFFSET, &offset.to_string()),
            (control::ORIGIN_TIMESTAMP, "1700000000123"),
            (control::GROUP, group.name()),
            (control::ATTEMPT, attempts),
            (control::share_group::TOPIC, group.topic.as_str()),
            (control::share_group::PARTITION, "1"),
            (control::share_group::OFFSET, &offset.to_string()),
            (control::share_group::GROUP, group.name()),
            (control::share_group::DELIVERY_COUNT, attempts),
        ] {
            assert_eq!(text(name), value, "{name}");
        }
        assert!(text(control::ERROR_MESSAGE).len() <= control::ERROR_MESSAGE_BYTES_MAX);
        counts.push(letter.headers.len());
    }
    assert!(counts.iter().all(|it| *it == counts[0]), "the number of headers does not depend on the hops: {counts:?}");

    let client = group.database.connect().await;
    let sql = "SELECT key_text, resource_key, payload, header_names, header_values FROM sekali.dead_letter";
    for row in client.query(sql, &[]).await.unwrap() {
        let id: String = row.get(0);
        let sent = records.iter().find(|it| it.headers[0].1.as_deref() == Some(id.as_bytes())).unwrap();
        assert_eq!(row.get::<_, Option<Vec<u8>>>(1).as_deref(), sent.key.as_deref(), "{id}");
        assert_eq!(row.get::<_, Option<Vec<u8>>>(2).as_deref(), sent.payload.as_deref(), "{id}");
        let names: Vec<String> = row.get(3);
        let values: Vec<Option<Vec<u8>>> = row.get(4);
        let kept: Vec<_> = names.into_iter().zip(values.into_iter().map(|it| it.map(Bytes::from))).collect();
        assert_eq!(kept, sent.headers, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn destinations_named_by_a_record_are_not_followed() {
    let group = Group::new("hints", 1, |_| {}).await;
    let mut record = odd("hint", "permanent", Some(b"k"), Some(b"{}"));
    record.partition = Some(0);
    for name in ["topic", "destination", "sekali-origin-topic", "__dlq.errors.topic", "kafka_dlt-original-topic"] {
        record = record.header(name, group.topic.clone());
    }
    group.produce([record]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.kafka.end_offsets(&group.topic).await[&0], 1, "nothing goes back to the source");
    assert_eq!(group.kafka.end_offsets(&group.dlq()).await[&0], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_postgres_cannot_store_does_not_stop_the_burial() {
    let group = Group::new("nul", 1, |_| {}).await;
    let nul = Outgoing::new("k\0ey", "{\"a\":\"\\u0000\"}\0").id("i\0d").header(SCRIPT, "permanent");
    group.produce([nul, Outgoing::new("k", "{}").id("after")]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    let dead = group.dead_letters().await;
    assert_eq!((dead.len(), dead[0].1.as_str()), (1, "permanent"), "{dead:?}");
    assert_eq!(group.effects().await, [("after".to_owned(), 1)].into());
}
