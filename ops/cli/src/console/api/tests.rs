use std::collections::BTreeSet;

use serde_json::Value;

use super::{OPENAPI, table};

const METHODS: [&str; 2] = ["get", "post"];

#[test]
fn openapi_describes_every_address_and_no_other() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, item)| {
            METHODS.iter().filter(|it| item.get(**it).is_some()).map(|it| (path.clone(), (*it).to_owned()))
        })
        .collect();
    let served: BTreeSet<(String, String)> = table(1)
        .into_iter()
        .flat_map(|(path, methods, _)| methods.iter().map(|it| (path.to_owned(), (*it).to_owned())).collect::<Vec<_>>())
        .collect();
    assert_eq!(described, served);
}

#[test]
fn every_reference_of_openapi_leads_somewhere() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut found = 0;
    let mut left = vec![&document];
    while let Some(value) = left.pop() {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            found += 1;
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        match value {
            Value::Object(members) => left.extend(members.values()),
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    assert!(10 < found, "{found} references");
}
