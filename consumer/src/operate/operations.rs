//! Operations: what somebody asked for, pinned to the letters that were there then.

mod chunk;
mod letter;
mod run;
mod write;

use jiff::Timestamp;
use sekali_schemas::control::clean;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{Client, Row};

use super::filter::{CONDITIONS, Param};
use super::preview::selected;
use super::{Act, DeadLetters, Filter, answered, refused};
use crate::{Error, ErrorKind};

pub use run::Progress;

pub(super) use letter::{Locked, lock, lock_rows};
pub(super) use write::{AuditEntry, Signed, audit_all};

/// Longest reason and name, in bytes.
const REASON_BYTES_MAX: usize = 1024;
const WHO_BYTES_MAX: usize = 200;
/// Ids that are kept in the audit; of more, only their number is.
const IDS_SHOWN_MAX: usize = 20;

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Which letters.
    pub filter: Filter,
    /// Who asks.
    pub who: String,
    /// Why; required.
    pub reason: String,
    /// Letters a second; by default `operate.replay_rate`, and for what sends nothing as fast as it goes.
    pub rate: Option<u32>,
    /// Beyond `operate.replays_max`, and though a replay is on its way.
    pub force: bool,
    /// Refused when another number of letters is selected: nothing has changed since somebody looked.
    pub expected: Option<u64>,
}

/// An operation, begun or ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// Its number.
    pub id: i64,
    /// What is done: replay, discard, restore or edit.
    pub kind: String,
    /// running, stopped, done or cancelled. Running also after its process died: it goes on with
    /// [`DeadLetters::run`].
    pub state: String,
    /// Who asked.
    pub who: String,
    /// Why.
    pub reason: String,
    /// What the letters were chosen by.
    pub selection: serde_json::Value,
    /// Letters a second.
    pub rate: u32,
    /// Whether it goes beyond the bounds.
    pub force: bool,
    /// Letters that were selected.
    pub letters: u64,
    /// Letters whose turn has come.
    pub done: u64,
    /// When it began.
    pub begun_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How often each outcome came, the most frequent first.
    pub outcomes: Vec<(String, u64)>,
    /// Who had come first, where the outcome says so: operation and its operator.
    pub others: Vec<(i64, String)>,
}

/// Rate of what sends nothing.
const RATE_OF_CLOSING: u32 = 5_000;
const RATE_MAX: u32 = 100_000;

const COLUMNS: &str = "operation.id, operation.kind, operation.state, operation.who, operation.reason, \
     operation.selection, operation.rate, operation.force, operation.items, \
     (SELECT count(*) FROM sekali.operation_item AS it WHERE it.operation_id = operation.id AND it.outcome IS NOT NULL), \
     operation.begun_at, operation.ended_at";

impl DeadLetters {
    /// Notes an operation with the ids of its letters, in the order of the log. Nothing is done yet: see
    /// [`run`](DeadLetters::run).
    ///
    /// # Errors
    /// No reason, nothing selected, another number than expected, a filter that cannot be used; the database refuses.
    pub async fn begin(&self, act: Act, ask: &Ask) -> Result<Operation, Error> {
        const INSERT: &str = "INSERT INTO sekali.operation (kind, state, who, reason, selection, rate, force, items) \
             VALUES ($1, 'stopped', $2, $3, $4, $5, $6, 0) RETURNING id";
        let filter = selected(act, &ask.filter);
        let checked = filter.checked()?;
        let (who, reason) = (signed(&ask.who)?, reasoned(&ask.reason)?);
        let rate = ask.rate.unwrap_or(match act {
            Act::Replay => self.bounds.replay_rate.get(),
            Act::Discard | Act::Restore => RATE_OF_CLOSING,
        });
        let rate = i32::try_from(rate.clamp(1, RATE_MAX)).unwrap_or(i32::MAX);
        let pin = format!(
            "WITH pinned AS (INSERT INTO sekali.operation_item (operation_id, nr, dead_letter_id) \
             SELECT $13, row_number() OVER (ORDER BY letter.consumer_id, letter.origin_topic, letter.origin_partition, \
             letter.origin_offset, letter.id), letter.id FROM sekali.dead_letter AS letter WHERE {CONDITIONS} RETURNING 1) \
             UPDATE sekali.operation SET items = (SELECT count(*) FROM pinned) WHERE id = $13 RETURNING items"
        );
        let mut client = self.client().await?;
        let begun = async {
            let tx = client.transaction().await?;
            let selection = Json(shown_selection(&filter));
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&act.as_str(), &who, &reason, &selection, &rate, &ask.force];
            let id: i64 = tx.query_one(INSERT, &params).await?.get(0);
            let mut params: Vec<Param<'_>> = checked.params().into();
            params.push((&id, Type::INT8));
            let rows = tx.query_typed(&pin, &params).await?;
            let letters = rows.first().map_or(0, |it| it.get::<_, i32>(0).unsigned_abs().into());
            let wanted = ask.expected.is_none_or(|it| it == letters) && 0 < letters;
            if wanted {
                tx.commit().await?;
            }
            Ok((id, letters))
        };
        let (id, letters) = answered("begin the operation", begun).await?;
        match ask.expected {
            Some(expected) if expected != letters => {
                let doing = format!("begin: {letters} dead letters are selected and not {expected}; look again");
                Err(refused(doing))
            }
            _ if letters == 0 => Err(refused("begin: no dead letter is selected; look at `sekali dlq list`")),
            _ => self.operation(id).await,
        }
    }

    /// Ends an operation that has not ended. What it did stays done.
    ///
    /// # Errors
    /// There is none of that number that has not ended; the database refuses.
    pub async fn cancel(&self, id: i64, who: &str, reason: &str) -> Result<Operation, Error> {
        const CANCEL: &str = "WITH ended AS (UPDATE sekali.operation SET state = 'cancelled', ended_at = now(), owner = NULL \
             WHERE id = $1 AND state IN ('running', 'stopped') RETURNING id, selection) \
             INSERT INTO sekali.audit (who, action, reason, selection, outcome, operation_id) \
             SELECT $2, 'cancel', $3, selection, 'cancelled', id FROM ended";
        let (who, reason) = (signed(who)?, reasoned(reason)?);
        let client = self.client().await?;
        let cancelled = answered("cancel the operation", client.execute(CANCEL, &[&id, &who, &reason])).await?;
        let operation = self.operation(id).await?;
        if cancelled == 0 {
            return Err(refused(format!("cancel operation {id}: it is {} already", operation.state)));
        }
        Ok(operation)
    }

    /// One operation with its outcomes.
    ///
    /// # Errors
    /// There is none of that number; the database refuses.
    pub async fn operation(&self, id: i64) -> Result<Operation, Error> {
        let client = self.client().await?;
        let sql = format!("SELECT {COLUMNS} FROM sekali.operation WHERE id = $1");
        let row = answered("read the operation", client.query_opt(&sql, &[&id])).await?;
        let row = row.ok_or_else(|| refused(format!("find operation {id}: there is none of that number")))?;
        let mut operation = Operation::of(&row);
        operation.outcomes = answered("count the outcomes", outcomes(&client, id)).await?;
        operation.others = answered("look for others", others(&client, id)).await?;
        Ok(operation)
    }

    /// The latest operations, the newest first, at most `max`, without their outcomes.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn operations(&self, max: u32) -> Result<Vec<Operation>, Error> {
        let client = self.client().await?;
        let sql = format!("SELECT {COLUMNS} FROM sekali.operation ORDER BY id DESC LIMIT $1");
        let rows = answered("list operations", client.query(&sql, &[&i64::from(max.clamp(1, 1_000))])).await?;
        Ok(rows.iter().map(Operation::of).collect())
    }
}

