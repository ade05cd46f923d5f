//! Dead letters from elsewhere: an export, or a topic where another program put them.

use std::collections::{BTreeMap, HashSet};

use sekali_schemas::control::{ATTEMPT_MAX, ErrorInfo};
use sekali_schemas::{Header, Headers, array_literal, cause, fingerprint};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::export::{Exported, FORM, decode};
use super::operations::{reasoned, signed};
use super::{DeadLetters, answered};
use crate::core::operator::LetterState;
use crate::postgres::inbox::consumer_id;
use crate::{Error, ErrorKind};

/// What came in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Imported {
    /// Letters that are new.
    pub imported: u64,
    /// Letters that were there already.
    pub known: u64,
    /// Records that say nothing of where they come from.
    pub unreadable: u64,
}

const LETTERS: &str = "INSERT INTO sekali.dead_letter (id, consumer_id, key, key_text, state, reason, class, code, message, \
     cause, attempts, replays, origin_topic, origin_partition, origin_offset, origin_timestamp, resource_key, payload, \
     header_names, header_values, group_fingerprint, first_failed_at, last_failed_at, edited_from) \
     SELECT id, consumer_id, key, key_text, state, reason, class, code, message, cause, attempts, replays, topic, part, off, \
     at, resource_key, payload, names::text[], vals::bytea[], number, first_failed_at, last_failed_at, edited_from \
     FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
     $9::text[], $10::text[], $11::smallint[], $12::smallint[], $13::text[], $14::int[], $15::bigint[], \
     $16::timestamptz[], $17::bytea[], $18::bytea[], $19::text[], $20::text[], $21::bigint[], $22::timestamptz[], \
     $23::timestamptz[], $24::uuid[]) AS given (id, consumer_id, key, key_text, state, reason, class, code, message, cause, \
     attempts, replays, topic, part, off, at, resource_key, payload, names, vals, number, first_failed_at, last_failed_at, \
     edited_from) ON CONFLICT (id) DO NOTHING RETURNING id";
/// A decision that is there already stands: a replay will say so.
const ROWS: &str = "INSERT INTO sekali.inbox (consumer_id, key, state, attempt, fingerprint) \
     SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::smallint[], $5::bigint[]) \
     ON CONFLICT DO NOTHING";
const AUDIT: &str = "INSERT INTO sekali.audit (who, action, reason, selection, consumer_id, key, outcome, dead_letter_id) \
     SELECT $1, 'import', $2, $3, consumer_id, key, 'imported', id \
     FROM unnest($4::smallint[], $5::uuid[], $6::uuid[]) AS given (consumer_id, key, id)";

/// A letter whose parts were looked at.
struct Checked<'a> {
    given: &'a Exported,
    consumer_id: i16,
    state: LetterState,
    error: ErrorInfo,
    cause: String,
    resource_key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    headers: Headers,
}

impl DeadLetters {
    /// Takes letters in, all of one call in one transaction. What is there already stays as it is, and whoever calls again
    /// with the same letters adds nothing. A letter that was being replayed where it comes from is open here.
    ///
    /// # Errors
    /// No reason, a letter that cannot be read, with its place among the given ones; the database refuses.
    pub async fn import(&self, letters: &[Exported], from: &str, who: &str, reason: &str) -> Result<Imported, Error> {
        let (who, reason) = (signed(who)?, reasoned(reason)?);
        let mut client = self.client().await?;
        let mut consumers: BTreeMap<&str, i16> = BTreeMap::new();
        for letter in letters {
            if !consumers.contains_key(letter.consumer.as_str()) {
                let id = answered("register the consumer", consumer_id(&client, &letter.consumer)).await?;
                consumers.insert(&letter.consumer, id);
            }
        }
        let mut checked = Vec::with_capacity(letters.len());
        let mut seen = HashSet::new();
        for (nr, letter) in letters.iter().enumerate() {
            let of = Checked::of(letter, consumers[letter.consumer.as_str()]).map_err(|why| {
                Error::new(ErrorKind::Config, format!("read dead letter {} of {from}", nr + 1)).because(why)
            })?;
            if seen.insert(letter.id) {
                checked.push(of);
            }
        }
        let written = async {
            let tx = client.transaction().await?;
            let new = write(&tx, &checked, &serde_json::json!({"import": from}), &who, &reason).await?;
            tx.commit().await?;
            Ok(new)
        };
        let imported = answered("import dead letters", written).await?;
        Ok(Imported { imported, known: letters.len() as u64 - imported, unreadable: 0 })
    }
}

