//! The ledger is the judge: what must be true of a group once it has come to rest, whatever was killed.

use std::collections::BTreeMap;

use anyhow::ensure;
use sekali_schemas::IdempotencyKey;
use sekali_schemas::inbox::State;
use sekali_tests::group::UNPUBLISHED;
use sekali_tests::harness::{Kafka, TestDatabase};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::traffic::{End, Traffic};

/// As many faults of one kind are named.
const NAMED: usize = 3;

/// What the judge found.
#[derive(Default)]
pub(crate) struct Findings {
    /// What is wrong, in words.
    pub(crate) wrong: Vec<String>,
    /// Records on the dead-letter topic beyond one a message: the relay publishes at least once.
    pub(crate) republished: usize,
}

/// Asks a database whether everything is decided and published, again and again on one connection.
pub(crate) struct Watch<'a> {
    database: &'a TestDatabase,
    client: Option<Client>,
}

impl Watch<'_> {
    pub(crate) fn over(database: &TestDatabase) -> Watch<'_> {
        Watch { database, client: None }
    }

    /// # Errors
    /// Something is still on its way; the text says what.
    pub(crate) async fn rests(&mut self, traffic: &Traffic) -> Result<(), anyhow::Error> {
        let client = match self.client.take().filter(|it| !it.is_closed()) {
            Some(client) => client,
            None => sekali_tests::harness::connect(&self.database.url()).await?,
        };
        let sql = format!(
            "SELECT (SELECT count(*) FROM effect) + (SELECT count(*) FROM sekali.dead_letter), \
             (SELECT count(*) FROM sekali.inbox WHERE state NOT IN ({}, {})), ({UNPUBLISHED})",
            State::Processed as i16,
            State::Dead as i16
        );
        let row = client.query_one(&sql, &[]).await?;
        self.client = Some(client);
        let (ended, open, pending): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let sent = traffic.ends.len() as i64;
        ensure!(
            sent <= ended && open == 0 && pending == 0,
            "{ended} of {sent} messages ended, {open} rows undecided, {pending} records queued"
        );
        Ok(())
    }
}

/// Compares tables and dead-letter topic with what was sent.
pub(crate) async fn judge(
    database: &TestDatabase,
    kafka: &Kafka,
    dlq: &str,
    traffic: &Traffic,
) -> Result<Findings, anyhow::Error> {
    let client = sekali_tests::harness::connect(&database.url()).await?;
    let mut findings = Findings::default();
    let (effects, dead) = (effects(&client).await?, dead_letters(&client).await?);
    for (id, end) in &traffic.ends {
        let attempts = effects.get(id).cloned().unwrap_or_default();
        let letters = dead.get(id).cloned().unwrap_or_default();
        let as_expected = match end {
            End::Ledger { attempt } => attempts == [*attempt] && letters.is_empty(),
            End::Dead { reason, attempts: made } => {
                attempts.is_empty() && letters.len() == 1 && letters[0].0 == *reason && letters[0].1 == *made
            }
        };
        if !as_expected {
            findings
                .wrong
                .push(format!("{id}: {end:?}, found effects of attempts {attempts:?}, dead letters {letters:?}"));
        }
    }
    let strangers = effects.keys().chain(dead.keys()).filter(|it| !traffic.ends.contains_key(*it));
    findings.wrong.extend(strangers.map(|it| format!("{it}: nobody sent it")));
    findings.wrong.extend(inbox(&client, traffic).await?);
    findings.wrong.extend(order(&client, traffic).await?);
    let mut on_topic: BTreeMap<String, usize> = BTreeMap::new();
    for record in kafka.read_all(dlq).await {
        *on_topic.entry(record.headers.text("idempotency-key").unwrap_or("-").to_owned()).or_default() += 1;
    }
    for (id, end) in &traffic.ends {
        let copies = on_topic.remove(id).unwrap_or_default();
        match end {
            End::Dead { .. } if copies == 0 => findings.wrong.push(format!("{id}: not on the dead-letter topic")),
            End::Dead { .. } => findings.republished += copies - 1,
            End::Ledger { .. } if 0 < copies => findings.wrong.push(format!("{id}: on the dead-letter topic")),
            End::Ledger { .. } => {}
        }
    }
    findings.wrong.extend(on_topic.keys().map(|it| format!("{it}: on the dead-letter topic, and nobody sent it")));
    let count = findings.wrong.len();
    if NAMED < count {
        findings.wrong.truncate(NAMED);
        findings.wrong.push(format!("and {} more", count - NAMED));
    }
    Ok(findings)
}

/// One final row a message.
async fn inbox(client: &Client, traffic: &Traffic) -> Result<Vec<String>, anyhow::Error> {
    let rows = client.query("SELECT key, state, attempt FROM sekali.inbox", &[]).await?;
    let mut found: BTreeMap<Uuid, (i16, i16)> = rows.iter().map(|it| (it.get(0), (it.get(1), it.get(2)))).collect();
    let mut wrong = Vec::new();
    for (id, end) in &traffic.ends {
        let expected = match end {
            End::Ledger { attempt } => (State::Processed as i16, i16::try_from(*attempt)?),
            End::Dead { attempts, .. } => (State::Dead as i16, *attempts),
        };
        let row = found.remove(&IdempotencyKey::new(id.as_str())?.uuid());
        if row != Some(expected) {
            wrong.push(format!("{id}: inbox row {row:?} (state, attempt) instead of {expected:?}"));
        }
    }
    wrong.extend(found.keys().map(|it| format!("{it}: an inbox row of nobody's message")));
    Ok(wrong)
}

/// Effects of each key in the order in which its messages were sent, and nothing left of what was held.
async fn order(client: &Client, traffic: &Traffic) -> Result<Vec<String>, anyhow::Error> {
    let rows = client.query("SELECT key_text FROM effect ORDER BY nr", &[]).await?;
    let places: BTreeMap<String, usize> = rows.iter().enumerate().map(|(place, it)| (it.get(0), place)).collect();
    let mut wrong = Vec::new();
    for (key, ids) in &traffic.by_key {
        let found: Vec<(usize, &String)> = ids.iter().filter_map(|it| Some((*places.get(it)?, it))).collect();
        let overtaken = found.windows(2).filter(|it| it[1].0 < it[0].0);
        wrong.extend(overtaken.map(|it| format!("{}: took effect before {} of key {key}", it[1].1, it[0].1)));
    }
    let sql = "SELECT (SELECT count(*) FROM sekali.held_key) + (SELECT count(*) FROM sekali.held_message)";
    let held: i64 = client.query_one(sql, &[]).await?.get(0);
    if 0 < held {
        wrong.push(format!("{held} rows of held keys and messages are left"));
    }
    Ok(wrong)
}

/// Attempts that took effect, by id.
async fn effects(client: &Client) -> Result<BTreeMap<String, Vec<i32>>, anyhow::Error> {
    let mut effects: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for row in client.query("SELECT key_text, attempt FROM effect", &[]).await? {
        effects.entry(row.get(0)).or_default().push(row.get(1));
    }
    Ok(effects)
}

/// Reason and attempts of dead letters, by id.
async fn dead_letters(client: &Client) -> Result<BTreeMap<String, Vec<(String, i16)>>, anyhow::Error> {
    let mut dead: BTreeMap<String, Vec<(String, i16)>> = BTreeMap::new();
    for row in client.query("SELECT coalesce(key_text, '-'), reason, attempts FROM sekali.dead_letter", &[]).await? {
        dead.entry(row.get(0)).or_default().push((row.get(1), row.get(2)));
    }
    Ok(dead)
}
