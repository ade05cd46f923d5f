//! What goes out, whichever way it goes.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use rdkafka::message::{Header as KafkaHeader, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use sekali_schemas::{DecodeError, Headers, cloudevents, topics};

use crate::polled::{Answer, AnsweredRecord};
use crate::{Error, ErrorKind, InvalidEvent};

/// One record to publish. Key, payload and headers arrive byte for byte; null stays null.
///
/// The consumer writes retries and dead letters with it. Producers of events use [`Event`](crate::Event), whose types
/// require a resource id.
#[derive(Clone, PartialEq, Eq)]
pub struct OutboundRecord {
    /// Topic to publish on.
    pub topic: String,
    /// Kafka key; records of one key keep their order.
    pub key: Option<Bytes>,
    /// Kafka value; null is a tombstone.
    pub payload: Option<Bytes>,
    /// Kafka headers, in this order.
    pub headers: Headers,
}

impl OutboundRecord {
    /// The event's data: the payload, or the `data` member of a structured CloudEvent.
    pub(crate) fn data(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        cloudevents::data(&self.headers, self.payload.as_deref())
    }

    /// Refuses what neither Kafka nor the outbox could hold.
    pub(crate) fn check(&self) -> Result<(), Error> {
        topics::check_name(&self.topic)
            .map_err(|error| Error::new(ErrorKind::Kafka, "address a record").because(error))?;
        if self.headers.iter().any(|it| it.name.contains('\0')) {
            return Err(
                Error::new(ErrorKind::Kafka, "write a record").because("a header name contains a NUL character")
            );
        }
        Ok(())
    }

    pub(crate) fn to_kafka(&self, answer: Box<Answer>) -> AnsweredRecord<'_> {
        let mut headers = OwnedHeaders::new_with_capacity(self.headers.len());
        for header in self.headers.iter() {
            headers = headers.insert(KafkaHeader { key: header.name, value: header.value });
        }
        BaseRecord {
            topic: &self.topic,
            partition: None,
            payload: self.payload.as_deref(),
            key: self.key.as_deref(),
            timestamp: None,
            headers: (!self.headers.is_empty()).then_some(headers),
            delivery_opaque: answer,
        }
    }
}

/// What can be published: an [`Event`](crate::Event) or an [`OutboundRecord`], owned or borrowed.
pub trait IntoRecord {
    /// The record that is sent.
    ///
    /// # Errors
    /// An event in structured mode whose payload is not JSON.
    fn into_record(self) -> Result<OutboundRecord, InvalidEvent>;
}

impl IntoRecord for OutboundRecord {
    fn into_record(self) -> Result<OutboundRecord, InvalidEvent> {
        Ok(self)
    }
}

impl IntoRecord for &OutboundRecord {
    fn into_record(self) -> Result<OutboundRecord, InvalidEvent> {
        Ok(self.clone())
    }
}

/// Keys and payloads are customer data: topic and sizes only.
impl fmt::Debug for OutboundRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundRecord")
            .field("topic", &self.topic)
            .field("key_bytes", &self.key.as_ref().map(Bytes::len))
            .field("payload_bytes", &self.payload.as_ref().map(Bytes::len))
            .field("headers", &self.headers)
            .finish()
    }
}
