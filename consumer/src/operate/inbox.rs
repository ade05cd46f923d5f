//! All that the database knows of one idempotency key.

use std::collections::BTreeMap;

use deadpool_postgres::{ClientWrapper, Pool};
use jiff::Timestamp;
use sekali_producer::Error;
use sekali_schemas::inbox::State;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::rows::{self, shown_key};
use crate::admin;

/// What is known of a key, group by group.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Known {
    /// Key of the inbox row.
    pub key: Uuid,
    /// Groups that know it, by name.
    pub groups: Vec<InGroup>,
}

/// What one group knows.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct InGroup {
    /// Consumer group.
    pub group: String,
    /// Its inbox row; a dead letter may outlive it.
    pub decision: Option<Decision>,
    /// Dead letters, the latest first.
    pub dead_letters: Vec<DeadLetter>,
    /// Where it waits behind another one.
    pub held: Option<HeldAt>,
    /// The key that it holds.
    pub holds: Option<Holds>,
    /// Who performs its effect.
    pub lease: Option<Lease>,
}

/// An inbox row.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// `processed`, `retrying`, `held`, `dead`, `discarded` or `leased`; a number that this version does not know.
    pub state: String,
    /// With `retrying` the attempt that is to run next, else the one that was decided.
    pub attempt: i16,
    /// When it was written.
    pub decided_at: Timestamp,
    /// The same in seconds.
    pub age_seconds: f64,
    /// Of the payload that was decided.
    pub fingerprint: i64,
    /// Whether a result is stored with it.
    pub has_result: bool,
}

/// A dead letter, without its payload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its id.
    pub id: Uuid,
    /// `open`, `replaying`, `resolved` or `discarded`.
    pub state: String,
    /// Why it died.
    pub reason: String,
    /// Class of the last failure.
    pub class: String,
    /// Its code.
    pub code: String,
    /// Its text.
    pub message: String,
    /// Attempts that were made.
    pub attempts: i16,
    /// Topic, partition and offset of its first delivery, as `topic/partition/offset`.
    pub origin: String,
    /// First failure.
    pub first_failed_at: Timestamp,
    /// Last failure.
    pub last_failed_at: Timestamp,
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeldAt {
    /// Source topic and Kafka key.
    pub topic: String,
    /// As [`shown_key`] shows it.
    pub resource_key: String,
    /// The key of the head that it waits for.
    pub head: Option<Uuid>,
    /// Messages of the key that come before it.
    pub before: i64,
    /// Topic, partition and offset of its delivery.
    pub origin: String,
    /// Since when it waits.
    pub since: Timestamp,
}

/// The key that a message holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Holds {
    /// Source topic.
    pub topic: String,
    /// Kafka key, as [`shown_key`] shows it.
    pub resource_key: String,
    /// Messages that wait behind it.
    pub messages: i64,
    /// It is decided, and they may run.
    pub ready: bool,
    /// Since when.
    pub since: Timestamp,
}

/// An effect in progress.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lease {
    /// Token of the process.
    pub owner: Uuid,
    /// Number of the lease.
    pub fence: i64,
    /// Until it runs out, in seconds; negative when it has.
    pub left_seconds: f64,
}

/// Group by group, because the index begins with the group.
const DECISIONS: &str = "SELECT consumer.name, row.* FROM sekali.consumer CROSS JOIN LATERAL ( \
     SELECT state, attempt, decided_at, extract(epoch FROM now() - decided_at)::float8, fingerprint, result IS NOT NULL \
     FROM sekali.inbox AS it WHERE it.consumer_id = consumer.id AND it.key = $1 OFFSET 0) AS row \
     WHERE $2::text IS NULL OR consumer.name = $2";
const DEAD_LETTERS: &str = "SELECT consumer.name, row.* FROM sekali.consumer CROSS JOIN LATERAL ( \
     SELECT id, state, reason, class, code, message, attempts, \
     origin_topic || '/' || origin_partition || '/' || origin_offset, first_failed_at, last_failed_at \
     FROM sekali.dead_letter AS it WHERE it.consumer_id = consumer.id AND it.key = $1 ORDER BY last_failed_at DESC \
     LIMIT 20) AS row WHERE $2::text IS NULL OR consumer.name = $2";
