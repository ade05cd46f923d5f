//! One heartbeat for all locks of a process.

use std::time::Duration;

use sekali_tests::harness::proxy::Direction;
use sekali_tests::harness::{TestDatabase, eventually};

use super::{LIMIT, LONG, cut_off, locks, name, pool, rows, take};

const TTL: Duration = Duration::from_millis(1_200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_renews_every_lock_of_a_process() {
    const LOCKS: usize = 50;
    let database = TestDatabase::create().await;
    let (holder, proxy) = cut_off(&database).await;
    let names: Vec<_> = (0..LOCKS).map(|it| name(&format!("lock:{it}"))).collect();
    let mut guards = Vec::new();
    for it in &names {
        guards.push(holder.try_acquire(it, TTL).await.unwrap().unwrap());
    }
    let deadlines = "SELECT count(DISTINCT until) FROM sekali.lock";
    // Those of one statement are equal.
    eventually("all are renewed", LIMIT, async || database.scalar::<i64>(deadlines).await == 1).await;
    let before = proxy.counts();
    let other = locks(&database.url());
    for _ in 0..10 {
        tokio::time::sleep(TTL / 3).await;
        assert_eq!(database.scalar::<i64>(deadlines).await, 1);
        assert!(other.try_acquire_all(&names, TTL).await.unwrap().is_empty(), "all are held");
    }
    let after = proxy.counts();
    let (statements, connections) = (after.turns - before.turns, after.connections - before.connections);
    assert!((5..=15).contains(&statements), "{statements} statements in about ten thirds of the time to live");
    assert_eq!((connections, after.open), (0, 2), "one of the pool, one of the heartbeat");
    assert!(guards.iter().all(|it| !it.is_lost()));
    assert_eq!(holder.release_all(guards).await.unwrap(), LOCKS);
    assert_eq!(rows(&database).await, 0);
    eventually("without locks the heartbeat ends", LIMIT, async || proxy.counts().open == 1).await;
    take(&holder, "again", TTL).await.release().await.unwrap();
}

/// INF-05: whoever waits for a connection of the pool must not keep locks from being renewed.
#[tokio::test]
async fn an_exhausted_pool_loses_no_lock() {
    let database = TestDatabase::create().await;
    let pool = pool(&database.url());
    let holder = sekali_consumer::lock::Locks::new(pool.clone());
    let guard = take(&holder, "a", TTL).await;
    let mut all = Vec::new();
    for _ in 0..pool.status().max_size {
        all.push(pool.get().await.unwrap());
    }
    tokio::time::sleep(TTL * 2).await;
    assert!(!guard.is_lost());
    drop(all);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_or_hangs_for_a_moment_loses_no_lock() {
    let database = TestDatabase::create().await;
    let (holder, proxy) = cut_off(&database).await;
    let guard = take(&holder, "a", TTL * 3).await;
    for _ in 0..3 {
        proxy.cut();
        tokio::time::sleep(TTL).await;
    }
    assert!(!guard.is_lost());
    // Until the heartbeat's next question is on its way, and for a while then.
    proxy.stall(Direction::ToClient);
    tokio::time::sleep(TTL).await;
    proxy.heal();
    tokio::time::sleep(TTL * 3).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
}

/// A row that somebody has locked is still the holder's.
#[tokio::test]
async fn a_locked_row_delays_its_own_renewal_only() {
    let database = TestDatabase::create().await;
    let holder = locks(&database.url());
    let (one, two) = (take(&holder, "a", TTL).await, take(&holder, "b", TTL).await);
    let mut client = database.connect().await;
    let tx = client.transaction().await.unwrap();
    tx.execute("SELECT FROM sekali.lock WHERE name = 'a' FOR UPDATE", &[]).await.unwrap();
    tokio::time::sleep(TTL / 2).await;
    assert!(!one.is_lost());
    tx.rollback().await.unwrap();
    tokio::time::sleep(TTL).await;
    assert!(!one.is_lost(), "renewed once the row was free");
    let tx = client.transaction().await.unwrap();
    tx.execute("SELECT FROM sekali.lock WHERE name = 'a' FOR UPDATE", &[]).await.unwrap();
    tokio::time::timeout(TTL * 2, one.lost()).await.expect("too long");
    assert!(!two.is_lost(), "the others are renewed");
    tx.rollback().await.unwrap();
    take(&locks(&database.url()), "a", LONG).await.release().await.unwrap();
}