async fn outcomes(client: &Client, id: i64) -> Result<Vec<(String, u64)>, tokio_postgres::Error> {
    const SQL: &str = "SELECT outcome, count(*) FROM sekali.operation_item WHERE operation_id = $1 AND outcome IS NOT NULL \
         GROUP BY 1 ORDER BY 2 DESC, 1";
    let rows = client.query(SQL, &[&id]).await?;
    Ok(rows.iter().map(|it| (it.get(0), it.get::<_, i64>(1).unsigned_abs())).collect())
}

async fn others(client: &Client, id: i64) -> Result<Vec<(i64, String)>, tokio_postgres::Error> {
    const SQL: &str = "SELECT DISTINCT other.id, other.who FROM sekali.operation_item AS item \
         JOIN sekali.dead_letter AS letter ON letter.id = item.dead_letter_id \
         JOIN sekali.operation AS other ON other.id = letter.operation_id \
         WHERE item.operation_id = $1 AND item.outcome LIKE 'already%' AND other.id <> $1 ORDER BY 1 LIMIT 10";
    let rows = client.query(SQL, &[&id]).await?;
    Ok(rows.iter().map(|it| (it.get(0), it.get(1))).collect())
}

impl Operation {
    fn of(row: &Row) -> Operation {
        Operation {
            id: row.get(0),
            kind: row.get(1),
            state: row.get(2),
            who: row.get(3),
            reason: row.get(4),
            selection: row.get(5),
            rate: row.get::<_, i32>(6).unsigned_abs(),
            force: row.get(7),
            letters: row.get::<_, i32>(8).unsigned_abs().into(),
            done: row.get::<_, i64>(9).unsigned_abs(),
            begun_at: row.get(10),
            ended_at: row.get(11),
            outcomes: Vec::new(),
            others: Vec::new(),
        }
    }
}

/// The filter as the audit keeps it, once for each message.
pub(super) fn shown_selection(filter: &Filter) -> serde_json::Value {
    let mut json = serde_json::to_value(filter).unwrap_or_default();
    if IDS_SHOWN_MAX < filter.ids.len() {
        json["ids"] = filter.ids.len().into();
    }
    json
}

/// A name that is no empty text.
pub(super) fn signed(who: &str) -> Result<String, Error> {
    required(who, WHO_BYTES_MAX, "name who does this (--actor)")
}

/// A reason that is no empty text.
pub(super) fn reasoned(reason: &str) -> Result<String, Error> {
    required(reason, REASON_BYTES_MAX, "say why (--reason): it is kept in the audit")
}

fn required(text: &str, bytes_max: usize, doing: &str) -> Result<String, Error> {
    let text = clean(text.trim(), bytes_max);
    if text.is_empty() {
        return Err(Error::new(ErrorKind::Config, doing).because("it is empty"));
    }
    Ok(text)
}
