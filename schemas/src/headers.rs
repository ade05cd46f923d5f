//! Record headers: an ordered list of name and optional bytes.

use std::fmt;

use bytes::Bytes;

/// One header as it stands in the record. A null value is `None`, an empty one `Some(b"")`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Name; may be empty and may occur more than once.
    pub name: &'a str,
    /// Raw bytes, decoded by whoever needs text.
    pub value: Option<&'a [u8]>,
}

/// The headers of one record, in their order, byte for byte.
///
/// All names and values of a record (in the consumer: of a whole fetch) share one buffer, so that a record costs one
/// allocation here however many headers it has.
#[derive(Clone, Default)]
pub struct Headers {
    buffer: Bytes,
    spans: Box<[Span]>,
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    name_len: u32,
    /// `NULL` for a null value.
    value_len: u32,
}

const NULL: u32 = u32::MAX;

impl Headers {
    /// Starts an owned list.
    pub fn builder() -> HeadersBuilder {
        HeadersBuilder::default()
    }

    /// Number of headers.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the record has no header at all.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Every header in record order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Header<'_>> {
        self.spans.iter().map(|span| self.header(span))
    }

    /// The value of the last header of that name: `None` when absent, `Some(None)` when it is null.
    pub fn get(&self, name: &str) -> Option<Option<&[u8]>> {
        self.spans.iter().rev().find(|it| self.name_bytes(it) == name.as_bytes()).map(|it| self.value(it))
    }

    /// The values of every header of that name, in order.
    pub fn values<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a, 'n> {
        self.spans.iter().filter(move |it| self.name_bytes(it) == name.as_bytes()).map(|it| self.value(it))
    }

    /// The value of the last header of that name as text; `None` when absent, null or not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).flatten().and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Total bytes of names and values.
    pub fn size_bytes(&self) -> usize {
        let sizes = self
            .spans
            .iter()
            .map(|it| it.name_len as usize + if it.value_len == NULL { 0 } else { it.value_len as usize });
        sizes.sum()
    }

    fn header(&self, span: &Span) -> Header<'_> {
        // Names went in as text. Only who lists them pays for this check; searches compare bytes.
        let name = std::str::from_utf8(self.name_bytes(span)).unwrap_or_default();
        Header { name, value: self.value(span) }
    }

    fn name_bytes(&self, span: &Span) -> &[u8] {
        &self.buffer[span.start as usize..(span.start + span.name_len) as usize]
    }

    fn value(&self, span: &Span) -> Option<&[u8]> {
        let start = (span.start + span.name_len) as usize;
        (span.value_len != NULL).then(|| &self.buffer[start..start + span.value_len as usize])
    }
}

/// Names and sizes only: header values are customer data.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|it| (it.name, it.value.map(<[u8]>::len)))).finish()
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Headers) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Headers {}

impl<'a> FromIterator<Header<'a>> for Headers {
    fn from_iter<T: IntoIterator<Item = Header<'a>>>(headers: T) -> Headers {
        let mut builder = Headers::builder();
        for header in headers {
            builder.push(header.name, header.value);
        }
        builder.build()
    }
}

/// Collects headers in order.
#[derive(Default)]
pub struct HeadersBuilder {
    buffer: Vec<u8>,
    spans: Vec<Span>,
}

impl HeadersBuilder {
    /// Appends one header; names need not be unique.
    pub fn push(&mut self, name: &str, value: Option<&[u8]>) {
        push(&mut self.buffer, &mut self.spans, name, value);
    }

    /// Appends one text header.
    pub fn text(mut self, name: &str, value: &str) -> HeadersBuilder {
        self.push(name, Some(value.as_bytes()));
        self
    }

    /// Ends the list.
    pub fn build(self) -> Headers {
        Headers { buffer: self.buffer.into(), spans: self.spans.into() }
    }
}

fn push(buffer: &mut Vec<u8>, spans: &mut Vec<Span>, name: &str, value: Option<&[u8]>) {
    // Kafka bounds a record far below 4 GiB, so that these conversions cannot lose bits.
    let start = buffer.len() as u32;
    buffer.extend_from_slice(name.as_bytes());
    buffer.extend_from_slice(value.unwrap_or_default());
    let value_len = value.map_or(NULL, |it| it.len() as u32);
    spans.push(Span { start, name_len: name.len() as u32, value_len });
}

