use std::sync::Arc;

use sekali_consumer::schemas::Headers;
use sekali_consumer::schemas::cloudevents::structured_headers;
use sekali_consumer::{Config, FailureClass};

use super::*;

const ORDER: &str =
    r#"{"order_id":"o-1","customer":"c","currency":"EUR","lines":[{"sku":"a","quantity":2,"unit_price_minor":150}]}"#;

fn record(payload: Option<&str>, headers: Headers) -> Record {
    let payload = payload.map(|it| it.to_owned().into());
    Record { topic: Arc::from("t"), partition: 0, offset: 7, timestamp_ms: None, key: None, payload, headers }
}

#[test]
fn an_order_is_known_by_its_id_whatever_the_headers_say() {
    let headers = || Headers::builder().text("idempotency-key", "order.placed:o-2").build();
    let key = |payload: Option<&str>, headers| key_of(&record(payload, headers)).map(|it| it.as_str().to_owned());
    assert_eq!(key(Some(ORDER), headers()).as_deref(), Ok("order.placed:o-1"));
    assert_eq!(read(ORDER.as_bytes()).unwrap().idempotency_key().unwrap().as_str(), "order.placed:o-1");
    let structured = format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"order.placed","data":{ORDER}}}"#);
    assert_eq!(key(Some(&structured), structured_headers()).as_deref(), Ok("order.placed:o-1"));
    assert_eq!(key(Some(r#"{"order_id":"o-\u0031"}"#), headers()).as_deref(), Ok("order.placed:o-1"));
    assert_eq!(key(Some(r#"{"order_id":""}"#), headers()), Err(KeyError::Empty));
    for unreadable in [None, Some("{}"), Some("order"), Some(r#"{"order_id":1}"#)] {
        assert_eq!(key(unreadable, headers()), Err(KeyError::Missing), "{unreadable:?}");
    }
}

#[test]
fn refuses_what_the_schema_refuses() {
    let cases = [
        (ORDER.replace("150", "-150"), FailureClass::Permanent),
        (ORDER.replace("EUR", "euro"), FailureClass::Permanent),
        (ORDER.replace("\"c\"", "7"), FailureClass::Invalid),
        ("{}".to_owned(), FailureClass::Invalid),
    ];
    for (payload, class) in cases {
        assert_eq!(read(payload.as_bytes()).unwrap_err().class(), class, "{payload}");
    }
}

#[test]
fn the_sample_configuration_is_a_valid_one() {
    let config = Config::from_toml(include_str!("../../invoice.toml")).unwrap();
    assert_eq!((config.consumer_name(), config.consumer.topics.len()), ("invoice", 1));
}
