//! One dead letter with all that is known about it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use sekali_schemas::inbox::State;
use serde::{Serialize, Serializer};
use tokio_postgres::Client;
use uuid::Uuid;

use super::letters::COLUMNS;
use super::{AuditQuery, AuditRow, DeadLetter, DeadLetters, answered, refused};
use crate::Error;

/// Attempts and audit rows that are shown; the newest of each.
const ROWS_MAX: u32 = 200;

/// A dead letter with payload, headers, attempts, inbox row and audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Shown {
    /// The letter.
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// The failure's text without what varies.
    pub cause: String,
    /// The payload, byte for byte; in JSON as base64.
    #[serde(serialize_with = "base64_or_null")]
    pub payload: Option<Bytes>,
    /// The user's headers, in their order.
    pub headers: Vec<ShownHeader>,
    /// Attempts that failed, the oldest first.
    pub timeline: Vec<Attempt>,
    /// The decision that the inbox remembers; none when it has forgotten.
    pub inbox: Option<InboxRow>,
    /// What waits behind it.
    pub holds: Option<Held>,
    /// Edited copies of it.
    pub edits: Vec<Uuid>,
    /// What was done about it, the newest first.
    pub audit: Vec<AuditRow>,
}

/// A header of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShownHeader {
    /// Its name.
    pub name: String,
    /// Its value, byte for byte; in JSON as base64.
    #[serde(serialize_with = "base64_or_null")]
    pub value: Option<Bytes>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Its number; a lock that was taken gives the same number again.
    pub attempt: u32,
    /// When it was decided.
    pub at: Timestamp,
    /// Class of the failure.
    pub class: String,
    /// Its code; may be empty.
    pub code: String,
    /// Its text without what varies.
    pub cause: String,
    /// Process that made it: host and process number.
    pub worker: String,
}

/// What the inbox says of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InboxRow {
    /// State, as a word.
    pub state: String,
    /// Attempt that it stands for.
    pub attempt: u32,
    /// When it was decided.
    pub decided_at: Timestamp,
}

/// A key that waits behind its dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Held {
    /// Since when.
    pub since: Timestamp,
    /// Messages that wait.
    pub messages: u64,
}

fn base64_or_null<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
        None => serializer.serialize_none(),
    }
}

impl DeadLetters {
    /// Everything about one dead letter.
    ///
    /// # Errors
    /// There is none of that id, or the database refuses.
    pub async fn show(&self, id: Uuid) -> Result<Shown, Error> {
        let sql = format!(
            "SELECT {COLUMNS}, coalesce(letter.cause, letter.message), letter.payload, letter.header_names, \
             letter.header_values, letter.consumer_id FROM sekali.dead_letter AS letter \
             JOIN sekali.consumer ON consumer.id = letter.consumer_id WHERE letter.id = $1"
        );
        let client = self.client().await?;
        let row = answered("read the dead letter", client.query_opt(&sql, &[&id])).await?;
        let row = row.ok_or_else(|| refused(format!("find dead letter {id}: there is none of that id")))?;
        let (letter, consumer_id) = (DeadLetter::of(&row), row.get::<_, i16>(25));
        let (names, values): (Vec<String>, Vec<Option<Vec<u8>>>) = (row.get(23), row.get(24));
        let header = |(name, value): (String, Option<Vec<u8>>)| ShownHeader { name, value: value.map(Into::into) };
        let key = letter.key;
        Ok(Shown {
            cause: row.get(21),
            payload: row.get::<_, Option<Vec<u8>>>(22).map(Into::into),
            headers: names.into_iter().zip(values).map(header).collect(),
            timeline: answered("read the attempts", timeline(&client, consumer_id, key)).await?,
            inbox: answered("read the inbox", inbox(&client, consumer_id, key)).await?,
            holds: answered("read the holds", holds(&client, consumer_id, key)).await?,
            edits: answered("read the edits", edits(&client, id)).await?,
            audit: self.audit(&AuditQuery { dead_letter: Some(id), ..AuditQuery::default() }, ROWS_MAX).await?,
            letter,
        })
    }
}

fn number(number: i16) -> u32 {
    number.unsigned_abs().into()
}

async fn timeline(client: &Client, consumer_id: i16, key: Uuid) -> Result<Vec<Attempt>, tokio_postgres::Error> {
    const SQL: &str = "SELECT attempt, at, class, code, cause, worker FROM sekali.attempt \
         WHERE consumer_id = $1 AND key = $2 ORDER BY id DESC LIMIT $3";
    let rows = client.query(SQL, &[&consumer_id, &key, &i64::from(ROWS_MAX)]).await?;
    let attempt = |row: &tokio_postgres::Row| Attempt {
        attempt: number(row.get(0)),
        at: row.get(1),
        class: row.get(2),
        code: row.get(3),
        cause: row.get(4),
        worker: row.get(5),
    };
    Ok(rows.iter().rev().map(attempt).collect())
}

async fn inbox(client: &Client, consumer_id: i16, key: Uuid) -> Result<Option<InboxRow>, tokio_postgres::Error> {
    const SQL: &str = "SELECT state, attempt, decided_at FROM sekali.inbox WHERE consumer_id = $1 AND key = $2";
    let row = client.query_opt(SQL, &[&consumer_id, &key]).await?;
    Ok(row.map(|row| InboxRow {
        state: State::from_i16(row.get(0)).map_or("unknown", State::as_str).to_owned(),
        attempt: number(row.get(1)),
        decided_at: row.get(2),
    }))
}

async fn holds(client: &Client, consumer_id: i16, head: Uuid) -> Result<Option<Held>, tokio_postgres::Error> {
    const SQL: &str = "SELECT since, (SELECT count(*) FROM sekali.held_message AS it WHERE it.consumer_id = $1 \
         AND it.topic = hold.topic AND it.resource_key = hold.resource_key) FROM sekali.held_key AS hold \
         WHERE consumer_id = $1 AND head = $2";
    let row = client.query_opt(SQL, &[&consumer_id, &head]).await?;
    Ok(row.map(|row| Held { since: row.get(0), messages: row.get::<_, i64>(1).unsigned_abs() }))
}

async fn edits(client: &Client, id: Uuid) -> Result<Vec<Uuid>, tokio_postgres::Error> {
    let rows = client.query("SELECT id FROM sekali.dead_letter WHERE edited_from = $1 ORDER BY id", &[&id]).await?;
    Ok(rows.iter().map(|it| it.get(0)).collect())
}
