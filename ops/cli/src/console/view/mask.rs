//! Values that nobody sees, by JSON pointer. The text around them stays as it is.

use std::ops::Range;

use serde::de::IgnoredAny;

/// Deeper JSON is no JSON here.
const DEPTH_MAX: usize = 128;
/// Stands in the place of what is masked.
const MASKED: &str = "\"***\"";

/// Is this JSON, and not too deep?
pub(super) fn is_json(text: &str) -> bool {
    let mut depth = 0_usize;
    let (mut in_text, mut escaped) = (false, false);
    for it in text.bytes() {
        match it {
            _ if in_text => {
                in_text = escaped || it != b'"';
                escaped = !escaped && it == b'\\';
            }
            b'"' => in_text = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if DEPTH_MAX < depth {
            return false;
        }
    }
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Places whose values are masked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Masks(Vec<Vec<String>>);

impl Masks {
    pub(in crate::console) fn new(pointers: &[String]) -> Masks {
        let unescaped = |it: &str| it.replace("~1", "/").replace("~0", "~");
        let segments = |it: &String| it.split('/').skip(1).map(unescaped).collect();
        Masks(pointers.iter().map(segments).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Valid JSON with its masked values replaced, and how many these are.
    pub(super) fn masked(&self, json: &str) -> (String, usize) {
        let mut walk = Walk { text: json, at: 0, path: Vec::new(), masks: self, found: Vec::new() };
        walk.value();
        let (mut out, mut from) = (String::with_capacity(json.len()), 0);
        for range in &walk.found {
            out.push_str(&json[from..range.start]);
            out.push_str(MASKED);
            from = range.end;
        }
        out.push_str(&json[from..]);
        (out, walk.found.len())
    }

    fn fit(&self, path: &[String]) -> bool {
        let fits = |(segment, name): (&String, &String)| segment == "*" || segment == name;
        self.0.iter().any(|it| it.len() == path.len() && it.iter().zip(path).all(fits))
    }
}

/// A walk through valid JSON, value by value.
struct Walk<'a> {
    text: &'a str,
    at: usize,
    path: Vec<String>,
    masks: &'a Masks,
    found: Vec<Range<usize>>,
}

impl Walk<'_> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or_default()
    }

    fn space(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn value(&mut self) {
        self.space();
        let (start, known) = (self.at, self.found.len());
        match self.peek() {
            b'{' => self.items(true),
            b'[' => self.items(false),
            b'"' => self.string(),
            _ => {
                while !matches!(self.peek(), b',' | b'}' | b']' | 0) && !self.peek().is_ascii_whitespace() {
                    self.at += 1;
                }
            }
        }
        if !self.path.is_empty() && self.masks.fit(&self.path) {
            self.found.truncate(known);
            self.found.push(start..self.at);
        }
    }

    fn items(&mut self, named: bool) {
        self.at += 1;
        let mut nr = 0_usize;
        loop {
            self.space();
            match self.peek() {
                b'}' | b']' => break,
                b',' => {
                    self.at += 1;
                    continue;
                }
                0 => return,
                _ => {}
            }
            let name = if named { self.name() } else { nr.to_string() };
            self.path.push(name);
            self.value();
            self.path.pop();
            nr += 1;
        }
        self.at += 1;
    }

    /// The name of a member, unescaped; behind its colon afterwards.
    fn name(&mut self) -> String {
        let start = self.at;
        self.string();
        let quoted = &self.text[start..self.at];
        self.space();
        self.at += 1;
        serde_json::from_str(quoted).unwrap_or_else(|_| quoted.to_owned())
    }

    fn string(&mut self) {
        self.at += 1;
        while !matches!(self.peek(), b'"' | 0) {
            self.at += if self.peek() == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(pointers: &[&str], json: &str) -> (String, usize) {
        assert!(is_json(json), "{json}");
        let pointers: Vec<String> = pointers.iter().map(|it| (*it).to_owned()).collect();
        Masks::new(&pointers).masked(json)
    }

    #[test]
    fn every_spelling_of_a_place_is_masked_and_nothing_else_changes() {
        for (pointers, json, expected, count) in [
            (vec!["/a"], r#"{ "a" : 1.0, "b":2}"#, r#"{ "a" : "***", "b":2}"#, 1),
            (vec!["/a"], r#"{"\u0061":{"x":[1,"}"]},"a":null}"#, r#"{"\u0061":"***","a":"***"}"#, 2),
            (vec!["/a/b"], r#"{"a":{"b":"s\"e,c"},"b":1}"#, r#"{"a":{"b":"***"},"b":1}"#, 1),
            (vec!["/*/p"], r#"[{"p":1},{"q":2},{"p":[3]}]"#, r#"[{"p":"***"},{"q":2},{"p":"***"}]"#, 2),
            (vec!["/1"], "[1, 2 ,3]", r#"[1, "***" ,3]"#, 1),
            (vec!["/a", "/a/b"], r#"{"a":{"b":1}}"#, r#"{"a":"***"}"#, 1),
            (vec!["/x~1y/~0"], r#"{"x/y":{"~":true}}"#, r#"{"x/y":{"~":"***"}}"#, 1),
            (vec!["/a"], "[]", "[]", 0),
            (vec!["/a"], "7", "7", 0),
        ] {
            assert_eq!(masked(&pointers, json), (expected.to_owned(), count), "{json}");
        }
    }

    #[test]
    fn what_is_too_deep_is_no_json() {
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(is_json(&deep(DEPTH_MAX)) && !is_json(&deep(DEPTH_MAX + 1)) && !is_json(&deep(1_000_000)));
        assert!(!is_json("{") && !is_json(""));
    }
}
