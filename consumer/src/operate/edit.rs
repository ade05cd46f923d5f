//! A dead letter with another payload: a new message, which says what it was made from.

use deadpool_postgres::{ClientWrapper, Object};
use sekali_schemas::control::Replay;
use sekali_schemas::idempotency::IDEMPOTENCY_KEY;
use sekali_schemas::inbox::State;
use sekali_schemas::{Header, Headers, array_literal, fingerprint};
use serde_json::{Value, json};
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::operations::{AuditEntry, Locked, Operation, Signed, audit_all, lock, lock_rows, reasoned, signed};
use super::{Act, DeadLetters, Told, answered, refused};
use crate::core::operator::{Bounds, decide};
use crate::executor::seal_and_commit;
use crate::{Error, ErrorKind};

/// What a message that has failed once asks for next.
const ATTEMPT: u32 = 2;

const OPERATION: &str = "INSERT INTO sekali.operation (kind, state, who, reason, selection, rate, force, items, ended_at) \
     VALUES ('edit', 'done', $1, $2, $3, 1, false, 1, now()) RETURNING id";
const ITEM: &str =
    "INSERT INTO sekali.operation_item (operation_id, nr, dead_letter_id, outcome) VALUES ($1, 1, $2, $3)";
const COPY: &str = "INSERT INTO sekali.dead_letter (id, consumer_id, key, key_text, state, reason, class, code, message, \
     cause, attempts, origin_topic, origin_partition, origin_offset, origin_timestamp, resource_key, payload, header_names, \
     header_values, group_fingerprint, first_failed_at, last_failed_at, replays, operation_id, edited_from) \
     SELECT $2, consumer_id, $3, $3::uuid::text, 'replaying', reason, class, code, message, cause, 1, origin_topic, \
     origin_partition, origin_offset, origin_timestamp, resource_key, $4, $5::text::text[], $6::text::bytea[], \
     group_fingerprint, first_failed_at, last_failed_at, 1, $7, id FROM sekali.dead_letter WHERE id = $1";
const CLOSE: &str = "UPDATE sekali.dead_letter SET state = 'resolved', operation_id = $2 WHERE id = $1";
const ROWS: &str = "INSERT INTO sekali.inbox AS row (consumer_id, key, state, attempt, fingerprint) \
     VALUES ($1, $2, $3, $4, 0), ($1, $5, $6, $7, $8) \
     ON CONFLICT (consumer_id, key) DO UPDATE SET state = excluded.state, decided_at = now()";
/// What waits behind the one waits behind the other.
const HEAD: &str = "UPDATE sekali.held_key SET head = $3 WHERE consumer_id = $1 AND topic = $4 AND resource_key = $5 \
     AND head = $2";
const ENQUEUE: &str = "INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
     VALUES ($1, $2, $3, $4::text::text[], $5::text::bytea[])";

impl DeadLetters {
    /// Replays a dead letter with another payload, as a new message with an idempotency key of its own; the letter is
    /// closed, and both know of each other. Returns the new letter's id and the operation.
    ///
    /// # Errors
    /// `operate.allow_edit` is off, no reason, the letter is not open, its group reads no retry topic; the database
    /// refuses.
    pub async fn edit(&self, id: Uuid, payload: &[u8], who: &str, reason: &str) -> Result<(Uuid, Operation), Error> {
        if !self.bounds.allow_edit {
            let doing = "edit a dead letter: operate.allow_edit is off; whoever answers for the data may turn it on";
            return Err(Error::new(ErrorKind::Config, doing));
        }
        let (who, reason) = (signed(who)?, reasoned(reason)?);
        let client = self.client().await?;
        let edited = answered("edit the dead letter", edit(&client, id, payload, &who, &reason)).await;
        if edited.is_err() {
            // Not back to the pool: it may be in a transaction.
            drop(Object::take(client));
        }
        match edited? {
            Ok((copy, operation)) => Ok((copy, self.operation(operation).await?)),
            Err(told) => Err(refused(format!("edit dead letter {id}: {}", told.as_str()))),
        }
    }
}

