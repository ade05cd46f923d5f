//! Where the records of retries are: on retry topics, and in the outbox on the way there.

use bytes::Bytes;
use deadpool_postgres::Pool;
use jiff::Timestamp;
use sekali_producer::{Error, ErrorKind};
use sekali_schemas::control::Control;
use sekali_schemas::{Framing, Header, Headers, IdempotencyKey, Message, ReadAs, Record};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::rows::{self, shown_key};
use super::{Filter, Retry};
use crate::admin::{self, Waiting};
use crate::config::{Config, KeyFrom};

/// Rows that are published vanish a little later: those are on their topic as well.
const OUTBOX: &str = "SELECT id, topic, key, payload, header_names, header_values FROM sekali.outbox, sekali.outbox_cursor \
     WHERE topic = ANY ($1) AND NOT pg_visible_in_snapshot(xid, published) AND $2 < id ORDER BY outbox.id LIMIT 500";
/// What is kept with its payload for each that is asked for, because some of it will turn out to be stale.
const SPARE: usize = 2;
/// What is kept at least.
const KEPT_MIN: usize = 1_000;

/// What was found.
pub(super) struct Found {
    group: String,
    framing: Framing,
    by_coordinates: bool,
    filter: Filter,
    /// Key of the inbox row and attempt of every record that the filter takes.
    pub(super) keys: Vec<(Uuid, u32)>,
    /// The first of them that are due.
    pub(super) kept: Vec<Kept>,
    pub(super) unreadable: u64,
}

/// A record that the filter takes.
pub(super) struct Kept {
    message: Message,
    control: Control,
    place: String,
}

/// Reads the outbox first: what is published meanwhile is seen on its topic.
pub(super) async fn all(config: &Config, pool: &Pool, filter: &Filter) -> Result<Found, Error> {
    let topics = config
        .group_topics()
        .map_err(|error| Error::new(ErrorKind::Config, "name the topics of the group").because(error))?;
    let retry: Vec<String> = topics.topics.into_iter().flat_map(|it| it.retry).map(|it| it.1).collect();
    let mut found = Found {
        group: config.consumer.group.clone(),
        framing: if config.registry.url.is_some() { Framing::Registry } else { Framing::Plain },
        by_coordinates: config.consumer.key_from == KeyFrom::Coordinates,
        filter: filter.clone(),
        keys: Vec::new(),
        kept: Vec::new(),
        unreadable: 0,
    };
    let client = admin::connect(pool).await?;
    let mut last = 0_i64;
    loop {
        let of = [(&retry as _, Type::TEXT_ARRAY), (&last as _, Type::INT8)];
        let page = rows::query(&client, "read the retries in the outbox", OUTBOX, &of).await?;
        let Some(end) = page.last() else { break };
        last = end.get(0);
        page.iter().for_each(|it| found.add(queued(it), || format!("outbox/{}", it.get::<_, i64>(0))));
    }
    drop(client);
    admin::read_waiting(config, found, |found, it| {
        let place = format!("{}/{}/{}", it.topic, it.partition, it.offset);
        found.add(record(&it), || place);
    })
    .await
}

impl Found {
    fn add(&mut self, record: Record, place: impl FnOnce() -> String) {
        let by_coordinates = self.by_coordinates;
        let own_key = |record: &Record| {
            let origin = Control::read(&record.headers).ok().filter(|_| by_coordinates)?.origin;
            Some(Ok(IdempotencyKey::from_coordinates(&origin.topic, origin.partition, origin.offset)))
        };
        let read = Message::read_framed(record, ReadAs::Retry { group: &self.group }, self.framing, own_key);
        let control = read.as_ref().ok().and_then(|it| Control::read(it.headers()).ok());
        let (Ok(message), Some(control)) = (read, control) else {
            self.unreadable += 1;
            return;
        };
        if !self.filter.takes(&message, &control) {
            return;
        }
        self.keys.push((message.idempotency_key().uuid(), message.attempt()));
        self.kept.push(Kept { message, control, place: place() });
        // Only now and then, so that it costs little.
        let max = self.filter.limit.saturating_mul(SPARE).max(KEPT_MIN);
        if max.saturating_mul(2) < self.kept.len() {
            self.kept.sort_by_key(|it| it.message.due_at_ms());
            self.kept.truncate(max);
        }
    }
}

impl Kept {
    pub(super) fn into_retry(self, now_ms: i64) -> Retry {
        let Kept { message, control, place } = self;
        let moment = |ms: i64| Timestamp::from_millisecond(ms).ok();
        Retry {
            topic: control.origin.topic.to_string(),
            key: message.idempotency_key().as_str().to_owned(),
            row: message.idempotency_key().uuid(),
            resource_key: message.key().map(shown_key),
            attempt: message.attempt(),
            due_at: message.due_at_ms().and_then(moment),
            due_in_seconds: message.due_at_ms().map_or(0.0, |it| it.saturating_sub(now_ms) as f64 / 1000.0),
            first_failed_at: moment(control.first_failed_at_ms),
            class: control.error.class,
            code: control.error.code,
            message: control.error.message,
            place,
            record: message,
        }
    }
}

fn record(it: &Waiting<'_>) -> Record {
    Record {
        topic: it.topic.into(),
        partition: it.partition,
        offset: it.offset,
        timestamp_ms: it.timestamp_ms,
        key: it.key.map(Bytes::copy_from_slice),
        payload: it.payload.map(Bytes::copy_from_slice),
        headers: it.headers.clone(),
    }
}

fn queued(row: &Row) -> Record {
    let (names, values): (Vec<&str>, Vec<Option<&[u8]>>) = (row.get(4), row.get(5));
    let headers: Headers = names.iter().zip(values).map(|(name, value)| Header { name, value }).collect();
    Record {
        topic: row.get::<_, &str>(1).into(),
        partition: 0,
        offset: row.get(0),
        timestamp_ms: None,
        key: row.get::<_, Option<&[u8]>>(2).map(Bytes::copy_from_slice),
        payload: row.get::<_, Option<&[u8]>>(3).map(Bytes::copy_from_slice),
        headers,
    }
}
