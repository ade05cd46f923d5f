//! An effect outside the database that does what its messages say, and a provider that remembers every call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sekali_consumer::{Effect, Failure, Lease, Message, Reply, Transaction};
use tokio_postgres::Client;

use crate::group::Group;
use crate::scripted::{SCRIPT, record};

/// Makes the provider's memory: calls as they begin, with the moment at which they ended. It is no part of any
/// transaction of the consumer.
const CALLS: &str = "CREATE TABLE call (nr bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key_text text NOT NULL, \
     attempt int NOT NULL, fence bigint NOT NULL, began_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz)";

/// Calls the provider for each message. The script of a message is in the header [`SCRIPT`]: `ok`, `slow=50`
/// (milliseconds), `transient=2`, `permanent`, `panic=1`, `hang=1`, `contended=2` (the first two calls), `unrecorded=1` (its outcome
/// cannot be written on that attempt), `swallow=1` (an SQL error while it is written).
#[derive(Clone)]
pub struct Calling {
    provider: Arc<Client>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Of the message.
    pub key: String,
    /// On which attempt.
    pub attempt: i32,
    /// Of the lease.
    pub fence: i64,
    /// Whether it ran to its end.
    pub ended: bool,
}

impl Calling {
    /// A provider in the database of a group, over a connection of its own.
    ///
    /// # Panics
    /// The database refuses.
    pub async fn new(group: &Group) -> Calling {
        let there = "SELECT to_regclass('call') IS NOT NULL";
        if !group.database.scalar::<bool>(there).await {
            group.database.execute(CALLS).await;
        }
        Calling::at(&group.database.url()).await
    }

    /// The same for another process.
    ///
    /// # Panics
    /// The database refuses.
    pub async fn at(url: &str) -> Calling {
        let provider = crate::harness::connect(url).await.expect("the provider's database answers");
        Calling { provider: Arc::new(provider) }
    }
}

/// Every call so far, in the order in which they began.
///
/// # Panics
/// The database refuses.
pub async fn calls(group: &Group) -> Vec<Call> {
    const SQL: &str = "SELECT key_text, attempt, fence, ended_at IS NOT NULL FROM call ORDER BY nr";
    let rows = group.database.connect().await.query(SQL, &[]).await.expect("the provider remembers");
    let call =
        |it: &tokio_postgres::Row| Call { key: it.get(0), attempt: it.get(1), fence: it.get(2), ended: it.get(3) };
    rows.iter().map(call).collect()
}

/// Attempts of the calls of each message.
///
/// # Panics
/// The database refuses.
pub async fn attempts(group: &Group) -> BTreeMap<String, Vec<i32>> {
    let mut attempts: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for call in calls(group).await {
        attempts.entry(call.key).or_default().push(call.attempt);
    }
    attempts
}

impl Effect for Calling {
    type Outcome = i64;

    async fn perform(&self, message: &Message, lease: &Lease) -> Result<i64, Failure> {
        const BEGIN: &str = "INSERT INTO call (key_text, attempt, fence) VALUES ($1, $2, $3) RETURNING nr";
        const BEFORE: &str = "SELECT count(*) FROM call WHERE key_text = $1 AND nr < $2";
        const END: &str = "UPDATE call SET ended_at = clock_timestamp() WHERE nr = $1";
        let script = message.headers().text(SCRIPT).unwrap_or("ok");
        let (verb, argument) = script.split_once('=').unwrap_or((script, ""));
        let number: u32 = argument.parse().unwrap_or(u32::MAX);
        let still_fails = message.attempt() <= number;
        let text = message.idempotency_key().as_str();
        let attempt = i32::try_from(message.attempt()).map_err(Failure::permanent)?;
        let nr: i64 = self.provider.query_one(BEGIN, &[&text, &attempt, &lease.fence()]).await?.get(0);
        match verb {
            "slow" => tokio::time::sleep(Duration::from_millis(number.into())).await,
            "transient" if still_fails => return Err(Failure::transient("scripted").with_code("SCRIPT")),
            "permanent" => return Err(Failure::permanent("scripted")),
            "panic" if still_fails => panic!("scripted"),
            "hang" if still_fails => std::future::pending().await,
            "contended" => {
                let before: i64 = self.provider.query_one(BEFORE, &[&text, &nr]).await?.get(0);
                if before < number.into() {
                    return Err(Failure::contended("scripted"));
                }
            }
            _ => {}
        }
        self.provider.execute(END, &[&nr]).await?;
        Ok(nr)
    }

    async fn record(&self, message: &Message, nr: &i64, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let script = message.headers().text(SCRIPT).unwrap_or("ok");
        let (verb, argument) = script.split_once('=').unwrap_or((script, ""));
        let still_fails = message.attempt() <= argument.parse().unwrap_or(u32::MAX);
        record(message, tx).await?;
        match verb {
            "unrecorded" if still_fails => return Err(Failure::transient("scripted")),
            "swallow" if still_fails => {
                let _swallowed = tx.batch_execute("INSERT INTO taken VALUES (1)").await;
            }
            _ => {}
        }
        Ok(Reply::stored(serde_json::json!({"call": nr})))
    }
}
