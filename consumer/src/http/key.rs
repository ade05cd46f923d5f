use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use sekali_schemas::IdempotencyKey;
use sekali_schemas::idempotency::IDEMPOTENCY_KEY;

use super::Problem;

/// The idempotency key of a request, from header `Idempotency-Key`: a string of Structured Fields (RFC 9651) such as
/// `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, with its quotes. The bare form that many clients send, without quotes, is
/// the same key. Whatever is no key is answered with 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHeader(pub IdempotencyKey);

/// Longest key. The draft leaves it to the server; a UUID has 36.
const CHARACTERS_MAX: usize = 255;

impl<S: Sync> FromRequestParts<S> for KeyHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<KeyHeader, Problem> {
        read(&parts.headers).map(KeyHeader)
    }
}

fn read(headers: &HeaderMap) -> Result<IdempotencyKey, Problem> {
    let refuse = |kind, detail: &str| {
        Problem::new(StatusCode::BAD_REQUEST, kind, "Idempotency-Key is missing or unusable", detail)
    };
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        let detail =
            "this request needs header Idempotency-Key, for instance a new UUID in double quotes for every new action";
        return Err(refuse("key-missing", detail));
    };
    if values.next().is_some() {
        return Err(refuse("key-malformed", "header Idempotency-Key is there more than once"));
    }
    let text = value.to_str().ok().and_then(parse);
    let text = text.ok_or_else(|| {
        refuse(
            "key-malformed",
            "header Idempotency-Key is neither a quoted string of visible ascii and spaces nor one word",
        )
    })?;
    if text.is_empty() {
        return Err(refuse("key-malformed", "header Idempotency-Key is empty"));
    }
    if CHARACTERS_MAX < text.len() {
        return Err(refuse("key-malformed", "header Idempotency-Key is longer than 255 characters"));
    }
    IdempotencyKey::new(text).map_err(|_| refuse("key-malformed", "header Idempotency-Key is no key"))
}

/// The text of a quoted string or of a bare word; `None` for anything else.
fn parse(value: &str) -> Option<String> {
    let value = value.trim_matches([' ', '\t']);
    let Some(quoted) = value.strip_prefix('"') else {
        let is_word = |it: char| it.is_ascii_graphic() && !matches!(it, '"' | '\\' | ',' | ';');
        return value.chars().all(is_word).then(|| value.to_owned());
    };
    let mut text = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => break,
            '\\' => text.push(rest.next().filter(|it| matches!(it, '"' | '\\'))?),
            it if it.is_ascii_graphic() || it == ' ' => text.push(it),
            _ => return None,
        }
    }
    // Parameters, of which the draft knows none, are to be ignored.
    let after = rest.as_str().trim_start_matches(' ');
    (after.is_empty() || after.starts_with(';')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&[u8]]) -> Result<String, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("Idempotency-Key", axum::http::HeaderValue::from_bytes(value).unwrap());
        }
        read(&headers).map(|it| it.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_keys_are_read() {
        let long = "k".repeat(255);
        let cases: [(&str, &str); 9] = [
            ("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
            ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
            ("order:7/a+b=c", "order:7/a+b=c"),
            (" \"a b\" ", "a b"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            ("\"a\";version=2", "a"),
            ("\"a\" ;x", "a"),
            ("\"a,b;c\"", "a,b;c"),
            (&long, &long),
        ];
        for (value, expected) in cases {
            assert_eq!(of(&[value.as_bytes()]).as_deref(), Ok(expected), "{value}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_400() {
        let long = format!("\"{}\"", "k".repeat(256));
        let cases: [&[u8]; 14] = [
            b"",
            b"  ",
            b"\"\"",
            b"\"a",
            b"\"",
            b"a\"",
            b"\"a\"b",
            b"\"a\", \"b\"",
            b"a, b",
            b"a b",
            b"\"a\\n\"",
            b"\"\xC3\xA9\"",
            b"\xC3\xA9",
            long.as_bytes(),
        ];
        for value in cases {
            let problem = of(&[value]).unwrap_err();
            let json = serde_json::to_value(&problem).unwrap();
            assert_eq!((&json["status"], &json["type"]), (&400.into(), &"urn:sekali:problem:key-malformed".into()));
        }
        let problem = serde_json::to_value(of(&[]).unwrap_err()).unwrap();
        assert_eq!((&problem["status"], &problem["type"]), (&400.into(), &"urn:sekali:problem:key-missing".into()));
        assert!(of(&[b"a", b"b"]).is_err() && of(&[b"a", b"a"]).is_err(), "one header, one key");
    }
}
