use serde_json::{Value, json};

use super::*;

/// The schema that the Rust type implies; print it with `cargo test -p sekali-schemas -- --nocapture` after a change.
fn generated<T: EventType + schemars::JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    let id = format!("urn:sekali:schema:{}:v{}", T::NAME, T::VERSION);
    schema["$id"] = json!(id);
    schema["title"] = json!(T::NAME);
    schema
}

#[test]
fn rust_type_and_json_schema_are_in_step() {
    let checked_in: Value = serde_json::from_str(StockAdjusted::SCHEMA).unwrap();
    let expected = generated::<StockAdjusted>();
    assert_eq!(checked_in, expected, "write this into schemas/json:\n{expected:#}");
}

#[test]
fn schema_and_type_accept_and_refuse_the_same() {
    let schema: Value = serde_json::from_str(StockAdjusted::SCHEMA).unwrap();
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let cases = [
        (json!({"sku": "85123A", "delta": -6}), true),
        (json!({"sku": "85123A", "delta": -6, "occurred_at": "2010-12-01T08:26:00Z", "country": "EIRE"}), true),
        (json!({"sku": "85123A", "delta": 1.5}), false),
        (json!({"sku": "85123A", "delta": "6"}), false),
        (json!({"sku": 85123, "delta": 6}), false),
        (json!({"delta": 6}), false),
        (json!({"sku": "85123A"}), false),
        (json!({"sku": "85123A", "delta": 6, "occurred_at": "yesterday"}), false),
        (json!([]), false),
    ];
    for (value, expected) in cases {
        assert_eq!(validator.is_valid(&value), expected, "schema: {value}");
        assert_eq!(serde_json::from_value::<StockAdjusted>(value.clone()).is_ok(), expected, "type: {value}");
    }
}
