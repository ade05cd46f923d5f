//! The heartbeat: one loop and one connection for all locks of a process.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Manager;
use deadpool_postgres::{ClientWrapper, Pool};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::registry::{Held, Loss, Registry};
use super::table::{self, Renewal};
use super::{ANSWER_MAX, Name};
use crate::{Error, SqlError, metrics};

/// Without locks, connection and loop end after this time.
const LINGER: Duration = Duration::from_secs(5);
/// Rows that could not be deleted are tried again after the first of these, then after ever more, up to the last.
const LEFT_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Longest time between two renewals, and between two tries, however long locks live: this is how soon a holder learns that
/// somebody has deleted its row.
pub(super) const BEAT_MAX: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(5);
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Runs while there are locks, and a little longer.
pub(super) async fn run(pool: Pool, registry: Arc<Registry>) {
    let mut beat = Beat { line: Line { pool, client: None }, registry, swept_at: None, left_pause: LEFT_PAUSE.0 };
    loop {
        beat.registry.expire();
        beat.renew().await;
        beat.delete_left().await;
        beat.sweep().await;
        beat.registry.expire();
        let wake = beat.registry.wake.notified();
        match beat.registry.next_at() {
            Some(at) => {
                tokio::select! {
                    () = sleep_until(at) => {}
                    () = sleep(beat.left_pause), if beat.registry.has_left() => {}
                    () = wake => {}
                }
            }
            None if beat.registry.has_left() => {
                tokio::select! {
                    () = sleep(beat.left_pause) => {}
                    () = wake => {}
                }
            }
            None => {
                let is_idle = timeout(LINGER, wake).await.is_err();
                if is_idle && beat.registry.rest() {
                    return;
                }
            }
        }
    }
}

struct Beat {
    line: Line,
    registry: Arc<Registry>,
    swept_at: Option<Instant>,
    left_pause: Duration,
}

impl Beat {
    /// Renews all locks by one statement as soon as one of them is due.
    async fn renew(&mut self) {
        let held = self.registry.due();
        let Some(shortest) = held.iter().map(|it| it.ttl).min() else { return };
        let asked_at = Instant::now();
        // A quarter of the shortest time to live, so that there is time for a second try on another connection.
        let limit = (shortest / 4).min(ANSWER_MAX);
        let names: Vec<&Held> = held.iter().map(|it| &**it).collect();
        let renewed = self.line.ask("renew locks", limit, async |client| table::renew(client, &names).await).await;
        let soon = Instant::now() + (shortest / 12).min(RETRY_MAX);
        let count = |result, count: usize| metrics::LOCK_RENEWALS.count(&[("result", result)]).increment(count as u64);
        match renewed {
            Ok(answers) => {
                let with = |renewal| answers.iter().filter(move |it| it.1 == renewal).map(|it| it.0);
                let fresh: HashSet<i64> = with(Renewal::Renewed).collect();
                held.iter().filter(|it| fresh.contains(&it.fence)).for_each(|it| it.renewed(asked_at));
                with(Renewal::Gone).for_each(|it| self.registry.lose(it, Loss::Taken));
                let busy = with(Renewal::Busy).count();
                count("ok", fresh.len());
                count("busy", busy);
                count("lost", with(Renewal::Gone).count());
                let next = self.registry.shortest_ttl().map_or(soon, |it| asked_at + (it / 3).min(BEAT_MAX));
                self.registry.beat_again_at(if busy == 0 { next } else { soon });
            }
            Err(error) => {
                count("error", held.len());
                tracing::warn!(error = %error.chain(), locks = held.len(), "cannot renew locks");
                self.registry.beat_again_at(soon);
            }
        }
    }

    /// Deletes the rows of guards that were dropped, and of statements without an answer.
    async fn delete_left(&mut self) {
        let mut left = self.registry.take_left();
        if left.is_empty() {
            return;
        }
        let rows: Vec<(Name, Uuid)> = left.iter().map(|it| (it.name.clone(), it.owner)).collect();
        let limit = self.limit();
        match self.line.ask("release locks", limit, async |client| table::forget(client, &rows).await).await {
            Ok(gone) => left.retain(|it| !gone.contains(&(it.name.as_str().to_owned(), it.owner))),
            Err(error) => tracing::debug!(error = %error.chain(), "cannot release locks yet"),
        }
        self.left_pause = if left.is_empty() { LEFT_PAUSE.0 } else { (self.left_pause * 2).min(LEFT_PAUSE.1) };
        self.registry.give_back(left);
    }

    /// Rows of holders that died are deleted by whoever uses locks later.
    async fn sweep(&mut self) {
        if self.swept_at.is_some_and(|it| it.elapsed() < SWEEP_INTERVAL) {
            return;
        }
        self.swept_at = Some(Instant::now());
        let limit = self.limit();
        match self.line.ask("delete locks that ran out", limit, async |client| table::sweep(client).await).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "deleted locks whose holders let them run out"),
            Err(error) => tracing::debug!(error = %error.chain(), "cannot delete locks that ran out"),
        }
    }

    /// What else is asked must not make renewals late.
    fn limit(&self) -> Duration {
        self.registry.shortest_ttl().map_or(ANSWER_MAX, |it| (it / 4).min(ANSWER_MAX))
    }
}

/// A connection beside the pool, so that nobody who waits for the pool's keeps locks from being renewed.
struct Line {
    pool: Pool,
    client: Option<ClientWrapper>,
}

impl Line {
    /// Asks on the connection, or on a new one, which takes several round trips. One that fails is not used again.
    async fn ask<T>(
        &mut self,
        doing: &str,
        limit: Duration,
        question: impl AsyncFnOnce(&ClientWrapper) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let client = match self.client.take().filter(|it| !it.is_closed()) {
            Some(client) => client,
            None => within(limit * 2, doing, connect(&self.pool, doing)).await?,
        };
        let answer = within(limit, doing, question(&client)).await?;
        self.client = Some(client);
        Ok(answer)
    }
}

async fn connect(pool: &Pool, doing: &str) -> Result<ClientWrapper, Error> {
    let connected = pool.manager().create().await;
    connected.map_err(|error| Error::new(crate::ErrorKind::Postgres, doing).because(SqlError::of(&error)))
}

async fn within<T>(limit: Duration, doing: &str, asking: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(limit, asking).await.unwrap_or_else(|_| Err(table::silence(doing)))
}
