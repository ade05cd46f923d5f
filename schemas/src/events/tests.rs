use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::idempotency::TEXT_BYTES_MAX;

/// The schema that the Rust type implies; print it with `cargo test -p sekali-schemas -- --nocapture` after a change.
fn generated<T: EventType + schemars::JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    schema["$id"] = json!(schema_id(T::NAME, T::VERSION));
    schema["title"] = json!(T::NAME);
    schema
}

fn in_step<T: EventType + schemars::JsonSchema>() {
    let checked_in: Value = serde_json::from_str(T::SCHEMA).unwrap_or_default();
    let expected = generated::<T>();
    assert!(checked_in == expected, "write this into schemas/json/{}.v{}.json:\n{expected:#}", T::NAME, T::VERSION);
}

#[test]
fn rust_types_and_json_schemas_are_in_step() {
    in_step::<StockAdjusted>();
    in_step::<EmailRequested>();
    in_step::<OrderPlaced>();
    in_step::<InvoiceCreated>();
}

#[test]
fn every_schema_says_its_dialect_its_name_and_its_version_and_has_its_file() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/json");
    let mut files: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let names: Vec<String> = ALL.iter().map(|it| format!("{}.v{}.json", it.name, it.version)).collect();
    assert_eq!(files, names, "each file of schemas/json belongs to a type in events::ALL");
    for it in ALL {
        let schema: Value = serde_json::from_str(it.schema).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{}", it.name);
        assert_eq!(schema["$id"], schema_id(it.name, it.version));
        assert_eq!(schema["title"], it.name);
    }
}

/// Changes of `valid`, by JSON pointer, and whether the result is still one. Null takes the member away.
fn cases<T: EventType + DeserializeOwned + Serialize>(valid: &Value, changes: &[(&str, Value, bool)]) {
    let schema: Value = serde_json::from_str(T::SCHEMA).unwrap();
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let unchanged = [("", json!({}), true)];
    for (pointer, new, expected) in unchanged.iter().chain(changes) {
        let mut value = valid.clone();
        let (parent, member) = pointer.rsplit_once('/').unwrap_or_default();
        match value.pointer_mut(parent).unwrap() {
            _ if pointer.is_empty() => {}
            Value::Object(members) if new.is_null() => drop(members.remove(member)),
            Value::Object(members) => drop(members.insert(member.to_owned(), new.clone())),
            other => other[member.parse::<usize>().unwrap()] = new.clone(),
        }
        let what = format!("{} with {pointer} = {:.80}", T::NAME, new.to_string());
        assert_eq!(validator.is_valid(&value), *expected, "schema: {what}");
        let read = serde_json::from_value::<T>(value).ok().filter(|it| it.check().is_ok());
        assert_eq!(read.is_some(), *expected, "type: {what}");
        // What the type writes, the schema accepts.
        let written = read.map(|it| serde_json::to_value(&it).unwrap());
        assert!(written.is_none_or(|it| validator.is_valid(&it)), "written: {what}");
    }
}

#[test]
fn schema_and_type_accept_and_refuse_the_same() {
    cases::<StockAdjusted>(
        &json!({"sku": "85123A", "delta": -6}),
        &[
            ("/country", json!("EIRE"), true),
            ("/occurred_at", json!("2010-12-01T08:26:00Z"), true),
            ("/occurred_at", json!("yesterday"), false),
            ("/delta", json!(1.5), false),
            ("/delta", json!("6"), false),
            ("/delta", json!(null), false),
            ("/sku", json!(85123), false),
            ("/sku", json!(null), false),
            ("/sku", json!(""), false),
            ("/sku", long_text(200), true),
            ("/sku", long_text(201), false),
        ],
    );
    cases::<InvoiceCreated>(
        &json!({"reference": "INV-00000001", "order_id": "o-1", "total_minor": 0, "currency": "EUR"}),
        &[
            ("/total_minor", json!(i64::MAX), true),
            ("/total_minor", json!(-1), false),
            ("/total_minor", json!(null), false),
            ("/reference", json!(""), false),
            ("/order_id", long_text(101), false),
            ("/currency", json!("eur"), false),
            ("/currency", json!("EURO"), false),
            ("/currency", json!("ÄÖÜ"), false),
        ],
    );
}