/// Lays keys, payloads and headers of many records into one buffer, which they then share.
///
/// Usage: [`Arena::add`] for each record, then [`Arena::freeze`] once.
#[derive(Default)]
pub struct Arena {
    buffer: Vec<u8>,
    records: Vec<Laid>,
}

struct Laid {
    key: Option<(u32, u32)>,
    payload: Option<(u32, u32)>,
    spans: Box<[Span]>,
}

/// The variable-sized parts of one record.
pub struct Parts {
    /// Kafka key.
    pub key: Option<Bytes>,
    /// Kafka value.
    pub payload: Option<Bytes>,
    /// Kafka headers.
    pub headers: Headers,
}

impl Arena {
    /// Bytes laid so far.
    pub fn len_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Copies one record's parts behind those that are there.
    pub fn add<'a>(
        &mut self,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = Header<'a>>,
    ) {
        let key = key.map(|it| lay(&mut self.buffer, it));
        let payload = payload.map(|it| lay(&mut self.buffer, it));
        let mut spans = Vec::with_capacity(headers.len());
        for header in headers {
            push(&mut self.buffer, &mut spans, header.name, header.value);
        }
        self.records.push(Laid { key, payload, spans: spans.into() });
    }

    /// Hands out the parts in the order they were added. `held` is dropped when nobody has any of them any more.
    pub fn freeze(self, held: impl Send + 'static) -> impl Iterator<Item = Parts> {
        let buffer = Bytes::from_owner(Shared { buffer: self.buffer, _held: held });
        self.records.into_iter().map(move |laid| {
            let slice = |(start, len): (u32, u32)| buffer.slice(start as usize..(start + len) as usize);
            Parts {
                key: laid.key.map(slice),
                payload: laid.payload.map(slice),
                headers: Headers { buffer: buffer.clone(), spans: laid.spans },
            }
        })
    }
}

struct Shared<H> {
    buffer: Vec<u8>,
    _held: H,
}

impl<H> AsRef<[u8]> for Shared<H> {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

fn lay(buffer: &mut Vec<u8>, bytes: &[u8]) -> (u32, u32) {
    let start = buffer.len() as u32;
    buffer.extend_from_slice(bytes);
    (start, bytes.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_repeats_nulls_and_any_bytes() {
        let listed = [
            Header { name: "a", value: Some(b"1") },
            Header { name: "", value: Some(&[0xC3, 0x28]) },
            Header { name: "a", value: None },
            Header { name: "b", value: Some(b"") },
        ];
        let headers: Headers = listed.into_iter().collect();
        assert!(headers.iter().eq(listed));
        assert_eq!(headers.get("a"), Some(None), "the last one counts");
        assert_eq!(headers.get(""), Some(Some(&[0xC3, 0x28][..])));
        assert_eq!(headers.text(""), None);
        assert_eq!(headers.get("b"), Some(Some(&b""[..])));
        assert_eq!(headers.get("c"), None);
        assert_eq!(headers.size_bytes(), 6);
    }

    #[test]
    fn records_of_an_arena_do_not_see_each_other() {
        let mut arena = Arena::default();
        arena.add(Some(b"k1"), Some(b"v1"), [Header { name: "h", value: Some(b"x") }].into_iter());
        arena.add(None, None, [].into_iter());
        arena.add(Some(b""), Some(b"v3"), [Header { name: "h", value: None }].into_iter());
        let held = std::sync::Arc::new(());
        let parts: Vec<Parts> = arena.freeze(held.clone()).collect();
        assert_eq!((parts[0].key.as_deref(), parts[0].payload.as_deref()), (Some(&b"k1"[..]), Some(&b"v1"[..])));
        assert_eq!(parts[0].headers.text("h"), Some("x"));
        assert!(parts[1].key.is_none() && parts[1].payload.is_none() && parts[1].headers.is_empty());
        assert_eq!(parts[2].key.as_deref(), Some(&b""[..]));
        assert_eq!(parts[2].headers.get("h"), Some(None));
        let last = parts.into_iter().next();
        assert_eq!(std::sync::Arc::strong_count(&held), 2, "one part is enough");
        drop(last);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }

    #[test]
    fn debug_shows_no_values() {
        let headers = Headers::builder().text("secret", "hunter2").build();
        assert_eq!(format!("{headers:?}"), r#"{"secret": Some(7)}"#);
    }
}
