//! Keywords whose values are schemas.

use serde_json::{Map, Value};

use super::old::{ARRAY, OBJECT, Old};
use super::{Change, Comparison, Verdict, breaking, escaped, unclear};

const TRUE: &Value = &Value::Bool(true);

impl<'a> Comparison<'a> {
    pub(super) fn each(&mut self, old: &Old<'a>, new: &'a Value, at: &str, depth: usize) -> Vec<Change> {
        let parts = new.as_array().into_iter().flatten().enumerate();
        parts.flat_map(|(nr, it)| self.follows(old, it, &format!("{at}/{nr}"), depth + 1)).collect()
    }

    /// One of the alternatives follows. When it takes another one for each case of the old schema, its cases are taken
    /// one by one.
    pub(super) fn any(&mut self, old: &Old<'a>, new: &'a Value, at: &str, depth: usize) -> Vec<Change> {
        for it in new.as_array().into_iter().flatten() {
            let changes = self.follows(old, it, at, depth + 1);
            if changes.iter().all(|it| !it.verdict.is_blocking()) {
                return changes;
            }
        }
        vec![unclear(at, "anyOf", "none of the alternatives follows from what there was")]
    }

    pub(super) fn not(&mut self, old: &Old<'a>, new: &'a Value, at: &str, depth: usize) -> Vec<Change> {
        let excluded: Vec<&'a Value> = old.values("not").collect();
        let (old_root, new_root) = (self.old_root, self.new_root);
        // What is excluded now must have been excluded before: the other way round.
        for it in excluded {
            let mut reversed =
                Comparison { old_root: new_root, new_root: old_root, steps: self.steps, assumed: Vec::new() };
            let changes = reversed.follows(&Old::of(new_root, &[new]), it, at, depth + 1);
            self.steps = reversed.steps;
            if changes.is_empty() {
                return Vec::new();
            }
        }
        vec![unclear(at, "not", "what is excluded cannot be compared")]
    }

    pub(super) fn properties(
        &mut self,
        old: &Old<'a>,
        new: &'a Map<String, Value>,
        at: &str,
        depth: usize,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        if old.types() & OBJECT == 0 {
            return changes;
        }
        for (name, schema) in new["properties"].as_object().into_iter().flatten() {
            let place = format!("{at}/{}", escaped(name));
            let before = member(old, name);
            let found = self.follows(&old.under(&before), schema, &place, depth + 1);
            if before.is_empty() && found.iter().any(|it| it.verdict.is_blocking()) {
                let what = format!("member {name} has a schema now, and was not spoken of before");
                changes.push(Change { verdict: Verdict::Added, ..breaking(&place, "properties", what) });
            } else {
                changes.extend(found);
            }
        }
        changes
    }

    /// What goes for the members that the new schema does not name.
    pub(super) fn additional(
        &mut self,
        old: &Old<'a>,
        new: &'a Map<String, Value>,
        at: &str,
        depth: usize,
    ) -> Vec<Change> {
        if old.types() & OBJECT == 0 {
            return Vec::new();
        }
        let schema = &new["additionalProperties"];
        let is_named = |name: &String| new.get("properties").is_some_and(|it| it.get(name).is_some());
        let mut best: Option<Vec<Change>> = None;
        let maps: Vec<_> = old.maps().collect();
        for map in maps {
            let named = map.get("properties").and_then(Value::as_object).into_iter().flatten();
            let patterns = map.get("patternProperties").and_then(Value::as_object).into_iter().flatten();
            let rest = std::iter::once(map.get("additionalProperties").unwrap_or(TRUE));
            let before: Vec<&'a Value> =
                named.filter(|it| !is_named(it.0)).map(|it| it.1).chain(patterns.map(|it| it.1)).chain(rest).collect();
            let mut changes = Vec::new();
            for it in before {
                changes.extend(self.follows(&old.under(&[it]), schema, at, depth + 1));
            }
            if best.as_ref().is_none_or(|it| changes.len() < it.len()) {
                best = Some(changes);
            }
        }
        let changes = best.unwrap_or_else(|| self.follows(&old.under(&[]), schema, at, depth + 1));
        let blocking = changes.iter().any(|it| it.verdict.is_blocking());
        if blocking {
            vec![breaking(at, "additionalProperties", "members that are not named are not all accepted any more")]
        } else {
            changes
        }
    }

    pub(super) fn patterns(&mut self, old: &Old<'a>, new: &'a Value, at: &str, depth: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        if old.types() & OBJECT == 0 {
            return changes;
        }
        for (pattern, schema) in new.as_object().into_iter().flatten() {
            let place = format!("{at}/{}", escaped(pattern));
            let before: Vec<&'a Value> = old.values("patternProperties").filter_map(|it| it.get(pattern)).collect();
            let found = self.follows(&old.under(&before), schema, &place, depth + 1);
            if before.is_empty() && !found.is_empty() {
                changes.push(unclear(&place, "patternProperties", "which members that concerns cannot be told"));
            } else {
                changes.extend(found);
            }
        }
        changes
    }

    pub(super) fn names(&mut self, old: &Old<'a>, new: &'a Value, at: &str, depth: usize) -> Vec<Change> {
        if old.types() & OBJECT == 0 {
            return Vec::new();
        }
        let before: Vec<&'a Value> = old.values("propertyNames").collect();
        self.follows(&old.under(&before), new, at, depth + 1)
    }

    /// `prefixItems` speaks of the first elements, `items` of those behind them.
    pub(super) fn elements(
        &mut self,
        old: &Old<'a>,
        new: &'a Map<String, Value>,
        keyword: &str,
        at: &str,
        depth: usize,
    ) -> Vec<Change> {
        if old.types() & ARRAY == 0 {
            return Vec::new();
        }
        let first = prefix(new);
        if keyword == "prefixItems" {
            let each = first.iter().enumerate();
            return each
                .flat_map(|(nr, it)| {
                    self.follows(&old.under(&element(old, nr)), it, &format!("{at}/prefixItems/{nr}"), depth + 1)
                })
                .collect();
        }
        let schema = &new["items"];
        let place = format!("{at}/items");
        if schema.is_array() {
            return vec![unclear(&place, "items", "a list of schemas, which is the spelling of another dialect")];
        }
        let longest = old.maps().map(|it| prefix(it).len()).max().unwrap_or_default();
        // One beyond every prefix stands for all the rest.
        let numbers = first.len()..longest.max(first.len()) + 1;
        let mut changes: Vec<Change> =
            numbers.flat_map(|nr| self.follows(&old.under(&element(old, nr)), schema, &place, depth + 1)).collect();
        changes.dedup();
        changes
    }
}

fn prefix(map: &Map<String, Value>) -> &[Value] {
    map.get("prefixItems").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What the old schema says of an element.
fn element<'a>(old: &Old<'a>, nr: usize) -> Vec<&'a Value> {
    let of = |it: &'a Map<String, Value>| prefix(it).get(nr).or_else(|| it.get("items").filter(|it| !it.is_array()));
    old.maps().filter_map(of).collect()
}

/// What the old schema says of a member. Patterns that may match it are left out: less is known then.
fn member<'a>(old: &Old<'a>, name: &str) -> Vec<&'a Value> {
    let of = |it: &'a Map<String, Value>| match it.get("properties").and_then(|it| it.get(name)) {
        Some(schema) => Some(schema),
        // With patterns, nobody can tell whether it is one of the rest.
        None if it.contains_key("patternProperties") => None,
        None => it.get("additionalProperties"),
    };
    old.maps().filter_map(of).collect()
}
