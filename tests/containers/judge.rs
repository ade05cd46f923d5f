//! The ledger is the judge: it is held against what was sent, once everything has come to rest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use sekali_schemas::IdempotencyKey;
use sekali_schemas::inbox::State;
use sekali_tests::group::UNPUBLISHED;
use uuid::Uuid;

use crate::stack::{DLQ, GROUP, Stack};
use crate::traffic::{End, Traffic};

const REST_TIMEOUT: Duration = Duration::from_secs(150);
const LOOK: Duration = Duration::from_millis(500);
/// As many faults of one kind are named.
const NAMED: usize = 3;

/// What there was before, so that one database serves several parts of the check.
pub(crate) struct Before {
    movements: i64,
    letters: i64,
    quantities: BTreeMap<String, i64>,
}

impl Before {
    pub(crate) async fn look(stack: &Stack) -> Result<Before, anyhow::Error> {
        Ok(Before {
            movements: movements(stack).await?,
            letters: letters(stack).await?,
            quantities: quantities(stack).await?,
        })
    }

    /// Movements that came since.
    pub(crate) async fn since(&self, stack: &Stack) -> Result<i64, anyhow::Error> {
        Ok(movements(stack).await? - self.movements)
    }

    /// Waits until every event has an end, every offset is committed, and nothing is on its way.
    ///
    /// # Errors
    /// It takes too long; the text says what is open.
    pub(crate) async fn wait_for_rest(&self, stack: &Stack, traffic: &Traffic) -> Result<(), anyhow::Error> {
        let deadline = Instant::now() + REST_TIMEOUT;
        let topics = topics(stack).await?;
        loop {
            let ended = self.since(stack).await? + letters(stack).await? - self.letters;
            let (processed, dead) = (State::Processed as i16, State::Dead as i16);
            let open = format!("SELECT count(*) FROM sekali.inbox WHERE state NOT IN ({processed}, {dead})");
            let sql = format!("SELECT ({open}), ({UNPUBLISHED})");
            let row = stack.client.query_one(&sql, &[]).await?;
            let (open, pending): (i64, i64) = (row.get(0), row.get(1));
            let mut lag = 0;
            for topic in &topics {
                lag += stack.kafka.lag(GROUP, topic).await;
            }
            let sent = traffic.events.len();
            if sent as i64 <= ended && (open, pending, lag) == (0, 0, 0) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "not at rest after {REST_TIMEOUT:?}: {ended} of {sent} events ended, {open} undecided, {pending} queued, lag {lag}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What is wrong, in words.
    pub(crate) async fn judge(&self, stack: &Stack, traffic: &Traffic) -> Result<Vec<String>, anyhow::Error> {
        let mut wrong = Vec::new();
        let ledger = counted(stack, "SELECT key FROM public.stock_movement").await?;
        let dead = counted(stack, "SELECT key FROM sekali.dead_letter WHERE state = 'open'").await?;
        for event in &traffic.events {
            let key = IdempotencyKey::new(event.id.to_string())?.uuid();
            let found = (ledger.get(&key).copied().unwrap_or(0), dead.get(&key).copied().unwrap_or(0));
            let expected = if event.end == End::Ledger { (1, 0) } else { (0, 1) };
            if found != expected {
                wrong.push(format!("{}: {} times in the ledger, {} dead letters", event.id, found.0, found.1));
            }
        }
        // Each event is where it belongs, and once. What is there beyond that nobody sent.
        let more = self.since(stack).await? - traffic.ending(End::Ledger) as i64;
        if more != 0 && wrong.is_empty() {
            wrong.push(format!("{more} rows in the ledger that nobody sent"));
        }
        let found = quantities(stack).await?;
        for (sku, sum) in traffic.sums() {
            let before = self.quantities.get(sku).copied().unwrap_or(0);
            let now = found.get(sku).copied().unwrap_or(0);
            if now - before != sum {
                wrong.push(format!("{sku}: quantity changed by {} instead of {sum}", now - before));
            }
        }
        let published: Vec<String> = stack.kafka.read_all(DLQ).await.iter().map(|it| text_id(&it.headers)).collect();
        let missing = traffic.events.iter().filter(|it| it.end == End::Dead && !published.contains(&it.id.to_string()));
        wrong.extend(missing.map(|it| format!("{}: not on the dead-letter topic", it.id)));
        let count = wrong.len();
        if NAMED < count {
            wrong.truncate(NAMED);
            wrong.push(format!("and {} more", count - NAMED));
        }
        Ok(wrong)
    }
}

fn text_id(headers: &sekali_schemas::Headers) -> String {
    headers.text("idempotency-key").unwrap_or("-").to_owned()
}

/// The source topic and its retry topics.
async fn topics(stack: &Stack) -> Result<Vec<String>, anyhow::Error> {
    let names = stack.kafka.topic_names().await;
    let topics: Vec<String> = names.into_iter().filter(|it| it.starts_with("stock") && it != DLQ).collect();
    ensure!(1 < topics.len(), "the source topic and its retry topics are missing: {topics:?}");
    Ok(topics)
}

async fn counted(stack: &Stack, sql: &str) -> Result<BTreeMap<Uuid, usize>, anyhow::Error> {
    let mut keys = BTreeMap::new();
    for row in stack.client.query(sql, &[]).await? {
        *keys.entry(row.get(0)).or_default() += 1;
    }
    Ok(keys)
}

async fn movements(stack: &Stack) -> Result<i64, anyhow::Error> {
    Ok(stack.client.query_one("SELECT count(*) FROM public.stock_movement", &[]).await?.get(0))
}

async fn letters(stack: &Stack) -> Result<i64, anyhow::Error> {
    Ok(stack.client.query_one("SELECT count(*) FROM sekali.dead_letter", &[]).await?.get(0))
}

async fn quantities(stack: &Stack) -> Result<BTreeMap<String, i64>, anyhow::Error> {
    let rows = stack.client.query("SELECT sku, quantity FROM public.stock", &[]).await?;
    Ok(rows.iter().map(|it| (it.get(0), it.get(1))).collect())
}
