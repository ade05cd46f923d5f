//! JSON set out in lines, digit for digit as it came: a parser that makes numbers of numbers would change them.

/// Sets out valid JSON.
pub(super) fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let (mut in_text, mut escaped) = (false, false);
    let mut before = ' ';
    for it in json.chars() {
        if in_text {
            out.push(it);
            in_text = escaped || it != '"';
            escaped = !escaped && it == '\\';
            continue;
        }
        match it {
            ' ' | '\t' | '\r' | '\n' => continue,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !matches!(before, '{' | '[') {
                    line(&mut out, depth);
                }
                out.push(it);
            }
            _ => {
                match before {
                    '{' | '[' => line(&mut out, depth),
                    ',' => line(&mut out, depth),
                    ':' => out.push(' '),
                    _ => {}
                }
                out.push(it);
                depth += usize::from(matches!(it, '{' | '['));
                in_text = it == '"';
            }
        }
        before = it;
    }
    out
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn nothing_changes_but_space() {
        let json = r#" {"a" : 12345678901234567890.10e5, "b\"}": [ ], "c":[1,{"d":"x,y:{ \\"}], "e":{} } "#;
        let expected = "{\n  \"a\": 12345678901234567890.10e5,\n  \"b\\\"}\": [],\n  \"c\": [\n    1,\n    {\n      \
             \"d\": \"x,y:{ \\\\\"\n    }\n  ],\n  \"e\": {}\n}";
        assert_eq!(pretty(json), expected);
        assert_eq!(pretty("7"), "7");
    }
}
