//! Where values come from, and how they become sections.

use std::collections::BTreeMap;
use std::ffi::OsString;

use figment::error::{Actual, Kind};
use figment::value::{Dict, Value};
use serde::de::DeserializeOwned;

use super::problems::Problems;

/// Names of the sections.
pub(super) const SECTIONS: [&str; 14] = [
    "kafka", "postgres", "consumer", "effects", "retry", "topics", "inbox", "operate", "console", "relay", "schemas",
    "registry", "admin", "log",
];

const PREFIX: &str = "SEKALI_";
const FILE_SUFFIX: &str = "_file";

/// Values as they were given, with the place of each.
#[derive(Default)]
pub(super) struct Given {
    entries: BTreeMap<(String, String), Entry>,
}

#[derive(Clone)]
struct Entry {
    value: Text,
    from: String,
}

#[derive(Clone)]
enum Text {
    /// Typed by its TOML syntax.
    Toml(toml::Value),
    /// An environment variable: what the key expects decides how it is read.
    Env(String),
}

impl Given {
    /// Where the value of a key came from; `None` when it is the default.
    pub(super) fn from(&self, section: &str, key: &str) -> Option<String> {
        let plain = self.entries.get(&(section.to_owned(), key.to_owned()));
        let file = || self.entries.get(&(section.to_owned(), format!("{key}{FILE_SUFFIX}")));
        plain.or_else(file).map(|it| it.from.clone())
    }

    pub(super) fn add_toml(&mut self, name: &str, text: &str, problems: &mut Problems) {
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                // Its full text would quote the line, which may hold a password.
                let line = error.span().map_or(0, |it| text[..it.start.min(text.len())].matches('\n').count() + 1);
                problems.push("syntax", Some(format!("{name} line {line}")), format!("not TOML: {}", error.message()));
                return;
            }
        };
        for (section, value) in table {
            if !SECTIONS.contains(&section.as_str()) {
                problems.push(&section, Some(name.to_owned()), unknown("section", &section, &SECTIONS));
                continue;
            }
            let toml::Value::Table(keys) = value else {
                problems.push(
                    &section,
                    Some(name.to_owned()),
                    format!("is a section: write [{section}] above its keys"),
                );
                continue;
            };
            for (key, value) in keys {
                let entry = Entry { value: Text::Toml(value), from: name.to_owned() };
                self.entries.insert((section.clone(), key), entry);
            }
        }
    }

    pub(super) fn add_env(&mut self, variables: impl Iterator<Item = (OsString, OsString)>, problems: &mut Problems) {
        let mut ours: Vec<(String, OsString)> = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.strip_prefix(PREFIX).is_some_and(|it| it.contains("__")))
            .collect();
        ours.sort();
        for (name, value) in ours {
            let Ok(value) = value.into_string() else {
                problems.push(name, None, "the value of this environment variable is not UTF-8");
                continue;
            };
            let path = name[PREFIX.len()..].to_ascii_lowercase();
            let Some((section, key)) = path.split_once("__") else { continue };
            if !SECTIONS.contains(&section) {
                problems.push(section, Some(name.clone()), unknown("section", section, &SECTIONS));
                continue;
            }
            self.add_variable(section, key, name.clone(), value);
        }
    }

    fn add_variable(&mut self, section: &str, key: &str, name: String, value: String) {
        if let Some((map, inner)) = key.split_once("__") {
            // SEKALI_KAFKA__PROPERTIES__SSL_CA_LOCATION: a shell cannot write the dots of librdkafka's names.
            let at = (section.to_owned(), map.to_owned());
            let empty = || Entry { value: Text::Toml(toml::Value::Table(toml::Table::new())), from: name.clone() };
            let entry = self.entries.entry(at).or_insert_with(empty);
            if let Text::Toml(toml::Value::Table(table)) = &mut entry.value {
                table.insert(inner.replace('_', "."), toml::Value::String(value));
                return;
            }
        }
        // The variable wins over the file, whichever of the two spellings either used.
        let (base, other) = match key.strip_suffix(FILE_SUFFIX) {
            Some(base) => (base, base.to_owned()),
            None => (key, format!("{key}{FILE_SUFFIX}")),
        };
        let is_variable = |it: &Entry| matches!(it.value, Text::Env(_));
        let other_at = (section.to_owned(), other);
        if !base.is_empty() && self.entries.get(&other_at).is_some_and(|it| !is_variable(it)) {
            self.entries.remove(&other_at);
        }
        self.entries.insert((section.to_owned(), key.to_owned()), Entry { value: Text::Env(value), from: name });
    }

    /// Reads one section. A key that cannot be used is noted and left at its default, so that every problem is found.
    /// `required` lists the texts that have no default; they are checked later, by meaning.
    pub(super) fn section<S: DeserializeOwned>(
        &self,
        section: &str,
        required: &[&str],
        fallback: S,
        problems: &mut Problems,
    ) -> S {
        let mut usable: Dict = required.iter().map(|it| ((*it).to_owned(), Value::from(""))).collect();
        for ((_, key), entry) in self.entries.iter().filter(|((it, _), _)| it == section) {
            match read_key::<S>(key, entry) {
                Ok(value) => {
                    usable.insert(key.clone(), value);
                }
                Err(what) => problems.push(format!("{section}.{key}"), Some(entry.from.clone()), what),
            }
        }
        Value::from(usable).deserialize().unwrap_or_else(|error: figment::Error| {
            problems.push(section, None, explain(section, &error.kind));
            fallback
        })
    }
}

