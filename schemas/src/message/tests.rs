use super::*;
use crate::control::ErrorInfo;

fn record(headers: Headers, payload: Option<&str>) -> Record {
    Record {
        topic: "stock".into(),
        partition: 1,
        offset: 9,
        timestamp_ms: Some(5),
        key: Some("sku".into()),
        payload: payload.map(|it| Bytes::copy_from_slice(it.as_bytes())),
        headers,
    }
}

fn keyed() -> Headers {
    Headers::builder().text("idempotency-key", "k1").build()
}

fn read(record: Record, read_as: ReadAs<'_>) -> Result<Message, Invalid> {
    Message::read(record, read_as, |_| None).map_err(|(reason, _)| reason)
}

#[test]
fn a_source_record_is_attempt_one_whatever_its_headers_say() {
    let headers = Headers::builder().text("idempotency-key", "k1").text("sekali-attempt", "7").build();
    let message = read(record(headers, Some("{}")), ReadAs::Source).unwrap();
    assert_eq!((message.attempt(), message.due_at_ms()), (1, None));
    assert_eq!((&*message.origin().topic, message.origin().offset), ("stock", 9));
}

#[test]
fn a_retry_record_keeps_its_origin_and_belongs_to_one_group() {
    let control = Control {
        attempt: 3,
        due_at_ms: Some(77),
        group: "g".to_owned(),
        origin: Origin { topic: "orders".into(), partition: 4, offset: 40, timestamp_ms: None },
        first_failed_at_ms: 50,
        error: ErrorInfo::new("transient", "", ""),
        replay: None,
    };
    let headers = control.onto(&keyed());
    let message = read(record(headers.clone(), None), ReadAs::Retry { group: "g" }).unwrap();
    assert_eq!((message.attempt(), message.due_at_ms()), (3, Some(77)));
    assert_eq!((&*message.origin().topic, message.origin().offset), ("orders", 40));
    assert_eq!(message.record().offset, 9);
    assert_eq!(read(record(headers, None), ReadAs::Retry { group: "h" }).unwrap_err(), Invalid::ForeignGroup);
    let error = read(record(keyed(), None), ReadAs::Retry { group: "g" }).unwrap_err();
    assert!(matches!(error, Invalid::Control(_)), "{error}");
}

#[test]
fn a_replay_that_gives_its_key_is_asked_for_no_other() {
    let replay = |key| Control {
        attempt: 2,
        due_at_ms: None,
        group: "g".to_owned(),
        origin: Origin { topic: "orders".into(), partition: 4, offset: 40, timestamp_ms: None },
        first_failed_at_ms: 50,
        error: ErrorInfo::new("invalid", "", ""),
        replay: Some(Replay { letter: uuid::Uuid::from_u128(1), key }),
    };
    let given = uuid::Uuid::from_u128(2);
    let own = |_: &Record| -> Option<Result<IdempotencyKey, KeyError>> { panic!("nobody asks") };
    let headers = replay(Some(given)).onto(&Headers::default());
    let message = Message::read(record(headers, None), ReadAs::Retry { group: "g" }, own).unwrap();
    assert_eq!((message.idempotency_key().uuid(), message.replay().and_then(|it| it.key)), (given, Some(given)));
    let message = read(record(replay(None).onto(&keyed()), None), ReadAs::Retry { group: "g" }).unwrap();
    assert_eq!((message.idempotency_key().as_str(), message.replay().is_some()), ("k1", true));
    let headers = replay(Some(given)).onto(&keyed());
    let message = read(record(headers, None), ReadAs::Source).unwrap();
    assert_eq!((message.idempotency_key().as_str(), message.replay()), ("k1", None), "a source topic replays nothing");
}

#[test]
fn the_handlers_own_key_comes_first_and_a_missing_one_gives_the_record_back() {
    let own = |_: &Record| Some(IdempotencyKey::new("own"));
    let message = Message::read(record(keyed(), None), ReadAs::Source, own).unwrap();
    assert_eq!(message.idempotency_key().as_str(), "own");
    let (reason, back) = Message::read(record(Headers::default(), Some("x")), ReadAs::Source, |_| None).unwrap_err();
    assert_eq!(reason.to_string(), "missing idempotency key");
    assert_eq!(back.payload.as_deref(), Some(&b"x"[..]));
}

#[test]
fn json_errors_name_the_place_and_no_value() {
    #[derive(serde::Deserialize, Debug)]
    struct Number {
        #[allow(dead_code)]
        n: i64,
    }
    let message = read(record(keyed(), Some(r#"{"n": "secret"}"#)), ReadAs::Source).unwrap();
    let text = message.json::<Number>().unwrap_err().to_string();
    assert_eq!(text, "payload does not have the expected fields and types (line 1 column 14)");
    let message = read(record(keyed(), None), ReadAs::Source).unwrap();
    assert_eq!(message.json::<Number>().unwrap_err().to_string(), "payload is null");
}

#[test]
fn structured_events_decode_like_binary_ones() {
    let envelope = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"n":5}}"#;
    let headers = Headers::builder().text("content-type", "application/cloudevents+json; charset=utf-8").build();
    let message = read(record(headers, Some(envelope)), ReadAs::Source).unwrap();
    assert_eq!(message.idempotency_key().as_str(), "/s\u{1f}1");
    assert_eq!(message.json::<serde_json::Value>().unwrap(), serde_json::json!({"n": 5}));
    assert_eq!(message.payload(), Some(envelope.as_bytes()));
}

#[test]
fn a_prefix_is_no_part_of_the_data_and_stays_in_the_payload() {
    let envelope = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"n":5}}"#;
    let structured = Headers::builder().text("content-type", "application/cloudevents+json").build();
    for (headers, data, key) in [(keyed(), r#"{"n":5}"#, "k1"), (structured, envelope, "/s\u{1f}1")] {
        let mut prefixed = record(headers, None);
        prefixed.payload = Some(crate::confluent::write(9, data.as_bytes()).into());
        let own = |it: &Record| {
            assert_eq!(it.payload.as_deref(), Some(data.as_bytes()), "a key from the data sees the data");
            None
        };
        let message = Message::read_framed(prefixed.clone(), ReadAs::Source, Framing::Registry, own).unwrap();
        assert_eq!((message.schema_id(), message.idempotency_key().as_str()), (Some(9), key));
        assert_eq!(message.json::<serde_json::Value>().unwrap(), serde_json::json!({"n": 5}));
        assert_eq!(message.payload(), prefixed.payload.as_deref(), "retries and dead letters keep it");
    }
    let bare = Message::read_framed(record(keyed(), Some("{}")), ReadAs::Source, Framing::Registry, |_| None).unwrap();
    assert_eq!((bare.schema_id(), bare.unframed()), (None, Some(&b"{}"[..])));
}

#[test]
fn without_a_registry_a_prefix_names_the_remedy() {
    let message = read(record(keyed(), Some("\0\0\0\0\x01{}")), ReadAs::Source).unwrap();
    assert_eq!(message.schema_id(), None);
    let text = message.json::<serde_json::Value>().unwrap_err().to_string();
    assert_eq!(text, "payload begins with the id of a schema: set registry.url, so that the id is read");
}

#[test]
fn debug_shows_no_payload_and_no_key() {
    let message = read(record(keyed(), Some("customer")), ReadAs::Source).unwrap();
    let text = format!("{message:?} {:?}", message.record());
    assert!(!text.contains("customer") && !text.contains("sku") && !text.contains("k1"), "{text}");
}
