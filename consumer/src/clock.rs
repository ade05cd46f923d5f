//! The database's clock, read without asking it each time.
//!
//! Two workers compare due times, so that neither may use a clock of its own. Each keeps the difference between its
//! monotonic clock and the database's, and measures it anew from time to time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use deadpool_postgres::ClientWrapper;

use crate::core::Timestamp;

pub(crate) struct Clock {
    started: Instant,
    /// Database time at `started`, ms since the Unix epoch.
    base_ms: AtomicI64,
}

impl Clock {
    pub(crate) fn new(database_ms: i64) -> Clock {
        Clock { started: Instant::now(), base_ms: AtomicI64::new(database_ms) }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        let elapsed_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.base_ms.load(Ordering::Relaxed).saturating_add(elapsed_ms)
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.now_ms()).unwrap_or_default())
    }

    /// Takes over what the database says now.
    pub(crate) fn set(&self, database_ms: i64) {
        let elapsed_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.base_ms.store(database_ms.saturating_sub(elapsed_ms), Ordering::Relaxed);
    }
}

/// Asks the database for its time, ms since the Unix epoch.
pub(crate) async fn database_ms(client: &ClientWrapper) -> Result<i64, tokio_postgres::Error> {
    const SQL: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let statement = client.prepare_cached(SQL).await?;
    Ok(client.query_one(&statement, &[]).await?.get(0))
}
