//! What travels through the core: a message, or a record that could not become one.

use sekali_schemas::control::{self, Replay};
use sekali_schemas::idempotency::IdempotencyKey;
use sekali_schemas::{Headers, Invalid, Message, Origin, Record, fingerprint};
use uuid::Uuid;

use crate::postgres::hold::HoldKey;

#[derive(Debug, Clone)]
pub(crate) enum Incoming {
    Message(Message),
    Invalid { record: Box<Record>, reason: Invalid },
}

impl Incoming {
    pub(crate) fn record(&self) -> &Record {
        match self {
            Incoming::Message(message) => message.record(),
            Incoming::Invalid { record, .. } => record,
        }
    }

    /// Where it was first delivered.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Incoming::Message(message) => message.origin().clone(),
            Incoming::Invalid { record, .. } => Origin::of(record),
        }
    }

    /// Key of its inbox row. A record without a readable key is identified by its place in the log.
    pub(crate) fn key(&self) -> Uuid {
        match self {
            Incoming::Message(message) => message.idempotency_key().uuid(),
            Incoming::Invalid { record, .. } => {
                IdempotencyKey::from_coordinates(&record.topic, record.partition, record.offset).uuid()
            }
        }
    }

    /// The key as its sender wrote it, when there is one.
    pub(crate) fn key_text(&self) -> Option<&str> {
        match self {
            Incoming::Message(message) => Some(message.idempotency_key().as_str()),
            Incoming::Invalid { .. } => None,
        }
    }

    /// The key that it shares with other messages, and the source topic. None without a key: it waits for nobody.
    pub(crate) fn hold_key(&self) -> Option<HoldKey<'_>> {
        let topic = match self {
            Incoming::Message(message) => &message.origin().topic,
            Incoming::Invalid { record, .. } => &record.topic,
        };
        Some((topic, self.record().key.as_deref()?))
    }

    pub(crate) fn fingerprint(&self) -> i64 {
        match self {
            Incoming::Message(message) => message.fingerprint(),
            Incoming::Invalid { record, .. } => fingerprint(record.payload.as_deref()),
        }
    }

    pub(crate) fn attempt(&self) -> u32 {
        match self {
            Incoming::Message(message) => message.attempt(),
            Incoming::Invalid { .. } => 1,
        }
    }

    pub(crate) fn first_failed_at_ms(&self) -> Option<i64> {
        match self {
            Incoming::Message(message) => message.first_failed_at_ms(),
            Incoming::Invalid { .. } => None,
        }
    }

    /// The dead letter that is replayed.
    pub(crate) fn replay(&self) -> Option<Replay> {
        match self {
            Incoming::Message(message) => message.replay(),
            Incoming::Invalid { .. } => None,
        }
    }

    /// The user's headers; of a record whose control headers cannot be read, all of them, for whoever has to find out.
    pub(crate) fn headers_to_keep(&self) -> Headers {
        match self {
            Incoming::Message(message) => control::user_headers(message.headers()),
            Incoming::Invalid { record, .. } => record.headers.clone(),
        }
    }
}
