//! Who did what, when and why.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::filter::Param;
use super::{DeadLetters, answered};
use crate::Error;

/// Most rows of one answer.
const ROWS_MAX: u32 = 10_000;

/// One action on one message. Rows are never changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AuditRow {
    /// Rises with time.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// Who: an operator, or the process that ended a replay.
    pub who: String,
    /// What was asked for.
    pub action: String,
    /// Why.
    pub reason: String,
    /// What the message was chosen by.
    pub selection: serde_json::Value,
    /// The consumer.
    pub consumer: Option<String>,
    /// Key of the inbox row.
    pub key: Option<Uuid>,
    /// What came of it.
    pub outcome: String,
    /// The dead letter.
    pub dead_letter: Option<Uuid>,
    /// The operation that it was part of.
    pub operation: Option<i64>,
}

/// Which rows of the audit are meant: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditQuery {
    /// The dead letter.
    pub dead_letter: Option<Uuid>,
    /// The operation.
    pub operation: Option<i64>,
    /// Who did it.
    pub who: Option<String>,
    /// At this moment or later.
    pub since: Option<Timestamp>,
    /// With ids below this one: the next page.
    pub before: Option<i64>,
}

const SQL: &str = "SELECT audit.id, at, who, action, reason, selection, consumer.name, key, outcome, dead_letter_id, \
     operation_id FROM sekali.audit LEFT JOIN sekali.consumer ON consumer.id = consumer_id \
     WHERE ($1::uuid IS NULL OR dead_letter_id = $1) AND ($2::bigint IS NULL OR operation_id = $2) \
     AND ($3::text IS NULL OR who = $3) AND ($4::timestamptz IS NULL OR $4 <= at) \
     AND ($5::bigint IS NULL OR audit.id < $5) ORDER BY audit.id DESC LIMIT $6";

impl DeadLetters {
    /// Rows of the audit, the newest first, at most `max`.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn audit(&self, query: &AuditQuery, max: u32) -> Result<Vec<AuditRow>, Error> {
        let max = i64::from(max.clamp(1, ROWS_MAX));
        let params: [Param<'_>; 6] = [
            (&query.dead_letter, Type::UUID),
            (&query.operation, Type::INT8),
            (&query.who, Type::TEXT),
            (&query.since, Type::TIMESTAMPTZ),
            (&query.before, Type::INT8),
            (&max, Type::INT8),
        ];
        let client = self.client().await?;
        let rows = answered("read the audit", client.query_typed(SQL, &params)).await?;
        Ok(rows.iter().map(read).collect())
    }
}

fn read(row: &Row) -> AuditRow {
    AuditRow {
        id: row.get(0),
        at: row.get(1),
        who: row.get(2),
        action: row.get(3),
        reason: row.get(4),
        selection: row.get(5),
        consumer: row.get(6),
        key: row.get(7),
        outcome: row.get(8),
        dead_letter: row.get(9),
        operation: row.get(10),
    }
}