async fn write(
    tx: &Transaction<'_>,
    letters: &[Checked<'_>],
    selection: &Value,
    who: &str,
    reason: &str,
) -> Result<u64, tokio_postgres::Error> {
    let new: HashSet<Uuid> = insert_letters(tx, letters).await?.into_iter().collect();
    let new: Vec<&Checked<'_>> = letters.iter().filter(|it| new.contains(&it.given.id)).collect();
    let consumers: Vec<i16> = new.iter().map(|it| it.consumer_id).collect();
    let keys: Vec<Uuid> = new.iter().map(|it| it.given.key).collect();
    let ids: Vec<Uuid> = new.iter().map(|it| it.given.id).collect();
    tx.execute(AUDIT, &[&who, &reason, selection, &consumers, &keys, &ids]).await?;
    // In the order of the keys, as batches claim them.
    let mut waiting: Vec<&&Checked<'_>> = new.iter().filter(|it| it.state == LetterState::Open).collect();
    waiting.sort_by_key(|it| (it.consumer_id, it.given.key));
    let consumers: Vec<i16> = waiting.iter().map(|it| it.consumer_id).collect();
    let keys: Vec<Uuid> = waiting.iter().map(|it| it.given.key).collect();
    let states = vec![sekali_schemas::inbox::State::Dead as i16; waiting.len()];
    let attempts: Vec<i16> = waiting.iter().map(|it| it.attempts()).collect();
    let fingerprints: Vec<i64> = waiting.iter().map(|it| fingerprint(it.payload.as_deref())).collect();
    tx.execute(ROWS, &[&consumers, &keys, &states, &attempts, &fingerprints]).await?;
    Ok(new.len() as u64)
}

async fn insert_letters(tx: &Transaction<'_>, letters: &[Checked<'_>]) -> Result<Vec<Uuid>, tokio_postgres::Error> {
    fn column<'a, T>(letters: &'a [Checked<'a>], of: impl Fn(&'a Checked<'a>) -> T) -> Vec<T> {
        letters.iter().map(of).collect()
    }
    let params: [Box<dyn ToSql + Sync + Send>; 24] = [
        Box::new(column(letters, |it| it.given.id)),
        Box::new(column(letters, |it| it.consumer_id)),
        Box::new(column(letters, |it| it.given.key)),
        Box::new(column(letters, |it| it.given.key_text.as_ref().map(|it| it.replace('\0', " ")))),
        Box::new(column(letters, |it| it.state.as_str())),
        Box::new(column(letters, |it| sekali_schemas::control::clean(&it.given.reason, 64))),
        Box::new(column(letters, |it| it.error.class.clone())),
        Box::new(column(letters, |it| it.error.code.clone())),
        Box::new(column(letters, |it| it.error.message.clone())),
        Box::new(column(letters, |it| it.cause.clone())),
        Box::new(column(letters, Checked::attempts)),
        Box::new(column(letters, |it| i16::try_from(it.given.replays).unwrap_or(i16::MAX))),
        Box::new(column(letters, |it| it.given.topic.clone())),
        Box::new(column(letters, |it| it.given.partition)),
        Box::new(column(letters, |it| it.given.offset)),
        Box::new(column(letters, |it| it.given.timestamp)),
        Box::new(column(letters, |it| it.resource_key.clone())),
        Box::new(column(letters, |it| it.payload.clone())),
        Box::new(column(letters, |it| array_literal::names(&it.headers))),
        Box::new(column(letters, |it| array_literal::values(&it.headers))),
        Box::new(column(letters, |it| cause::group(&it.error.class, &it.error.code, &it.cause))),
        Box::new(column(letters, |it| it.given.first_failed_at)),
        Box::new(column(letters, |it| it.given.last_failed_at)),
        Box::new(column(letters, |it| it.given.edited_from)),
    ];
    let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|it| &**it as _).collect();
    let rows = tx.query(LETTERS, &params).await?;
    Ok(rows.iter().map(|it| it.get(0)).collect())
}

impl<'a> Checked<'a> {
    fn of(given: &'a Exported, consumer_id: i16) -> Result<Checked<'a>, String> {
        if given.form != FORM {
            return Err(format!(
                "form {} is not known here: use the program that wrote it, or a newer one",
                given.form
            ));
        }
        if given.topic.contains('\0') {
            return Err("topic contains U+0000".to_owned());
        }
        let state = LetterState::named(&given.state).ok_or("state is none of open, replaying, resolved, discarded")?;
        let bytes = |name: &str, text: &Option<String>| {
            text.as_deref().map(decode).transpose().map_err(|_| format!("{name} is no base64"))
        };
        let mut headers = Headers::builder();
        for (name, value) in &given.headers {
            if name.contains('\0') {
                return Err("the name of a header contains U+0000".to_owned());
            }
            headers.push(name, bytes("the value of a header", value)?.as_deref());
        }
        let error = ErrorInfo::new(&given.class, &given.code, &given.message);
        Ok(Checked {
            given,
            consumer_id,
            state: if state == LetterState::Replaying { LetterState::Open } else { state },
            cause: cause::normalise(&error.message),
            error,
            resource_key: bytes("resource_key", &given.resource_key)?,
            payload: bytes("payload", &given.payload)?,
            headers: headers.build(),
        })
    }

    fn attempts(&self) -> i16 {
        // It is that at most.
        i16::try_from(u32::from(self.given.attempts).clamp(1, ATTEMPT_MAX)).unwrap_or(i16::MAX)
    }
}

/// For whoever looks at the headers of records.
pub(super) fn listed(headers: &Headers) -> Vec<(String, Option<String>)> {
    let pair = |Header { name, value }: Header<'_>| (name.to_owned(), value.map(super::export::encode));
    headers.iter().map(pair).collect()
}
