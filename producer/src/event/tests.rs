use sekali_schemas::events::StockAdjusted;

use super::*;

fn adjusted() -> StockAdjusted {
    StockAdjusted { sku: "SKU-1".to_owned(), delta: -2, occurred_at: None }
}

fn event() -> Event {
    Event::of("stock", ResourceId::new("SKU-1").unwrap(), &adjusted()).unwrap()
}

#[test]
fn a_typed_event_is_a_cloudevent_in_binary_mode() {
    let time: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let event = event().time(time).source("/shop").unwrap().header("traceparent", "00-1").unwrap();
    let id = event.key().as_str().to_owned();
    assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 7);
    let record = event.into_record().unwrap();
    assert_eq!((record.topic.as_str(), record.key.as_deref()), ("stock", Some(&b"SKU-1"[..])));
    assert_eq!(record.payload.as_deref(), Some(&br#"{"sku":"SKU-1","delta":-2}"#[..]));
    let headers: Vec<_> =
        record.headers.iter().map(|it| (it.name, std::str::from_utf8(it.value.unwrap()).unwrap())).collect();
    let expected = [
        ("idempotency-key", id.as_str()),
        ("id", &id),
        ("ce_specversion", "1.0"),
        ("ce_id", &id),
        ("ce_source", "/shop"),
        ("ce_type", "stock.adjusted"),
        ("ce_time", "2026-01-02T03:04:05Z"),
        ("ce_subject", "SKU-1"),
        ("content-type", "application/json"),
        ("traceparent", "00-1"),
    ];
    assert_eq!(headers, expected);
    assert_eq!(IdempotencyKey::from_headers(&record.headers).unwrap().as_str(), id);
}

#[test]
fn structured_mode_reads_back() {
    let event = event().mode(Mode::Structured).idempotency_key(IdempotencyKey::new("order-7").unwrap());
    let record = event.into_record().unwrap();
    assert!(cloudevents::is_structured(&record.headers));
    assert_eq!(IdempotencyKey::from_headers(&record.headers).unwrap().as_str(), "order-7");
    let attributes = Attributes::from_structured(record.payload.as_deref().unwrap()).unwrap();
    assert_eq!((&*attributes.id, &*attributes.ty), ("order-7", "stock.adjusted"));
    let not_json = Event::raw("t", ResourceId::new("r").unwrap(), "x", "text/plain", "{").unwrap();
    assert_eq!(not_json.mode(Mode::Structured).into_record(), Err(InvalidEvent::NotJson));
}

#[test]
fn what_is_sent_twice_has_one_key_and_two_events_have_two() {
    let one = event();
    assert_eq!((&one).into_record().unwrap(), one.clone().into_record().unwrap());
    assert_ne!(one.key(), event().key());
}

#[test]
fn events_that_cannot_be_are_refused() {
    assert_eq!(ResourceId::new("").unwrap_err(), InvalidEvent::NoResource);
    let raw = |topic: &str, ty: &str| Event::raw(topic, ResourceId::new(vec![0xFF]).unwrap(), ty, "x/y", "").map(drop);
    assert!(matches!(raw("a b", "x"), Err(InvalidEvent::Topic(_))));
    assert_eq!(raw("t", ""), Err(InvalidEvent::NoType));
    assert_eq!(raw("t", "x"), Ok(()));
    for name in ["idempotency-key", "content-type", "ce_time"] {
        assert_eq!(event().header(name, "x").map(drop), Err(InvalidEvent::OwnHeader));
    }
    assert_eq!(event().source("").map(drop), Err(InvalidEvent::NoSource));
}

#[test]
fn debug_shows_no_customer_data() {
    let shown = format!("{:?} {:?}", event(), event().into_record().unwrap());
    assert!(!shown.contains("SKU-1") && !shown.contains("delta"), "{shown}");
}
