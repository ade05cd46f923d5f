//! Lists of dead letters, page by page.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::filter::{CONDITIONS, Param, group_text};
use super::{DeadLetters, Filter, answered};
use crate::Error;

/// Most letters of one page.
const PAGE_MAX: u32 = 1_000;

/// One dead letter, without its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its id; later ones are higher.
    pub id: Uuid,
    /// Who gave up.
    pub consumer: String,
    /// Its state.
    pub state: String,
    /// Group of failures, 16 hexadecimal digits.
    pub group: String,
    /// Why it is dead.
    pub reason: String,
    /// Class of the last failure.
    pub class: String,
    /// Code of the last failure; may be empty.
    pub code: String,
    /// Text of the last failure.
    pub message: String,
    /// Attempts that were made.
    pub attempts: u32,
    /// How often it was replayed.
    pub replays: u32,
    /// Topic of the first delivery.
    pub topic: String,
    /// Partition there.
    pub partition: i32,
    /// Offset there.
    pub offset: i64,
    /// Idempotency key as its sender wrote it; none in a record that has none.
    pub key_text: Option<String>,
    /// Key of its inbox row.
    pub key: Uuid,
    /// The record's key as text; what is no text is shown as replacement characters.
    pub resource_key: Option<String>,
    /// Bytes of the payload; none when it is null.
    pub payload_bytes: Option<u64>,
    /// First failure.
    pub first_failed_at: Timestamp,
    /// Last failure.
    pub last_failed_at: Timestamp,
    /// The last operation that changed its state.
    pub operation: Option<i64>,
    /// The letter that this one is an edited copy of.
    pub edited_from: Option<Uuid>,
}

/// Columns of a [`DeadLetter`].
pub(super) const COLUMNS: &str = "letter.id, consumer.name, letter.state, letter.group_fingerprint, letter.reason, \
     letter.class, letter.code, letter.message, letter.attempts, letter.replays, letter.origin_topic, \
     letter.origin_partition, letter.origin_offset, letter.key_text, letter.key, letter.resource_key, \
     octet_length(letter.payload), letter.first_failed_at, letter.last_failed_at, letter.operation_id, letter.edited_from";

/// Some letters, the newest first, and where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Page {
    /// The letters.
    pub letters: Vec<DeadLetter>,
    /// Give it to the next call; none: there are no more.
    pub next: Option<Uuid>,
}

impl DeadLetter {
    pub(super) fn of(row: &Row) -> DeadLetter {
        let number = |at: usize| u32::try_from(row.get::<_, i16>(at)).unwrap_or_default();
        let lossy = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
        DeadLetter {
            id: row.get(0),
            consumer: row.get(1),
            state: row.get(2),
            group: group_text(row.get(3)),
            reason: row.get(4),
            class: row.get(5),
            code: row.get(6),
            message: row.get(7),
            attempts: number(8),
            replays: number(9),
            topic: row.get(10),
            partition: row.get(11),
            offset: row.get(12),
            key_text: row.get(13),
            key: row.get(14),
            resource_key: row.get::<_, Option<&[u8]>>(15).map(lossy),
            payload_bytes: row.get::<_, Option<i32>>(16).and_then(|it| u64::try_from(it).ok()),
            first_failed_at: row.get(17),
            last_failed_at: row.get(18),
            operation: row.get(19),
            edited_from: row.get(20),
        }
    }
}

impl DeadLetters {
    /// Letters that fit a filter, the newest first: at most `max` (1 to 1000) with ids below `before`.
    ///
    /// # Errors
    /// The filter cannot be used, or the database refuses.
    pub async fn list(&self, filter: &Filter, before: Option<Uuid>, max: u32) -> Result<Page, Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sekali.dead_letter AS letter JOIN sekali.consumer ON consumer.id = letter.consumer_id \
             WHERE {CONDITIONS} AND ($13::uuid IS NULL OR letter.id < $13) ORDER BY letter.id DESC LIMIT $14"
        );
        let checked = filter.checked()?;
        let max = i64::from(max.clamp(1, PAGE_MAX));
        // One more, to know whether there are more.
        let asked = max + 1;
        let mut params: Vec<Param<'_>> = checked.params().into();
        params.extend([(&before as _, Type::UUID), (&asked as _, Type::INT8)]);
        let client = self.client().await?;
        let rows = answered("list dead letters", client.query_typed(&sql, &params)).await?;
        let letters: Vec<DeadLetter> = rows.iter().take(max as usize).map(DeadLetter::of).collect();
        let next = letters.last().map(|it| it.id).filter(|_| max < rows.len() as i64);
        Ok(Page { letters, next })
    }
}
