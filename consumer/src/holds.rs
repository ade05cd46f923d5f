//! Tells the core which keys are held, and housekeeping how many.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Pool};
use tokio::sync::mpsc::UnboundedSender;

use crate::core::{Event, KeyId};
use crate::incoming::Incoming;
use crate::kafka::key_id;
use crate::metrics;
use crate::postgres::hold;
use crate::routes::Routes;
use crate::{Error, ErrorKind, SqlError};

/// One for each process.
#[derive(Clone)]
pub(crate) struct Holds {
    pub(crate) pool: Pool,
    pub(crate) consumer_id: i16,
    pub(crate) routes: Arc<Routes>,
    pub(crate) events: UnboundedSender<Event<Incoming>>,
    /// Messages that are held; executors correct it by what they do.
    pub(crate) held: Arc<AtomicU64>,
}

/// Wait before the holds are read again after trouble with the database.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest wait for the answer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

impl Holds {
    /// Reads the holds beside everything else; the answer goes to the core. Partitions wait for it, so that it is tried
    /// until it works.
    pub(crate) fn read(&self, read: u64) {
        let holds = self.clone();
        tokio::spawn(async move {
            while !holds.events.is_closed() {
                match tokio::time::timeout(READ_TIMEOUT, holds.keys()).await {
                    Ok(Ok((held, ready))) => {
                        let _ended = holds.events.send(Event::HoldsRead { read, held, ready });
                        return;
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(error = error.chain(), "the held keys cannot be read, trying again")
                    }
                    Err(_elapsed) => tracing::warn!("the held keys were not read in time, trying again"),
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    async fn keys(&self) -> Result<(Vec<KeyId>, bool), Error> {
        let client = crate::admin::connect(&self.pool).await?;
        let (keys, ready) = hold::read(&client, self.consumer_id)
            .await
            .map_err(|error| Error::new(ErrorKind::Postgres, "read the held keys").because(SqlError::of(&error)))?;
        let id = |(topic, key): (String, Vec<u8>)| Some(key_id(self.routes.index(&topic)?, &key));
        Ok((keys.into_iter().filter_map(id).collect(), ready))
    }

    /// Counts what is held, for the gauges, and notices messages that may run and whom nobody has taken up: their head
    /// was decided by a process that is gone.
    pub(crate) async fn report(&self, client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
        const KEYS: &str = "SELECT topic, count(*), extract(epoch FROM now() - min(since))::float8, bool_or(ready) \
             FROM sekali.held_key WHERE consumer_id = $1 GROUP BY topic";
        const MESSAGES: &str = "SELECT topic, count(*) FROM sekali.held_message WHERE consumer_id = $1 GROUP BY topic";
        let statement = client.prepare_cached(KEYS).await?;
        let keys = client.query(&statement, &[&self.consumer_id]).await?;
        let held: HashMap<&str, (i64, f64)> = keys.iter().map(|it| (it.get(0), (it.get(1), it.get(2)))).collect();
        let messages = if keys.is_empty() {
            Vec::new()
        } else {
            let statement = client.prepare_cached(MESSAGES).await?;
            client.query(&statement, &[&self.consumer_id]).await?
        };
        let waiting: HashMap<&str, i64> = messages.iter().map(|it| (it.get(0), it.get(1))).collect();
        for topic in self.routes.source_names() {
            let (count, age) = held.get(&**topic).copied().unwrap_or_default();
            let labels = [("topic", &**topic)];
            metrics::level(&metrics::HELD_KEYS, &labels).set(count as f64);
            metrics::level(&metrics::HOLD_OLDEST, &labels).set(age);
            metrics::level(&metrics::HELD_MESSAGES, &labels)
                .set(waiting.get(&**topic).copied().unwrap_or_default() as f64);
        }
        self.held.store(waiting.values().sum::<i64>().unsigned_abs(), Ordering::Relaxed);
        if keys.iter().any(|it| it.get(3)) {
            let _ended = self.events.send(Event::HoldsReady);
        }
        Ok(())
    }
}
