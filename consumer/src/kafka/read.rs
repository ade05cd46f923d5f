//! From borrowed client messages to the core's records.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Headers as _};
use sekali_schemas::idempotency::KeyError;
use sekali_schemas::{Arena, Framing, Header, IdempotencyKey, Invalid, Message, ReadAs, Record as KafkaRecord};
use uuid::Uuid;

use super::memory::Held;
use crate::config::KeyFrom;
use crate::core::{KeyId, Partition, Record, Timestamp};
use crate::incoming::Incoming;
use crate::routes::Routes;

type OwnKey = dyn Fn(&KafkaRecord) -> Option<Result<IdempotencyKey, KeyError>> + Send + Sync;

/// How records become messages.
pub(crate) struct Reader {
    pub(crate) routes: Arc<Routes>,
    pub(crate) key_from: KeyFrom,
    /// What may stand before the data.
    pub(crate) framing: Framing,
    /// Bytes of one client that may wait in memory.
    pub(crate) buffer_bytes_max: usize,
    /// The handler's own function.
    pub(crate) own_key: Box<OwnKey>,
}

/// Records of one fetch, copied out of the client: one buffer for all of their bytes.
#[derive(Default)]
pub(crate) struct Chunk {
    arena: Arena,
    places: Vec<Place>,
}

struct Place {
    partition: Partition,
    offset: i64,
    timestamp_ms: Option<i64>,
    headers_readable: bool,
    /// Fetched under an assignment that has ended.
    is_dropped: bool,
}

impl Chunk {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.arena.len_bytes()
    }

    /// Copies a message out of the client, so that its fetch buffer can go.
    pub(crate) fn add(&mut self, partition: Partition, message: &BorrowedMessage<'_>) {
        let (key, payload) = (message.key(), message.payload());
        let arena = &mut self.arena;
        // The client library panics on a header name that is not UTF-8. What was copied by then stays unused.
        let copied = catch_unwind(AssertUnwindSafe(|| match message.headers() {
            Some(headers) => arena.add(key, payload, (0..headers.count()).map(|it| header(headers.get(it)))),
            None => arena.add(key, payload, std::iter::empty()),
        }));
        let headers_readable = copied.is_ok();
        if !headers_readable {
            self.arena.add(key, payload, std::iter::empty());
        }
        self.places.push(Place {
            partition,
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            headers_readable,
            is_dropped: false,
        });
    }

    /// Drops what is here of such partitions: whoever has them next reads it again.
    pub(crate) fn drop_of(&mut self, partitions: &[Partition]) {
        for place in self.places.iter_mut().filter(|it| partitions.contains(&it.partition)) {
            place.is_dropped = true;
        }
    }
}

fn header<'a>(header: rdkafka::message::Header<'a, &'a [u8]>) -> Header<'a> {
    Header { name: header.key, value: header.value }
}

/// A key of a source topic as the core knows it.
pub(crate) fn key_id(topic: u16, key: &[u8]) -> KeyId {
    KeyId { topic, hash: sekali_schemas::fingerprint(Some(key)) }
}

impl Reader {
    /// Reads a chunk; records of one partition stand together as they were fetched.
    /// `held` counts the chunk's bytes for as long as any of its records lives.
    pub(crate) fn read(&self, chunk: Chunk, held: Held) -> Vec<(Partition, Vec<Record<Incoming>>)> {
        let mut runs: Vec<(Partition, Vec<Record<Incoming>>)> = Vec::new();
        for (place, parts) in chunk.places.iter().zip(chunk.arena.freeze(held)) {
            if place.is_dropped {
                continue;
            }
            let record = KafkaRecord {
                topic: self.routes.name(place.partition.topic).clone(),
                partition: place.partition.number,
                offset: place.offset,
                timestamp_ms: place.timestamp_ms,
                key: parts.key,
                payload: parts.payload,
                headers: parts.headers,
            };
            let record = self.to_core(place, record);
            match runs.last_mut() {
                Some((partition, records)) if *partition == place.partition => records.push(record),
                _ => runs.push((place.partition, vec![record])),
            }
        }
        runs
    }

    fn to_core(&self, place: &Place, record: KafkaRecord) -> Record<Incoming> {
        let incoming = self.to_incoming(place, record);
        let to_time = |ms: i64| Timestamp(u64::try_from(ms).unwrap_or_default());
        let (attempt, due_at, first_failed_at) = match &incoming {
            Incoming::Message(it) => (it.attempt(), it.due_at_ms().map(to_time), it.first_failed_at_ms().map(to_time)),
            Incoming::Invalid { .. } => (1, None, None),
        };
        let topic = self.routes.source_index(place.partition.topic);
        Record {
            offset: place.offset,
            attempt,
            key: incoming.record().key.as_deref().map(|it| key_id(topic, it)),
            due_at,
            first_failed_at,
            produced_at: place.timestamp_ms.map(to_time),
            message: incoming,
        }
    }

    fn to_incoming(&self, place: &Place, record: KafkaRecord) -> Incoming {
        if !place.headers_readable {
            return Incoming::Invalid { record: Box::new(record), reason: Invalid::Headers };
        }
        let group = self.routes.group();
        let read_as = if place.partition.retry { ReadAs::Retry { group } } else { ReadAs::Source };
        // A panic in the handler's function must not end the poll thread.
        let own_key = |record: &KafkaRecord| {
            let own = catch_unwind(AssertUnwindSafe(|| (self.own_key)(record)));
            own.unwrap_or(Some(Err(KeyError::Unreadable))).or_else(|| self.coordinates(place, record))
        };
        match Message::read_framed(record, read_as, self.framing, own_key) {
            Ok(message) => Incoming::Message(message),
            Err((reason, record)) => Incoming::Invalid { record, reason },
        }
    }

    /// Reads a message again that was held. Its identity is the one under which it was held, whatever the handler's own
    /// function says by now.
    pub(crate) fn held(&self, record: KafkaRecord, key: Uuid, key_text: &str) -> Result<Message, Invalid> {
        let identity = |record: &KafkaRecord| {
            let own = catch_unwind(AssertUnwindSafe(|| (self.own_key)(record))).ok().flatten();
            let coordinates = || Ok(IdempotencyKey::from_coordinates(&record.topic, record.partition, record.offset));
            let texts = [own, Some(IdempotencyKey::of_record(record)), Some(coordinates())];
            let same = texts.into_iter().flatten().find(|it| it.as_ref().is_ok_and(|it| it.uuid() == key));
            Some(same.unwrap_or_else(|| IdempotencyKey::new(key_text)))
        };
        Message::read_framed(record, ReadAs::Source, self.framing, identity).map_err(|(reason, _)| reason)
    }

    /// The key of a record by its place, when that was chosen: the place of its first delivery.
    fn coordinates(&self, place: &Place, record: &KafkaRecord) -> Option<Result<IdempotencyKey, KeyError>> {
        if self.key_from != KeyFrom::Coordinates {
            return None;
        }
        let own = || IdempotencyKey::from_coordinates(&record.topic, record.partition, record.offset);
        if !place.partition.retry {
            return Some(Ok(own()));
        }
        let origin = sekali_schemas::control::Control::read(&record.headers).map(|it| it.origin);
        Some(Ok(
            origin.map_or_else(|_| own(), |it| IdempotencyKey::from_coordinates(&it.topic, it.partition, it.offset))
        ))
    }
}
