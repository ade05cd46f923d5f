//! What an operation writes for letters that were judged: inbox, letters, outbox, holds, audit, outcomes.

use std::collections::BTreeMap;

use deadpool_postgres::ClientWrapper;
use sekali_schemas::{Headers, array_literal};
use serde_json::Value;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::letter::{self, Locked};
use super::run::Claimed;
use crate::core::operator::{Change, Told};
use crate::postgres::hold::{self, Head};

type Error = tokio_postgres::Error;

/// A letter and what becomes of it.
pub(super) struct Decided<'a> {
    pub(super) nr: i32,
    pub(super) id: Uuid,
    pub(super) locked: Option<&'a Locked>,
    /// Whether the inbox remembers its message.
    pub(super) had_row: bool,
    pub(super) change: Result<Change, Told>,
    pub(super) record: Option<(String, Headers)>,
}

impl Decided<'_> {
    fn told(&self) -> Told {
        self.change.map_or_else(|it| it, |it| it.told)
    }
}

const UPDATE_ROWS: &str = "UPDATE sekali.inbox AS row SET state = asked.state, attempt = asked.attempt, decided_at = now() \
     FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::smallint[]) AS asked (consumer_id, key, state, attempt) \
     CROSS JOIN LATERAL (SELECT ctid FROM sekali.inbox AS it WHERE it.consumer_id = asked.consumer_id \
     AND it.key = asked.key OFFSET 0) AS found WHERE row.ctid = found.ctid";
const INSERT_ROWS: &str = "INSERT INTO sekali.inbox (consumer_id, key, state, attempt, fingerprint) \
     SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::smallint[], $5::bigint[]) \
     ON CONFLICT DO NOTHING";
const UPDATE_LETTERS: &str = "UPDATE sekali.dead_letter AS letter SET state = asked.state, \
     replays = letter.replays + asked.replayed, operation_id = $4 \
     FROM unnest($1::uuid[], $2::text[], $3::smallint[]) AS asked (id, state, replayed) WHERE letter.id = asked.id";
/// Payloads stay in the database.
pub(in crate::operate) const ENQUEUE: &str = "INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
     SELECT asked.topic, letter.resource_key, letter.payload, names::text[], vals::bytea[] \
     FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS asked (id, topic, names, vals, nr) \
     JOIN sekali.dead_letter AS letter ON letter.id = asked.id ORDER BY asked.nr";
const OUTCOMES: &str = "UPDATE sekali.operation_item AS item SET outcome = asked.outcome \
     FROM unnest($2::int[], $3::text[]) AS asked (nr, outcome) WHERE item.operation_id = $1 AND item.nr = asked.nr";
const AUDIT: &str = "INSERT INTO sekali.audit (who, action, reason, selection, operation_id, consumer_id, key, outcome, \
     dead_letter_id) SELECT $1, $2, $3, $4, $5, consumer_id, key, outcome, id \
     FROM unnest($6::smallint[], $7::uuid[], $8::text[], $9::uuid[]) AS done (consumer_id, key, outcome, id)";

/// Writes everything in the open transaction. False: the inbox has a row by now that was not there.
pub(super) async fn write(client: &ClientWrapper, claimed: &Claimed, decided: &[Decided<'_>]) -> Result<bool, Error> {
    if !write_rows(client, decided).await? {
        return Ok(false);
    }
    write_letters(client, claimed.id, decided).await?;
    enqueue(client, decided).await?;
    release(client, decided).await?;
    let entry = |it: &Decided<'_>| AuditEntry {
        consumer_id: it.locked.map(|it| it.consumer_id),
        key: it.locked.map(|it| it.key),
        outcome: it.told().as_str(),
        letter: it.id,
    };
    let entries: Vec<AuditEntry> = decided.iter().map(entry).collect();
    let signed = Signed {
        who: &claimed.who,
        action: claimed.act.as_str(),
        reason: &claimed.reason,
        selection: &claimed.selection,
        operation: claimed.id,
    };
    audit_all(client, &signed, &entries).await?;
    let numbers: Vec<i32> = decided.iter().map(|it| it.nr).collect();
    let outcomes: Vec<&str> = entries.iter().map(|it| it.outcome).collect();
    let statement = client.prepare_cached(OUTCOMES).await?;
    client.execute(&statement, &[&claimed.id, &numbers, &outcomes]).await?;
    Ok(true)
}

