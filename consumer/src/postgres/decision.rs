//! Writing the decisions on failed messages: inbox row, retry or dead-letter record in the outbox, dead letter.

use std::collections::HashSet;

use deadpool_postgres::ClientWrapper;
use futures_util::future;
use sekali_producer::{OutboundRecord, outbox};
use sekali_schemas::control::{Control, ErrorInfo};
use sekali_schemas::inbox::State;
use uuid::Uuid;

use super::attempt;
use super::dead_letter::{self, DeadLetter};
use super::hold::{self, Head};
use super::inbox;
use crate::core::hold::Rule;
use crate::core::retry::Decision;
use crate::incoming::Incoming;
use crate::routes::Routes;
use crate::{Failure, Transaction};

/// Whoever decided first wins: a row that exists is somebody else's decision.
const INSERT: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, state, attempt \
     FROM unnest($2::uuid[], $3::bigint[], $4::smallint[], $5::smallint[]) AS asked (key, fingerprint, state, attempt) \
     ON CONFLICT DO NOTHING RETURNING key";

/// Only the attempt that the row waits for may be decided. Rows are looked up one by one: left to itself, the planner may
/// read all of a consumer's, as long as the statistics of a table that grows quickly say that there are few.
const UPDATE_RETRYING: &str = "UPDATE sekali.inbox AS row SET state = asked.state, attempt = asked.attempt, decided_at = now() \
     FROM unnest($2::uuid[], $3::smallint[], $4::smallint[], $5::smallint[]) AS asked (key, state, attempt, expected) \
     CROSS JOIN LATERAL (SELECT ctid FROM sekali.inbox AS it WHERE it.consumer_id = $1 AND it.key = asked.key \
     AND it.state = 2 AND it.attempt = asked.expected FOR UPDATE) AS found \
     WHERE row.ctid = found.ctid RETURNING row.key";

/// The message was held, and nobody else has decided it.
const UPDATE_HELD: &str = "UPDATE sekali.inbox AS row SET state = asked.state, attempt = asked.attempt, decided_at = now() \
     FROM unnest($2::uuid[], $3::smallint[], $4::smallint[]) AS asked (key, state, attempt) \
     CROSS JOIN LATERAL (SELECT ctid FROM sekali.inbox AS it WHERE it.consumer_id = $1 AND it.key = asked.key \
     AND it.state = 3 FOR UPDATE) AS found WHERE row.ctid = found.ctid RETURNING row.key";

/// What guards a decision against being taken twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// The row of this key was claimed in this transaction.
    Claimed,
    /// There must be no row of this key.
    NoRow(Uuid),
    /// The row must wait for this attempt.
    Retrying(u32),
    /// The message must still be held; the hold's row is locked.
    Held,
}

/// One failed message and where it goes.
pub(crate) struct Failed<'a> {
    pub(crate) incoming: &'a Incoming,
    pub(crate) guard: Guard,
    pub(crate) decision: Decision,
    pub(crate) error: ErrorInfo,
}

impl Failed<'_> {
    /// Key of the inbox row that records the decision.
    pub(crate) fn row_key(&self) -> Uuid {
        match self.guard {
            Guard::NoRow(key) => key,
            Guard::Claimed | Guard::Retrying(_) | Guard::Held => self.incoming.key(),
        }
    }

    fn row(&self) -> (i16, i16) {
        let (state, attempt) = match self.decision {
            Decision::Retry { attempt, .. } => (State::Retrying, attempt),
            Decision::Dead(_) => (State::Dead, self.incoming.attempt()),
        };
        (state as i16, i16::try_from(attempt).unwrap_or(i16::MAX))
    }
}

/// Where decisions are written.
pub(crate) struct Desk<'a> {
    pub(crate) client: &'a ClientWrapper,
    pub(crate) consumer_id: i16,
    pub(crate) routes: &'a Routes,
    pub(crate) rule: Rule,
    /// Who decides, for those who ask later.
    pub(crate) worker: &'a str,
    pub(crate) now_ms: i64,
}

