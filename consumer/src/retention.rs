//! Forgets old decisions, beside the hot path.
//!
//! **What may go.** A row whose `decided_at` is older than `inbox.retention`, seen from the group's own clock and not from
//! the wall's. That clock is the earliest of the moments up to which each partition that the group reads is committed
//! (`caught_up`, `sekali.progress.committed_at`); while one is not known, nothing goes. So what Kafka may deliver again,
//! every record from a committed offset on, was decided after the clock and is never forgotten, however long the group was
//! down or a partition hung; and a partition without work stops nothing, since it is caught up whenever somebody looks.
//! What operators and producers repeat is covered by the length of the retention, which is compared with that of the
//! topics at start.
//!
//! **What never goes.** Rows of messages that are not finished: retrying, held, leased, and dead ones whose dead letter is
//! open or being replayed.
//!
//! **How.** One process of the group at a time, by a lease in `sekali.lock`, sweeps over the table in runs of a few pages,
//! each a transaction of its own with a pause behind it. A sweep reads every page once, so that its cost does not depend
//! on how little there is to delete, and it needs no index: in a table whose space is used again, the ranges of the BRIN
//! index all begin with the oldest row they ever had. It remembers the oldest row that stayed, and the next sweep begins
//! when that one has been too old for a while.

mod sweep;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, Pool};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::metrics;
use crate::postgres::progress;
use crate::{Error, ErrorKind, SqlError};
use sweep::{PAGES, Swept};

/// How often the clock is read.
const BEAT: Duration = Duration::from_secs(2);
/// A sweep begins when the oldest row has been too old for this share of the retention.
const SLACK_SHARE: u32 = 20;
/// Longest wait for one answer of the database.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Leadership ends so long after its last renewal.
const LEASE_TTL: Duration = Duration::from_secs(60);
/// Work in between takes as long as this share of the time is rest: one part work, two parts rest.
const REST_FACTOR: u32 = 2;
const REST_MAX: Duration = Duration::from_secs(1);
/// Between two runs over the attempts, of which there are few.
const ATTEMPTS_REST: Duration = Duration::from_millis(100);

/// Judged by the database's clock. It only keeps ten processes from sweeping at once; nothing is wrong if two do.
const LEAD: &str = "INSERT INTO sekali.lock AS held (name, owner, fence, until) \
     VALUES ($1, $2, nextval('sekali.fence'), now() + $3 * interval '1 ms') \
     ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until, \
     acquired_at = CASE WHEN held.owner = excluded.owner THEN held.acquired_at ELSE now() END \
     WHERE held.owner = excluded.owner OR held.until < now()";
const RELEASE: &str = "DELETE FROM sekali.lock WHERE name = $1 AND owner = $2";

pub(crate) struct Purge {
    pool: Pool,
    consumer_id: i16,
    retention_ms: i64,
    /// Partitions of each topic that the group reads, as they were at start.
    partitions: Vec<(Arc<str>, usize)>,
    started_ms: i64,
    owner: Uuid,
    /// No sweep is needed while rows before this moment, ms since the Unix epoch, may not go.
    due_ms: i64,
}

impl Purge {
    /// `started_ms` is the database's time.
    pub(crate) fn new(
        pool: Pool,
        consumer_id: i16,
        retention: Duration,
        partitions: Vec<(Arc<str>, usize)>,
        started_ms: i64,
    ) -> Purge {
        let retention_ms = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        Purge { pool, consumer_id, retention_ms, partitions, started_ms, owner: Uuid::new_v4(), due_ms: i64::MIN }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut failing = false;
        while stop.run_until_cancelled(tokio::time::sleep(BEAT)).await.is_some() {
            let Err(error) = self.round(&stop).await else {
                failing = false;
                continue;
            };
            // A database that is away is reported by those who need it sooner.
            if !std::mem::replace(&mut failing, true) {
                tracing::warn!(error = error.chain(), "the purge of the inbox failed, trying again");
            }
        }
        if let Err(error) = self.release().await {
            tracing::debug!(error = error.chain(), "the lease of the purge was not released and runs out by itself");
        }
    }

    async fn round(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let client = crate::admin::connect(&self.pool).await?;
        let (client, clocks) =
            answer(client, "read the group's clock", async |it| progress::clocks(it, self.consumer_id).await).await?;
        let Some(clock_ms) = self.clock_ms(&clocks) else {
            metrics::RETENTION_CLOCK.level(&[]).set(0.0);
            return Ok(());
        };
        metrics::RETENTION_CLOCK.level(&[]).set(clock_ms as f64 / 1000.0);
        let (client, leads) = self.lead(client).await?;
        let before_ms = clock_ms.saturating_sub(self.retention_ms);
        if leads && self.due_ms <= before_ms {
            self.sweep(client, before_ms, stop).await?;
        }
        Ok(())
    }

