//! Crash drills: marked events, a worker that is killed in the middle, and what the ledger of decisions says afterwards.

use std::collections::BTreeMap;

use deadpool_postgres::Pool;
use jiff::Timestamp;
use sekali_producer::{Error, ErrorKind, SqlError};
use sekali_schemas::inbox::State;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::actor::{Actor, Entry, audit};
use super::rows::{self, Open};
use crate::admin;
use crate::postgres::inbox;

/// What became of the marked events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ledger {
    /// Events by state of their inbox row, and `none`.
    pub states: BTreeMap<String, u64>,
    /// Events with a final decision: processed, dead or discarded.
    pub decided: u64,
    /// Events that were decided more than once: with two dead letters, or processed with one.
    pub twice: u64,
}

/// A drill under way.
#[derive(Debug, Clone)]
pub struct Drill {
    /// Its id.
    pub id: Uuid,
    consumer_id: i16,
    topic: String,
}

/// How a drill ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ended {
    /// Its id.
    pub id: Uuid,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Whether each event was decided exactly once.
    pub passed: bool,
    /// Marked events.
    pub events: i32,
    /// Processes that were killed.
    pub kills: i32,
    /// What became of the events.
    pub ledger: Ledger,
    /// What was wrong; empty when nothing was.
    pub finding: String,
}

const BEGIN: &str = "INSERT INTO sekali.drill (id, consumer_id, who, topic, events) VALUES ($1, $2, $3, $4, $5)";
const LOOK: &str = "SELECT row.state, (SELECT count(*) FROM sekali.dead_letter AS dead \
     WHERE dead.consumer_id = $1 AND dead.key = asked.key) FROM unnest($2::uuid[]) AS asked (key) \
     LEFT JOIN sekali.inbox AS row ON row.consumer_id = $1 AND row.key = asked.key";
const END: &str = "UPDATE sekali.drill SET ended_at = now(), kills = $2, decided = $3, outcome = $4, finding = $5 \
     WHERE id = $1 RETURNING ended_at, events";

/// Notes that a drill begins.
///
/// # Errors
/// PostgreSQL does not answer.
pub async fn begin(pool: &Pool, group: &str, topic: &str, events: i32, actor: &Actor) -> Result<Drill, Error> {
    let client = admin::connect(pool).await?;
    let failed = |error| Error::new(ErrorKind::Postgres, "register the consumer").because(SqlError::of(&error));
    let consumer_id = inbox::consumer_id(&client, group).await.map_err(failed)?;
    let drill = Drill { id: Uuid::now_v7(), consumer_id, topic: topic.to_owned() };
    let of = [
        (&drill.id as _, Type::UUID),
        (&consumer_id as _, Type::INT2),
        (&actor.who as _, Type::TEXT),
        (&topic as _, Type::TEXT),
        (&events as _, Type::INT4),
    ];
    rows::query(&client, "note the drill", BEGIN, &of).await?;
    Ok(drill)
}

/// Looks the marked events up, by the keys of their inbox rows.
///
/// # Errors
/// PostgreSQL does not answer.
pub async fn look(pool: &Pool, drill: &Drill, keys: &[Uuid]) -> Result<Ledger, Error> {
    let client = admin::connect(pool).await?;
    let of = [(&drill.consumer_id as _, Type::INT2), (&keys as _, Type::UUID_ARRAY)];
    let mut ledger = Ledger::default();
    for row in rows::query(&client, "look the marked events up", LOOK, &of).await? {
        let state = row.get::<_, Option<i16>>(0).and_then(State::from_i16);
        let deaths: i64 = row.get(1);
        *ledger.states.entry(state.map_or("none", State::as_str).to_owned()).or_default() += 1;
        ledger.decided += u64::from(matches!(state, Some(State::Processed | State::Dead | State::Discarded)));
        ledger.twice += u64::from(1 < deaths || (state == Some(State::Processed) && 0 < deaths));
    }
    Ok(ledger)
}

/// Records how a drill ended. Without a finding it passed.
///
/// # Errors
/// PostgreSQL does not answer, or its row is gone.
pub async fn end(
    pool: &Pool,
    drill: &Drill,
    kills: i32,
    ledger: Ledger,
    finding: &str,
    actor: &Actor,
) -> Result<Ended, Error> {
    let open = Open::begin(pool).await?;
    let passed = finding.is_empty();
    let (decided, outcome) =
        (i32::try_from(ledger.decided).unwrap_or(i32::MAX), if passed { "passed" } else { "failed" });
    let of = [
        (&drill.id as _, Type::UUID),
        (&kills as _, Type::INT4),
        (&decided as _, Type::INT4),
        (&outcome as _, Type::TEXT),
        (&finding as _, Type::TEXT),
    ];
    let ended = rows::query(open.client(), "record the drill", END, &of).await?;
    let row =
        ended.first().ok_or_else(|| Error::new(ErrorKind::Postgres, "find the row of the drill: was it deleted?"))?;
    let ended = Ended {
        id: drill.id,
        ended_at: row.get(0),
        passed,
        events: row.get(1),
        kills,
        ledger,
        finding: finding.to_owned(),
    };
    let entry = Entry {
        action: "drill",
        consumer_id: Some(drill.consumer_id),
        key: None,
        subject: format!("{} events on topic {}, {kills} kills", ended.events, drill.topic),
        outcome: outcome.to_owned(),
    };
    audit(open.client(), actor, &[entry]).await?;
    open.commit().await?;
    Ok(ended)
}
