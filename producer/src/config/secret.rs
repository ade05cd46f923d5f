//! Secrets in the configuration: read from a value or a file, shown as asterisks.

use std::fs;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde::Serializer;

use crate::{Error, ErrorKind};

/// What a printed configuration shows instead of a secret.
pub const HIDDEN: &str = "***";

/// Shows that a secret is set, for `#[serde(serialize_with = "secret::hidden")]`.
///
/// # Errors
/// Those of the serializer.
pub fn hidden<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(_) => serializer.serialize_some(HIDDEN),
        None => serializer.serialize_none(),
    }
}

/// The secret itself or the content of its file, without line ends at its end. `key` names it in errors.
///
/// # Errors
/// The file cannot be read or is empty.
pub fn resolve(key: &str, value: Option<&SecretString>, file: Option<&Path>) -> Result<Option<SecretString>, Error> {
    let Some(path) = file else { return Ok(value.cloned()) };
    let content = fs::read_to_string(path)
        .map_err(|error| Error::new(ErrorKind::Config, format!("read {key}_file {}", path.display())).because(error))?;
    let secret = SecretString::from(content.trim_end_matches(['\n', '\r']));
    if secret.expose_secret().is_empty() {
        return Err(Error::new(ErrorKind::Config, format!("read {key}_file {}", path.display())).because("it is empty"));
    }
    Ok(Some(secret))
}

/// Notes that a value and its file are both set.
pub(super) fn validate_one_of(
    key: &str,
    value: Option<&SecretString>,
    file: Option<&Path>,
    problems: &mut Vec<String>,
) {
    if value.is_some() && file.is_some() {
        problems.push(format!("{key} and {key}_file are both set: keep one of them"));
    }
}
