//! What a producer gives: an event about a resource.

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use sekali_schemas::cloudevents::{self, Attributes};
use sekali_schemas::events::{EventType, schema_id};
use sekali_schemas::idempotency::{IDEMPOTENCY_KEY, KeyError};
use sekali_schemas::{Header, Headers, HeadersBuilder, IdempotencyKey, topics};
use serde::Serialize;
use uuid::Uuid;

use crate::{IntoRecord, OutboundRecord};

/// What an event is about: a SKU, an order, an account. It becomes the Kafka key; events of one resource keep their
/// order. Never empty.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceId(Bytes);

impl ResourceId {
    /// Takes text or bytes, byte for byte.
    ///
    /// # Errors
    /// It is empty: events without a resource would be spread at random and lose their order.
    pub fn new(id: impl Into<Bytes>) -> Result<ResourceId, InvalidEvent> {
        let id: Bytes = id.into();
        if id.is_empty() { Err(InvalidEvent::NoResource) } else { Ok(ResourceId(id)) }
    }

    /// The bytes of the Kafka key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Resource ids are customer data: the size only.
impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceId({} bytes)", self.0.len())
    }
}

/// How the CloudEvents attributes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// As `ce_` headers; the payload is the data.
    #[default]
    Binary,
    /// In one JSON object that is the payload. The data must be JSON.
    Structured,
}

/// An event about one resource, on its way to a topic.
///
/// It has an idempotency key from the start (a new UUID version 7): consumers act once on it however often it is sent.
/// Whoever repeats the *action*, for instance on a client's retry, sets the key with
/// [`Event::idempotency_key`] to one that repeats too.
#[derive(Clone)]
pub struct Event {
    topic: String,
    resource: ResourceId,
    key: IdempotencyKey,
    ty: String,
    source: String,
    time: Timestamp,
    content_type: String,
    schema: Option<String>,
    mode: Mode,
    payload: Bytes,
    headers: HeadersBuf,
}

type HeadersBuf = Vec<(String, Option<Bytes>)>;

/// CloudEvents source of events whose producer names none.
const SOURCE: &str = "/sekali";
/// What consumers of Debezium's outbox router tell repetitions by.
const ID: &str = "id";
const JSON: &str = "application/json";

impl Event {
    /// A typed event: its type's name becomes the CloudEvents type, the payload is JSON.
    ///
    /// # Errors
    /// The topic's name is illegal, or the payload cannot be written as JSON.
    pub fn of<T: EventType + Serialize>(
        topic: impl Into<String>,
        resource: ResourceId,
        payload: &T,
    ) -> Result<Event, InvalidEvent> {
        let json = serde_json::to_vec(payload).map_err(|_| InvalidEvent::NotJson)?;
        let event = Event::raw(topic, resource, T::NAME, JSON, json)?;
        // Who names no version says the first one.
        Ok(if 1 < T::VERSION { event.schema(schema_id(T::NAME, T::VERSION)) } else { event })
    }

    /// An event from bytes, with its CloudEvents type and media type.
    ///
    /// # Errors
    /// The topic's name is illegal, or the type is empty.
    pub fn raw(
        topic: impl Into<String>,
        resource: ResourceId,
        ty: impl Into<String>,
        content_type: impl Into<String>,
        payload: impl Into<Bytes>,
    ) -> Result<Event, InvalidEvent> {
        let (topic, ty) = (topic.into(), ty.into());
        topics::check_name(&topic)?;
        if ty.is_empty() {
            return Err(InvalidEvent::NoType);
        }
        let key = IdempotencyKey::new(Uuid::now_v7().to_string())?;
        Ok(Event {
            topic,
            resource,
            key,
            ty,
            source: SOURCE.to_owned(),
            time: Timestamp::now(),
            content_type: content_type.into(),
            schema: None,
            mode: Mode::Binary,
            payload: payload.into(),
            headers: HeadersBuf::new(),
        })
    }

    /// Replaces the idempotency key.
    pub fn idempotency_key(mut self, key: IdempotencyKey) -> Event {
        self.key = key;
        self
    }

    /// Says who sends it: a URI reference, for instance `/shop/checkout`.
    ///
    /// # Errors
    /// It is empty.
    pub fn source(mut self, source: impl Into<String>) -> Result<Event, InvalidEvent> {
        self.source = source.into();
        if self.source.is_empty() { Err(InvalidEvent::NoSource) } else { Ok(self) }
    }

