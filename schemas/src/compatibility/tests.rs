use proptest::prelude::*;
use serde_json::json;

use super::*;

fn verdicts(old: &Value, new: &Value) -> Vec<(String, Verdict)> {
    compare(old, new).into_iter().map(|it| (it.pointer, it.verdict)).collect()
}

fn is_compatible(old: &Value, new: &Value) -> bool {
    compare(old, new).is_empty()
}

#[test]
fn what_narrows_is_found_and_what_widens_is_not() {
    let cases = [
        (json!({"type": "integer"}), json!({"type": "number"})),
        (json!({"type": "string"}), json!({"type": ["string", "null"]})),
        (json!({"minimum": 1}), json!({"minimum": 0})),
        (json!({"exclusiveMinimum": 0}), json!({"minimum": 0})),
        (json!({"minimum": 1}), json!({"exclusiveMinimum": 0})),
        (json!({"maximum": 9_007_199_254_740_992_i64}), json!({"maximum": 9_007_199_254_740_993_i64})),
        (json!({"multipleOf": 6}), json!({"multipleOf": 3})),
        (json!({"maxLength": 5, "minLength": 2}), json!({"maxLength": 6, "minLength": 1})),
        (json!({"pattern": "^a"}), json!({})),
        (
            json!({"format": "date-time"}),
            json!({"type": ["string", "integer", "null", "object", "array", "boolean", "number"]}),
        ),
        (json!({"enum": ["a", "b"]}), json!({"enum": ["a", "b", "c"]})),
        (json!({"const": "a"}), json!({"enum": ["a", "b", "c"], "type": "string"})),
        (json!({"required": ["a", "b"]}), json!({"required": ["b"]})),
        (json!({"additionalProperties": false}), json!({})),
        (json!({"additionalProperties": false}), json!({"properties": {"a": {"type": "string"}}})),
        (json!({"uniqueItems": true, "maxItems": 3}), json!({"maxItems": 4})),
        (
            json!({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}),
            json!({"items": {"type": ["integer", "string"]}}),
        ),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!({"type": ["null", "string"]})),
        (json!({"oneOf": [{"const": 1}, {"const": "a"}]}), json!({"anyOf": [{"type": "integer"}, {"type": "string"}]})),
        (json!({"allOf": [{"type": "string"}, {"maxLength": 3}]}), json!({"type": "string", "maxLength": 4})),
        (json!({"not": {"type": "string"}}), json!({"not": {"const": "a"}})),
        (
            json!({"patternProperties": {"^x": {"type": "integer"}}}),
            json!({"patternProperties": {"^x": {"type": "number"}}}),
        ),
        (json!(false), json!({"type": "string"})),
        (
            json!({"if": {"type": "string"}, "then": {"minLength": 1}, "maximum": 1}),
            json!({"if": {"type": "string"}, "then": {"minLength": 1}}),
        ),
        (json!({"x-owner": "stock", "minimum": 1}), json!({"x-owner": "stock"})),
    ];
    for (old, new) in cases {
        assert_eq!(compare(&old, &new), [], "{old} -> {new}");
        assert!(!is_compatible(&new, &old), "{new} -> {old}");
    }
}

#[test]
fn changes_name_the_place_the_rule_and_how_sure_that_is() {
    use Verdict::{Added, Breaking, Unclear};
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let cases = [
        (open.clone(), json!({"properties": {"a": {"type": "integer"}}}), "/properties/a/type", Breaking),
        (open.clone(), json!({"required": ["a"]}), "/required", Breaking),
        (open.clone(), json!({"additionalProperties": false}), "/additionalProperties", Breaking),
        (open.clone(), json!({"properties": {"b/c": {"type": "string"}}}), "/properties/b~1c", Added),
        (open.clone(), json!({"dependentRequired": {"a": ["b"]}}), "/dependentRequired", Unclear),
        (open.clone(), json!({"unevaluatedProperties": false}), "/unevaluatedProperties", Unclear),
        (open.clone(), json!({"$ref": "https://example.org/x"}), "/$ref", Unclear),
        (open.clone(), json!({"x-new": 1}), "/x-new", Unclear),
        // The pattern speaks of `ab`, and `additionalProperties` does not.
        (
            json!({"patternProperties": {"^a": true}, "additionalProperties": false}),
            json!({"properties": {"ab": {"type": "null"}}}),
            "/properties/ab",
            Added,
        ),
        (
            json!({"prefixItems": [true], "items": {"type": "null"}}),
            json!({"items": {"type": "null"}}),
            "/items/type",
            Breaking,
        ),
        (json!({"minimum": 0}), json!({"exclusiveMinimum": 0}), "/exclusiveMinimum", Breaking),
        (open, json!({"$schema": "http://json-schema.org/draft-04/schema#"}), "", Unclear),
        (json!({"enum": ["a", "b"]}), json!({"enum": ["a"]}), "/enum", Breaking),
        (json!({"type": "string"}), json!({"type": "string", "format": "date"}), "/format", Breaking),
        (json!({"type": "integer"}), json!({"type": "integer", "format": "date"}), "/format", Breaking),
    ];
    for (old, new, pointer, verdict) in cases {
        assert_eq!(verdicts(&old, &new), [(pointer.to_owned(), verdict)], "{old} -> {new}");
    }
}

