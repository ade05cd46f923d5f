//! CloudEvents 1.0 in its Kafka protocol binding: attributes as `ce_` headers (binary mode), or the whole event as one
//! JSON object (structured mode).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{DecodeError, Headers, HeadersBuilder};

/// Version of the specification.
pub const CE_SPECVERSION: &str = "ce_specversion";
/// Identity within a source.
pub const CE_ID: &str = "ce_id";
/// Who says it, a URI reference.
pub const CE_SOURCE: &str = "ce_source";
/// Type of the event, for instance `stock.adjusted`.
pub const CE_TYPE: &str = "ce_type";
/// When it happened, RFC 3339.
pub const CE_TIME: &str = "ce_time";
/// What it is about: the resource id.
pub const CE_SUBJECT: &str = "ce_subject";
/// Which schema the data follows, a URI.
pub const CE_DATASCHEMA: &str = "ce_dataschema";
/// Media type of the data (binary mode) or of the envelope (structured mode).
pub const CONTENT_TYPE: &str = "content-type";

const STRUCTURED_JSON: &str = "application/cloudevents+json";

/// The context attributes of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Identity within `source`.
    pub id: Cow<'a, str>,
    /// Who says it.
    pub source: Cow<'a, str>,
    /// Type of the event.
    pub ty: Cow<'a, str>,
    /// When it happened, RFC 3339.
    pub time: Option<Cow<'a, str>>,
    /// What it is about.
    pub subject: Option<Cow<'a, str>>,
    /// Media type of the data.
    pub data_content_type: Option<Cow<'a, str>>,
    /// Which schema the data follows.
    pub data_schema: Option<Cow<'a, str>>,
}

/// What an event says about the form of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataKind<'a> {
    /// Type of the event.
    pub ty: Cow<'a, str>,
    /// Which schema the data follows.
    pub data_schema: Option<Cow<'a, str>>,
}

impl<'a> Attributes<'a> {
    /// Reads binary mode; `None` when a required attribute is absent or not text.
    pub fn from_headers(headers: &'a Headers) -> Option<Attributes<'a>> {
        let text = |name| headers.text(name).map(Cow::Borrowed);
        Some(Attributes {
            id: text(CE_ID)?,
            source: text(CE_SOURCE)?,
            ty: text(CE_TYPE)?,
            time: text(CE_TIME),
            subject: text(CE_SUBJECT),
            data_content_type: text(CONTENT_TYPE),
            data_schema: text(CE_DATASCHEMA),
        })
    }

    /// Reads structured mode; `None` when the payload is no CloudEvent in JSON.
    pub fn from_structured(payload: &'a [u8]) -> Option<Attributes<'a>> {
        let envelope: Envelope<'_> = serde_json::from_slice(payload).ok()?;
        let owned = |it: Cow<'_, str>| Cow::Owned(it.into_owned());
        Some(Attributes {
            id: owned(envelope.id),
            source: owned(envelope.source),
            ty: owned(envelope.ty),
            time: envelope.time.map(owned),
            subject: envelope.subject.map(owned),
            data_content_type: envelope.datacontenttype.map(owned),
            data_schema: envelope.dataschema.map(owned),
        })
    }

    /// Appends the headers of binary mode.
    pub fn write(&self, builder: &mut HeadersBuilder) {
        let mut push = |name: &str, value: &str| builder.push(name, Some(value.as_bytes()));
        push(CE_SPECVERSION, "1.0");
        push(CE_ID, &self.id);
        push(CE_SOURCE, &self.source);
        push(CE_TYPE, &self.ty);
        for (name, value) in [
            (CE_TIME, &self.time),
            (CE_SUBJECT, &self.subject),
            (CE_DATASCHEMA, &self.data_schema),
            (CONTENT_TYPE, &self.data_content_type),
        ] {
            if let Some(value) = value {
                push(name, value);
            }
        }
    }

    /// The event in structured mode: the payload, to go with header `content-type: application/cloudevents+json`.
    ///
    /// # Errors
    /// `data` is not JSON.
    pub fn structured(&self, data: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let data: &RawValue = serde_json::from_slice(data).map_err(|error| DecodeError::from_json(&error))?;
        let mut members = BTreeMap::new();
        let text = |it: &str| serde_json::value::to_raw_value(it).map_err(|error| DecodeError::from_json(&error));
        members.insert("specversion", text("1.0")?);
        members.insert("id", text(&self.id)?);
        members.insert("source", text(&self.source)?);
        members.insert("type", text(&self.ty)?);
        let optional = [
            ("time", &self.time),
            ("subject", &self.subject),
            ("datacontenttype", &self.data_content_type),
            ("dataschema", &self.data_schema),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                members.insert(name, text(value)?);
            }
        }
        members.insert("data", data.to_owned());
        serde_json::to_vec(&members).map_err(|error| DecodeError::from_json(&error))
    }
}

impl<'a> DataKind<'a> {
    /// Reads either mode; `payload` is what the consumer sees of it, without a registry's prefix. `None` when nothing
    /// says a type.
    pub fn of(headers: &'a Headers, payload: &'a [u8]) -> Option<DataKind<'a>> {
        if is_structured(headers) {
            let Attributes { ty, data_schema, .. } = Attributes::from_structured(payload)?;
            return Some(DataKind { ty, data_schema });
        }
        let text = |name| headers.text(name).map(Cow::Borrowed);
        Some(DataKind { ty: text(CE_TYPE)?, data_schema: text(CE_DATASCHEMA) })
    }
}

