//! Some records of the source topics: the last ones that the group has passed, and the last ones there are.

use std::collections::BTreeMap;

use sekali_producer::Error;
use sekali_schemas::{Headers, IdempotencyKey, Record, cloudevents, idempotency};
use uuid::Uuid;

use super::super::topics::Found;
use super::super::waiting::{Waiting, read_ranges};
use super::super::{PartitionLag, lag};
use crate::config::{Config, KeyFrom};

/// Of each partition, from the end that is looked at.
const RECORDS: i64 = 20;
/// Partitions that are looked at.
const PARTITIONS_MAX: usize = 64;

/// Where a record's idempotency key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Header,
    CloudEvents,
    Debezium,
    Coordinates,
    Nothing,
}

impl Source {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Source::Header => "header idempotency-key",
            Source::CloudEvents => "CloudEvents",
            Source::Debezium => "header id",
            Source::Coordinates => "coordinates",
            Source::Nothing => "nothing",
        }
    }

    fn of(headers: &Headers, from: KeyFrom) -> Source {
        if headers.get(idempotency::IDEMPOTENCY_KEY).is_some() {
            Source::Header
        } else if headers.get(cloudevents::CE_ID).is_some() || cloudevents::is_structured(headers) {
            Source::CloudEvents
        } else if headers.get(idempotency::DEBEZIUM_ID).is_some() {
            Source::Debezium
        } else if from == KeyFrom::Coordinates {
            Source::Coordinates
        } else {
            Source::Nothing
        }
    }
}

/// One record, without its payload.
pub(super) struct Sampled {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) key: Option<Vec<u8>>,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) source: Source,
    /// Key of its inbox row, unless the handler computes keys itself.
    pub(super) row: Uuid,
}

/// What was read.
pub(super) struct Sample {
    /// Behind the committed offsets.
    pub(super) passed: Vec<Sampled>,
    /// Before them.
    pub(super) ahead: Vec<Sampled>,
    /// Partitions of each topic.
    pub(super) partitions: BTreeMap<String, i32>,
}

impl Sample {
    pub(super) fn all(&self) -> impl Iterator<Item = &Sampled> {
        self.passed.iter().chain(&self.ahead)
    }
}

pub(super) async fn take(config: &Config, found: &BTreeMap<String, Found>) -> Result<Sample, Error> {
    let sources: Vec<PartitionLag> =
        lag(config).await?.into_iter().filter(|it| !it.delayed).take(PARTITIONS_MAX).collect();
    let up_to = |it: &PartitionLag, end: i64, least: i64| PartitionLag {
        committed: Some((end - RECORDS).max(least).max(0)),
        end,
        ..it.clone()
    };
    let passed = sources.iter().filter_map(|it| Some(up_to(it, it.committed.filter(|at| 0 < *at)?, 0)));
    let ahead = sources.iter().filter(|it| 0 < it.lag).map(|it| up_to(it, it.end, it.committed.unwrap_or_default()));
    let (passed, ahead): (Vec<_>, Vec<_>) = (passed.collect(), ahead.collect());
    let from = config.consumer.key_from;
    let keep = move |kept: &mut Vec<Sampled>, it: Waiting<'_>| kept.push(sampled(&it, from));
    let passed = read_ranges(config, passed, Vec::new(), keep).await?;
    let ahead = read_ranges(config, ahead, Vec::new(), keep).await?;
    let partitions = found.iter().map(|(name, it)| (name.clone(), it.partitions)).collect();
    Ok(Sample { passed, ahead, partitions })
}

fn sampled(it: &Waiting<'_>, from: KeyFrom) -> Sampled {
    let record = Record {
        topic: it.topic.into(),
        partition: it.partition,
        offset: it.offset,
        timestamp_ms: it.timestamp_ms,
        key: None,
        payload: it.payload.map(bytes::Bytes::copy_from_slice),
        headers: it.headers.clone(),
    };
    // What has no key is decided under its coordinates, as invalid.
    let coordinates = || IdempotencyKey::from_coordinates(it.topic, it.partition, it.offset);
    let key = match from {
        KeyFrom::Coordinates => coordinates(),
        KeyFrom::Headers => IdempotencyKey::of_record(&record).unwrap_or_else(|_| coordinates()),
    };
    Sampled {
        topic: it.topic.to_owned(),
        partition: it.partition,
        key: it.key.map(<[u8]>::to_vec),
        timestamp_ms: it.timestamp_ms,
        source: Source::of(&it.headers, from),
        row: key.uuid(),
    }
}