#[test]
fn references_are_followed_also_when_they_lead_back() {
    let list = |items: Value| {
        json!({"$defs": {"Node": {"type": "object", "properties": {"value": items, "next": {"$ref": "#/$defs/Node"}}}},
            "$ref": "#/$defs/Node"})
    };
    let (narrow, wide) = (list(json!({"maximum": 3})), list(json!({"maximum": 4})));
    assert!(is_compatible(&narrow, &wide) && is_compatible(&narrow, &narrow));
    let found = verdicts(&wide, &narrow);
    let at_maximum = found.iter().all(|it| it.0.ends_with("/properties/value/maximum") && it.1 == Verdict::Breaking);
    assert!(!found.is_empty() && at_maximum, "{found:?}");
    // The same reference to something else.
    let of = |target: Value| json!({"$defs": {"X": target}, "properties": {"a": {"$ref": "#/$defs/X"}}});
    assert!(!is_compatible(&of(json!({"type": "string"})), &of(json!({"type": "integer"}))));
}

#[test]
fn every_schema_of_ours_is_compatible_with_itself() {
    for it in crate::events::ALL {
        let schema: Value = serde_json::from_str(it.schema).unwrap();
        assert_eq!(compare(&schema, &schema), [], "{}", it.name);
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_i64..4).prop_map(Value::from),
        prop_oneof![Just(json!(0.5)), Just(json!(2.0)), Just(json!(-1.5))],
        prop_oneof![Just("a"), Just(""), Just("ab"), Just("abc"), Just("2026-11-30")].prop_map(Value::from),
    ]
}

fn name() -> impl Strategy<Value = String> + Clone {
    prop_oneof![Just("a"), Just("b"), Just("ab")].prop_map(str::to_owned)
}

fn document() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(name(), inner, 0..4).prop_map(|it| json!(it)),
        ]
    })
}

fn kind() -> impl Strategy<Value = Value> {
    let names = ["null", "boolean", "object", "string", "integer", "number", "array"];
    prop_oneof![
        proptest::sample::select(names.to_vec()).prop_map(Value::from),
        proptest::sample::subsequence(names.to_vec(), 1..5).prop_map(|it| json!(it)),
    ]
}

/// Keywords that have to do with each other, so that pairs of them come up often.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Focus {
    Numbers,
    Texts,
    Elements,
    Members,
    Cases,
}

fn focus() -> impl Strategy<Value = Focus> {
    proptest::sample::select(vec![Focus::Numbers, Focus::Texts, Focus::Elements, Focus::Members, Focus::Cases])
}

/// One keyword with a value. `inner` gives the schemas in it.
fn keyword(focus: Focus, inner: BoxedStrategy<Value>) -> impl Strategy<Value = (String, Value)> {
    let several = proptest::collection::vec(inner.clone(), 1..3).prop_map(Value::from).boxed();
    let by_name = proptest::collection::btree_map(name(), inner.clone(), 0..3).prop_map(|it| json!(it)).boxed();
    let patterns = ("a|b", inner.clone()).prop_map(|(pattern, it)| json!({format!("^{pattern}"): it})).boxed();
    let names = proptest::sample::subsequence(vec!["a", "b", "ab"], 0..3).prop_map(|it| json!(it)).boxed();
    let number = prop_oneof![(0_i64..3).prop_map(Value::from), Just(json!(0.5))].boxed();
    let count = (0_u64..3).prop_map(Value::from).boxed();
    let chosen = match focus {
        Focus::Numbers => vec![
            ("minimum", number.clone()),
            ("maximum", number.clone()),
            ("exclusiveMinimum", number.clone()),
            ("exclusiveMaximum", number),
            ("multipleOf", (1_i64..5).prop_map(Value::from).boxed()),
        ],
        Focus::Texts => vec![
            ("minLength", count.clone()),
            ("maxLength", count),
            ("pattern", prop_oneof![Just(json!("^a")), Just(json!("b"))].boxed()),
            ("format", prop_oneof![Just(json!("date")), Just(json!("int64"))].boxed()),
            ("const", scalar().boxed()),
            ("enum", proptest::collection::vec(scalar(), 1..4).prop_map(Value::from).boxed()),
        ],
        Focus::Elements => vec![
            ("minItems", count.clone()),
            ("maxItems", count.clone()),
            ("uniqueItems", any::<bool>().prop_map(Value::from).boxed()),
            ("items", inner.clone()),
            ("prefixItems", several),
            ("contains", inner.clone()),
            ("minContains", count),
            ("unevaluatedItems", inner),
        ],
        Focus::Members => vec![
            ("minProperties", count.clone()),
            ("maxProperties", count),
            ("required", names.clone()),
            ("properties", by_name.clone()),
            ("additionalProperties", inner.clone()),
            ("patternProperties", patterns),
            ("propertyNames", inner.clone()),
            ("dependentSchemas", by_name),
            ("dependentRequired", names.prop_map(|it| json!({"a": it})).boxed()),
            ("unevaluatedProperties", inner),
        ],
        Focus::Cases => vec![
            ("allOf", several.clone()),
            ("anyOf", several.clone()),
            ("oneOf", several),
            ("not", inner.clone()),
            ("if", inner.clone()),
            ("then", inner.clone()),
            ("else", inner),
            ("$ref", Just(json!("#/$defs/X")).boxed()),
        ],
    };
    let one =
        |(name, value): (&'static str, BoxedStrategy<Value>)| value.prop_map(move |it| (name.to_owned(), it)).boxed();
    let ty = one(("type", kind().boxed()));
    proptest::strategy::Union::new(chosen.into_iter().map(one).chain([ty]))
}

fn keywords(focus: Focus, inner: BoxedStrategy<Value>, most: usize) -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::vec(keyword(focus, inner), 0..most).prop_map(|it| it.into_iter().collect())
}

