//! Retries that are still to run.
//!
//! The inbox says which attempt of which message is to run next; the record with its payload and the moment from which it
//! may run are on a retry topic, or in the outbox on the way there. A record whose attempt nobody waits for is a stale copy.

mod now;
mod read;

use std::collections::BTreeSet;

use deadpool_postgres::Pool;
use jiff::Timestamp;
use sekali_producer::Error;
use sekali_schemas::Message;
use sekali_schemas::control::Control;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::rows;
use crate::admin;
use crate::config::Config;

pub use now::{MadeDue, run_now};

/// A message whose next attempt is to come.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Retry {
    /// Source topic.
    pub topic: String,
    /// Idempotency key as its sender wrote it.
    pub key: String,
    /// Key of its inbox row.
    pub row: Uuid,
    /// Kafka key, as `shown_key` shows it.
    pub resource_key: Option<String>,
    /// The attempt that is to run.
    pub attempt: u32,
    /// From when on it may run.
    pub due_at: Option<Timestamp>,
    /// Until then, in seconds; negative when it is overdue.
    pub due_in_seconds: f64,
    /// First failure.
    pub first_failed_at: Option<Timestamp>,
    /// Class of the last failure.
    pub class: String,
    /// Its code.
    pub code: String,
    /// Its text.
    pub message: String,
    /// Where the record is: `topic/partition/offset`, or `outbox/id` when it is not published yet.
    pub place: String,
    #[serde(skip)]
    record: Message,
}

/// What waits for its next attempt.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Retries {
    /// Those that are due first.
    pub rows: Vec<Retry>,
    /// Beyond those.
    pub more: u64,
    /// Records whose attempt was decided already: they will be duplicates.
    pub stale: u64,
    /// Records of this group that are no message; the group makes dead letters of them.
    pub unreadable: u64,
    /// Rows that wait for an attempt of which no record was found: that message is lost unless its record shows up. Only
    /// when asked for.
    pub missing: Option<Vec<Missing>>,
}

/// A row that waits for an attempt of which there is no record.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Missing {
    /// Key of the inbox row.
    pub row: Uuid,
    /// The attempt that is to run.
    pub attempt: i16,
    /// When the attempt before it was decided.
    pub decided_at: Timestamp,
}

/// Which retries.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this source topic.
    pub topic: Option<String>,
    /// Exactly this idempotency key: its inbox row's.
    pub row: Option<Uuid>,
    /// Exactly this Kafka key.
    pub resource_key: Option<Vec<u8>>,
    /// Whose last failure was of this class.
    pub class: Option<String>,
    /// As many as are kept.
    pub limit: usize,
    /// Whether to look for rows without a record, which reads the whole inbox.
    pub missing: bool,
}

impl Filter {
    fn takes(&self, message: &Message, control: &Control) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        same(&self.topic, &control.origin.topic)
            && same(&self.class, &control.error.class)
            && self.row.is_none_or(|it| it == message.idempotency_key().uuid())
            && self.resource_key.as_ref().is_none_or(|it| message.key() == Some(it))
    }
}

/// Rows of the inbox that are asked for at once.
const PAGE: usize = 5_000;
const WAITING: &str = "SELECT key, attempt FROM sekali.inbox JOIN sekali.consumer ON consumer.id = consumer_id \
     WHERE consumer.name = $1 AND key = ANY ($2) AND state = 2";
/// One whose record is just being written or published is no finding.
const MISSING: &str = "SELECT key, attempt, decided_at FROM sekali.inbox JOIN sekali.consumer ON consumer.id = consumer_id \
     WHERE consumer.name = $1 AND state = 2 AND decided_at < now() - interval '1 minute' AND NOT (key = ANY ($2)) \
     ORDER BY decided_at LIMIT 1000";

/// Lists what is to be retried in the group of the configuration: reads its retry topics from the committed offsets on,
/// and the outbox. Joins no group and changes nothing. Of a handler that computes idempotency keys itself the records are
/// found under the key in their headers, and so may count as stale.
///
/// # Errors
/// Kafka or PostgreSQL cannot be reached.
pub async fn list(config: &Config, pool: &Pool, filter: &Filter) -> Result<Retries, Error> {
    let found = read::all(config, pool, filter).await?;
    let client = admin::connect(pool).await?;
    let name = config.consumer_name();
    let mut waiting: BTreeSet<(Uuid, i16)> = BTreeSet::new();
    let keys: Vec<Uuid> = found.keys.iter().map(|it| it.0).collect();
    for page in keys.chunks(PAGE) {
        let of = [(&name as _, Type::TEXT), (&page as _, Type::UUID_ARRAY)];
        let found = rows::query(&client, "look the retries up", WAITING, &of).await?;
        waiting.extend(found.iter().map(|it| (it.get(0), it.get(1))));
    }
    let waits = |row: Uuid, attempt: u32| i16::try_from(attempt).is_ok_and(|it| waiting.contains(&(row, it)));
    let pending = found.keys.iter().filter(|it| waits(it.0, it.1)).collect::<BTreeSet<_>>().len() as u64;
    let stale = found.keys.iter().filter(|it| !waits(it.0, it.1)).count() as u64;
    let now_ms = crate::clock::database_ms(&client).await.map_err(|error| rows::failed("read the clock", &error))?;
    let mut listed: Vec<Retry> =
        found.kept.into_iter().map(|it| it.into_retry(now_ms)).filter(|it| waits(it.row, it.attempt)).collect();
    listed.sort_by(|a, b| (a.due_at, &a.place).cmp(&(b.due_at, &b.place)));
    // Of several copies of one attempt the first one that is due runs.
    let mut seen = BTreeSet::new();
    listed.retain(|it| seen.insert((it.row, it.attempt)));
    listed.truncate(filter.limit);
    let missing = match filter.missing {
        false => None,
        true => {
            let of = [(&name as _, Type::TEXT), (&keys as _, Type::UUID_ARRAY)];
            let lost = rows::query(&client, "look for retries without a record", MISSING, &of).await?;
            Some(lost.iter().map(|it| Missing { row: it.get(0), attempt: it.get(1), decided_at: it.get(2) }).collect())
        }
    };
    let more = pending.saturating_sub(listed.len() as u64);
    Ok(Retries { rows: listed, more, stale, unreadable: found.unreadable, missing })
}
