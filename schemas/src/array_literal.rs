//! Headers as the text of PostgreSQL arrays: there are no ragged arrays, so that the headers of many records travel as
//! texts, and a cast reads them.

use crate::{Header, Headers};

/// Names as `{"a","b"}`, for a cast to `text[]`.
pub fn names(headers: &Headers) -> String {
    array(headers, |header, text| {
        text.push('"');
        for character in header.name.chars() {
            if matches!(character, '"' | '\\') {
                text.push('\\');
            }
            text.push(character);
        }
        text.push('"');
    })
}

/// Values as `{"\\x00ff",NULL}`, for a cast to `bytea[]`.
pub fn values(headers: &Headers) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    array(headers, |header, text| match header.value {
        None => text.push_str("NULL"),
        Some(value) => {
            text.push_str(r#""\\x"#);
            for byte in value {
                text.push(char::from(DIGITS[usize::from(byte >> 4)]));
                text.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
            text.push('"');
        }
    })
}

fn array(headers: &Headers, mut element: impl FnMut(Header<'_>, &mut String)) -> String {
    let mut text = String::with_capacity(2 + 2 * headers.size_bytes());
    text.push('{');
    for (index, header) in headers.iter().enumerate() {
        if 0 < index {
            text.push(',');
        }
        element(header, &mut text);
    }
    text.push('}');
    text
}