    /// The earliest moment of all partitions; `None` while that of one is not known.
    fn clock_ms(&self, clocks: &[(String, i32, Option<i64>)]) -> Option<i64> {
        let mut known: HashMap<(&str, usize), Option<i64>> = HashMap::new();
        for (topic, number, clock) in clocks {
            known.insert((topic, usize::try_from(*number).ok()?), *clock);
        }
        let mut earliest = i64::MAX;
        for (topic, count) in &self.partitions {
            for number in 0..*count {
                earliest = earliest.min(known.get(&(&**topic, number)).copied().flatten()?);
            }
        }
        // Partitions that were added since the start count; those of a topic that was made anew with fewer do not.
        for ((topic, number), clock) in known {
            let counted = self.partitions.iter().find(|it| &*it.0 == topic);
            let gone = clock.is_some_and(|it| it < self.started_ms);
            if counted.is_some_and(|it| it.1 <= number) && !gone {
                earliest = earliest.min(clock?);
            }
        }
        Some(earliest)
    }

    /// Deletes what was decided before a moment, in runs of pages.
    async fn sweep(&mut self, mut client: Object, before_ms: i64, stop: &CancellationToken) -> Result<(), Error> {
        let pages;
        (client, pages) = answer(client, "measure the inbox", async |it| sweep::pages(it).await).await?;
        let (mut deleted, mut oldest_ms) = (0, None);
        let mut led = tokio::time::Instant::now();
        for first in (0..pages).step_by(PAGES as usize) {
            let began = tokio::time::Instant::now();
            let swept: Swept;
            (client, swept) =
                answer(client, "purge the inbox", async |it| sweep::run(it, self.consumer_id, first, before_ms).await)
                    .await?;
            metrics::INBOX_PURGED.count(&[]).increment(swept.deleted);
            deleted += swept.deleted;
            oldest_ms = [oldest_ms, swept.oldest_ms].into_iter().flatten().min();
            let rest = (began.elapsed() * REST_FACTOR).min(REST_MAX);
            if stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                return Ok(());
            }
            if LEASE_TTL / 3 < led.elapsed() {
                led = tokio::time::Instant::now();
                let leads;
                (client, leads) = self.lead(client).await?;
                if !leads {
                    return Ok(());
                }
            }
        }
        let mut behind = Some(0);
        while let Some(place) = behind {
            (client, behind) = answer(client, "purge the attempts", async |it| {
                sweep::run_attempts(it, self.consumer_id, place, before_ms).await
            })
            .await?;
            if stop.run_until_cancelled(tokio::time::sleep(ATTEMPTS_REST)).await.is_none() {
                return Ok(());
            }
        }
        let slack_ms = self.retention_ms / i64::from(SLACK_SHARE);
        self.due_ms = oldest_ms.unwrap_or(before_ms).saturating_add(slack_ms.max(1));
        tracing::debug!(deleted, pages, "swept the inbox");
        Ok(())
    }

    async fn lead(&self, client: Object) -> Result<(Object, bool), Error> {
        let (name, ttl_ms) = (self.lock_name(), LEASE_TTL.as_millis() as f64);
        answer(client, "take the lease of the purge", async |it| {
            let statement = it.prepare_cached(LEAD).await?;
            Ok(it.execute(&statement, &[&name, &self.owner, &ttl_ms]).await? == 1)
        })
        .await
    }

    async fn release(&self) -> Result<(), Error> {
        let client = crate::admin::connect(&self.pool).await?;
        let name = self.lock_name();
        let released = answer(client, "release the lease of the purge", async |it| {
            it.execute(RELEASE, &[&name, &self.owner]).await
        });
        released.await.map(|_| ())
    }

    fn lock_name(&self) -> String {
        format!("purge:{}", self.consumer_id)
    }
}

/// Asks the database, but does not wait for ever: a connection that does not answer is thrown away.
async fn answer<T>(
    client: Object,
    doing: &str,
    ask: impl AsyncFnOnce(&ClientWrapper) -> Result<T, tokio_postgres::Error>,
) -> Result<(Object, T), Error> {
    match timeout(ANSWER_TIMEOUT, ask(&client)).await {
        Ok(Ok(answer)) => Ok((client, answer)),
        Ok(Err(error)) => Err(Error::new(ErrorKind::Postgres, doing).because(SqlError::of(&error))),
        Err(_elapsed) => {
            drop(Object::take(client));
            Err(Error::new(ErrorKind::Postgres, doing).because("the database did not answer in time"))
        }
    }
}

#[cfg(test)]
mod tests;
