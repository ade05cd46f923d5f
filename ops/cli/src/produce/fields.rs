//! Fields of a JSON line, without reading the rest of it into memory.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Where a field is: a name, or a JSON Pointer (RFC 6901) when it begins with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    written: String,
    /// At least one.
    steps: Vec<String>,
}

impl std::str::FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Field, String> {
        let written = text.to_owned();
        let Some(pointer) = text.strip_prefix('/') else {
            return match text {
                "" => Err("a field needs a name".to_owned()),
                name => Ok(Field { steps: vec![name.to_owned()], written }),
            };
        };
        let steps = pointer.split('/').map(|it| it.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Field { steps, written })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// Why a line is refused. Says where, never what stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadLine {
    NotJson { column: usize },
    NotObject,
    NoField(String),
    WrongType(String),
    Empty(String),
    Unusable(String),
    TooLong { bytes_max: usize },
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadLine::NotJson { column } => write!(f, "is not JSON (column {column})"),
            BadLine::NotObject => f.write_str("is no JSON object"),
            BadLine::NoField(field) => write!(f, "has no field \"{field}\""),
            BadLine::WrongType(field) => write!(f, "field \"{field}\" is neither a string nor a number"),
            BadLine::Empty(field) => write!(f, "field \"{field}\" is empty"),
            BadLine::Unusable(why) => f.write_str(why),
            BadLine::TooLong { bytes_max } => {
                write!(f, "is too large: a record may have {bytes_max} bytes; raise max.message.bytes of the topic")
            }
        }
    }
}

/// The texts of the fields, in their order. Reads the whole line, so that what is no JSON is refused.
pub(crate) fn pick<'a, const N: usize>(line: &'a [u8], fields: [&Field; N]) -> Result<[Cow<'a, str>; N], BadLine> {
    let top = members(line, fields.map(|it| it.steps[0].as_str()))?;
    let mut texts = [const { Cow::Borrowed("") }; N];
    for ((text, field), found) in texts.iter_mut().zip(fields).zip(top) {
        let found = found.ok_or_else(|| BadLine::NoField(field.to_string()))?;
        *text = text_of(descend(found, field)?, field)?;
    }
    Ok(texts)
}

fn descend<'a>(mut at: &'a RawValue, field: &Field) -> Result<&'a RawValue, BadLine> {
    for step in &field.steps[1..] {
        let inside = if at.get().starts_with('[') {
            let elements: Vec<&RawValue> = serde_json::from_str(at.get()).map_err(|it| not_json(&it))?;
            step.parse::<usize>().ok().and_then(|it| elements.get(it).copied())
        } else if at.get().starts_with('{') {
            let [found] = members(at.get().as_bytes(), [step.as_str()])?;
            found
        } else {
            None
        };
        at = inside.ok_or_else(|| BadLine::NoField(field.to_string()))?;
    }
    Ok(at)
}

fn text_of<'a>(raw: &'a RawValue, field: &Field) -> Result<Cow<'a, str>, BadLine> {
    let text = raw.get();
    let text = match text.as_bytes() {
        // Without a backslash the text stands there as it is.
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => Cow::Borrowed(&text[1..text.len() - 1]),
        [b'"', ..] => Cow::Owned(serde_json::from_str(text).map_err(|it| not_json(&it))?),
        [b'-' | b'0'..=b'9', ..] => Cow::Borrowed(text),
        _ => return Err(BadLine::WrongType(field.to_string())),
    };
    if text.is_empty() { Err(BadLine::Empty(field.to_string())) } else { Ok(text) }
}

/// The named members of an object; of a name that occurs twice the last one.
fn members<'a, const N: usize>(json: &'a [u8], names: [&str; N]) -> Result<[Option<&'a RawValue>; N], BadLine> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let found = deserializer.deserialize_any(Members { names }).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => BadLine::NotObject,
        _ => not_json(&error),
    })?;
    deserializer.end().map_err(|error| not_json(&error))?;
    Ok(found)
}

fn not_json(error: &serde_json::Error) -> BadLine {
    BadLine::NotJson { column: error.column() }
}

struct Members<'n, const N: usize> {
    names: [&'n str; N],
}

impl<'de, const N: usize> Visitor<'de> for Members<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(matches) = map.next_key_seed(Name { names: &self.names })? {
            if matches == [false; N] {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &'de RawValue = map.next_value()?;
            for (slot, _) in found.iter_mut().zip(matches).filter(|(_, it)| *it) {
                *slot = Some(value);
            }
        }
        Ok(found)
    }
}

/// Which of the names a member has; two fields may be the same member. Nothing is allocated for the others.
struct Name<'n, const N: usize> {
    names: &'n [&'n str; N],
}

impl<'de, const N: usize> DeserializeSeed<'de> for Name<'_, N> {
    type Value = [bool; N];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<[bool; N], D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<const N: usize> Visitor<'_> for Name<'_, N> {
    type Value = [bool; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<[bool; N], E> {
        Ok(self.names.map(|it| it == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(line: &str, fields: [&str; 2]) -> Result<Vec<String>, BadLine> {
        let fields = fields.map(|it| it.parse::<Field>().unwrap());
        pick(line.as_bytes(), [&fields[0], &fields[1]]).map(|it| it.map(Cow::into_owned).to_vec())
    }

    #[test]
    fn finds_names_and_pointers() {
        let line = r#"{"a":"x","n":-1.5e3,"deep":{"er":[{"k":"\u00e9\n"},2]},"a/b":"s","a~b":"t","dup":1,"dup":2}"#;
        for (fields, expected) in [
            (["a", "n"], ["x", "-1.5e3"]),
            (["/a", "/deep/er/0/k"], ["x", "é\n"]),
            (["/deep/er/1", "/a~1b"], ["2", "s"]),
            (["/a~0b", "a"], ["t", "x"]),
            (["dup", "a/b"], ["2", "s"]),
            (["a", "a"], ["x", "x"]),
        ] {
            assert_eq!(picked(line, fields).unwrap(), expected, "{fields:?}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, expected) in [
            ("", "is not JSON (column 0)"),
            ("{\"id\":\"1\",\"sku\":\"a\"", "is not JSON (column 19)"),
            ("{\"id\":\"1\",\"sku\":\"a\"} x", "is not JSON (column 22)"),
            ("{\"id\":\"1\",\"sku\":\"a\",\"x\":tru}", "is not JSON (column 28)"),
            ("[1]", "is no JSON object"),
            ("\"text\"", "is no JSON object"),
            ("{\"id\":\"1\"}", "has no field \"sku\""),
            ("{\"id\":\"1\",\"sku\":null}", "field \"sku\" is neither a string nor a number"),
            ("{\"id\":[],\"sku\":\"a\"}", "field \"id\" is neither a string nor a number"),
            ("{\"id\":\"1\",\"sku\":\"\"}", "field \"sku\" is empty"),
        ] {
            assert_eq!(picked(line, ["id", "sku"]).unwrap_err().to_string(), expected, "{line}");
        }
        assert!(picked("{\"id\":\"\u{7f}\",\"sku\":\"a\"}", ["id", "sku"]).is_ok());
        let broken = [b"{\"id\":\"".as_slice(), &[0xff], b"\",\"sku\":\"a\"}"].concat();
        let field: Field = "id".parse().unwrap();
        assert!(matches!(pick(&broken, [&field]), Err(BadLine::NotJson { .. })));
        assert!("".parse::<Field>().is_err());
    }
}