#[test]
fn an_order_has_lines_with_quantities_and_prices_that_add_up() {
    let valid = json!({"order_id": "o-1", "customer": "c-1", "currency": "EUR", "lines": [
        {"sku": "a", "quantity": 2, "unit_price_minor": 150},
        {"sku": "b", "quantity": 1, "unit_price_minor": 0},
    ]});
    let many = |count| json!(vec![json!({"sku": "a", "quantity": 1, "unit_price_minor": 1}); count]);
    cases::<OrderPlaced>(
        &valid,
        &[
            ("/placed_at", json!("2026-11-30T08:00:00Z"), true),
            ("/placed_at", json!(7), false),
            ("/coupon", json!("none"), true),
            ("/order_id", json!(""), false),
            ("/order_id", json!(1), false),
            ("/order_id", long_text(100), true),
            ("/order_id", long_text(101), false),
            ("/customer", json!(""), false),
            ("/currency", json!(null), false),
            ("/currency", json!("EU"), false),
            ("/lines", json!([]), false),
            ("/lines", json!(null), false),
            ("/lines", many(1000), true),
            ("/lines", many(1001), false),
            ("/lines/0/sku", json!(""), false),
            ("/lines/0/quantity", json!(0), false),
            ("/lines/0/quantity", json!(-1), false),
            ("/lines/0/quantity", json!(1_000_001), false),
            ("/lines/0/quantity", json!(1.5), false),
            ("/lines/0/unit_price_minor", json!(-1), false),
            ("/lines/0/unit_price_minor", json!(1_000_000_001), false),
        ],
    );
    let mut order: OrderPlaced = serde_json::from_value(valid).unwrap();
    assert_eq!(order.total_minor(), Some(300));
    assert_eq!(order.idempotency_key().unwrap().as_str(), "order.placed:o-1");
    order.lines[0].unit_price_minor = i64::MAX;
    assert_eq!(order.total_minor(), None, "a sum beyond 64 bits is none, and no panic");
}

#[test]
fn a_mail_has_one_recipient_and_no_second_header() {
    let valid = json!({"email_type": "welcome", "user_id": "u-1", "period": "2026-11", "to": "ada@example.org",
        "subject": "Welcome", "text": "Hello\nAda"});
    cases::<EmailRequested>(
        &valid,
        &[
            ("/email_type", json!("a:b"), false),
            ("/email_type", json!(""), false),
            ("/user_id", json!("u:1"), false),
            ("/user_id", json!(null), false),
            ("/period", json!("2026-11-30T08:00"), true),
            ("/period", json!(""), false),
            ("/to", json!("ada"), false),
            ("/to", json!("@example.org"), false),
            ("/to", json!("ada@"), false),
            ("/to", json!("ada@example.org\r\nBcc: eve@example.org"), false),
            ("/to", json!("ada@example.org, eve@example.org"), false),
            ("/to", json!(format!("{}@example.org", "a".repeat(250))), false),
            ("/subject", json!("Welcome\nBcc: eve@example.org"), false),
            ("/subject", json!(""), false),
            ("/text", json!(""), false),
            ("/text", long_text(100_000), true),
            ("/text", long_text(100_001), false),
        ],
    );
    let mut mail: EmailRequested = serde_json::from_value(valid).unwrap();
    assert_eq!(mail.idempotency_key().unwrap().as_str(), "welcome:u-1:2026-11");
    // The longest parts that the schema allows, in the longest characters, still make a key.
    (mail.email_type, mail.user_id, mail.period) = ("🦀".repeat(50), "🦀".repeat(100), "🦀".repeat(50));
    mail.check().unwrap();
    assert!(mail.idempotency_key().unwrap().as_str().len() <= TEXT_BYTES_MAX);
}

#[test]
fn flaws_name_the_member_and_no_value() {
    let flaw = |sku: &str| StockAdjusted { sku: sku.to_owned(), delta: 1, occurred_at: None }.check().unwrap_err();
    assert_eq!(flaw("").to_string(), "sku is empty");
    assert_eq!(flaw("secret\0").to_string(), "sku contains U+0000");
    assert_eq!(flaw(&"s".repeat(201)).to_string(), "sku is longer than 200");
}

fn long_text(count: usize) -> Value {
    json!("é".repeat(count))
}
