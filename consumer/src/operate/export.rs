//! Dead letters as lines of JSON, with everything that is in the table.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::filter::{CONDITIONS, Param};
use super::{DeadLetters, Filter, answered};
use crate::Error;

/// Version of the form.
pub(super) const FORM: u32 = 1;

/// One dead letter as it is written to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exported {
    /// Version of this form; 1.
    pub form: u32,
    /// Its id.
    pub id: Uuid,
    /// Who gave up.
    pub consumer: String,
    /// Its state.
    pub state: String,
    /// Key of its inbox row.
    pub key: Uuid,
    /// Idempotency key as its sender wrote it.
    pub key_text: Option<String>,
    /// Why it is dead.
    pub reason: String,
    /// Class of the last failure.
    pub class: String,
    /// Code of the last failure.
    pub code: String,
    /// Text of the last failure.
    pub message: String,
    /// Attempts that were made.
    pub attempts: u16,
    /// How often it was replayed.
    pub replays: u16,
    /// Topic of the first delivery.
    pub topic: String,
    /// Partition there.
    pub partition: i32,
    /// Offset there.
    pub offset: i64,
    /// Kafka timestamp of the first delivery.
    pub timestamp: Option<Timestamp>,
    /// The record's key, base64.
    pub resource_key: Option<String>,
    /// The payload, base64.
    pub payload: Option<String>,
    /// Names and values, base64, in their order.
    pub headers: Vec<(String, Option<String>)>,
    /// First failure.
    pub first_failed_at: Timestamp,
    /// Last failure.
    pub last_failed_at: Timestamp,
    /// The letter that this one is an edited copy of.
    pub edited_from: Option<Uuid>,
}

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// # Errors
/// It is no base64.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    STANDARD.decode(text)
}

impl DeadLetters {
    /// Letters that fit a filter, the oldest first: at most `max` (1 to 1000) with ids above `after`.
    ///
    /// # Errors
    /// The filter cannot be used, or the database refuses.
    pub async fn export(&self, filter: &Filter, after: Option<Uuid>, max: u32) -> Result<Vec<Exported>, Error> {
        let sql = format!(
            "SELECT letter.id, consumer.name, state, key, key_text, reason, class, code, message, attempts, replays, \
             origin_topic, origin_partition, origin_offset, origin_timestamp, resource_key, payload, header_names, \
             header_values, first_failed_at, last_failed_at, edited_from FROM sekali.dead_letter AS letter \
             JOIN sekali.consumer ON consumer.id = letter.consumer_id \
             WHERE {CONDITIONS} AND ($13::uuid IS NULL OR $13 < letter.id) ORDER BY letter.id LIMIT $14"
        );
        let checked = filter.checked()?;
        let max = i64::from(max.clamp(1, 1_000));
        let mut params: Vec<Param<'_>> = checked.params().into();
        params.extend([(&after as _, Type::UUID), (&max as _, Type::INT8)]);
        let client = self.client().await?;
        let rows = answered("export dead letters", client.query_typed(&sql, &params)).await?;
        Ok(rows.iter().map(Exported::of).collect())
    }
}

impl Exported {
    fn of(row: &Row) -> Exported {
        let bytes = |at: usize| row.get::<_, Option<&[u8]>>(at).map(encode);
        let (names, values): (Vec<String>, Vec<Option<&[u8]>>) = (row.get(17), row.get(18));
        Exported {
            form: FORM,
            id: row.get(0),
            consumer: row.get(1),
            state: row.get(2),
            key: row.get(3),
            key_text: row.get(4),
            reason: row.get(5),
            class: row.get(6),
            code: row.get(7),
            message: row.get(8),
            attempts: row.get::<_, i16>(9).unsigned_abs(),
            replays: row.get::<_, i16>(10).unsigned_abs(),
            topic: row.get(11),
            partition: row.get(12),
            offset: row.get(13),
            timestamp: row.get(14),
            resource_key: bytes(15),
            payload: bytes(16),
            headers: names.into_iter().zip(values.into_iter().map(|it| it.map(encode))).collect(),
            first_failed_at: row.get(19),
            last_failed_at: row.get(20),
            edited_from: row.get(21),
        }
    }
}
