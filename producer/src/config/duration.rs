//! Durations as text, for `#[serde(with = "duration")]`: `"250ms"`, `"5s"`, `"2m"`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes the shortest text that reads back as the same duration.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

/// Reads a duration.
///
/// # Errors
/// The value is no text of that form; the error shows the form.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(Visitor)
}

/// One duration of a list or an option, where `with` cannot reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationText(pub Duration);

impl serde::Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationText, D::Error> {
        deserialize(deserializer).map(DurationText)
    }
}

/// A duration that may be left out, for `#[serde(with = "duration::option")]`.
pub mod option {
    use super::{Deserialize, Deserializer, Duration, DurationText, Serializer};

    /// Writes it as text, if there is one.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&DurationText(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads it from text.
    ///
    /// # Errors
    /// It is no duration; the error shows the form.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<DurationText>::deserialize(deserializer)?.map(|it| it.0))
    }
}

/// A list of durations, for `#[serde(with = "duration::list")]`: `["2s", "8s"]`.
pub mod list {
    use super::{Deserialize, Deserializer, Duration, DurationText, Serializer};

    /// Writes each as text.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(durations: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(durations.iter().copied().map(DurationText))
    }

    /// Reads each from text.
    ///
    /// # Errors
    /// One of them is no duration; the error shows the form.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Duration>, D::Error> {
        let read = Vec::<DurationText>::deserialize(deserializer)?;
        Ok(read.into_iter().map(|it| it.0).collect())
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration with its unit in quotes, such as \"250ms\", \"5s\" or \"2m\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}
