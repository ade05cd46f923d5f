//! Keys that wait behind their failed head.

use deadpool_postgres::Pool;
use jiff::Timestamp;
use sekali_producer::{Error, ErrorKind, SqlError};
use sekali_schemas::inbox::State;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::actor::{Actor, Entry, audit};
use super::rows::{self, Listed, Open, shown_key};
use crate::admin;
use crate::core::hold::{Head, Release, release as rule};
use crate::postgres::hold;

/// One held key.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Held {
    /// Consumer group.
    pub group: String,
    /// Source topic.
    pub topic: String,
    /// Kafka key, as [`shown_key`] shows it.
    pub key: String,
    /// Key of the head's inbox row.
    pub head: Uuid,
    /// State of the head.
    pub head_state: Option<&'static str>,
    /// The attempt that the head's row stands for.
    pub head_attempt: Option<i16>,
    /// Whether the head is a dead letter that is not closed.
    pub dead_letter_open: bool,
    /// The head is decided: what waits is applied by whoever comes first.
    pub ready: bool,
    /// Messages that wait.
    pub messages: i64,
    /// Since when the key is held.
    pub since: Timestamp,
    /// The same in seconds.
    pub age_seconds: f64,
    #[serde(skip)]
    consumer_id: i16,
    #[serde(skip)]
    resource_key: Vec<u8>,
    #[serde(skip)]
    state: Option<State>,
}

/// Which held keys.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this group.
    pub group: Option<String>,
    /// Of this source topic.
    pub topic: Option<String>,
    /// Exactly this Kafka key.
    pub key: Option<Vec<u8>>,
    /// Held for at least so many seconds.
    pub age_seconds_min: Option<f64>,
}

const LIST: &str = "WITH chosen AS (SELECT hold.*, consumer.name, count(*) OVER () AS total FROM sekali.held_key AS hold \
     JOIN sekali.consumer ON consumer.id = hold.consumer_id \
     WHERE ($1::text IS NULL OR consumer.name = $1) AND ($2::text IS NULL OR hold.topic = $2) \
     AND ($3::bytea IS NULL OR hold.resource_key = $3) \
     AND ($4::float8 IS NULL OR $4 <= extract(epoch FROM now() - hold.since)) \
     ORDER BY hold.since, consumer.name, hold.topic, hold.resource_key LIMIT $5) \
     SELECT chosen.name, topic, resource_key, head, ready, since, extract(epoch FROM now() - since)::float8, \
     (SELECT count(*) FROM sekali.held_message AS it WHERE it.consumer_id = chosen.consumer_id \
       AND it.topic = chosen.topic AND it.resource_key = chosen.resource_key), \
     row.state, row.attempt, EXISTS (SELECT FROM sekali.dead_letter AS dead WHERE dead.consumer_id = chosen.consumer_id \
       AND dead.key = chosen.head AND dead.state IN ('open', 'replaying')), chosen.consumer_id, total \
     FROM chosen LEFT JOIN sekali.inbox AS row ON row.consumer_id = chosen.consumer_id AND row.key = chosen.head \
     ORDER BY since, chosen.name, topic, resource_key";

/// Held keys, those first that have waited longest. Changes nothing.
///
/// # Errors
/// PostgreSQL does not answer.
pub async fn list(pool: &Pool, filter: &Filter, limit: i64) -> Result<Listed<Held>, Error> {
    let client = admin::connect(pool).await?;
    let found = rows::query(
        &client,
        "list the held keys",
        LIST,
        &[
            (&filter.group, Type::TEXT),
            (&filter.topic, Type::TEXT),
            (&filter.key, Type::BYTEA),
            (&filter.age_seconds_min, Type::FLOAT8),
            (&limit, Type::INT8),
        ],
    )
    .await?;
    let total = found.first().map_or(0, |it| it.get(12));
    Ok(Listed::of(found.iter().map(held).collect(), total))
}

fn held(row: &Row) -> Held {
    let resource_key: Vec<u8> = row.get(2);
    let state = row.get::<_, Option<i16>>(8).and_then(State::from_i16);
    Held {
        group: row.get(0),
        topic: row.get(1),
        key: shown_key(&resource_key),
        head: row.get(3),
        head_state: state.map(State::as_str),
        head_attempt: row.get(9),
        dead_letter_open: row.get(10),
        ready: row.get(4),
        messages: row.get(7),
        since: row.get(5),
        age_seconds: row.get::<_, f64>(6).max(0.0),
        consumer_id: row.get(11),
        resource_key,
        state,
    }
}

