//! Which messages that wait, or were given up, a set of schemas would refuse.

mod postgres;

use std::collections::BTreeMap;

use sekali_producer::Error;
use sekali_producer::schemas::Schemas;
use sekali_schemas::cloudevents::{self, DataKind};
use sekali_schemas::{DecodeError, Headers, confluent};
use serde::Serialize;
use serde_json::Value;

use super::waiting;
use crate::config::Config;

/// Where a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Place {
    /// An open dead letter.
    DeadLetter,
    /// Behind a failed message of its key.
    Held,
    /// In the outbox, on its way to a retry topic.
    Outbox,
    /// On a retry topic.
    Retry,
}

impl Place {
    /// Word for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Place::DeadLetter => "dead letter",
            Place::Held => "held",
            Place::Outbox => "outbox",
            Place::Retry => "retry topic",
        }
    }
}

/// What was found. Never has a payload or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unreadable {
    /// Messages that were looked at.
    pub messages: u64,
    /// Those of them that would be refused.
    pub refused: u64,
    /// The same by place and type.
    pub counts: Vec<Count>,
    /// The first that would be refused.
    pub first: Vec<Refused>,
}

/// Messages of one type at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Count {
    /// Where they are.
    pub place: Place,
    /// Their type; none for those that no schema is known for.
    pub ty: Option<String>,
    /// How many there are.
    pub messages: u64,
    /// How many of them would be refused.
    pub refused: u64,
}

/// One message that would be refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Refused {
    /// Where it is.
    pub place: Place,
    /// Its id there: of the dead letter, of the row, or topic/partition/offset.
    pub id: String,
    /// Its type.
    pub ty: String,
    /// JSON pointer of the place in its payload; none when it is no JSON.
    pub pointer: Option<String>,
    /// The whole reason, without a value.
    pub refusal: String,
}

/// Looks at open dead letters, held messages, and retries in the outbox and on the retry topics. Joins no group and
/// changes nothing.
///
/// # Errors
/// Kafka or PostgreSQL cannot be reached, or tables are missing.
pub async fn unreadable(config: &Config, schemas: Schemas, first_max: usize) -> Result<Unreadable, Error> {
    let mut tally = Tally { schemas, prefixed: config.registry.url.is_some(), first_max, ..Tally::default() };
    postgres::read(config, &mut tally).await?;
    let tally = waiting::read(config, tally, |tally, it| {
        let id = || format!("{}/{}/{}", it.topic, it.partition, it.offset);
        tally.add(Place::Retry, id, &it.headers, it.payload);
    })
    .await?;
    let counts: Vec<Count> = tally
        .counts
        .into_iter()
        .map(|((place, ty), (messages, refused))| Count { place, ty, messages, refused })
        .collect();
    let sum = |of: fn(&Count) -> u64| counts.iter().map(of).sum();
    Ok(Unreadable { messages: sum(|it| it.messages), refused: sum(|it| it.refused), first: tally.first, counts })
}

/// What is counted on the way.
#[derive(Default)]
struct Tally {
    schemas: Schemas,
    /// Whether payloads may begin with the id of a schema.
    prefixed: bool,
    first_max: usize,
    counts: BTreeMap<(Place, Option<String>), (u64, u64)>,
    first: Vec<Refused>,
}

impl Tally {
    fn add(&mut self, place: Place, id: impl FnOnce() -> String, headers: &Headers, payload: Option<&[u8]>) {
        let payload = match payload {
            Some(payload) if self.prefixed => Some(confluent::read(payload).map_or(payload, |it| it.1)),
            other => other,
        };
        let schema = payload.and_then(|it| DataKind::of(headers, it)).and_then(|it| self.schemas.find(&it)).cloned();
        let count = self.counts.entry((place, schema.as_ref().map(|it| it.name.clone()))).or_default();
        count.0 += 1;
        let Some(schema) = schema else { return };
        let document = cloudevents::data(headers, payload)
            .and_then(|it| serde_json::from_slice::<Value>(&it).map_err(|error| DecodeError::from_json(&error)));
        let refused = match document {
            Ok(document) => {
                schema.validator.check(&document).err().map(|it| (Some(it.pointer.clone()), it.to_string()))
            }
            Err(error) => Some((None, error.to_string())),
        };
        let Some((pointer, refusal)) = refused else { return };
        count.1 += 1;
        if self.first.len() < self.first_max {
            self.first.push(Refused { place, id: id(), ty: schema.name.clone(), pointer, refusal });
        }
    }
}