const HELD: &str = "SELECT consumer.name, held.topic, held.resource_key, hold.head, (SELECT count(*) \
     FROM sekali.held_message AS it WHERE it.consumer_id = held.consumer_id AND it.topic = held.topic \
     AND it.resource_key = held.resource_key AND it.seq < held.seq), \
     held.topic || '/' || held.\"partition\" || '/' || held.\"offset\", held.held_at FROM sekali.held_message AS held \
     JOIN sekali.consumer ON consumer.id = held.consumer_id LEFT JOIN sekali.held_key AS hold \
     ON hold.consumer_id = held.consumer_id AND hold.topic = held.topic AND hold.resource_key = held.resource_key \
     WHERE held.key = $1 AND ($2::text IS NULL OR consumer.name = $2)";
const HEADS: &str = "SELECT consumer.name, hold.topic, hold.resource_key, (SELECT count(*) FROM sekali.held_message AS it \
     WHERE it.consumer_id = hold.consumer_id AND it.topic = hold.topic AND it.resource_key = hold.resource_key), \
     hold.ready, hold.since FROM sekali.held_key AS hold JOIN sekali.consumer ON consumer.id = hold.consumer_id \
     WHERE hold.head = $1 AND ($2::text IS NULL OR consumer.name = $2)";
const LEASES: &str = "SELECT consumer.name, owner, fence, extract(epoch FROM until - now())::float8 FROM sekali.lease \
     JOIN sekali.consumer ON consumer.id = consumer_id WHERE key = $1 AND ($2::text IS NULL OR consumer.name = $2)";

/// Looks a key up in every group, or in one. Changes nothing. The inbox keeps no coordinates of what went well, so that
/// only dead letters and held messages show theirs; the record of a pending retry is on Kafka, see `retries::list`.
///
/// # Errors
/// PostgreSQL does not answer.
pub async fn show(pool: &Pool, key: Uuid, group: Option<&str>) -> Result<Known, Error> {
    let client = admin::connect(pool).await?;
    let mut groups: BTreeMap<String, InGroup> = BTreeMap::new();
    let mut of = |row: &Row, put: &dyn Fn(&mut InGroup)| {
        let name: String = row.get(0);
        let group = groups.entry(name.clone()).or_insert_with(|| InGroup { group: name, ..InGroup::default() });
        put(group);
    };
    for row in ask(&client, DECISIONS, key, group).await? {
        of(&row, &|it| it.decision = Some(decision(&row)));
    }
    for row in ask(&client, DEAD_LETTERS, key, group).await? {
        of(&row, &|it| it.dead_letters.push(dead_letter(&row)));
    }
    for row in ask(&client, HELD, key, group).await? {
        of(&row, &|it| it.held = Some(held(&row)));
    }
    for row in ask(&client, HEADS, key, group).await? {
        of(&row, &|it| it.holds = Some(holds(&row)));
    }
    for row in ask(&client, LEASES, key, group).await? {
        let lease = || Lease { owner: row.get(1), fence: row.get(2), left_seconds: row.get(3) };
        of(&row, &|it| it.lease = Some(lease()));
    }
    Ok(Known { key, groups: groups.into_values().collect() })
}

async fn ask(client: &ClientWrapper, sql: &str, key: Uuid, group: Option<&str>) -> Result<Vec<Row>, Error> {
    rows::query(client, "look the key up", sql, &[(&key, Type::UUID), (&group, Type::TEXT)]).await
}

fn decision(row: &Row) -> Decision {
    let number: i16 = row.get(1);
    let state = State::from_i16(number).map_or_else(|| number.to_string(), |it| it.as_str().to_owned());
    Decision {
        state,
        attempt: row.get(2),
        decided_at: row.get(3),
        age_seconds: row.get::<_, f64>(4).max(0.0),
        fingerprint: row.get(5),
        has_result: row.get(6),
    }
}

fn dead_letter(row: &Row) -> DeadLetter {
    DeadLetter {
        id: row.get(1),
        state: row.get(2),
        reason: row.get(3),
        class: row.get(4),
        code: row.get(5),
        message: row.get(6),
        attempts: row.get(7),
        origin: row.get(8),
        first_failed_at: row.get(9),
        last_failed_at: row.get(10),
    }
}

fn held(row: &Row) -> HeldAt {
    HeldAt {
        topic: row.get(1),
        resource_key: shown_key(row.get(2)),
        head: row.get(3),
        before: row.get(4),
        origin: row.get(5),
        since: row.get(6),
    }
}

fn holds(row: &Row) -> Holds {
    Holds {
        topic: row.get(1),
        resource_key: shown_key(row.get(2)),
        messages: row.get(3),
        ready: row.get(4),
        since: row.get(5),
    }
}