async fn write_rows(client: &ClientWrapper, decided: &[Decided<'_>]) -> Result<bool, Error> {
    // Of two letters of one message, the last word counts.
    let mut changed: BTreeMap<letter::RowKey, (i16, i16, bool, Uuid)> = BTreeMap::new();
    for it in decided {
        if let (Some(locked), Ok(Change { row: Some((state, attempt)), .. })) = (it.locked, it.change) {
            let attempt = i16::try_from(attempt).unwrap_or(i16::MAX);
            let had_row = changed.get(&locked.row_key()).map_or(it.had_row, |it| it.2);
            changed.insert(locked.row_key(), (state as i16, attempt, had_row, it.id));
        }
    }
    for had_row in [true, false] {
        let chosen: Vec<_> = changed.iter().filter(|it| it.1.2 == had_row).collect();
        if chosen.is_empty() {
            continue;
        }
        let (consumers, keys): (Vec<i16>, Vec<Uuid>) = chosen.iter().map(|it| *it.0).unzip();
        let (states, attempts): (Vec<i16>, Vec<i16>) = chosen.iter().map(|it| (it.1.0, it.1.1)).unzip();
        if had_row {
            let statement = client.prepare_cached(UPDATE_ROWS).await?;
            client.execute(&statement, &[&consumers, &keys, &states, &attempts]).await?;
            continue;
        }
        let ids: Vec<Uuid> = chosen.iter().map(|it| it.1.3).collect();
        let known = letter::fingerprints(client, &ids).await?;
        let fingerprints: Vec<i64> = ids.iter().map(|it| known.get(it).copied().unwrap_or_default()).collect();
        let statement = client.prepare_cached(INSERT_ROWS).await?;
        let inserted = client.execute(&statement, &[&consumers, &keys, &states, &attempts, &fingerprints]).await?;
        if inserted < keys.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn write_letters(client: &ClientWrapper, operation: i64, decided: &[Decided<'_>]) -> Result<(), Error> {
    let changed: Vec<(Uuid, Change)> = decided.iter().filter_map(|it| Some((it.id, it.change.ok()?))).collect();
    let ids: Vec<Uuid> = changed.iter().map(|it| it.0).collect();
    let states: Vec<&str> = changed.iter().map(|it| it.1.letter.as_str()).collect();
    let replayed: Vec<i16> = changed.iter().map(|it| i16::from(it.1.publish)).collect();
    let statement = client.prepare_cached(UPDATE_LETTERS).await?;
    client.execute(&statement, &[&ids, &states, &replayed, &operation]).await?;
    Ok(())
}

async fn enqueue(client: &ClientWrapper, decided: &[Decided<'_>]) -> Result<(), Error> {
    let records: Vec<_> = decided.iter().filter_map(|it| Some((it.id, it.record.as_ref()?))).collect();
    if records.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = records.iter().map(|it| it.0).collect();
    let topics: Vec<&str> = records.iter().map(|it| it.1.0.as_str()).collect();
    let names: Vec<String> = records.iter().map(|it| array_literal::names(&it.1.1)).collect();
    let values: Vec<String> = records.iter().map(|it| array_literal::values(&it.1.1)).collect();
    let statement = client.prepare_cached(ENQUEUE).await?;
    client.execute(&statement, &[&ids, &topics, &names, &values]).await?;
    Ok(())
}

/// What waits behind letters that hold their keys no longer may run.
async fn release(client: &ClientWrapper, decided: &[Decided<'_>]) -> Result<(), Error> {
    let mut heads: BTreeMap<i16, Vec<Head<'_>>> = BTreeMap::new();
    for it in decided {
        if let (Some(locked), Ok(Change { release: true, .. })) = (it.locked, it.change)
            && let Some(key) = locked.resource_key.as_deref()
        {
            heads.entry(locked.consumer_id).or_default().push(((locked.topic(), key), locked.key));
        }
    }
    for (consumer_id, heads) in heads {
        hold::heads_decided(client, consumer_id, &heads).await?;
    }
    Ok(())
}

/// Who did something, and why.
pub(in crate::operate) struct Signed<'a> {
    pub(in crate::operate) who: &'a str,
    pub(in crate::operate) action: &'a str,
    pub(in crate::operate) reason: &'a str,
    pub(in crate::operate) selection: &'a Value,
    pub(in crate::operate) operation: i64,
}

/// What came of it for one message.
pub(in crate::operate) struct AuditEntry {
    pub(in crate::operate) consumer_id: Option<i16>,
    pub(in crate::operate) key: Option<Uuid>,
    pub(in crate::operate) outcome: &'static str,
    pub(in crate::operate) letter: Uuid,
}

/// One row of the audit for each message.
pub(in crate::operate) async fn audit_all(
    client: &ClientWrapper,
    signed: &Signed<'_>,
    entries: &[AuditEntry],
) -> Result<(), Error> {
    let consumers: Vec<Option<i16>> = entries.iter().map(|it| it.consumer_id).collect();
    let keys: Vec<Option<Uuid>> = entries.iter().map(|it| it.key).collect();
    let outcomes: Vec<&str> = entries.iter().map(|it| it.outcome).collect();
    let letters: Vec<Uuid> = entries.iter().map(|it| it.letter).collect();
    let Signed { who, action, reason, selection, operation } = signed;
    let selection = Json(selection);
    let statement = client.prepare_cached(AUDIT).await?;
    client
        .execute(&statement, &[who, action, reason, &selection, operation, &consumers, &keys, &outcomes, &letters])
        .await?;
    Ok(())
}