impl Held {
    /// What a release would do now.
    pub fn verdict(&self) -> Release {
        rule(self.ready, self.state, self.dead_letter_open)
    }
}

/// What became of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Released {
    /// Consumer group.
    pub group: String,
    /// Source topic.
    pub topic: String,
    /// Kafka key, as [`shown_key`] shows it.
    pub key: String,
    /// `released`, `released_out_of_order`, `already`, `refused`, or `gone`.
    pub outcome: &'static str,
    /// A sentence for people.
    pub because: &'static str,
}

/// Why a hold is not released, with what to do instead.
pub fn refusal(head: Head) -> &'static str {
    match head {
        Head::Undecided => {
            "its head is still to be decided: make it run with `sekali retry run-now`, or wait; --break-order lets the \
             later messages take effect before it"
        }
        Head::DeadLetter => {
            "its head is an open dead letter: replay or discard that one; --break-order lets the later messages take \
             effect before it"
        }
    }
}

/// Lets keys that were listed go on: what waits behind their heads is applied in order by whichever worker comes first,
/// within seconds. A key whose head could still come is refused, unless order may be broken. Each is a transaction of its
/// own, and judged again under the lock of its row.
///
/// # Errors
/// PostgreSQL does not answer; the keys before that are released.
pub async fn release(pool: &Pool, chosen: &[Held], break_order: bool, actor: &Actor) -> Result<Vec<Released>, Error> {
    let mut done = Vec::with_capacity(chosen.len());
    for held in chosen {
        done.push(release_one(pool, held, break_order, actor).await?);
    }
    Ok(done)
}

async fn release_one(pool: &Pool, chosen: &Held, break_order: bool, actor: &Actor) -> Result<Released, Error> {
    let failed = |error| Error::new(ErrorKind::Postgres, "release a held key").because(SqlError::of(&error));
    let open = Open::begin(pool).await?;
    let (client, key) = (open.client(), (chosen.topic.as_str(), chosen.resource_key.as_slice()));
    let locked = hold::lock(client, chosen.consumer_id, &[key]).await.map_err(failed)?;
    // A statement of its own: only after the lock it sees what others have decided under it.
    let now = match locked.is_empty() {
        true => None,
        false => again(&open, chosen).await?.filter(|it| it.head == chosen.head),
    };
    let (outcome, because) = match now.as_ref().map(Held::verdict) {
        None => ("gone", "it is not held by that head any more"),
        Some(Release::Already) => ("already", "its head is decided, and what waits is being applied"),
        Some(Release::Overtakes(head)) if !break_order => ("refused", refusal(head)),
        Some(Release::Overtakes(_)) => ("released_out_of_order", "what waits takes effect before its head"),
        Some(Release::Free) => ("released", "what waits is applied within seconds"),
    };
    if outcome.starts_with("released") {
        hold::heads_decided(client, chosen.consumer_id, &[(key, chosen.head)]).await.map_err(failed)?;
    }
    let entry = Entry {
        action: "held.release",
        consumer_id: Some(chosen.consumer_id),
        key: Some(chosen.head),
        subject: format!("key {} of topic {}", chosen.key, chosen.topic),
        outcome: outcome.to_owned(),
    };
    audit(client, actor, &[entry]).await?;
    open.commit().await?;
    let Held { group, topic, key, .. } = chosen.clone();
    Ok(Released { group, topic, key, outcome, because })
}

async fn again(open: &Open, chosen: &Held) -> Result<Option<Held>, Error> {
    let none: Option<f64> = None;
    let found = rows::query(
        open.client(),
        "read the held key",
        LIST,
        &[
            (&chosen.group, Type::TEXT),
            (&chosen.topic, Type::TEXT),
            (&chosen.resource_key, Type::BYTEA),
            (&none, Type::FLOAT8),
            (&1_i64, Type::INT8),
        ],
    )
    .await?;
    Ok(found.first().map(held))
}