/// The `content-type` header of structured mode.
pub fn structured_headers() -> Headers {
    Headers::builder().text(CONTENT_TYPE, STRUCTURED_JSON).build()
}

/// Whether the record holds a whole event as JSON.
pub fn is_structured(headers: &Headers) -> bool {
    headers.text(CONTENT_TYPE).is_some_and(|it| {
        let media_type = it.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case(STRUCTURED_JSON)
    })
}

/// `(source, id)` of a structured event.
pub(crate) fn structured_identity(payload: &[u8]) -> Option<(String, String)> {
    let attributes = Attributes::from_structured(payload)?;
    Some((attributes.source.into_owned(), attributes.id.into_owned()))
}

/// The event's data: the payload, or the `data` member of a structured event.
///
/// # Errors
/// The payload is null, or a structured event whose envelope cannot be read.
pub fn data<'a>(headers: &Headers, payload: Option<&'a [u8]>) -> Result<Cow<'a, [u8]>, DecodeError> {
    let payload = payload.ok_or(DecodeError::new("is null"))?;
    if is_structured(headers) { structured_data(payload) } else { Ok(Cow::Borrowed(payload)) }
}

/// The `data` member of a structured event.
fn structured_data(payload: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    let envelope: Envelope<'_> = serde_json::from_slice(payload).map_err(|error| DecodeError::from_json(&error))?;
    match envelope.data {
        Some(data) => Ok(Cow::Borrowed(data.get().as_bytes())),
        None => Err(DecodeError::new("is a CloudEvent without JSON data")),
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    ty: Cow<'a, str>,
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    subject: Option<Cow<'a, str>>,
    #[serde(borrow)]
    datacontenttype: Option<Cow<'a, str>>,
    #[serde(borrow)]
    dataschema: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes<'static> {
        Attributes {
            id: "1".into(),
            source: "/shop".into(),
            ty: "stock.adjusted".into(),
            time: Some("2026-01-01T00:00:00Z".into()),
            subject: None,
            data_content_type: Some("application/json".into()),
            data_schema: Some("urn:sekali:schema:stock.adjusted:v2".into()),
        }
    }

    #[test]
    fn both_modes_read_back() {
        let mut builder = Headers::builder();
        attributes().write(&mut builder);
        let headers = builder.build();
        assert_eq!(Attributes::from_headers(&headers), Some(attributes()));
        assert!(!is_structured(&headers));
        let payload = attributes().structured(br#"{"a": 1}"#).unwrap();
        assert_eq!(Attributes::from_structured(&payload), Some(attributes()));
        assert_eq!(&*structured_data(&payload).unwrap(), br#"{"a": 1}"#);
        assert!(is_structured(&structured_headers()));
        let kind = DataKind { ty: attributes().ty, data_schema: attributes().data_schema };
        assert_eq!(DataKind::of(&headers, b""), Some(kind.clone()));
        assert_eq!(DataKind::of(&structured_headers(), &payload), Some(kind));
        assert_eq!(DataKind::of(&Headers::default(), &payload), None);
    }

    #[test]
    fn what_is_no_event_is_said() {
        assert_eq!(Attributes::from_structured(b"[]"), None);
        assert!(structured_data(br#"{"id":"1","source":"s","type":"t"}"#).is_err());
        assert!(attributes().structured(b"not json").is_err());
        assert_eq!(Attributes::from_headers(&Headers::builder().text(CE_ID, "1").build()), None);
    }
}
