//! Named locks on a real database.

mod around;
pub(crate) mod exclusion;
pub(crate) mod fence;
mod handler;
mod heartbeat;
mod metrics;

use std::time::Duration;

use deadpool_postgres::Pool;
use sekali_consumer::lock::{Guard, Locks, Name};
use sekali_producer::config::PostgresSection;
use sekali_tests::harness::{Proxy, TestDatabase, eventually};

const LIMIT: Duration = Duration::from_secs(30);
/// Outlives every test.
const LONG: Duration = Duration::from_secs(60);

fn pool(url: &str) -> Pool {
    let section = PostgresSection { url: Some(url.into()), ..PostgresSection::default() };
    section.pool("lock test").unwrap()
}

/// The locks of a process of its own, as far as the database can tell.
fn locks(url: &str) -> Locks {
    Locks::new(pool(url))
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn take(locks: &Locks, text: &str, ttl: Duration) -> Guard {
    locks.try_acquire(&name(text), ttl).await.unwrap().expect("the lock is free")
}

/// Locks whose database can be taken away from them.
async fn cut_off(database: &TestDatabase) -> (Locks, Proxy) {
    let (host, port) = database.server().address();
    cut_off_at(database, &format!("{host}:{port}")).await
}

async fn cut_off_at(database: &TestDatabase, address: &str) -> (Locks, Proxy) {
    let proxy = Proxy::to(address).await.unwrap();
    (locks(&database.url_through(proxy.port())), proxy)
}

/// Apart from the relay's.
async fn rows(database: &TestDatabase) -> i64 {
    database.scalar("SELECT count(*) FROM sekali.lock WHERE name <> 'relay'").await
}

async fn no_row_is_left(database: &TestDatabase) {
    eventually("no lock is left", LIMIT, async || match rows(database).await {
        0 => Ok(()),
        rows => Err(format!("{rows} rows")),
    })
    .await;
}

async fn nobody_is_idle_in_transaction(database: &TestDatabase) {
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    assert_eq!(database.scalar::<i64>(idle).await, 0);
}
