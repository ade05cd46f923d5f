//! The dead letters of one transaction, locked together with their inbox rows.

use std::collections::HashMap;

use deadpool_postgres::ClientWrapper;
use sekali_schemas::control::{Control, ErrorInfo, Replay};
use sekali_schemas::inbox::State;
use sekali_schemas::{Headers, IdempotencyKey, Origin};
use tokio_postgres::Row as SqlRow;
use uuid::Uuid;

use super::super::preview::ROUTE;
use crate::core::operator::{Letter, LetterState};
use crate::core::verdict::Row;

type Error = tokio_postgres::Error;

/// Why the relay gives a record up.
const UNPUBLISHABLE: &str = "unpublishable";

/// Before the letters, and in the order of the keys, as who decides messages does: nobody deadlocks.
const LOCK_ROWS: &str = "SELECT row.consumer_id, row.key, row.state, row.attempt, row.fingerprint \
     FROM (SELECT DISTINCT consumer_id, key FROM sekali.dead_letter WHERE id = ANY($1) \
     ORDER BY consumer_id, key OFFSET 0) AS asked \
     CROSS JOIN LATERAL (SELECT consumer_id, key, state, attempt, fingerprint FROM sekali.inbox AS it \
     WHERE it.consumer_id = asked.consumer_id AND it.key = asked.key FOR UPDATE) AS row";

const PAYLOADS: &str = "SELECT id, payload FROM sekali.dead_letter WHERE id = ANY($1)";

/// An inbox row is named by consumer and key.
pub(in crate::operate) type RowKey = (i16, Uuid);

/// A locked dead letter.
pub(in crate::operate) struct Locked {
    pub(in crate::operate) id: Uuid,
    pub(in crate::operate) consumer_id: i16,
    pub(in crate::operate) key: Uuid,
    key_text: Option<String>,
    /// It came from elsewhere: what the group makes of its record is not known.
    imported: bool,
    pub(in crate::operate) letter: Letter,
    origin: Origin,
    first_failed_at_ms: i64,
    error: ErrorInfo,
    pub(in crate::operate) resource_key: Option<Vec<u8>>,
    headers: Headers,
    /// Group that reads the retry topic, and that topic.
    route: Option<(String, String)>,
    now_ms: i64,
}

/// Locks the inbox rows of letters. The rows, by consumer and key.
pub(in crate::operate) async fn lock_rows(client: &ClientWrapper, ids: &[Uuid]) -> Result<HashMap<RowKey, Row>, Error> {
    let statement = client.prepare_cached(LOCK_ROWS).await?;
    let rows = client.query(&statement, &[&ids]).await?;
    let row = |it: &SqlRow| {
        // A state that this version does not know was decided by a newer one.
        let state = State::from_i16(it.get(2)).unwrap_or(State::Processed);
        let attempt = it.get::<_, i16>(3).unsigned_abs().into();
        ((it.get(0), it.get(1)), Row { state, attempt, fingerprint: it.get(4) })
    };
    Ok(rows.iter().map(row).collect())
}

/// Locks letters, whose inbox rows are locked.
pub(in crate::operate) async fn lock(client: &ClientWrapper, ids: &[Uuid]) -> Result<HashMap<Uuid, Locked>, Error> {
    let sql = format!(
        "SELECT letter.id, letter.consumer_id, letter.key, letter.key_text, letter.state, letter.replays, letter.attempts, \
         letter.reason, letter.origin_topic, letter.origin_partition, letter.origin_offset, \
         (extract(epoch FROM letter.origin_timestamp) * 1000)::bigint, \
         (extract(epoch FROM letter.first_failed_at) * 1000)::bigint, letter.class, letter.code, letter.message, \
         letter.resource_key, letter.header_names, letter.header_values, route.group_name, route.retry_topics[1], \
         (extract(epoch FROM now()) * 1000)::bigint FROM sekali.dead_letter AS letter {ROUTE} \
         WHERE letter.id = ANY($1) ORDER BY letter.id FOR UPDATE OF letter"
    );
    let statement = client.prepare_cached(&sql).await?;
    let rows = client.query(&statement, &[&ids]).await?;
    Ok(rows.iter().map(|it| (it.get(0), Locked::of(it))).collect())
}

/// Fingerprints of payloads, by letter.
pub(super) async fn fingerprints(client: &ClientWrapper, ids: &[Uuid]) -> Result<HashMap<Uuid, i64>, Error> {
    let rows = client.query(PAYLOADS, &[&ids]).await?;
    Ok(rows.iter().map(|it| (it.get(0), sekali_schemas::fingerprint(it.get(1)))).collect())
}

impl Locked {
    fn of(row: &SqlRow) -> Locked {
        let count = |at: usize| u32::from(row.get::<_, i16>(at).unsigned_abs());
        let (names, values): (Vec<&str>, Vec<Option<&[u8]>>) = (row.get(17), row.get(18));
        let mut headers = Headers::builder();
        for (name, value) in names.into_iter().zip(values) {
            headers.push(name, value);
        }
        let route = row.get::<_, Option<String>>(19).zip(row.get::<_, Option<String>>(20));
        Locked {
            id: row.get(0),
            consumer_id: row.get(1),
            key: row.get(2),
            key_text: row.get(3),
            imported: row.get::<_, &str>(7) == super::super::foreign::REASON,
            letter: Letter {
                state: LetterState::named(row.get(4)).unwrap_or(LetterState::Resolved),
                replays: count(5),
                attempts: count(6),
                unpublished: row.get::<_, &str>(7) == UNPUBLISHABLE,
            },
            origin: Origin {
                topic: row.get::<_, &str>(8).into(),
                partition: row.get(9),
                offset: row.get(10),
                timestamp_ms: row.get(11),
            },
            first_failed_at_ms: row.get(12),
            error: ErrorInfo::new(row.get(13), row.get(14), row.get(15)),
            resource_key: row.get(16),
            headers: headers.build(),
            route,
            now_ms: row.get(21),
        }
    }

    pub(in crate::operate) fn row_key(&self) -> RowKey {
        (self.consumer_id, self.key)
    }

    pub(in crate::operate) fn topic(&self) -> &str {
        &self.origin.topic
    }

    pub(in crate::operate) fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Topic and headers of the record that asks for an attempt; none when no group reads such records. A record that
    /// Kafka refused goes where it was to go, as it was.
    pub(in crate::operate) fn record(&self, attempt: u32) -> Option<(String, Headers)> {
        if self.letter.unpublished {
            return Some((self.origin.topic.to_string(), self.headers.clone()));
        }
        let key = Some(self.key).filter(|key| !self.says_its_key(*key));
        self.record_of(&self.headers, attempt, Replay { letter: self.id, key })
    }

    /// The same for another letter with this one's place in the log, and headers of its own.
    pub(in crate::operate) fn record_of(
        &self,
        headers: &Headers,
        attempt: u32,
        replay: Replay,
    ) -> Option<(String, Headers)> {
        let (group, topic) = self.route.clone()?;
        let control = Control {
            attempt,
            due_at_ms: Some(self.now_ms),
            group,
            origin: self.origin.clone(),
            first_failed_at_ms: self.first_failed_at_ms,
            error: self.error.clone(),
            replay: Some(replay),
        };
        Some((topic, control.onto(headers)))
    }

    /// Whether whoever reads the record again comes to the key of its inbox row.
    fn says_its_key(&self, key: Uuid) -> bool {
        let text = self.key_text.as_deref().filter(|_| !self.imported).and_then(|it| IdempotencyKey::new(it).ok());
        text.is_some_and(|it| it.uuid() == key)
    }
}
