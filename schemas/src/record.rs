//! What Kafka holds.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{DecodeError, Headers, cloudevents, confluent};

/// One Kafka record with the place it was read from.
#[derive(Clone)]
pub struct Record {
    /// Topic it was read from: a source or a retry topic.
    pub topic: Arc<str>,
    /// Partition of that topic.
    pub partition: i32,
    /// Its own offset there.
    pub offset: i64,
    /// Milliseconds since the Unix epoch, as the broker reports it; `None` for records that have none.
    pub timestamp_ms: Option<i64>,
    /// Kafka key: the resource id. Null stays null.
    pub key: Option<Bytes>,
    /// Kafka value. Null (a tombstone) stays null.
    pub payload: Option<Bytes>,
    /// Kafka headers.
    pub headers: Headers,
}

impl Record {
    /// The event's data: the payload, or the `data` member of a structured CloudEvent.
    ///
    /// # Errors
    /// The payload is null, or a structured event whose envelope cannot be read.
    pub fn data(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        self.data_of(self.payload.as_deref())
    }

    /// The data of what was left of the payload.
    pub(crate) fn data_of<'a>(&'a self, payload: Option<&'a [u8]>) -> Result<Cow<'a, [u8]>, DecodeError> {
        cloudevents::data(&self.headers, payload)
    }

    /// The same record without the prefix of a schema registry. Its payload must have one.
    pub(crate) fn without_prefix(&self) -> Record {
        let payload = self.payload.as_ref().map(|it| it.slice(confluent::PREFIX_BYTES..));
        Record { payload, ..self.clone() }
    }
}

/// Keys and payloads are customer data: coordinates and sizes only.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .field("payload_bytes", &self.payload.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}