/// The value of one key, tried alone so that one bad key does not hide the next.
fn read_key<S: DeserializeOwned>(key: &str, entry: &Entry) -> Result<Value, String> {
    let read = match &entry.value {
        Text::Toml(value) => try_value::<S>(key, value),
        Text::Env(text) => try_text::<S>(key, text),
    };
    read.map_err(|error| match &error {
        Kind::UnknownField(_, keys) => unknown("key", key, keys),
        _ => explain(key, &error),
    })
}

fn try_text<S: DeserializeOwned>(key: &str, text: &str) -> Result<Value, Kind> {
    let as_text = match try_value::<S>(key, &toml::Value::String(text.to_owned())) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    // Only now as number, list or table: a password of digits is a text.
    match format!("it = {text}").parse::<toml::Table>().ok().and_then(|mut it| it.remove("it")) {
        Some(value) => try_value::<S>(key, &value),
        None => Err(as_text),
    }
}

fn try_value<S: DeserializeOwned>(key: &str, value: &toml::Value) -> Result<Value, Kind> {
    let value = Value::serialize(value).map_err(|error| error.kind)?;
    let alone = Dict::from([(key.to_owned(), value.clone())]);
    match Value::from(alone).deserialize::<S>() {
        Ok(_) => Ok(value),
        Err(error) => match error.kind {
            Kind::MissingField(_) => Ok(value),
            kind => Err(kind),
        },
    }
}

/// The problem without the value, which may be a secret.
fn explain(key: &str, kind: &Kind) -> String {
    let secret = ["password", "secret", "token", "url"].iter().any(|it| key.contains(it));
    match kind {
        Kind::Message(_) if secret => "the value cannot be used".to_owned(),
        Kind::Message(text) => text.clone(),
        Kind::InvalidType(found, expected) => format!("expected {}, found {}", plain(expected), name(found)),
        Kind::InvalidValue(_, expected) => format!("expected {}", plain(expected)),
        Kind::UnknownVariant(_, variants) => format!("must be one of {}", quoted(variants)),
        Kind::MissingField(field) => format!("{field} is not set"),
        _ => "the value cannot be used".to_owned(),
    }
}

fn name(found: &Actual) -> &'static str {
    match found {
        Actual::Bool(_) => "true or false",
        Actual::Unsigned(_) | Actual::Signed(_) => "a whole number",
        Actual::Float(_) => "a number with a fraction",
        Actual::Char(_) | Actual::Str(_) | Actual::Bytes(_) => "a text",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
}

/// Serde's names of types in an operator's words.
fn plain(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list such as [\"first\", \"second\"]",
        "a map" => "a table",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "f64" => "a number",
        "u16" => "a whole number from 0 to 65535",
        "a nonzero u16" => "a whole number from 1 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "usize" | "u64" => "a whole number of at least 0",
        "a nonzero usize" | "a nonzero u64" => "a whole number of at least 1",
        other => other,
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(", ")
}

fn unknown(kind: &str, given: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|it| (distance(given, it), *it)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + name.len() / 3 => format!("unknown {kind}, did you mean \"{name}\"?"),
        _ => format!("unknown {kind}, known ones: {}", known.join(", ")),
    }
}

/// Edits between two names: insert, delete, replace.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
