use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::schemas::Schemas;

/// Section `schemas`: what payloads are held against.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchemasSection {
    /// Directory with the JSON Schemas of your own event types, `<type>.v<major>.json` each. One of the same name and
    /// version as a built-in one takes its place. Default: none.
    pub directory: Option<PathBuf>,
    /// Whether messages are held against the schema of their type before a handler gets them. What is refused becomes a
    /// dead letter at once. Default `"off"`.
    pub consume: Validate,
    /// Whether events are held against the schema of their type before they are enqueued or sent. Default `"off"`.
    pub produce: Validate,
}

/// How much is held against schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Validate {
    /// Nothing; costs nothing.
    #[default]
    Off,
    /// Whatever has a schema that is known.
    Known,
    /// Everything: what has no known schema is refused.
    Strict,
}

impl SchemasSection {
    /// Appends what cannot work, each with its key and the remedy: among it every file that is no schema.
    pub fn validate(&self, problems: &mut Vec<String>) {
        if let Some(directory) = self.directory.as_deref()
            && let Err(found) = Schemas::load(Some(directory))
        {
            problems.extend(found.iter().map(|it| format!("schemas.directory {it}")));
        }
    }
}
