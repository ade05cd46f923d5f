//! Schemas in a directory, `<type>.v<major>.json` each.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Largest file that is taken for a schema.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// One schema as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaFile {
    /// The event type.
    pub name: String,
    /// Major version.
    pub version: u32,
    /// The text.
    pub text: String,
    /// The same as JSON.
    pub schema: Value,
}

impl SchemaFile {
    /// Reads a schema's text.
    ///
    /// # Errors
    /// It is not JSON, or neither an object nor a boolean.
    pub fn of(name: &str, version: u32, text: &str) -> Result<SchemaFile, String> {
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        if !schema.is_object() && !schema.is_boolean() {
            return Err("is not a JSON Schema: expected an object".to_owned());
        }
        Ok(SchemaFile { name: name.to_owned(), version, text: text.to_owned(), schema })
    }

    /// Name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.v{}.json", self.name, self.version)
    }
}

/// Every schema of a directory, by type and version. Files that do not end in `.json` are passed over.
///
/// # Errors
/// One text for each file that is no schema or has another name, and for a directory that cannot be read.
pub fn read_directory(directory: &Path) -> Result<Vec<SchemaFile>, Vec<String>> {
    let unreadable = |error: std::io::Error| vec![format!("{} cannot be read: {error}", directory.display())];
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let Some(name) = path.file_name().and_then(|it| it.to_str()).filter(|it| it.ends_with(".json")) else {
            continue;
        };
        match read_file(&path, name) {
            Ok(file) => files.push(file),
            Err(problem) => problems.push(format!("{}: {problem}", path.display())),
        }
    }
    problems.sort();
    files.sort_by(|left: &SchemaFile, right| (&left.name, left.version).cmp(&(&right.name, right.version)));
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

fn read_file(path: &Path, name: &str) -> Result<SchemaFile, String> {
    let (ty, version) =
        parse_name(name).ok_or("must be named <type>.v<major>.json, for instance order.placed.v1.json")?;
    let bytes = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if FILE_BYTES_MAX < bytes {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    SchemaFile::of(ty, version, &text)
}

fn parse_name(name: &str) -> Option<(&str, u32)> {
    let (ty, version) = name.strip_suffix(".json")?.rsplit_once(".v")?;
    let version: u32 = version.parse().ok().filter(|it| *it != 0)?;
    (!ty.is_empty()).then_some((ty, version))
}
