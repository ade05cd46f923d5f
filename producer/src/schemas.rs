//! JSON Schemas that payloads are held against, compiled once.

mod files;
mod validator;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sekali_schemas::cloudevents::DataKind;
use sekali_schemas::events::{self, schema_id};

pub use files::{SchemaFile, read_directory};
pub use validator::{Validator, Violation};

/// A schema with what it is the schema of.
#[derive(Debug)]
pub struct KnownSchema {
    /// The event type.
    pub name: String,
    /// Major version.
    pub version: u32,
    /// The schema's text.
    pub text: String,
    /// The compiled schema.
    pub validator: Validator,
}

/// Schemas by type. The default has none.
#[derive(Debug, Default)]
pub struct Schemas {
    by_id: BTreeMap<String, Arc<KnownSchema>>,
    /// The first version of each type.
    by_type: BTreeMap<String, Arc<KnownSchema>>,
}

impl Schemas {
    /// The built-in schemas and those of a directory, which take the place of built-in ones of the same name and version.
    ///
    /// # Errors
    /// One text for each file that is no schema, and for a directory that cannot be read.
    pub fn load(directory: Option<&Path>) -> Result<Schemas, Vec<String>> {
        Schemas::only(&with_built_in(directory)?)
    }

    /// Only these, without the built-in ones.
    ///
    /// # Errors
    /// One text for each that is no schema.
    pub fn only(files: &[SchemaFile]) -> Result<Schemas, Vec<String>> {
        let mut schemas = Schemas { by_id: BTreeMap::new(), by_type: BTreeMap::new() };
        let mut problems = Vec::new();
        for file in files {
            match Validator::compile(&format!("{} v{}", file.name, file.version), &file.schema) {
                Ok(validator) => schemas.add(file, validator),
                Err(problem) => problems.push(format!("{}: {problem}", file.file_name())),
            }
        }
        if problems.is_empty() { Ok(schemas) } else { Err(problems) }
    }

    fn add(&mut self, file: &SchemaFile, validator: Validator) {
        let (name, version, text) = (file.name.clone(), file.version, file.text.clone());
        let known = Arc::new(KnownSchema { name, version, text, validator });
        if let Some(id) = file.schema.get("$id").and_then(|it| it.as_str()) {
            self.by_id.insert(id.to_owned(), known.clone());
        }
        self.by_id.insert(schema_id(&known.name, known.version), known.clone());
        let first = self.by_type.entry(known.name.clone()).or_insert_with(|| known.clone());
        if known.version < first.version {
            *first = known;
        }
    }

    /// The schema that an event follows: the one that it names, or the first version of its type when it names none.
    pub fn find(&self, kind: &DataKind<'_>) -> Option<&Arc<KnownSchema>> {
        match &kind.data_schema {
            Some(id) => self.by_id.get(&**id),
            None => self.by_type.get(&*kind.ty),
        }
    }
}

/// The built-in schemas and those of a directory, as files: what [`Schemas::load`] compiles.
///
/// # Errors
/// As [`read_directory`].
pub fn with_built_in(directory: Option<&Path>) -> Result<Vec<SchemaFile>, Vec<String>> {
    let own = directory.map_or_else(|| Ok(Vec::new()), read_directory)?;
    let is_replaced = |it: &SchemaFile| own.iter().any(|o| (&o.name, o.version) == (&it.name, it.version));
    let mut files: Vec<SchemaFile> = built_in().into_iter().filter(|it| !is_replaced(it)).collect();
    files.extend(own);
    Ok(files)
}

fn built_in() -> Vec<SchemaFile> {
    let file = |it: events::EventSchema| match SchemaFile::of(it.name, it.version, it.schema) {
        Ok(file) => file,
        Err(problem) => unreachable!("a built-in schema is JSON: {problem}"),
    };
    events::ALL.into_iter().map(file).collect()
}

#[cfg(test)]
mod tests;