async fn edit(
    client: &ClientWrapper,
    id: Uuid,
    payload: &[u8],
    who: &str,
    reason: &str,
) -> Result<Result<(Uuid, i64), Told>, tokio_postgres::Error> {
    client.batch_execute("BEGIN").await?;
    let rows = lock_rows(client, &[id]).await?;
    let letters = lock(client, &[id]).await?;
    let judged = judge(letters.get(&id), |it| rows.get(&it.row_key()).copied());
    let locked = match judged {
        Ok(locked) => locked,
        Err(told) => {
            client.batch_execute("ROLLBACK").await?;
            return Ok(Err(told));
        }
    };
    let copy = Copy { id: Uuid::now_v7(), key: Uuid::now_v7(), payload };
    let headers = renamed(locked.headers(), copy.key);
    let replay = Replay { letter: copy.id, key: Some(copy.key) };
    let Some((topic, onto)) = locked.record_of(&headers, ATTEMPT, replay) else {
        client.batch_execute("ROLLBACK").await?;
        return Ok(Err(Told::NoRoute));
    };
    let selection = json!({"ids": [id]});
    let row = client.query_one(OPERATION, &[&who, &reason, &Json(&selection)]).await?;
    let operation: i64 = row.get(0);
    client.execute(ITEM, &[&operation, &id, &EDITED]).await?;
    write_copy(client, locked, &copy, &headers, operation).await?;
    let (names, values) = (array_literal::names(&onto), array_literal::values(&onto));
    client.execute(ENQUEUE, &[&topic, &locked.resource_key, &payload, &names, &values]).await?;
    write_audit(client, locked, &copy, (who, reason), &selection, operation).await?;
    seal_and_commit(client).await?;
    Ok(Ok((copy.id, operation)))
}

/// What is done to the letter that was edited.
const EDITED: &str = "edited";

/// The new letter.
struct Copy<'a> {
    id: Uuid,
    key: Uuid,
    payload: &'a [u8],
}

/// The letter, if it may be closed in favour of another one.
fn judge<R>(locked: Option<&Locked>, row: R) -> Result<&Locked, Told>
where
    R: Fn(&Locked) -> Option<crate::core::verdict::Row>,
{
    let locked = locked.ok_or(Told::Gone)?;
    if locked.letter.unpublished {
        return Err(Told::NoRoute);
    }
    let change = decide(Act::Discard, locked.letter, row(locked), Bounds { replays_max: 0, force: false })?;
    if change.told == Told::Discarded { Ok(locked) } else { Err(change.told) }
}

async fn write_copy(
    client: &ClientWrapper,
    locked: &Locked,
    copy: &Copy<'_>,
    headers: &Headers,
    operation: i64,
) -> Result<(), tokio_postgres::Error> {
    let (names, values) = (array_literal::names(headers), array_literal::values(headers));
    client.execute(COPY, &[&locked.id, &copy.id, &copy.key, &copy.payload, &names, &values, &operation]).await?;
    client.execute(CLOSE, &[&locked.id, &operation]).await?;
    let (closed, waits) = (State::Discarded as i16, State::Retrying as i16);
    let attempts = i16::try_from(locked.letter.attempts).unwrap_or(i16::MAX);
    let (attempt, of_payload) = (ATTEMPT as i16, fingerprint(Some(copy.payload)));
    let consumer_id = locked.consumer_id;
    client
        .execute(ROWS, &[&consumer_id, &locked.key, &closed, &attempts, &copy.key, &waits, &attempt, &of_payload])
        .await?;
    client.execute(HEAD, &[&consumer_id, &locked.key, &copy.key, &locked.topic(), &locked.resource_key]).await?;
    Ok(())
}

async fn write_audit(
    client: &ClientWrapper,
    locked: &Locked,
    copy: &Copy<'_>,
    (who, reason): (&str, &str),
    selection: &Value,
    operation: i64,
) -> Result<(), tokio_postgres::Error> {
    let consumer_id = Some(locked.consumer_id);
    let entries = [
        AuditEntry { consumer_id, key: Some(locked.key), outcome: EDITED, letter: locked.id },
        AuditEntry { consumer_id, key: Some(copy.key), outcome: Told::Replaying.as_str(), letter: copy.id },
    ];
    audit_all(client, &Signed { who, action: "edit", reason, selection, operation }, &entries).await
}

/// The headers with another idempotency key in the place of theirs.
fn renamed(headers: &Headers, key: Uuid) -> Headers {
    let key = key.to_string();
    let mut builder = Headers::builder();
    let mut named = false;
    for Header { name, value } in headers.iter() {
        let is_key = name == IDEMPOTENCY_KEY;
        if is_key && named {
            continue;
        }
        named |= is_key;
        builder.push(name, if is_key { Some(key.as_bytes()) } else { value });
    }
    if named { builder.build() } else { builder.text(IDEMPOTENCY_KEY, &key).build() }
}
