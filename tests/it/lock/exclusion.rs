//! One holder at a time, and nothing left behind.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sekali_consumer::lock::{self, LockError, Locks, TTL_MIN};
use sekali_tests::harness::proxy::When;
use sekali_tests::harness::proxy::{Direction, Step};
use sekali_tests::harness::{TestDatabase, eventually};

use super::{LIMIT, LONG, cut_off, locks, name, no_row_is_left, nobody_is_idle_in_transaction, rows, take};

/// Reads and writes a number without a transaction, which loses updates unless something else keeps others out.
pub(crate) async fn count_up(database: &TestDatabase, url: &str, processes: usize, each: usize) {
    const RESOURCES: usize = 4;
    database.execute("CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL)").await;
    database.execute(&format!("INSERT INTO counter SELECT it, 0 FROM generate_series(0, {}) it", RESOURCES - 1)).await;
    let fences = Arc::new(Mutex::new(BTreeSet::new()));
    let workers = (0..processes).map(|worker| {
        let (locks, url, fences) = (locks(url), database.url(), fences.clone());
        tokio::spawn(async move {
            let client = sekali_tests::harness::connect(&url).await.unwrap();
            for round in 0..each {
                let resource = (worker + round) % RESOURCES;
                let guard = locks.acquire(&name(&format!("counter:{resource}")), LONG, LONG).await.unwrap();
                fences.lock().unwrap().insert(guard.fence().number());
                let read = format!("SELECT n FROM counter WHERE id = {resource}");
                let n: i32 = client.query_one(&read, &[]).await.unwrap().get(0);
                client.execute(&format!("UPDATE counter SET n = {} WHERE id = {resource}", n + 1), &[]).await.unwrap();
                guard.release().await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let total = processes * each;
    let counted: i64 = database.scalar("SELECT sum(n) FROM counter").await;
    assert_eq!(counted, i64::try_from(total).unwrap(), "two had one lock at a time");
    assert_eq!(fences.lock().unwrap().len(), total, "a fence of its own for each acquisition");
    assert_eq!(rows(database).await, 0);
    nobody_is_idle_in_transaction(database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_contended_acquisitions_exclude_each_other_and_leave_nothing_behind() {
    let database = TestDatabase::create().await;
    count_up(&database, &database.url(), 20, 50).await;
}

/// Each caller gives the names in an order of its own, and some drop their guards instead of giving them back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_of_locks_that_overlap_exclude_each_other_and_never_deadlock() {
    const NAMES: usize = 40;
    let database = TestDatabase::create().await;
    let taken: Arc<Vec<AtomicBool>> = Arc::new((0..NAMES).map(|_| AtomicBool::new(false)).collect());
    let both = (0..4).map(|caller| {
        let (locks, taken) = (locks(&database.url()), taken.clone());
        tokio::spawn(async move {
            let mut acquired = 0;
            for round in 0..60 {
                let mut names: Vec<usize> = (0..NAMES).filter(|it| (it * 7 + round + caller) % 3 != 0).collect();
                let turn = round % names.len();
                names.rotate_left(turn);
                if caller % 2 == 0 {
                    names.reverse();
                }
                let names: Vec<_> = names.iter().map(|it| name(&it.to_string())).collect();
                let guards = locks.try_acquire_all(&names, LONG).await.unwrap();
                let index = |it: &str| it.parse::<usize>().unwrap();
                for it in guards.keys() {
                    assert!(!taken[index(it.as_str())].swap(true, Ordering::SeqCst), "{it} has two holders");
                }
                acquired += guards.len();
                tokio::task::yield_now().await;
                for it in guards.keys() {
                    taken[index(it.as_str())].store(false, Ordering::SeqCst);
                }
                let count = guards.len();
                if round % 5 == 4 {
                    drop(guards);
                } else {
                    assert_eq!(locks.release_all(guards.into_values()).await.unwrap(), count);
                }
            }
            acquired
        })
    });
    for it in both.collect::<Vec<_>>() {
        assert!(0 < it.await.unwrap());
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.scalar::<i64>(deadlocks).await, 0);
    no_row_is_left(&database).await;
}

#[tokio::test]
async fn a_set_gets_what_is_free() {
    let database = TestDatabase::create().await;
    let (one, two) = (locks(&database.url()), locks(&database.url()));
    let taken = take(&one, "b", LONG).await;
    let names = ["c", "b", "a", "c"].map(name);
    let guards = two.try_acquire_all(&names, LONG).await.unwrap();
    assert_eq!(guards.keys().map(|it| it.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let fences: BTreeSet<i64> = guards.values().map(|it| it.fence().number()).collect();
    assert_eq!(fences.len(), 2, "a fence for each");
    assert!(two.try_acquire_all(&[], LONG).await.unwrap().is_empty());
    taken.release().await.unwrap();
    assert_eq!(two.release_all(guards.into_values()).await.unwrap(), 2);
    assert_eq!(rows(&database).await, 0);
}

#[tokio::test]
async fn whoever_waits_gets_the_lock_when_it_is_free_or_learns_that_it_is_not() {
    let database = TestDatabase::create().await;
    let (one, two) = (locks(&database.url()), locks(&database.url()));
    let guard = take(&one, "a", LONG).await;
    let begun = Instant::now();
    let refused = two.acquire(&name("a"), LONG, Duration::from_millis(300)).await;
    assert!(matches!(refused, Err(LockError::Contended)));
    assert!((300..3_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    let waiting = tokio::spawn(async move { two.acquire(&name("a"), LONG, LIMIT).await });
    // It does not hold a connection in a transaction meanwhile.
    nobody_is_idle_in_transaction(&database).await;
    let first = guard.fence().number();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(first < guard.fence().number());
    guard.release().await.unwrap();
    let refused = one.try_acquire(&name("a"), TTL_MIN / 2).await;
    assert!(refused.is_err_and(|it| it.chain().contains("100 ms")));
}

#[tokio::test]
async fn a_guard_that_is_dropped_is_released_soon() {
    let database = TestDatabase::create().await;
    let (one, two) = (locks(&database.url()), locks(&database.url()));
    drop(take(&one, "a", LONG).await);
    two.acquire(&name("a"), LONG, LIMIT).await.unwrap().release().await.unwrap();

    // While its transaction is open, it stays.
    let guard = take(&one, "b", LONG).await;
    let mut client = database.connect().await;
    let tx = client.transaction().await.unwrap();
    guard.check(&tx).await.unwrap();
    drop(guard);
    let refused = two.acquire(&name("b"), LONG, Duration::from_millis(700)).await;
    assert!(matches!(refused, Err(LockError::Contended)));
    tx.commit().await.unwrap();
    two.acquire(&name("b"), LONG, LIMIT).await.unwrap().release().await.unwrap();
}

/// The database has given the lock, and nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_answer_does_not_come_is_given_back() {
    let database = TestDatabase::create().await;
    let (locks, proxy) = cut_off(&database).await;
    take(&locks, "warm", LONG).await.release().await.unwrap();
    let halt = proxy.halt_at([Step::request("taken_over"), Step::answer("SELECT")], When::BeforeForwarding);
    let asking = tokio::spawn({
        let locks = locks.clone();
        async move { locks.try_acquire(&name("a"), LONG).await.map(drop) }
    });
    halt.reached().await;
    eventually("the lock is taken", LIMIT, async || rows(&database).await == 1).await;
    asking.abort();
    no_row_is_left(&database).await;

    let trap = proxy.cut_on(b"taken_over", Direction::ToServer, When::AfterForwarding);
    assert!(locks.try_acquire(&name("b"), LONG).await.is_err());
    tokio::time::timeout(LIMIT, trap.sprung()).await.expect("it was cut off");
    no_row_is_left(&database).await;
}

#[tokio::test]
async fn what_nobody_holds_any_more_is_swept_and_nothing_else() {
    let database = TestDatabase::create().await;
    let insert = |name: &str, until: &str| {
        format!(
            "INSERT INTO sekali.lock (name, owner, fence, until) VALUES ('{name}', gen_random_uuid(), nextval('sekali.fence'), now() + interval '{until}');"
        )
    };
    let all = [insert("old", "-1 hour"), insert("just", "-5 s"), insert("live", "1 hour"), insert("relay", "-1 hour")];
    database.execute(&all.concat()).await;
    let locks = locks(&database.url());
    let guard = take(&locks, "mine", LONG).await;
    let names = "SELECT string_agg(name, ' ' ORDER BY name) FROM sekali.lock";
    eventually("the old one is deleted", LIMIT, async || {
        let left: String = database.scalar(names).await;
        if left == "just live mine relay" { Ok(()) } else { Err(left) }
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_of_the_transaction_ends_with_it() {
    let database = TestDatabase::create().await;
    let (mut one, mut two) = (database.connect().await, database.connect().await);
    let first = one.transaction().await.unwrap();
    lock::advisory(&first, &name("a")).await.unwrap();
    let second = two.transaction().await.unwrap();
    assert!(!lock::try_advisory(&second, &name("a")).await.unwrap());
    assert!(lock::try_advisory(&second, &name("b")).await.unwrap());
    let named: Locks = locks(&database.url());
    take(&named, "a", LONG).await.release().await.unwrap();

    let a = name("a");
    let waiting = lock::advisory(&second, &a);
    let mut waiting = Box::pin(waiting);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(early.is_err(), "the first transaction is still open");
    first.rollback().await.unwrap();
    tokio::time::timeout(LIMIT, &mut waiting).await.unwrap().unwrap();
    drop(waiting);
    second.commit().await.unwrap();
    let third = one.transaction().await.unwrap();
    assert!(lock::try_advisory(&third, &name("a")).await.unwrap());
    third.commit().await.unwrap();
}