    /// Replaces the time, which is the moment the event was made.
    pub fn time(mut self, time: Timestamp) -> Event {
        self.time = time;
        self
    }

    /// Names the schema that the payload follows, a URI: attribute `dataschema`, and of a schema the `$id`.
    pub fn schema(mut self, schema: impl Into<String>) -> Event {
        self.schema = Some(schema.into());
        self
    }

    /// Chooses how the attributes travel.
    pub fn mode(mut self, mode: Mode) -> Event {
        self.mode = mode;
        self
    }

    /// Appends a header, for instance `traceparent`. With feature `opentelemetry` that one is taken from the span in which
    /// the event is enqueued or sent, unless it is given here.
    ///
    /// # Errors
    /// The event writes a header of that name itself.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Result<Event, InvalidEvent> {
        let name = name.into();
        if name == IDEMPOTENCY_KEY || name == ID || name == cloudevents::CONTENT_TYPE || name.starts_with("ce_") {
            return Err(InvalidEvent::OwnHeader);
        }
        self.headers.push((name, Some(value.into())));
        Ok(self)
    }

    /// The key by which consumers recognise a repetition.
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }
}

impl IntoRecord for &Event {
    fn into_record(self) -> Result<OutboundRecord, InvalidEvent> {
        let mut headers = Headers::builder();
        headers.push(IDEMPOTENCY_KEY, Some(self.key.as_str().as_bytes()));
        headers.push(ID, Some(self.key.as_str().as_bytes()));
        let attributes = Attributes {
            id: self.key.as_str().into(),
            source: self.source.as_str().into(),
            ty: self.ty.as_str().into(),
            time: Some(self.time.to_string().into()),
            subject: std::str::from_utf8(self.resource.as_bytes()).ok().map(Into::into),
            data_content_type: Some(self.content_type.as_str().into()),
            data_schema: self.schema.as_deref().map(Into::into),
        };
        let payload = match self.mode {
            Mode::Binary => {
                attributes.write(&mut headers);
                self.payload.clone()
            }
            Mode::Structured => {
                push_all(&mut headers, cloudevents::structured_headers().iter());
                attributes.structured(&self.payload).map_err(|_| InvalidEvent::NotJson)?.into()
            }
        };
        push_all(&mut headers, self.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }));
        #[cfg(feature = "opentelemetry")]
        if self.headers.iter().all(|it| it.0 != crate::trace::TRACEPARENT) {
            crate::trace::push_current(&mut headers);
        }
        Ok(OutboundRecord {
            topic: self.topic.clone(),
            key: Some(self.resource.0.clone()),
            payload: Some(payload),
            headers: headers.build(),
        })
    }
}

impl IntoRecord for Event {
    fn into_record(self) -> Result<OutboundRecord, InvalidEvent> {
        (&self).into_record()
    }
}

fn push_all<'a>(builder: &mut HeadersBuilder, headers: impl Iterator<Item = Header<'a>>) {
    headers.for_each(|it| builder.push(it.name, it.value));
}

/// Payloads and resource ids are customer data.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("topic", &self.topic)
            .field("key", &self.key)
            .field("type", &self.ty)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// What an event cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidEvent {
    /// Nothing it is about.
    #[error("the resource id is empty: events of one resource keep their order, events of none have none")]
    NoResource,
    /// No CloudEvents type.
    #[error("the event type is empty")]
    NoType,
    /// No CloudEvents source.
    #[error("the event source is empty")]
    NoSource,
    /// The payload is not JSON, or cannot be written as JSON.
    #[error("the payload is not json")]
    NotJson,
    /// A header that the event writes itself.
    #[error("headers idempotency-key, id, content-type and ce_* are written by the event: use its own methods")]
    OwnHeader,
    /// An illegal topic name.
    #[error(transparent)]
    Topic(#[from] topics::TopicError),
    /// An unusable idempotency key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl From<InvalidEvent> for crate::Error {
    fn from(error: InvalidEvent) -> crate::Error {
        crate::Error::new(crate::ErrorKind::Kafka, "write an event").because(error)
    }
}

#[cfg(test)]
mod tests;
