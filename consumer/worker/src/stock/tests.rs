use std::sync::Arc;

use sekali_consumer::schemas::{Headers, ReadAs, Record};
use sekali_consumer::{Config, FailureClass};

use super::batch::Totals;
use super::*;

fn message(payload: &str) -> Message {
    let record = Record {
        topic: Arc::from("stock"),
        partition: 0,
        offset: 7,
        timestamp_ms: None,
        key: None,
        payload: Some(payload.to_owned().into()),
        headers: Headers::builder().text("idempotency-key", "1").build(),
    };
    Message::read(record, ReadAs::Source, |_| None).unwrap()
}

#[test]
fn refuses_what_the_schema_refuses() {
    let long = format!(r#"{{"sku":"{}","delta":1}}"#, "é".repeat(201));
    let cases = [
        (r#"{"sku":"85123A","delta""#, FailureClass::Invalid),
        (r#"{"sku":"85123A","delta":"6"}"#, FailureClass::Invalid),
        (r#"{"sku":"","delta":1}"#, FailureClass::Permanent),
        (r#"{"sku":"a\u0000b","delta":1}"#, FailureClass::Permanent),
        (&long, FailureClass::Permanent),
    ];
    for (payload, class) in cases {
        assert_eq!(read(&message(payload)).unwrap_err().class(), class, "{payload}");
    }
}

#[test]
fn reads_what_the_schema_allows() {
    let longest = format!(r#"{{"sku":"{}","delta":-9223372036854775808,"country":"EIRE"}}"#, "é".repeat(200));
    let event = read(&message(&longest)).unwrap();
    assert_eq!((event.sku.chars().count(), event.delta, event.occurred_at), (200, i64::MIN, None));
}

#[test]
fn totals_are_sorted_sums_by_sku() {
    let skus = ["b", "A", "b", "a"].map(str::to_owned);
    let totals = Totals::of(&skus, &[1, 2, -4, 8]).unwrap();
    assert_eq!(totals, Totals { skus: vec!["A", "a", "b"], deltas: vec![2, 8, -3], counts: vec![1, 1, 2] });
}

#[test]
fn a_sum_beyond_64_bits_is_a_failure_and_no_panic() {
    let skus = ["a", "a", "a"].map(str::to_owned);
    assert_eq!(Totals::of(&skus, &[i64::MAX, 1, -5]).unwrap().deltas, [i64::MAX - 4], "only the sum must fit");
    let failure = Totals::of(&skus, &[i64::MAX, 1, 0]).unwrap_err();
    assert_eq!(failure.class(), FailureClass::Permanent);
    assert_eq!(Totals::of(&skus[..1], &[i64::MAX]).unwrap().deltas, [i64::MAX]);
}

#[test]
fn the_sample_configuration_is_a_valid_one() {
    let config = Config::from_toml(include_str!("../../stock.toml")).unwrap();
    assert_eq!((config.consumer.group.as_str(), config.consumer.topics.len()), ("stock", 1));
}
