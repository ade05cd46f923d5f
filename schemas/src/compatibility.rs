//! Whether a document that an old JSON Schema accepts is accepted by a new one.
//!
//! A comparison of structure, keyword by keyword: each one of the new schema must follow from what the old one says at the
//! same place. What cannot be followed (unknown keywords, other dialects, references to elsewhere) is never taken for
//! compatible: it is reported as [`Verdict::Unclear`].

mod old;
mod scalars;
mod shapes;

use serde_json::{Map, Value};

use old::Old;

/// One way in which the new schema may refuse what the old one accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Place in the new schema, a JSON pointer.
    pub pointer: String,
    /// The keyword.
    pub rule: String,
    /// How sure that is.
    pub verdict: Verdict,
    /// What changed, without a value of any document.
    pub what: String,
}

/// What a change means for documents of the old schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A member got a schema where objects are open: only documents that gave the name another meaning are refused.
    Added,
    /// Nobody here can tell.
    Unclear,
    /// Some are refused.
    Breaking,
}

impl Verdict {
    /// Whether documents that keep to what was agreed may be refused.
    pub fn is_blocking(self) -> bool {
        self != Verdict::Added
    }
}

/// Most subschemas that are looked at.
const STEPS_MAX: usize = 50_000;
/// Deepest nesting that is followed.
const DEPTH_MAX: usize = 64;
/// Dialects whose keywords mean what is assumed here.
const DIALECTS: [&str; 2] =
    ["https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema"];
/// Keywords that refuse nothing.
const ANNOTATIONS: [&str; 12] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "deprecated",
    "examples",
    "readOnly",
    "writeOnly",
];

/// Keywords that depend on what stands beside them, or on who refers to them.
const DEPENDENT: [&str; 5] =
    ["unevaluatedProperties", "unevaluatedItems", "additionalItems", "$dynamicRef", "$recursiveRef"];

/// Everything that may be refused by `new` and is accepted by `old`. None at all: whatever `old` accepts, `new` does.
pub fn compare(old: &Value, new: &Value) -> Vec<Change> {
    for schema in [old, new] {
        if let Some(what) = foreign(schema) {
            return vec![unclear("", "$schema", what)];
        }
    }
    let mut comparison = Comparison { old_root: old, new_root: new, steps: 0, assumed: Vec::new() };
    comparison.follows(&Old::of(old, &[old]), new, "", 0)
}

/// Why the schema's keywords may mean something else than is assumed.
fn foreign(schema: &Value) -> Option<&'static str> {
    let dialect = schema.get("$schema").and_then(Value::as_str);
    if dialect.is_some_and(|it| !DIALECTS.contains(&it.trim_end_matches('#'))) {
        return Some("a schema of another dialect than 2020-12");
    }
    let nested = |it: &Value| has_id(it);
    let parts = schema.as_object().into_iter().flat_map(Map::values);
    parts.into_iter().any(nested).then_some("a schema with schemas of their own $id inside")
}

fn has_id(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.get("$id").is_some_and(Value::is_string) || members.values().any(has_id),
        Value::Array(elements) => elements.iter().any(has_id),
        _ => false,
    }
}

fn breaking(pointer: &str, rule: &str, what: impl Into<String>) -> Change {
    let (pointer, rule) = (pointer.to_owned(), rule.to_owned());
    Change { pointer, rule, verdict: Verdict::Breaking, what: what.into() }
}

fn unclear(pointer: &str, rule: &str, what: impl Into<String>) -> Change {
    Change { verdict: Verdict::Unclear, ..breaking(pointer, rule, what) }
}

struct Comparison<'a> {
    old_root: &'a Value,
    new_root: &'a Value,
    steps: usize,
    /// What is being compared, so that schemas that contain themselves end: old parts, and the new one.
    assumed: Vec<(Vec<*const Value>, *const Value)>,
}

impl<'a> Comparison<'a> {
    /// What of `new` does not follow from `old`.
    fn follows(&mut self, old: &Old<'a>, new: &'a Value, at: &str, depth: usize) -> Vec<Change> {
        self.steps += 1;
        if STEPS_MAX < self.steps || DEPTH_MAX < depth {
            return vec![unclear(at, "depth", "too large to be compared")];
        }
        if old.accepts_nothing() || same(self.old_root, old.parts(), self.new_root, new) {
            return Vec::new();
        }
        let members = match new {
            Value::Bool(true) => return Vec::new(),
            Value::Bool(false) => return vec![breaking(at, "false", "nothing is accepted any more")],
            Value::Object(members) => members,
            _ => return vec![unclear(at, "schema", "no schema")],
        };
        let assumption = (old.identity(), std::ptr::from_ref(new));
        if self.assumed.contains(&assumption) {
            return Vec::new();
        }
        self.assumed.push(assumption);
        let mut changes = Vec::new();
        for keyword in members.keys().filter(|it| !ANNOTATIONS.contains(&it.as_str())) {
            changes.extend(self.keyword(old, members, keyword, at, depth));
        }
        if changes.iter().any(|it| it.verdict.is_blocking())
            && let Some(branches) = old.branches()
        {
            let by_branch: Vec<_> = branches.iter().map(|it| self.follows(it, new, at, depth + 1)).collect();
            if by_branch.iter().flatten().all(|it| !it.verdict.is_blocking()) {
                changes = by_branch.into_iter().flatten().collect();
                changes.dedup();
            }
        }
        self.assumed.pop();
        changes
    }