/// Where the messages of a transaction come from: that says what a decision does to the hold of their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// A source topic: a failed message may become the head of a new hold.
    Source,
    /// A retry topic: the message is a head already, and its hold is ended by whoever called.
    Retry,
    /// The messages that were held: a failed one may become the new head.
    Held,
}

/// Writes decisions in the open transaction. Returns for each whether it was ours to take.
///
/// # Errors
/// Any database error; nothing of the transaction may then be committed.
pub(crate) async fn write(desk: &Desk<'_>, from: From, failed: &[Failed<'_>]) -> Result<Vec<bool>, Failure> {
    let Desk { client, consumer_id, .. } = *desk;
    if failed.iter().all(|it| it.guard == Guard::Claimed) {
        // Nobody else can have taken them, so that nothing waits for an answer: one round trip.
        let all: Vec<&Failed<'_>> = failed.iter().collect();
        let rows = Box::pin(write_rows(client, consumer_id, failed));
        let (rows, rest) = future::join(rows, Box::pin(write_consequences(desk, from, &all))).await;
        rows?;
        rest?;
        return Ok(vec![true; failed.len()]);
    }
    let ours = write_rows(client, consumer_id, failed).await?;
    let taken: Vec<bool> = failed.iter().map(|it| ours.contains(&it.row_key())).collect();
    let decided: Vec<&Failed<'_>> = failed.iter().zip(&taken).filter(|it| *it.1).map(|it| it.0).collect();
    if !decided.is_empty() {
        Box::pin(write_consequences(desk, from, &decided)).await?;
    }
    Ok(taken)
}

/// What follows from decisions that were ours to take.
async fn write_consequences(desk: &Desk<'_>, from: From, decided: &[&Failed<'_>]) -> Result<(), Failure> {
    let Desk { client, consumer_id, now_ms, .. } = *desk;
    let (mut records, mut dead) = (Vec::with_capacity(decided.len()), Vec::new());
    for it in decided {
        records.push(outbound(desk.routes, now_ms, it)?);
        if let Decision::Dead(reason) = it.decision {
            let (incoming, key, error) = (it.incoming, it.row_key(), &it.error);
            let first_failed_at_ms = incoming.first_failed_at_ms().unwrap_or(now_ms);
            dead.push(DeadLetter { incoming, key, reason, error, first_failed_at_ms });
        }
    }
    let tx = Transaction::over(client);
    // Sent together, in the order of the first poll. All are awaited: of several errors the first one is the cause.
    let (buried, held, noted, enqueued) = future::join4(
        dead_letter::insert_all(client, consumer_id, &dead, desk.worker),
        hold_keys(desk, from, decided),
        attempt::note(client, consumer_id, desk.worker, decided),
        outbox::enqueue_all(&tx, records),
    )
    .await;
    buried?;
    held?;
    noted?;
    enqueued?;
    Ok(())
}

async fn hold_keys(desk: &Desk<'_>, from: From, decided: &[&Failed<'_>]) -> Result<(), tokio_postgres::Error> {
    let mut heads: Vec<Head<'_>> = Vec::new();
    for it in decided.iter().filter(|it| desk.rule.holds(it.decision)) {
        heads.extend(it.incoming.hold_key().map(|key| (key, it.row_key())));
    }
    match from {
        _ if heads.is_empty() => Ok(()),
        From::Source => hold::create(desk.client, desk.consumer_id, &heads).await,
        From::Held => hold::new_heads(desk.client, desk.consumer_id, &heads).await,
        From::Retry => Ok(()),
    }
}

