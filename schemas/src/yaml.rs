//! Just enough YAML to write a document for people: block style, texts in the quotes of JSON.

/// A node. Members keep their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Yaml {
    Text(String),
    Number(i64),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    pub(crate) fn map<K: Into<String>>(members: impl IntoIterator<Item = (K, Yaml)>) -> Yaml {
        Yaml::Map(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    pub(crate) fn reference(pointer: impl Into<String>) -> Yaml {
        Yaml::map([("$ref", Yaml::Text(pointer.into()))])
    }

    /// The document, with a line end at its end.
    pub(crate) fn write(&self) -> String {
        let mut out = String::new();
        self.block(&mut out, 0);
        out
    }

    /// The node from the beginning of a line on.
    fn block(&self, out: &mut String, indent: usize) {
        match self {
            Yaml::Map(members) if !members.is_empty() => {
                for (nr, (key, value)) in members.iter().enumerate() {
                    // The first member of an element stands behind its hyphen.
                    if nr != 0 || !out.ends_with("- ") {
                        out.push_str(&" ".repeat(indent));
                    }
                    out.push_str(&format!("{}:", plain(key)));
                    value.behind(out, indent + 2);
                }
            }
            Yaml::List(elements) if !elements.is_empty() => {
                for element in elements {
                    out.push_str(&format!("{}- ", " ".repeat(indent)));
                    match element {
                        Yaml::Map(members) if !members.is_empty() => element.block(out, indent + 2),
                        other => out.push_str(&format!("{}\n", other.inline())),
                    }
                }
            }
            other => out.push_str(&format!("{}\n", other.inline())),
        }
    }

    /// The node behind a key.
    fn behind(&self, out: &mut String, indent: usize) {
        let is_block = match self {
            Yaml::Map(members) => !members.is_empty(),
            Yaml::List(elements) => !elements.is_empty(),
            Yaml::Text(_) | Yaml::Number(_) => false,
        };
        if is_block {
            out.push('\n');
            self.block(out, indent);
        } else {
            out.push_str(&format!(" {}\n", self.inline()));
        }
    }

    fn inline(&self) -> String {
        match self {
            Yaml::Text(text) => quoted(text),
            Yaml::Number(number) => number.to_string(),
            Yaml::List(elements) => format!("[{}]", elements.iter().map(Yaml::inline).collect::<Vec<_>>().join(", ")),
            Yaml::Map(members) => {
                let members: Vec<String> =
                    members.iter().map(|(key, it)| format!("{}: {}", quoted(key), it.inline())).collect();
                format!("{{{}}}", members.join(", "))
            }
        }
    }
}

fn quoted(text: &str) -> String {
    // A text of JSON is one of YAML 1.2.
    serde_json::Value::from(text).to_string()
}

/// A key without quotes where it needs none.
fn plain(key: &str) -> String {
    let is_word = key.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
        && key.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.'))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&key.to_ascii_lowercase().as_str());
    if is_word { key.to_owned() } else { quoted(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_written_in_block_style() {
        let text = |it: &str| Yaml::Text(it.to_owned());
        let document = Yaml::map([
            ("a", Yaml::map([("b c", text("x: \"y\"\n")), ("no", Yaml::Number(-1))])),
            (
                "list",
                Yaml::List(vec![Yaml::reference("#/x"), text("z"), Yaml::map([("k", Yaml::List(vec![text("v")]))])]),
            ),
            ("empty", Yaml::List(Vec::new())),
            ("none", Yaml::Map(Vec::new())),
        ]);
        let expected = "a:\n  \"b c\": \"x: \\\"y\\\"\\n\"\n  \"no\": -1\nlist:\n  - \"$ref\": \"#/x\"\n  - \"z\"\n  - k:\n      \
                        - \"v\"\nempty: []\nnone: {}\n";
        assert_eq!(document.write(), expected);
    }
}
