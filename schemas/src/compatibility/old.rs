//! What an old schema is known to demand at a place: several schemas that all hold.

use serde_json::{Map, Value};

use super::target;

/// Types of JSON as bits; a whole number is one of its own.
pub(super) type Types = u8;
pub(super) const STRING: Types = 1 << 3;
pub(super) const INTEGER: Types = 1 << 4;
pub(super) const NUMBER: Types = INTEGER | 1 << 5;
pub(super) const ARRAY: Types = 1 << 6;
pub(super) const OBJECT: Types = 1 << 2;
const NULL: Types = 1;
const BOOLEAN: Types = 1 << 1;
pub(super) const ANY: Types = NULL | BOOLEAN | OBJECT | STRING | NUMBER | ARRAY;

const REFERENCES_MAX: usize = 32;

/// A conjunction. To leave a part of it out is never wrong: less is known then.
pub(super) struct Old<'a> {
    root: &'a Value,
    parts: Vec<&'a Value>,
    maps: Vec<&'a Map<String, Value>>,
    nothing: bool,
    /// Alternatives that were taken one by one already.
    split: Vec<*const Value>,
}

impl<'a> Old<'a> {
    pub(super) fn of(root: &'a Value, parts: &[&'a Value]) -> Old<'a> {
        let mut old = Old { root, parts: parts.to_vec(), maps: Vec::new(), nothing: false, split: Vec::new() };
        for part in parts {
            old.add(part, 0);
        }
        old
    }

    /// The same place under other parts.
    pub(super) fn under(&self, parts: &[&'a Value]) -> Old<'a> {
        Old::of(self.root, parts)
    }

    fn add(&mut self, part: &'a Value, depth: usize) {
        match part {
            Value::Bool(false) => self.nothing = true,
            Value::Object(members) if depth < REFERENCES_MAX => {
                self.maps.push(members);
                if let Some(target) = members.get("$ref").and_then(|it| target(self.root, it)) {
                    self.add(target, depth + 1);
                }
                for it in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
                    self.add(it, depth + 1);
                }
            }
            _ => {}
        }
    }

    pub(super) fn parts(&self) -> &[&'a Value] {
        &self.parts
    }

    pub(super) fn maps(&self) -> impl Iterator<Item = &'a Map<String, Value>> + '_ {
        self.maps.iter().copied()
    }

    /// Every value of a keyword.
    pub(super) fn values(&self, keyword: &str) -> impl Iterator<Item = &'a Value> {
        self.maps.iter().filter_map(move |it| it.get(keyword))
    }

    pub(super) fn identity(&self) -> Vec<*const Value> {
        self.parts.iter().map(|it| std::ptr::from_ref(*it)).collect()
    }

    pub(super) fn accepts_nothing(&self) -> bool {
        self.nothing || self.types() == 0
    }

    /// Types of what is accepted, at most.
    pub(super) fn types(&self) -> Types {
        let listed = |it: &Map<String, Value>| {
            let values = it.get("enum").and_then(Value::as_array).into_iter().flatten().chain(it.get("const"));
            let is_listed = it.contains_key("enum") || it.contains_key("const");
            if is_listed { values.fold(0, |all, it| all | type_of(it)) } else { ANY }
        };
        self.maps
            .iter()
            .fold(ANY, |all, it| all & it.get("type").map_or(ANY, |it| read(it).unwrap_or(ANY)) & listed(it))
    }

    /// Whether values are listed, so that more follows than can be seen here.
    pub(super) fn is_listed(&self) -> bool {
        self.maps.iter().any(|it| it.contains_key("enum") || it.contains_key("const"))
    }

    /// The cases of an alternative, if there is one: each with all the rest.
    pub(super) fn branches(&self) -> Option<Vec<Old<'a>>> {
        let alternatives = ["anyOf", "oneOf"].iter().flat_map(|it| self.values(it));
        let alternative = alternatives.into_iter().find(|it| !self.split.contains(&std::ptr::from_ref(*it)))?;
        let branch = |it: &'a Value| {
            let mut parts = self.parts.clone();
            parts.push(it);
            let mut old = Old::of(self.root, &parts);
            old.split.clone_from(&self.split);
            old.split.push(std::ptr::from_ref(alternative));
            old
        };
        Some(alternative.as_array()?.iter().map(branch).collect())
    }
}

/// The types that keyword `type` lists.
pub(super) fn read(value: &Value) -> Option<Types> {
    match value {
        Value::String(name) => Some(match name.as_str() {
            "null" => NULL,
            "boolean" => BOOLEAN,
            "object" => OBJECT,
            "string" => STRING,
            "integer" => INTEGER,
            "number" => NUMBER,
            "array" => ARRAY,
            _ => return None,
        }),
        Value::Array(names) => names.iter().try_fold(0, |all, it| Some(all | read(it).filter(|_| it.is_string())?)),
        _ => None,
    }
}

/// Names of types, for people.
pub(super) fn names(types: Types) -> String {
    let all = [
        (NULL, "null"),
        (BOOLEAN, "boolean"),
        (OBJECT, "object"),
        (STRING, "string"),
        (ARRAY, "array"),
        (INTEGER, "integer"),
        (NUMBER & !INTEGER, "fraction"),
    ];
    all.iter().filter(|it| types & it.0 != 0).map(|it| it.1).collect::<Vec<_>>().join(", ")
}

fn type_of(value: &Value) -> Types {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Object(_) => OBJECT,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Number(it) if it.is_f64() && it.as_f64().is_none_or(|it| it.fract() != 0.0) => NUMBER & !INTEGER,
        Value::Number(_) => INTEGER,
    }
}
