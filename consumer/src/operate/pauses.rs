//! Pausing a topic of a group, durably: every worker stops beginning anything of it within seconds, and so does one that
//! starts later, until somebody resumes it.

use deadpool_postgres::{ClientWrapper, Pool};
use jiff::Timestamp;
use sekali_producer::{Error, ErrorKind};
use serde::Serialize;
use tokio_postgres::types::Type;

use super::actor::{Actor, Entry, audit};
use super::rows::{self, Open};
use crate::admin;
use crate::pauses::ALL_TOPICS;

/// A topic that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Paused {
    /// Consumer group.
    pub group: String,
    /// Source topic; none for all topics of the group.
    pub topic: Option<String>,
    /// Since when.
    pub paused_at: Timestamp,
    /// By whom.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// A source topic that a group reads, as the group said itself when it started last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Topic {
    /// Consumer group.
    pub group: String,
    /// Source topic.
    pub topic: String,
}

/// What a pause or a resumption came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Changed {
    /// Consumer group.
    pub group: String,
    /// Source topic; none for all topics of the group.
    pub topic: Option<String>,
    /// `paused`, `paused_already`, `resumed`, or `not_paused`.
    pub outcome: &'static str,
    /// Whether all topics of the group are paused, so that resuming one of them changes nothing.
    pub group_is_paused: bool,
}

const LIST: &str = "SELECT consumer.name, NULLIF(topic, '*'), paused_at, who, reason FROM sekali.paused_topic \
     JOIN sekali.consumer ON consumer.id = consumer_id WHERE $1::text IS NULL OR consumer.name = $1 ORDER BY 1, 2";
const TOPICS: &str = "SELECT consumer.name, route.topic FROM sekali.route JOIN sekali.consumer ON consumer.id = consumer_id \
     ORDER BY 1, 2";
const GROUP: &str = "SELECT (SELECT id FROM sekali.consumer WHERE name = $1), \
     (SELECT string_agg(name, ', ' ORDER BY name) FROM sekali.consumer WHERE name <> 'outbox')";
const PAUSE: &str = "INSERT INTO sekali.paused_topic (consumer_id, topic, who, reason) VALUES ($1, $2, $3, $4) \
     ON CONFLICT DO NOTHING RETURNING topic";
const RESUME: &str = "DELETE FROM sekali.paused_topic WHERE consumer_id = $1 AND topic = $2 RETURNING topic";
const RESUME_ALL: &str = "DELETE FROM sekali.paused_topic WHERE consumer_id = $1 RETURNING topic";
const ALL_PAUSED: &str = "SELECT FROM sekali.paused_topic WHERE consumer_id = $1 AND topic = '*'";

/// What is paused, of one group or of all. Changes nothing.
///
/// # Errors
/// PostgreSQL does not answer.
pub async fn list(pool: &Pool, group: Option<&str>) -> Result<Vec<Paused>, Error> {
    let client = admin::connect(pool).await?;
    let found = rows::query(&client, "list the paused topics", LIST, &[(&group, Type::TEXT)]).await?;
    let paused = |it: &tokio_postgres::Row| Paused {
        group: it.get(0),
        topic: it.get(1),
        paused_at: it.get(2),
        who: it.get(3),
        reason: it.get(4),
    };
    Ok(found.iter().map(paused).collect())
}

/// What can be paused: the source topics of all groups. Changes nothing.
///
/// # Errors
/// PostgreSQL does not answer.
pub async fn topics(pool: &Pool) -> Result<Vec<Topic>, Error> {
    let client = admin::connect(pool).await?;
    let found = rows::query(&client, "list the topics of the groups", TOPICS, &[]).await?;
    Ok(found.iter().map(|it| Topic { group: it.get(0), topic: it.get(1) }).collect())
}

/// Pauses a topic with its retry topics, or all topics of a group. What is in hand ends; nothing else begins. What was
/// paused before keeps its reason.
///
/// # Errors
/// The group has never run on this database, or PostgreSQL does not answer.
pub async fn pause(pool: &Pool, group: &str, topic: Option<&str>, actor: &Actor) -> Result<Changed, Error> {
    change(pool, group, topic, actor, true).await
}

/// Takes a pause back; without a topic all pauses of the group. Other reasons for which a partition may stand still, such
/// as a retry that is not due, stay.
///
/// # Errors
/// As [`pause`].
pub async fn resume(pool: &Pool, group: &str, topic: Option<&str>, actor: &Actor) -> Result<Changed, Error> {
    change(pool, group, topic, actor, false).await
}

async fn change(pool: &Pool, group: &str, topic: Option<&str>, actor: &Actor, pauses: bool) -> Result<Changed, Error> {
    let open = Open::begin(pool).await?;
    let client = open.client();
    let consumer_id = consumer_id(client, group).await?;
    let name = topic.unwrap_or(ALL_TOPICS);
    let (id, named) = ((&consumer_id as _, Type::INT2), (&name as _, Type::TEXT));
    let changed = match (pauses, topic) {
        (true, _) => {
            let by = [id, named, (&actor.who as _, Type::TEXT), (&actor.reason as _, Type::TEXT)];
            rows::query(client, "pause the topic", PAUSE, &by).await?
        }
        (false, Some(_)) => rows::query(client, "resume the topic", RESUME, &[id, named]).await?,
        (false, None) => rows::query(client, "resume the group", RESUME_ALL, &[id]).await?,
    };
    let outcome = match (pauses, changed.is_empty()) {
        (true, false) => "paused",
        (true, true) => "paused_already",
        (false, false) => "resumed",
        (false, true) => "not_paused",
    };
    let all = rows::query(client, "look for a pause of the group", ALL_PAUSED, &[(&consumer_id, Type::INT2)]).await?;
    let entry = Entry {
        action: if pauses { "pause" } else { "resume" },
        consumer_id: Some(consumer_id),
        key: None,
        subject: topic.map_or_else(|| "all topics".to_owned(), |it| format!("topic {it}")),
        outcome: outcome.to_owned(),
    };
    audit(client, actor, &[entry]).await?;
    open.commit().await?;
    let group_is_paused = !all.is_empty();
    Ok(Changed { group: group.to_owned(), topic: topic.map(str::to_owned), outcome, group_is_paused })
}

async fn consumer_id(client: &ClientWrapper, group: &str) -> Result<i16, Error> {
    let found = rows::query(client, "find the group", GROUP, &[(&group, Type::TEXT)]).await?;
    let row = found.first();
    let id: Option<i16> = row.and_then(|it| it.get(0));
    id.ok_or_else(|| {
        let known: Option<String> = row.and_then(|it| it.get(1));
        let known = known.unwrap_or_else(|| "none yet".to_owned());
        Error::new(ErrorKind::Config, format!("find group {group}: it has never run on this database; known: {known}"))
    })
}
