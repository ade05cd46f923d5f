//! Just enough reading of Rust: what is code, and where a block ends.

use std::ops::Range;

/// A Rust source whose comments and literals are blanked out, byte for byte, so that offsets and lines stay.
pub(crate) struct Rust {
    pub(crate) code: String,
    tests: Vec<Range<usize>>,
}

/// A function with its place.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

impl Rust {
    pub(crate) fn read(text: &str) -> Rust {
        let code = blank(text);
        let tests = test_blocks(&code);
        Rust { code, tests }
    }

    /// Whether an offset lies in an item under `#[cfg(test)]`.
    pub(crate) fn is_test(&self, offset: usize) -> bool {
        self.tests.iter().any(|it| it.contains(&offset))
    }

    pub(crate) fn line(&self, offset: usize) -> usize {
        1 + self.code[..offset].matches('\n').count()
    }

    /// Offsets of an exact piece of code.
    pub(crate) fn find(&self, piece: &str) -> Vec<usize> {
        self.code.match_indices(piece).map(|(offset, _)| offset).collect()
    }

    /// Identifiers and keywords with their offsets.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut rest = 0;
        std::iter::from_fn(move || {
            let start = rest + self.code[rest..].find(is_word)?;
            let length = self.code[start..].find(|it| !is_word(it)).unwrap_or(self.code.len() - start);
            rest = start + length;
            Some((start, &self.code[start..rest]))
        })
    }

    /// The word that follows another one, such as the name after `struct`.
    pub(crate) fn names_after(&self, keywords: &[&str]) -> Vec<(usize, &str)> {
        let words: Vec<_> = self.words().collect();
        let pairs = words.windows(2).filter(|pair| keywords.contains(&pair[0].1) && self.is_apart(pair[0], pair[1].0));
        pairs.map(|pair| pair[1]).collect()
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let found = self.names_after(&["fn"]).into_iter().filter_map(|(offset, name)| {
            let end = block_end(&self.code, offset)?;
            let lines = self.line(end) - self.line(offset) + 1;
            Some(Function { name: name.to_owned(), line: self.line(offset), lines })
        });
        found.collect()
    }

    /// Nothing but space between a word and an offset.
    fn is_apart(&self, (start, word): (usize, &str), next: usize) -> bool {
        self.code[start + word.len()..next].trim().is_empty()
    }
}

fn is_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

fn test_blocks(code: &str) -> Vec<Range<usize>> {
    let starts = code.match_indices("#[cfg(test)]").map(|(offset, _)| offset);
    starts.map(|start| start..block_end(code, start + "#[cfg(test)]".len()).unwrap_or(code.len())).collect()
}

/// Offset of the brace that ends the first block after `start`; `None` when the item ends with a semicolon first.
fn block_end(code: &str, start: usize) -> Option<usize> {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (offset, it) in code[start..].char_indices() {
        match it {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            ';' if braces == 0 && others == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(start + offset);
                }
            }
            _ => {}
        }
    }
    None
}

/// Replaces every byte of comments, strings and characters by a space.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let length = literal(&bytes[at..], at.checked_sub(1).map(|it| bytes[it]));
        for byte in &mut out[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length.max(1);
    }
    String::from_utf8(out).expect("whole literals and comments were blanked")
}

/// Length of the comment or literal at the beginning; 0 when there is none.
fn literal(rest: &[u8], before: Option<u8>) -> usize {
    let after_word = before.is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|it| *it == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => string(rest, 0),
        [b'r' | b'b' | b'c', ..] if !after_word => prefixed(rest),
        [b'\'', ..] => character(rest),
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// A string whose opening quote is at `open`.
fn string(rest: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `b"…"`, `b'…'`, `br"…"`, `c"…"`; 0 for a word that begins like one.
fn prefixed(rest: &[u8]) -> usize {
    let raw = rest.iter().take(2).position(|it| *it == b'r');
    let prefix = match rest {
        [b'b', b'\'', ..] => return 1 + character(&rest[1..]),
        [b'b' | b'c', b'r', ..] => 2,
        _ => 1,
    };
    let hashes = rest[prefix..].iter().take_while(|it| **it == b'#').count();
    match (raw.filter(|it| *it < prefix), rest.get(prefix + hashes)) {
        (None, Some(b'"')) if hashes == 0 => string(rest, prefix),
        (Some(_), Some(b'"')) => {
            let end = [&b"\""[..], &b"#".repeat(hashes)].concat();
            let start = prefix + hashes + 1;
            rest[start..].windows(end.len()).position(|it| it == end).map_or(rest.len(), |it| start + it + end.len())
        }
        _ => 0,
    }
}

/// A character, or 0 for a lifetime.
fn character(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', _, tail @ ..] => tail.iter().position(|it| *it == b'\'').map_or(0, |it| it + 4),
        _ => {
            let text = String::from_utf8_lossy(&rest[1..rest.len().min(8)]).into_owned();
            let mut characters = text.chars();
            match (characters.next(), characters.next()) {
                (Some(it), Some('\'')) => 2 + it.len_utf8(),
                _ => 0,
            }
        }
    }
}

#[test]
fn comments_and_literals_are_no_code() {
    let cases = [
        ("a // unwrap()\nb", "a            \nb"),
        ("a /* x /* y */ z */ b", "a                     b"),
        (r#"f("a\"b") + 1"#, "f(      ) + 1"),
        (r##"r#"a"b"# x"##, "          x"),
        ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
        (r"('{', '\'', '\u{7d}', b'}') x", "(   ,     ,         ,     ) x"),
        ("b\"{\" br\"{\" bar r2", "                bar r2"),
    ];
    for (text, expected) in cases {
        let code = blank(text);
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>(),
            expected.split_whitespace().collect::<Vec<_>>(),
            "{text}"
        );
        assert_eq!(code.len(), text.len(), "{text}");
    }
}

#[test]
fn functions_are_measured_from_name_to_brace() {
    let rust =
        Rust::read("trait T { fn a(x: [u8; 2]); }\nfn b(\n) -> u8\n{\n  1\n}\n#[cfg(test)]\nmod tests { fn c() {} }");
    let found: Vec<_> = rust.functions().into_iter().map(|it| (it.name, it.line, it.lines)).collect();
    assert_eq!(found, [("b".to_owned(), 2, 5), ("c".to_owned(), 8, 1)]);
    assert!(rust.is_test(rust.find("fn c")[0]) && !rust.is_test(rust.find("fn b")[0]));
}