async fn write_rows(client: &ClientWrapper, consumer_id: i16, failed: &[Failed<'_>]) -> Result<HashSet<Uuid>, Failure> {
    let mut ours = HashSet::new();
    let select = |wanted: fn(&Guard) -> bool| {
        let mut chosen: Vec<&Failed<'_>> = failed.iter().filter(|it| wanted(&it.guard)).collect();
        chosen.sort_by_key(|it| it.row_key());
        chosen
    };
    let columns = |chosen: &[&Failed<'_>]| -> (Vec<Uuid>, Vec<i16>, Vec<i16>) {
        let keys = chosen.iter().map(|it| it.row_key()).collect();
        let (states, attempts) = chosen.iter().map(|it| it.row()).unzip();
        (keys, states, attempts)
    };
    let fresh = select(|it| matches!(it, Guard::NoRow(_)));
    if !fresh.is_empty() {
        let (keys, states, attempts) = columns(&fresh);
        let fingerprints: Vec<i64> = fresh.iter().map(|it| it.incoming.fingerprint()).collect();
        let statement = client.prepare_cached(INSERT).await?;
        let rows = client.query(&statement, &[&consumer_id, &keys, &fingerprints, &states, &attempts]).await?;
        ours.extend(rows.iter().map(|it| it.get::<_, Uuid>(0)));
    }
    let retrying = select(|it| matches!(it, Guard::Retrying(_)));
    if !retrying.is_empty() {
        let (keys, states, attempts) = columns(&retrying);
        let expected: Vec<i16> =
            retrying.iter().map(|it| i16::try_from(it.incoming.attempt()).unwrap_or(i16::MAX)).collect();
        let statement = client.prepare_cached(UPDATE_RETRYING).await?;
        let rows = client.query(&statement, &[&consumer_id, &keys, &states, &attempts, &expected]).await?;
        ours.extend(rows.iter().map(|it| it.get::<_, Uuid>(0)));
    }
    let claimed = select(|it| matches!(it, Guard::Claimed));
    if !claimed.is_empty() {
        let (keys, states, attempts) = columns(&claimed);
        inbox::decide_claimed(client, consumer_id, &keys, &states, &attempts).await?;
        ours.extend(keys);
    }
    let held = select(|it| matches!(it, Guard::Held));
    if !held.is_empty() {
        let (keys, states, attempts) = columns(&held);
        let statement = client.prepare_cached(UPDATE_HELD).await?;
        let rows = client.query(&statement, &[&consumer_id, &keys, &states, &attempts]).await?;
        ours.extend(rows.iter().map(|it| it.get::<_, Uuid>(0)));
    }
    Ok(ours)
}

/// The record that the relay will publish: key, payload and user headers as they came, ours behind them.
fn outbound(routes: &Routes, now_ms: i64, failed: &Failed<'_>) -> Result<OutboundRecord, Failure> {
    let incoming = failed.incoming;
    let record = incoming.record();
    let (topic, attempt, due_at_ms) = match failed.decision {
        Decision::Retry { attempt, tier, delay } => {
            let due_at_ms = now_ms.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
            (routes.retry(&record.topic, tier), attempt, Some(due_at_ms))
        }
        Decision::Dead(_) => (routes.dlq(&record.topic), incoming.attempt(), None),
    };
    // Destinations come from the configuration, never from a record's own headers.
    let topic = topic.ok_or_else(|| Failure::permanent("the record's topic is not one of this consumer"))?;
    let control = Control {
        attempt,
        due_at_ms,
        group: routes.group().to_owned(),
        origin: incoming.origin(),
        first_failed_at_ms: incoming.first_failed_at_ms().unwrap_or(now_ms),
        error: failed.error.clone(),
        replay: incoming.replay(),
    };
    let headers = match failed.decision {
        Decision::Retry { .. } => control.onto(&record.headers),
        Decision::Dead(_) => control.onto_dead_letter(&record.headers),
    };
    Ok(OutboundRecord { topic: topic.to_owned(), key: record.key.clone(), payload: record.payload.clone(), headers })
}

/// Key of the row that remembers a dead letter for a reused idempotency key: the key's own row belongs to the payload
/// that came first.
pub(crate) fn reuse_key(key: Uuid, fingerprint: i64) -> Uuid {
    let text = format!("key-reuse\u{1f}{key}\u{1f}{fingerprint}");
    // Never empty and never longer than the limit, so that this cannot fail.
    sekali_schemas::IdempotencyKey::new(text).map_or(key, |it| it.uuid())
}
