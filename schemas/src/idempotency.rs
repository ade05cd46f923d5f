//! The identity of a business action.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::cloudevents;
use crate::{Headers, Record};

/// Header that names the idempotency key outright.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Header of Debezium's outbox router.
pub const DEBEZIUM_ID: &str = "id";
/// Longest key text, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Stable identity of one business action, scoped by consumer.
///
/// A UUID is its own 128-bit form, so that version 7 keys stay append-like in the inbox's index. Any other text is
/// hashed: SHA-256 over `"sekali-key\0"` and the text, the first 16 bytes, marked as UUID version 8 (RFC 9562), which
/// keeps hashed keys apart from real version 4 and 7 ones. Hash and normal form are part of the contract.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    text: Box<str>,
    uuid: Uuid,
}

impl IdempotencyKey {
    /// Builds a key from text.
    ///
    /// # Errors
    /// The text is empty or longer than [`TEXT_BYTES_MAX`] bytes.
    pub fn new(text: impl Into<Box<str>>) -> Result<IdempotencyKey, KeyError> {
        let text: Box<str> = text.into();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if TEXT_BYTES_MAX < text.len() {
            return Err(KeyError::TooLong);
        }
        let uuid = to_128_bits(&text);
        Ok(IdempotencyKey { text, uuid })
    }

    /// A key that is known by its 128-bit form alone.
    pub fn from_uuid(uuid: Uuid) -> IdempotencyKey {
        IdempotencyKey { text: uuid.to_string().into(), uuid }
    }

    /// Identity of a record by its place in the log. Breaks when an upstream republishes: see `key_from` in the
    /// configuration.
    pub fn from_coordinates(topic: &str, partition: i32, offset: i64) -> IdempotencyKey {
        let text = format!("{topic}\u{1f}{partition}\u{1f}{offset}").into_boxed_str();
        let uuid = to_128_bits(&text);
        IdempotencyKey { text, uuid }
    }

    /// The key as its sender wrote it. The parts of a compound key are separated by U+001F.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The 128-bit form that the inbox stores.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Resolves the key of a record from its headers: `idempotency-key`, then CloudEvents `ce_source` and `ce_id`,
    /// then Debezium's `id`.
    ///
    /// # Errors
    /// No such header, or one that is empty, too long, not UTF-8, or there twice with different values.
    pub fn from_headers(headers: &Headers) -> Result<IdempotencyKey, KeyError> {
        if let Some(text) = only_value(headers, IDEMPOTENCY_KEY)? {
            return IdempotencyKey::new(text);
        }
        if let Some(id) = only_value(headers, cloudevents::CE_ID)? {
            let source = only_value(headers, cloudevents::CE_SOURCE)?.ok_or(KeyError::NoSource)?;
            return IdempotencyKey::from_cloudevent(source, id);
        }
        match only_value(headers, DEBEZIUM_ID)? {
            Some(text) => IdempotencyKey::new(text),
            None => Err(KeyError::Missing),
        }
    }

    /// Identity of a CloudEvent: source and id together are unique (CloudEvents 1.0, "id").
    ///
    /// # Errors
    /// One of them is empty, both together are too long, or one contains U+001F, which CloudEvents forbids.
    pub fn from_cloudevent(source: &str, id: &str) -> Result<IdempotencyKey, KeyError> {
        if source.is_empty() || id.is_empty() {
            return Err(KeyError::Empty);
        }
        if source.contains('\u{1f}') || id.contains('\u{1f}') {
            return Err(KeyError::Unreadable);
        }
        IdempotencyKey::new(format!("{source}\u{1f}{id}"))
    }

    /// Resolves the key of a record: headers first; a structured CloudEvent carries its identity in the payload.
    ///
    /// # Errors
    /// As [`IdempotencyKey::from_headers`].
    pub fn of_record(record: &Record) -> Result<IdempotencyKey, KeyError> {
        match IdempotencyKey::from_headers(&record.headers) {
            Err(KeyError::Missing) if cloudevents::is_structured(&record.headers) => {
                let identity = record.payload.as_deref().and_then(cloudevents::structured_identity);
                let (source, id) = identity.ok_or(KeyError::Missing)?;
                IdempotencyKey::from_cloudevent(&source, &id)
            }
            resolved => resolved,
        }
    }
}

fn only_value<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a str>, KeyError> {
    let mut found: Option<&[u8]> = None;
    for value in headers.values(name).flatten() {
        if found.is_some_and(|it| it != value) {
            return Err(KeyError::Ambiguous);
        }
        found = Some(value);
    }
    found.map(|it| std::str::from_utf8(it).map_err(|_| KeyError::Unreadable)).transpose()
}

fn to_128_bits(text: &str) -> Uuid {
    // Only the two usual spellings count as a UUID; braces and "urn:uuid:" are other texts.
    if (text.len() == 36 || text.len() == 32)
        && let Ok(uuid) = Uuid::try_parse(text)
    {
        return uuid;
    }
    let hash = Sha256::new().chain_update(b"sekali-key\0").chain_update(text.as_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may hold customer data; its 128-bit form finds the inbox row.
        write!(f, "IdempotencyKey({})", self.uuid)
    }
}

/// Why a record has no usable idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// None of the headers is there.
    #[error("missing idempotency key")]
    Missing,
    /// `ce_id` without `ce_source`.
    #[error("missing idempotency key: ce_id without ce_source")]
    NoSource,
    /// An empty text identifies nothing.
    #[error("empty idempotency key")]
    Empty,
    /// Longer than [`TEXT_BYTES_MAX`].
    #[error("idempotency key is longer than 1024 bytes")]
    TooLong,
    /// Not UTF-8, or a part contains U+001F.
    #[error("idempotency key is not readable text")]
    Unreadable,
    /// The same header twice with different values.
    #[error("idempotency key is given twice with different values")]
    Ambiguous,
}

#[cfg(test)]
mod tests;
