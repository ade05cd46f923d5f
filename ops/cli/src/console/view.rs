//! Payloads as people see them: set out, masked, or as bytes.

mod mask;
mod pretty;

use sekali_schemas::confluent;

pub(super) use mask::Masks;

/// Longest text that a page shows, in bytes; the rest is in the download.
const SHOWN_BYTES_MAX: usize = 256 * 1024;
const HEX_BYTES_MAX: usize = 16 * 1024;
const HEX_WIDTH: usize = 16;

/// A payload without what nobody may see.
pub(super) enum Payload {
    /// There is none.
    Null,
    /// The bytes, and how many values are masked in them.
    Bytes(Vec<u8>, usize),
    /// It cannot be masked, since it is no JSON.
    Withheld,
}

/// What a page shows.
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) kind: &'static str,
    /// Id of the schema in a registry, before the payload.
    pub(super) schema: Option<u32>,
    pub(super) is_cut: bool,
}

/// A payload's text as JSON, behind the prefix of a registry.
fn split(payload: &[u8]) -> (usize, Option<u32>, Option<&str>) {
    let json = |bytes| std::str::from_utf8(bytes).ok().filter(|it| mask::is_json(it));
    if let Some((schema, rest)) = confluent::read(payload)
        && let Some(text) = json(rest)
    {
        return (payload.len() - rest.len(), Some(schema), Some(text));
    }
    (0, None, json(payload))
}

impl Masks {
    /// The payload as it may be seen.
    pub(super) fn apply(&self, payload: Option<&[u8]>) -> Payload {
        let Some(payload) = payload else { return Payload::Null };
        if self.is_empty() {
            return Payload::Bytes(payload.to_vec(), 0);
        }
        let (prefix, _, json) = split(payload);
        let Some(json) = json else { return Payload::Withheld };
        let (masked, count) = self.masked(json);
        Payload::Bytes([&payload[..prefix], masked.as_bytes()].concat(), count)
    }
}

/// A payload for a page; `as_bytes` for a dump.
pub(super) fn shown(payload: &[u8], as_bytes: bool) -> Shown {
    if as_bytes {
        let cut = &payload[..payload.len().min(HEX_BYTES_MAX)];
        return Shown { text: hex(cut), kind: "bytes", schema: None, is_cut: cut.len() < payload.len() };
    }
    let (_, schema, json) = split(payload);
    let (text, kind) = match (json, std::str::from_utf8(payload)) {
        (Some(json), _) => (pretty::pretty(json), "JSON"),
        (None, Ok(text)) => (text.to_owned(), "text"),
        (None, Err(_)) => return shown(payload, true),
    };
    let mut end = text.len().min(SHOWN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Shown { is_cut: end < text.len(), text: text[..end].to_owned(), kind, schema }
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (nr, line) in bytes.chunks(HEX_WIDTH).enumerate() {
        out.push_str(&format!("{:08x} ", nr * HEX_WIDTH));
        for at in 0..HEX_WIDTH {
            out.push_str(&line.get(at).map_or("   ".to_owned(), |it| format!(" {it:02x}")));
        }
        out.push_str("  ");
        out.extend(line.iter().map(|it| if it.is_ascii_graphic() || *it == b' ' { char::from(*it) } else { '.' }));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_dumped_and_cut_aloud() {
        assert_eq!(hex(b"ab\0"), format!("00000000  61 62 00{}  ab.\n", "   ".repeat(13)));
        let long = shown(&[0xff; HEX_BYTES_MAX + 1], false);
        assert!(long.is_cut && long.kind == "bytes");
        let text = shown("ü".repeat(SHOWN_BYTES_MAX).as_bytes(), false);
        assert!(text.is_cut && text.kind == "text");
    }

    #[test]
    fn behind_the_prefix_of_a_registry_is_json_and_it_is_masked() {
        let payload = confluent::write(7, br#"{"a":1}"#);
        let shown = shown(&payload, false);
        assert_eq!((shown.schema, shown.kind, shown.text.as_str()), (Some(7), "JSON", "{\n  \"a\": 1\n}"));
        let masks = Masks::new(&["/a".to_owned()]);
        let Payload::Bytes(masked, 1) = masks.apply(Some(&payload)) else { panic!("one value is masked") };
        assert_eq!(masked, confluent::write(7, br#"{"a":"***"}"#));
        assert!(matches!(masks.apply(Some(b"no json")), Payload::Withheld));
        assert!(matches!(masks.apply(None), Payload::Null));
    }
}
