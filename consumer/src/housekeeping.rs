//! Slow, regular work beside the hot path: positions in the database, the clock, gauges.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Pool};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::{self, Clock};
use crate::core::Timestamp;
use crate::holds::Holds;
use crate::metrics;
use crate::pauses::Pauses;
use crate::postgres::progress::{self, Position};
use crate::probes::Status;
use crate::routes::Routes;
use crate::{Error, ErrorKind, SqlError};

/// Positions that Kafka confirmed and the database does not know yet.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<Noted>>);

/// Topic and partition.
type Place = (Arc<str>, i32);

#[derive(Default)]
struct Noted {
    positions: HashMap<Place, Position>,
    /// Moments that the database has, so that idle partitions cost no writes.
    written: HashMap<Place, i64>,
}

/// The clock of an idle partition is written so often; retention is a matter of days.
const CLOCK_STEP_MS: i64 = 30_000;

impl Progress {
    pub(crate) fn note(&self, positions: impl Iterator<Item = (Arc<str>, i32, i64)>) {
        let mut noted = self.lock();
        for (topic, partition, offset) in positions {
            let position = Position { offset, caught_up_ms: None };
            noted.positions.entry((topic, partition)).or_insert(position).offset = offset;
        }
    }

    /// Notes the moment up to which everything of a partition is committed.
    pub(crate) fn caught_up(&self, topic: Arc<str>, partition: i32, offset: i64, at: Timestamp) {
        let mut noted = self.lock();
        let (place, at_ms) = ((topic, partition), i64::try_from(at.0).unwrap_or(i64::MAX));
        let fresh = noted.written.get(&place).is_some_and(|it| at_ms < it.saturating_add(CLOCK_STEP_MS));
        if fresh && !noted.positions.contains_key(&place) {
            return;
        }
        noted.positions.insert(place, Position { offset, caught_up_ms: Some(at_ms) });
    }

    fn take(&self) -> HashMap<Place, Position> {
        std::mem::take(&mut self.lock().positions)
    }

    fn written(&self, positions: HashMap<Place, Position>) {
        let moments = positions.into_iter().filter_map(|(place, it)| Some((place, it.caught_up_ms?)));
        self.lock().written.extend(moments);
    }

    /// Not written: what was noted since is newer.
    fn give_back(&self, positions: HashMap<Place, Position>) {
        let mut noted = self.lock();
        for (place, older) in positions {
            let position = noted.positions.entry(place).or_insert(older);
            position.caught_up_ms = position.caught_up_ms.or(older.caught_up_ms);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Housekeeping {
    pool: Pool,
    consumer_id: i16,
    routes: Arc<Routes>,
    clock: Arc<Clock>,
    status: Arc<Status>,
    progress: Progress,
    holds: Holds,
    pauses: Pauses,
}

const BEAT: Duration = Duration::from_secs(5);
/// One round of all of it; a database that does not answer in this time counts as down.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);

impl Housekeeping {
    pub(crate) fn new(
        pool: Pool,
        consumer_id: i16,
        routes: Arc<Routes>,
        clock: Arc<Clock>,
        status: Arc<Status>,
        holds: Holds,
        pauses: Pauses,
    ) -> Housekeeping {
        Housekeeping { pool, consumer_id, routes, clock, status, progress: Progress::default(), holds, pauses }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let last = tokio::select! {
                () = stop.cancelled() => true,
                _ = beat.tick() => false,
            };
            let up = match timeout(ROUND_TIMEOUT, self.round()).await {
                Ok(Ok(())) => true,
                Ok(Err(error)) => {
                    tracing::warn!(error = error.chain(), "housekeeping failed");
                    false
                }
                Err(_elapsed) => false,
            };
            self.status.database(up);
            metrics::DB_UP.level(&[]).set(if up { 1.0 } else { 0.0 });
            self.report_pool();
            if last {
                return;
            }
        }
    }

    async fn round(&self) -> Result<(), Error> {
        let failed = |error: tokio_postgres::Error| {
            Error::new(ErrorKind::Postgres, "keep house in the database").because(SqlError::of(&error))
        };
        let client = crate::admin::connect(&self.pool).await?;
        self.clock.set(clock::database_ms(&client).await.map_err(failed)?);
        self.pauses.look(&client).await.map_err(failed)?;
        self.write_progress(&client).await.map_err(failed)?;
        self.report_dead_letters(&client).await.map_err(failed)?;
        self.holds.report(&client).await.map_err(failed)?;
        self.report_inbox(&client).await.map_err(failed)
    }

    async fn write_progress(&self, client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
        let noted = self.progress.take();
        if noted.is_empty() {
            return Ok(());
        }
        let mut positions: Vec<(&str, i32, Position)> =
            noted.iter().map(|((topic, partition), position)| (&**topic, *partition, *position)).collect();
        positions.sort_unstable_by_key(|it| (it.0, it.1));
        let written = progress::note(client, self.consumer_id, &positions).await;
        match written {
            Ok(()) => self.progress.written(noted),
            Err(_) => self.progress.give_back(noted),
        }
        written
    }

    async fn report_dead_letters(&self, client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
        const SQL: &str = "SELECT origin_topic, count(*), extract(epoch FROM now() - min(last_failed_at))::float8 \
             FROM sekali.dead_letter WHERE consumer_id = $1 AND state = 'open' GROUP BY origin_topic";
        let statement = client.prepare_cached(SQL).await?;
        let rows = client.query(&statement, &[&self.consumer_id]).await?;
        let open: HashMap<&str, (i64, f64)> = rows.iter().map(|it| (it.get(0), (it.get(1), it.get(2)))).collect();
        for topic in self.routes.source_names() {
            let (count, age) = open.get(&**topic).copied().unwrap_or_default();
            metrics::level(&metrics::DLQ_MESSAGES, &[("topic", topic)]).set(count as f64);
            metrics::level(&metrics::DLQ_OLDEST, &[("topic", topic)]).set(age);
        }
        Ok(())
    }

    async fn report_inbox(&self, client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
        const SQL: &str = "SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = 'sekali.inbox'::regclass";
        let statement = client.prepare_cached(SQL).await?;
        let rows: f64 = client.query_one(&statement, &[]).await?.get(0);
        metrics::INBOX_ROWS.level(&[]).set(rows);
        Ok(())
    }

    fn report_pool(&self) {
        let status = self.pool.status();
        metrics::POOL_MAX.level(&[]).set(status.max_size as f64);
        metrics::POOL_WAITING.level(&[]).set(status.waiting as f64);
        metrics::POOL_CONNECTIONS.level(&[("state", "idle")]).set(status.available as f64);
        let in_use = status.size.saturating_sub(status.available);
        metrics::POOL_CONNECTIONS.level(&[("state", "in_use")]).set(in_use as f64);
    }
}
