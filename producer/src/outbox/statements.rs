//! The statements that enqueue, and their parameters.

use std::time::Duration;

use sekali_schemas::array_literal;
use tokio_postgres::types::{ToSql, Type};

use crate::{Error, ErrorKind, OutboundRecord};

type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Beyond this a delay is a mistake in its unit.
const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// One record.
pub(super) struct One<'a> {
    topic: &'a str,
    key: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    names: Vec<&'a str>,
    values: Vec<Option<&'a [u8]>>,
}

impl<'a> One<'a> {
    pub(super) const SQL: &'static str = "INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
                                          VALUES ($1, $2, $3, $4, $5)";

    pub(super) fn of(record: &'a OutboundRecord) -> One<'a> {
        One {
            topic: &record.topic,
            key: record.key.as_deref(),
            payload: record.payload.as_deref(),
            names: record.headers.iter().map(|it| it.name).collect(),
            values: record.headers.iter().map(|it| it.value).collect(),
        }
    }

    pub(super) fn params(&self) -> [Param<'_>; 5] {
        [
            (&self.topic, Type::TEXT),
            (&self.key, Type::BYTEA),
            (&self.payload, Type::BYTEA),
            (&self.names, Type::TEXT_ARRAY),
            (&self.values, Type::BYTEA_ARRAY),
        ]
    }
}

/// One record that is due later.
pub(super) struct Delayed<'a> {
    record: One<'a>,
    delay_ms: f64,
}

impl<'a> Delayed<'a> {
    pub(super) const SQL: &'static str = "INSERT INTO sekali.outbox_later (topic, key, payload, header_names, header_values, due_at) \
         VALUES ($1, $2, $3, $4, $5, now() + $6 * interval '1 ms')";

    pub(super) fn of(record: &'a OutboundRecord, delay: Duration) -> Result<Delayed<'a>, Error> {
        if DELAY_MAX < delay {
            return Err(Error::new(ErrorKind::Kafka, "delay a record").because("the delay is longer than a year"));
        }
        Ok(Delayed { record: One::of(record), delay_ms: delay.as_secs_f64() * 1000.0 })
    }

    pub(super) fn params(&self) -> [Param<'_>; 6] {
        let [topic, key, payload, names, values] = self.record.params();
        [topic, key, payload, names, values, (&self.delay_ms, Type::FLOAT8)]
    }
}

/// Many records.
pub(super) struct Many<'a> {
    topics: Vec<&'a str>,
    keys: Vec<Option<&'a [u8]>>,
    payloads: Vec<Option<&'a [u8]>>,
    names: Vec<String>,
    values: Vec<String>,
}

impl<'a> Many<'a> {
    /// PostgreSQL has no ragged arrays: each record's headers travel as the text of an array, read back by the cast.
    pub(super) const SQL: &'static str = "INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
         SELECT topic, key, payload, header_names::text[], header_values::bytea[] \
         FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::text[], $5::text[]) \
              WITH ORDINALITY AS record (topic, key, payload, header_names, header_values, nr) \
         ORDER BY nr";

    pub(super) fn of(records: &'a [OutboundRecord]) -> Many<'a> {
        Many {
            topics: records.iter().map(|it| it.topic.as_str()).collect(),
            keys: records.iter().map(|it| it.key.as_deref()).collect(),
            payloads: records.iter().map(|it| it.payload.as_deref()).collect(),
            names: records.iter().map(|it| array_literal::names(&it.headers)).collect(),
            values: records.iter().map(|it| array_literal::values(&it.headers)).collect(),
        }
    }

    pub(super) fn params(&self) -> [Param<'_>; 5] {
        [
            (&self.topics, Type::TEXT_ARRAY),
            (&self.keys, Type::BYTEA_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.names, Type::TEXT_ARRAY),
            (&self.values, Type::TEXT_ARRAY),
        ]
    }
}
