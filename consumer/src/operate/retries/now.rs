//! Making retries due at once.
//!
//! A record on a topic cannot be moved. A second one asks for the same attempt, due now, on the retry topic with the
//! shortest delay: whichever comes first is handled, and the inbox makes the other one a duplicate. So the attempt keeps its
//! number, and what is held behind the message stays held until it is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use deadpool_postgres::Pool;
use sekali_producer::{Error, ErrorKind, OutboundRecord, outbox};
use sekali_schemas::control::{Control, user_headers};
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::actor::{Actor, Entry, audit};
use super::super::rows::{self, Open};
use super::Retry;
use crate::config::Config;
use crate::{Transaction, clock};

/// What became of one retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MadeDue {
    /// Idempotency key as its sender wrote it.
    pub key: String,
    /// Key of its inbox row.
    pub row: Uuid,
    /// The attempt that is to run.
    pub attempt: u32,
    /// `due`, `due_already`, `not_waiting` (decided, or running just now), or `foreign` (its source topic is none of the
    /// configuration's).
    pub outcome: &'static str,
}

/// The retry topic with the shortest delay, by source topic.
type Shortest = BTreeMap<String, (Duration, String)>;

/// Rows that somebody has locked are running just now.
const LOCK: &str = "SELECT key, attempt, consumer_id FROM sekali.inbox JOIN sekali.consumer ON consumer.id = consumer_id \
     WHERE consumer.name = $1 AND key = ANY ($2) AND state = 2 ORDER BY key FOR UPDATE OF inbox SKIP LOCKED";
/// In one transaction.
const BATCH: usize = 200;

/// Makes retries that were listed due at once. They run when the relay has published them and what stands before them on
/// the retry topic with the shortest delay is due: after that delay at the latest, which is returned, too.
///
/// # Errors
/// PostgreSQL does not answer; the batches before that are done.
pub async fn run_now(
    config: &Config,
    pool: &Pool,
    chosen: &[Retry],
    actor: &Actor,
) -> Result<(Vec<MadeDue>, Duration), Error> {
    let topics = config
        .group_topics()
        .map_err(|error| Error::new(ErrorKind::Config, "name the topics of the group").because(error))?;
    let shortest: Shortest =
        topics.topics.into_iter().filter_map(|it| Some((it.source, it.retry.into_iter().min()?))).collect();
    let mut done = Vec::with_capacity(chosen.len());
    for batch in chosen.chunks(BATCH) {
        done.extend(batch_now(config, pool, &shortest, batch, actor).await?);
    }
    let wait = shortest.values().map(|it| it.0).max().unwrap_or_default();
    Ok((done, wait))
}

async fn batch_now(
    config: &Config,
    pool: &Pool,
    shortest: &Shortest,
    chosen: &[Retry],
    actor: &Actor,
) -> Result<Vec<MadeDue>, Error> {
    let open = Open::begin(pool).await?;
    let client = open.client();
    let keys: Vec<Uuid> = chosen.iter().map(|it| it.row).collect();
    let name = config.consumer_name();
    let of = [(&name as _, Type::TEXT), (&keys as _, Type::UUID_ARRAY)];
    let locked = rows::query(client, "lock the rows of the retries", LOCK, &of).await?;
    let waiting: BTreeSet<(Uuid, i16)> = locked.iter().map(|it| (it.get(0), it.get(1))).collect();
    let consumer_id: Option<i16> = locked.first().map(|it| it.get(2));
    let now_ms = clock::database_ms(client).await.map_err(|error| rows::failed("read the clock", &error))?;
    let (mut done, mut records, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for it in chosen {
        let waits = i16::try_from(it.attempt).is_ok_and(|attempt| waiting.contains(&(it.row, attempt)));
        let outcome = match shortest.get(&it.topic) {
            None => "foreign",
            Some(_) if !waits => "not_waiting",
            Some(_) if it.record.due_at_ms().is_none_or(|at| at <= now_ms) => "due_already",
            Some((_, topic)) => {
                records.push(due_now(it, topic, now_ms)?);
                "due"
            }
        };
        done.push(MadeDue { key: it.key.clone(), row: it.row, attempt: it.attempt, outcome });
        entries.push(Entry {
            action: "retry.run-now",
            consumer_id,
            key: Some(it.row),
            subject: format!("attempt {} of topic {}", it.attempt, it.topic),
            outcome: outcome.to_owned(),
        });
    }
    outbox::enqueue_all(&Transaction::over(client), &records).await?;
    audit(client, actor, &entries).await?;
    open.commit().await?;
    Ok(done)
}

/// The record once more: key, payload and user headers as they came, the same attempt, due now.
fn due_now(retry: &Retry, topic: &str, now_ms: i64) -> Result<OutboundRecord, Error> {
    let record = retry.record.record();
    let control = Control::read(&record.headers)
        .map_err(|error| Error::new(ErrorKind::Kafka, "read the headers of a retry").because(error))?;
    let control = Control { due_at_ms: Some(now_ms), ..control };
    Ok(OutboundRecord {
        topic: topic.to_owned(),
        key: record.key.clone(),
        payload: record.payload.clone(),
        headers: control.onto(&user_headers(&record.headers)),
    })
}
