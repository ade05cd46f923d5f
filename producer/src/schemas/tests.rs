use std::fs;

use serde_json::json;

use super::*;

fn kind<'a>(ty: &'a str, data_schema: Option<&'a str>) -> DataKind<'a> {
    DataKind { ty: ty.into(), data_schema: data_schema.map(Into::into) }
}

fn built() -> Schemas {
    Schemas::load(None).unwrap()
}

#[test]
fn a_violation_names_place_and_rule_and_no_value() {
    let schemas = built();
    let order = schemas.find(&kind("order.placed", None)).unwrap();
    let line = |quantity| json!({"sku": "secret-sku", "quantity": quantity, "unit_price_minor": 1});
    let document = |lines| json!({"order_id": "secret", "customer": "c", "currency": "EUR", "lines": lines});
    order.validator.check(&document(json!([line(json!(1))]))).unwrap();
    let cases = [
        (document(json!([line(json!(1)), line(json!("secret"))])), "/lines/1/quantity", "type"),
        (document(json!([line(json!(0))])), "/lines/0/quantity", "minimum"),
        (document(json!([{"sku": "secret"}])), "/lines/0/quantity", "required"),
        (document(json!([])), "/lines", "minItems"),
        (json!("secret"), "", "type"),
    ];
    for (document, pointer, rule) in cases {
        let violation = order.validator.check(&document).unwrap_err();
        assert_eq!((violation.pointer.as_str(), violation.rule.as_str()), (pointer, rule));
        let text = format!("{violation} {violation:?}");
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("order.placed v1"), "{text}");
    }
}

#[test]
fn members_that_the_schema_does_not_name_are_not_shown() {
    let schema =
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"a/b": {"type": "null"}}});
    let validator = Validator::compile("map", &schema).unwrap();
    let violation = validator.check(&json!({"ada@example.org": "x"})).unwrap_err();
    assert_eq!(violation.to_string(), "payload is refused by schema map at /*: type");
    assert_eq!(validator.check(&json!({"a/b": 1})).unwrap_err().pointer, "/a~1b");
    let closed = Validator::compile("closed", &json!({"additionalProperties": false})).unwrap();
    let violation = closed.check(&json!({"ada@example.org": 1})).unwrap_err();
    assert_eq!(violation.to_string(), "payload is refused by schema closed at its root: additionalProperties");
}

#[test]
fn the_version_that_an_event_names_counts_else_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    file("stock.adjusted.v2.json", r#"{"$id": "https://example.org/stock-2", "type": "object"}"#);
    file("price.set.v3.json", r#"{"type": "object"}"#);
    file("price.set.v10.json", "true");
    file("README.md", "not a schema");
    let schemas = Schemas::load(Some(directory.path())).unwrap();
    let version = |kind: DataKind<'_>| schemas.find(&kind).map(|it| it.version);
    assert_eq!(version(kind("stock.adjusted", None)), Some(1));
    assert_eq!(version(kind("stock.adjusted", Some("urn:sekali:schema:stock.adjusted:v2"))), Some(2));
    assert_eq!(version(kind("whatever", Some("https://example.org/stock-2"))), Some(2));
    assert_eq!(version(kind("stock.adjusted", Some("urn:sekali:schema:stock.adjusted:v9"))), None);
    assert_eq!(version(kind("price.set", None)), Some(3), "the first that there is");
    assert_eq!(version(kind("price.unset", None)), None);
    file("stock.adjusted.v1.json", "false");
    let schemas = Schemas::load(Some(directory.path())).unwrap();
    let own = schemas.find(&kind("stock.adjusted", None)).unwrap();
    assert_eq!(own.text, "false", "a team's own takes the place of the built-in one");
}

#[test]
fn every_file_that_is_no_schema_is_a_problem() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("a.v1.json", "{"),
        ("b.v1.json", "7"),
        ("nameless.json", "{}"),
        ("c.v0.json", "{}"),
        ("d.v1.json", r#"{"$ref": "https://example.org/other"}"#),
        ("e.v1.json", r#"{"type": "number", "minimum": "x"}"#),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let problems = Schemas::load(Some(directory.path())).unwrap_err();
    assert_eq!(problems.len(), 4, "names and JSON first: {problems:#?}");
    for name in ["a.v1.json", "b.v1.json", "c.v0.json", "nameless.json"] {
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    let problems = Schemas::load(Some(directory.path())).unwrap_err();
    assert!(
        problems.len() == 2 && problems.iter().all(|it| it.contains("no JSON Schema that can be used")),
        "{problems:#?}"
    );
    let missing = Schemas::load(Some(&directory.path().join("none"))).unwrap_err();
    assert!(missing[0].contains("cannot be read"), "{missing:?}");
}
