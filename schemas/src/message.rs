//! What a handler gets.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::control::{Control, ControlError, Replay};
use crate::idempotency::KeyError;
use crate::{Headers, IdempotencyKey, Record, confluent, fingerprint};

/// Where a message was first delivered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Source topic.
    pub topic: Arc<str>,
    /// Partition of the source topic.
    pub partition: i32,
    /// Offset there.
    pub offset: i64,
    /// Kafka timestamp, ms since the Unix epoch.
    pub timestamp_ms: Option<i64>,
}

/// A message as its handler sees it: identity, attempt, and where it was first published, whichever retry topic it
/// came back through. Cloning copies a pointer.
#[derive(Clone)]
pub struct Message(Arc<Inner>);

struct Inner {
    id: IdempotencyKey,
    attempt: u32,
    due_at_ms: Option<i64>,
    first_failed_at_ms: Option<i64>,
    origin: Origin,
    replay: Option<Replay>,
    fingerprint: i64,
    /// Schema that the payload's prefix names, when such prefixes are read.
    schema_id: Option<u32>,
    record: Record,
}

/// How a record is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAs<'a> {
    /// From a source topic: attempt 1, whatever its headers say.
    Source,
    /// From a retry topic of this group.
    Retry {
        /// The group that reads.
        group: &'a str,
    },
}

/// What may stand before the data in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// Nothing: a payload that begins like a prefix is data that begins so.
    #[default]
    Plain,
    /// The prefix of a schema registry; a payload without one is data.
    Registry,
}

/// Why a record cannot become a message. Its dead letter keeps the raw bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// No usable idempotency key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A retry record without readable control headers.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A retry record of another group.
    #[error("the record belongs to the retry topic of another group")]
    ForeignGroup,
    /// Headers that the client library cannot hand out, such as a name that is not UTF-8.
    #[error("the record's headers cannot be read")]
    Headers,
}

impl Message {
    /// Reads a record. `own_key` is the handler's own function of the record, asked before the headers.
    ///
    /// # Errors
    /// See [`Invalid`]; the record comes back with the reason, nothing of it is lost.
    pub fn read(
        record: Record,
        read_as: ReadAs<'_>,
        own_key: impl FnOnce(&Record) -> Option<Result<IdempotencyKey, KeyError>>,
    ) -> Result<Message, (Invalid, Box<Record>)> {
        Message::read_framed(record, read_as, Framing::Plain, own_key)
    }

    /// As [`Message::read`], where payloads may have a prefix: it is no part of the data, and `own_key` does not see it.
    ///
    /// # Errors
    /// As [`Message::read`].
    pub fn read_framed(
        record: Record,
        read_as: ReadAs<'_>,
        framing: Framing,
        own_key: impl FnOnce(&Record) -> Option<Result<IdempotencyKey, KeyError>>,
    ) -> Result<Message, (Invalid, Box<Record>)> {
        let control = match read_as {
            ReadAs::Source => None,
            ReadAs::Retry { group } => match Control::read(&record.headers) {
                Ok(control) if control.group == group => Some(control),
                Ok(_) => return Err((Invalid::ForeignGroup, Box::new(record))),
                Err(error) => return Err((error.into(), Box::new(record))),
            },
        };
        let prefix = match framing {
            Framing::Plain => None,
            Framing::Registry => record.payload.as_deref().and_then(confluent::read),
        };
        let schema_id = prefix.map(|it| it.0);
        let without_prefix = schema_id.map(|_| record.without_prefix());
        let seen = without_prefix.as_ref().unwrap_or(&record);
        // Under which key a dead letter was decided is not asked again of a record that could not say it.
        let given = control.as_ref().and_then(|it| it.replay?.key).map(IdempotencyKey::from_uuid);
        let own = || own_key(seen).unwrap_or_else(|| IdempotencyKey::of_record(seen));
        let id = match given.map_or_else(own, Ok) {
            Ok(id) => id,
            Err(error) => return Err((error.into(), Box::new(record))),
        };
        Ok(Message::new(id, control, schema_id, record))
    }

