//! One compiled schema, and what it says without saying a value.

use std::collections::BTreeSet;
use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::LocationSegment;
use jsonschema::{Retrieve, Uri, ValidationError};
use serde_json::Value;

/// A compiled JSON Schema.
pub struct Validator {
    name: String,
    compiled: jsonschema::Validator,
    /// Names of members that the schema knows. Others are the sender's, and may be data: keys of a map, for instance.
    declared: BTreeSet<String>,
}

/// Where a document is not what its schema wants. Names the place and the rule, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("payload is refused by schema {schema} at {}: {rule}", shown(.pointer))]
pub struct Violation {
    /// The schema, by type and version or by its id in the registry.
    pub schema: String,
    /// JSON pointer of the place. A member that the schema does not name is shown as `*`.
    pub pointer: String,
    /// The keyword that refuses it, such as `type` or `required`.
    pub rule: String,
}

/// Member whose name is not shown.
const HIDDEN: &str = "*";

/// The empty pointer is the whole document, and easily read as nothing.
fn shown(pointer: &str) -> &str {
    if pointer.is_empty() { "its root" } else { pointer }
}

impl Validator {
    /// Compiles a schema; `name` is what violations call it. References lead nowhere outside the schema.
    ///
    /// # Errors
    /// What makes it no schema, or a reference to somewhere else.
    pub fn compile(name: &str, schema: &Value) -> Result<Validator, String> {
        let compiled = jsonschema::options()
            .should_validate_formats(true)
            .should_ignore_unknown_formats(true)
            .with_retriever(NoRetrieval)
            .build(schema)
            .map_err(|error| format!("is no JSON Schema that can be used: {error}"))?;
        let mut declared = BTreeSet::new();
        declare(schema, &mut declared);
        Ok(Validator { name: name.to_owned(), compiled, declared })
    }

    /// Holds a document against the schema.
    ///
    /// # Errors
    /// The first place that is refused.
    pub fn check(&self, document: &Value) -> Result<(), Violation> {
        self.compiled.validate(document).map_err(|error| self.violation(&error))
    }

    fn violation(&self, error: &ValidationError<'_>) -> Violation {
        let mut pointer = String::new();
        for segment in error.instance_path().segments() {
            match segment {
                LocationSegment::Index(index) => pointer.push_str(&format!("/{index}")),
                LocationSegment::Property(name) => self.push(&mut pointer, &name),
            }
        }
        if let ValidationErrorKind::Required { property: Value::String(name) } = error.kind() {
            self.push(&mut pointer, name);
        }
        Violation { schema: self.name.clone(), pointer, rule: rule(error) }
    }

    fn push(&self, pointer: &mut String, member: &str) {
        pointer.push('/');
        let shown = if self.declared.contains(member) { member } else { HIDDEN };
        pointer.push_str(&shown.replace('~', "~0").replace('/', "~1"));
    }
}

/// The keyword; where that is only `false`, the keyword that has it.
fn rule(error: &ValidationError<'_>) -> String {
    let keyword = error.kind().keyword();
    match (error.kind(), error.schema_path().segments().last()) {
        (ValidationErrorKind::FalseSchema, Some(LocationSegment::Property(name))) => name.into_owned(),
        _ => keyword.to_owned(),
    }
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validator").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Collects what stands in `properties` and `required`, wherever it is in the schema.
fn declare(schema: &Value, declared: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Object(properties)) = members.get("properties") {
                declared.extend(properties.keys().cloned());
            }
            if let Some(Value::Array(required)) = members.get("required") {
                declared.extend(required.iter().filter_map(|it| it.as_str().map(str::to_owned)));
            }
            members.values().for_each(|it| declare(it, declared));
        }
        Value::Array(elements) => elements.iter().for_each(|it| declare(it, declared)),
        _ => {}
    }
}

/// A schema is never fetched: neither from the network nor from a file.
struct NoRetrieval;

impl Retrieve for NoRetrieval {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("schemas outside the document are not fetched".into())
    }
}
