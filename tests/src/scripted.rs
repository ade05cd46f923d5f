//! A handler that does what its messages say.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sekali_consumer::lock::{LockKey, Name};
use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};
use uuid::Uuid;

/// Makes the table of effects.
pub const LEDGER: &str = "CREATE TABLE effect (nr bigint GENERATED ALWAYS AS IDENTITY, key uuid NOT NULL, key_text text NOT NULL, attempt int NOT NULL, \
     partition int NOT NULL, \"offset\" bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()); \
     CREATE TABLE taken (id int PRIMARY KEY); INSERT INTO taken VALUES (1)";

/// Header that holds the script: `ok` (also without the header), `transient`, `transient=2` (fails attempts 1 and 2),
/// `permanent`, `panic`, `hang`, `swallow` (an SQL error), `sql=22P02`, `contended=2` (the
/// first two calls), `reject`, `reject-permanent`,
/// `slow=50` (milliseconds), `result`, `half-way` (runs [`HALF_WAY`] behind its effect), `locked=name` (under a named lock).
pub const SCRIPT: &str = "script";

/// A statement that changes nothing, for whoever watches the connection.
pub const HALF_WAY: &str = "SELECT 'half of the batch is written'";

/// Writes one row into `effect` for each message, unless the message's script says otherwise. Like a real ledger, the
/// table has no unique key: an effect that happens twice shows.
#[derive(Clone, Default)]
pub struct Scripted {
    calls: Arc<AtomicU64>,
    /// Attempts and moments at which each key was handled, whatever came of it.
    seen: Arc<Mutex<Seen>>,
}

/// Attempts by key text.
type Seen = BTreeMap<String, Vec<(u32, Instant)>>;

impl Scripted {
    /// How often `handle_batch` was called.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The attempts of one message that reached the handler, in order. An attempt may run more than once: in a batch
    /// that fails, and then alone.
    pub fn seen(&self, key: &str) -> Vec<u32> {
        self.seen_at(key).into_iter().map(|it| it.0).collect()
    }

    /// Each attempt with the moment at which it first ran.
    pub fn attempts(&self, key: &str) -> Vec<(u32, Instant)> {
        let mut attempts = self.seen_at(key);
        attempts.dedup_by_key(|it| it.0);
        attempts
    }

    /// The same as [`seen`](Scripted::seen), with the moments.
    pub fn seen_at(&self, key: &str) -> Vec<(u32, Instant)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned().unwrap_or_default()
    }

    async fn act(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let script = message.headers().text(SCRIPT).unwrap_or("ok");
        let (verb, argument) = script.split_once('=').unwrap_or((script, ""));
        let number: u32 = argument.parse().unwrap_or(u32::MAX);
        let still_fails = message.attempt() <= number;
        match verb {
            "transient" if still_fails => return Err(Failure::transient("scripted").with_code("SCRIPT")),
            "permanent" => return Err(Failure::permanent("scripted ünd dead \u{0}")),
            "panic" if still_fails => panic!("scripted"),
            "hang" if still_fails => std::future::pending().await,
            "contended" if self.seen(message.idempotency_key().as_str()).len() <= number as usize => {
                return Err(Failure::contended("scripted"));
            }
            "reject" if still_fails => return Ok(Reply::rejected(Failure::transient("scripted"))),
            "reject-permanent" => return Ok(Reply::rejected(Failure::permanent("scripted"))),
            "swallow" if still_fails => {
                // The mistake of the field: the error is dropped, the transaction is dead, the handler says it is well.
                let _swallowed = tx.batch_execute("INSERT INTO taken VALUES (1)").await;
                return Ok(Reply::done());
            }
            "sql" => tx.batch_execute(&format!("DO $$ BEGIN RAISE SQLSTATE '{argument}'; END $$")).await?,
            "slow" => tokio::time::sleep(Duration::from_millis(number.into())).await,
            _ => {}
        }
        record(message, tx).await?;
        if verb == "half-way" {
            tx.batch_execute(HALF_WAY).await?;
        }
        Ok(if verb == "result" {
            Reply::stored(serde_json::json!({"attempt": message.attempt()}))
        } else {
            Reply::done()
        })
    }
}

/// Writes the row of a message into `effect`.
pub(crate) async fn record(message: &Message, tx: &Transaction<'_>) -> Result<(), Failure> {
    const INSERT: &str =
        "INSERT INTO effect (key, key_text, attempt, partition, \"offset\") VALUES ($1, $2, $3, $4, $5)";
    let key: Uuid = message.idempotency_key().uuid();
    let origin = message.origin();
    let attempt = i32::try_from(message.attempt()).map_err(Failure::permanent)?;
    let text = message.idempotency_key().as_str();
    tx.execute_cached(INSERT, &[&key, &text, &attempt, &origin.partition, &origin.offset]).await?;
    Ok(())
}

impl Handler for Scripted {
    fn lock_key(&self, message: &Message) -> Result<Option<LockKey>, Failure> {
        let script = message.headers().text(SCRIPT).and_then(|it| it.strip_prefix("locked="));
        script.map(|it| Name::new(it).map(LockKey::Named).map_err(Failure::permanent)).transpose()
    }

    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        self.note(message);
        self.act(message, tx).await
    }

    async fn handle_batch(&self, messages: &[Message], tx: &Transaction<'_>) -> Result<Vec<Reply>, Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut replies = Vec::with_capacity(messages.len());
        for message in messages {
            replies.push(self.handle(message, tx).await?);
        }
        Ok(replies)
    }
}

impl Scripted {
    fn note(&self, message: &Message) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(message.idempotency_key().as_str().to_owned())
            .or_default()
            .push((message.attempt(), Instant::now()));
    }
}