    fn new(id: IdempotencyKey, control: Option<Control>, schema_id: Option<u32>, record: Record) -> Message {
        let fingerprint = fingerprint(record.payload.as_deref());
        let replay = control.as_ref().and_then(|it| it.replay);
        let (attempt, due_at_ms, first_failed_at_ms, origin) = match control {
            Some(it) => (it.attempt, it.due_at_ms, Some(it.first_failed_at_ms), it.origin),
            None => (1, None, None, Origin::of(&record)),
        };
        let inner =
            Inner { id, attempt, due_at_ms, first_failed_at_ms, origin, replay, fingerprint, schema_id, record };
        Message(Arc::new(inner))
    }

    /// Identity of the business action; the key to pass to a mail or payment provider.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        &self.0.id
    }

    /// 1 on the first delivery; redeliveries of an undecided attempt keep its number.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Moment from which this attempt may run, ms since the Unix epoch; `None` on a source topic.
    pub fn due_at_ms(&self) -> Option<i64> {
        self.0.due_at_ms
    }

    /// First failure of this message, ms since the Unix epoch.
    pub fn first_failed_at_ms(&self) -> Option<i64> {
        self.0.first_failed_at_ms
    }

    /// Where the message was first delivered.
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// The dead letter that it was and that an operator replays; `None` for a message that was never one.
    pub fn replay(&self) -> Option<Replay> {
        self.0.replay
    }

    /// The record it was read from just now, for instance from a retry topic.
    pub fn record(&self) -> &Record {
        &self.0.record
    }

    /// Kafka key: the resource id.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.record.key.as_deref()
    }

    /// Kafka value, byte for byte.
    pub fn payload(&self) -> Option<&[u8]> {
        self.0.record.payload.as_deref()
    }

    /// Kafka headers, byte for byte, in order.
    pub fn headers(&self) -> &Headers {
        &self.0.record.headers
    }

    /// 64-bit fingerprint of the payload.
    pub fn fingerprint(&self) -> i64 {
        self.0.fingerprint
    }

    /// Id of the schema that the payload's prefix names; `None` without one, or where no registry is configured.
    pub fn schema_id(&self) -> Option<u32> {
        self.0.schema_id
    }

    /// The payload without the prefix of a schema registry.
    pub fn unframed(&self) -> Option<&[u8]> {
        let start = if self.0.schema_id.is_some() { confluent::PREFIX_BYTES } else { 0 };
        self.payload().map(|it| &it[start..])
    }

    /// The event's data: the payload without a registry's prefix, or the `data` member of a structured CloudEvent.
    ///
    /// # Errors
    /// The payload is null, or a structured event whose envelope cannot be read.
    pub fn data(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        self.record().data_of(self.unframed())
    }

    /// Decodes the event's data from JSON, in either CloudEvents mode.
    ///
    /// # Errors
    /// The data is no JSON of that type. The error names the place, never a value.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        let data = self.data()?;
        serde_json::from_slice(&data).map_err(|error| match confluent::read(&data) {
            // No JSON begins so, and whoever configured no registry wonders why.
            Some(_) => DecodeError::new("begins with the id of a schema: set registry.url, so that the id is read"),
            None => DecodeError::from_json(&error),
        })
    }
}

impl Origin {
    /// A record's own place.
    pub fn of(record: &Record) -> Origin {
        Origin {
            topic: record.topic.clone(),
            partition: record.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
        }
    }
}

/// Payloads are customer data: identity, place and sizes only.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.0.id)
            .field("attempt", &self.0.attempt)
            .field("topic", &self.0.origin.topic)
            .field("partition", &self.0.origin.partition)
            .field("offset", &self.0.origin.offset)
            .field("payload_bytes", &self.0.record.payload.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

/// Bytes that are not what they should be. Says where, never what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    problem: &'static str,
    at: Option<(usize, usize)>,
}

impl DecodeError {
    /// Keeps kind and place of a JSON error, and drops its text, which may quote the payload.
    pub fn from_json(error: &serde_json::Error) -> DecodeError {
        let problem = match error.classify() {
            serde_json::error::Category::Syntax => "is not JSON",
            serde_json::error::Category::Eof => "ends too early",
            serde_json::error::Category::Data => "does not have the expected fields and types",
            serde_json::error::Category::Io => "cannot be read",
        };
        DecodeError { problem, at: Some((error.line(), error.column())) }
    }

    pub(crate) fn new(problem: &'static str) -> DecodeError {
        DecodeError { problem, at: None }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "payload {}", self.problem)?;
        match self.at {
            Some((line, column)) => write!(f, " (line {line} column {column})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests;