    fn keyword(
        &mut self,
        old: &Old<'a>,
        new: &'a Map<String, Value>,
        keyword: &str,
        at: &str,
        depth: usize,
    ) -> Vec<Change> {
        let place = format!("{at}/{}", escaped(keyword));
        let value = &new[keyword];
        if let Some(found) = scalars::check(old, keyword, value) {
            // Listed values may all fulfil a rule that nothing else speaks of.
            let is_sure = !old.is_listed() || matches!(keyword, "enum" | "const" | "type");
            let change = if is_sure { breaking } else { unclear };
            return found.err().map(|what| change(&place, keyword, what)).into_iter().collect();
        }
        match keyword {
            "$ref" => match target(self.new_root, value) {
                Some(target) => self.follows(old, target, at, depth + 1),
                None => vec![unclear(&place, keyword, "a reference that leads out of the schema")],
            },
            "allOf" => self.each(old, value, &place, depth),
            "anyOf" => self.any(old, value, &place, depth),
            "not" => self.not(old, value, &place, depth),
            "properties" => self.properties(old, new, &place, depth),
            "additionalProperties" => self.additional(old, new, &place, depth),
            "patternProperties" => self.patterns(old, value, &place, depth),
            "propertyNames" => self.names(old, value, &place, depth),
            "items" | "prefixItems" => self.elements(old, new, keyword, at, depth),
            // Parts of `contains` and `if`.
            "minContains" | "maxContains" if !new.contains_key("contains") => Vec::new(),
            "then" | "else" if !new.contains_key("if") => Vec::new(),
            _ => {
                let group = group(&keyword);
                let is_same = |it: &Map<String, Value>| {
                    group.iter().all(|key| match (it.get(*key), new.get(*key)) {
                        (None, None) => true,
                        (Some(old), Some(new)) => alike(self.old_root, old, self.new_root, new),
                        _ => false,
                    })
                };
                let stays = !DEPENDENT.contains(&keyword) && old.maps().any(is_same);
                if stays { Vec::new() } else { vec![unclear(&place, keyword, "a rule that cannot be compared")] }
            }
        }
    }
}

/// Keywords that mean something together.
fn group<'k>(keyword: &'k &str) -> &'k [&'k str] {
    match *keyword {
        "contains" | "minContains" | "maxContains" => &["contains", "minContains", "maxContains"],
        "if" | "then" | "else" => &["if", "then", "else"],
        _ => std::slice::from_ref(keyword),
    }
}

/// What a reference inside a schema leads to.
fn target<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    let pointer = reference.as_str()?.strip_prefix('#')?;
    // Percent escapes are legal there; names that need them are rare enough to be unclear.
    if pointer.contains('%') { None } else { root.pointer(pointer) }
}

/// Whether two schemas are the same but for annotations, references followed.
fn same(old_root: &Value, old: &[&Value], new_root: &Value, new: &Value) -> bool {
    let [old] = old else { return false };
    let without_annotations = |mut it: Value| {
        if let Value::Object(members) = &mut it {
            members.retain(|key, _| !ANNOTATIONS.contains(&key.as_str()));
        }
        it
    };
    match (plain(old_root, old, 0), plain(new_root, new, 0)) {
        (Some(old), Some(new)) => without_annotations(old) == without_annotations(new),
        _ => false,
    }
}

/// Whether two values of a keyword are the same, references followed.
fn alike(old_root: &Value, old: &Value, new_root: &Value, new: &Value) -> bool {
    plain(old_root, old, 0).zip(plain(new_root, new, 0)).is_some_and(|(old, new)| old == new)
}

/// A schema with its references written out; `None` for one that contains itself.
fn plain(root: &Value, schema: &Value, depth: usize) -> Option<Value> {
    const DEPTH: usize = 12;
    if DEPTH < depth {
        return None;
    }
    match schema {
        Value::Object(members) => {
            let mut out = Map::new();
            for (key, value) in members {
                match key.as_str() {
                    // Definitions count where they are referred to.
                    "$defs" | "definitions" => {}
                    "$ref" => drop(out.insert(key.clone(), plain(root, target(root, value)?, depth + 1)?)),
                    "$dynamicRef" | "$recursiveRef" => return None,
                    _ => drop(out.insert(key.clone(), plain(root, value, depth + 1)?)),
                }
            }
            Some(Value::Object(out))
        }
        Value::Array(elements) => {
            elements.iter().map(|it| plain(root, it, depth + 1)).collect::<Option<_>>().map(Value::Array)
        }
        other => Some(other.clone()),
    }
}

fn escaped(member: &str) -> String {
    member.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