fn subschema() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        1 => Just(json!(true)),
        1 => Just(json!(false)),
        3 => kind().prop_map(|it| json!({"type": it})),
        3 => (-1_i64..4).prop_map(|it| json!({"minimum": it})),
        3 => (0_u64..4).prop_map(|it| json!({"maxLength": it})),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        focus().prop_flat_map(move |it| keywords(it, inner.clone().boxed(), 3).prop_map(Value::Object))
    })
    .boxed()
}

/// A schema whose definition has no reference, so that none leads into a circle.
fn schema(focus: Focus) -> impl Strategy<Value = Value> {
    (keywords(focus, subschema(), 4), subschema()).prop_map(|(mut schema, definition)| {
        let definition: Value = serde_json::from_str(&definition.to_string().replace("\"$ref\"", "\"title\"")).unwrap();
        schema.insert("$defs".to_owned(), json!({"X": definition}));
        Value::Object(schema)
    })
}

/// A schema near another one: somewhere a keyword is put, or taken away.
fn edited(schema: &Value, place: usize, keyword: (String, Value), remove: bool) -> Value {
    fn maps(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
        match schema {
            Value::Object(members) => {
                visit(members);
                members.values_mut().for_each(|it| maps(it, visit));
            }
            Value::Array(elements) => elements.iter_mut().for_each(|it| maps(it, visit)),
            _ => {}
        }
    }
    let mut edited = schema.clone();
    let mut count = 0;
    maps(&mut edited, &mut |_| count += 1);
    let (mut nr, chosen) = (0, place % count.max(1));
    maps(&mut edited, &mut |members| {
        if nr == chosen {
            let key = members.keys().nth(place / 7 % members.len().max(1)).cloned();
            match key.filter(|it| remove && it != "$defs" && it != "X") {
                Some(key) => drop(members.remove(&key)),
                None => drop(members.insert(keyword.0.clone(), keyword.1.clone())),
            }
        }
        nr += 1;
    });
    edited
}

/// Names that only documents with another meaning had.
fn added(changes: &[Change]) -> Vec<String> {
    changes.iter().filter_map(|it| it.pointer.rsplit('/').next()).map(str::to_owned).collect()
}

fn has(document: &Value, names: &[String]) -> bool {
    match document {
        Value::Object(members) => members.iter().any(|(name, it)| names.contains(name) || has(it, names)),
        Value::Array(elements) => elements.iter().any(|it| has(it, names)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_called_compatible_is(
        (old, edit, unrelated) in focus().prop_flat_map(|it| (schema(it), keyword(it, subschema()), schema(it))),
        (place, remove) in (any::<usize>(), any::<bool>()),
        documents in proptest::collection::vec(document(), 60),
    ) {
        let near = edited(&old, place, edit, remove);
        let compile = |it: &Value| jsonschema::options().should_validate_formats(true).build(it).ok();
        for (old, new) in [(&old, &near), (&near, &old), (&old, &unrelated)] {
            let changes = compare(old, new);
            if changes.iter().any(|it| it.verdict.is_blocking()) {
                continue;
            }
            let (Some(before), Some(after)) = (compile(old), compile(new)) else { continue };
            let added = added(&changes);
            for document in documents.iter().filter(|it| !has(it, &added)) {
                prop_assert!(
                    !before.is_valid(document) || after.is_valid(document),
                    "{document} is refused\nold {old}\nnew {new}\n{changes:?}"
                );
            }
        }
    }
}
