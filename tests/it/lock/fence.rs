//! A holder that was away is refused (LCK-03), and only the database's clock counts (LCK-02).

use std::sync::mpsc;
use std::time::{Duration, Instant};

use sekali_consumer::lock::{LockError, Lost};
use sekali_tests::harness::TestDatabase;
use sekali_tests::harness::proxy::{Direction, Step, When};

use super::{LIMIT, LONG, cut_off, cut_off_at, locks, name, take};

const SHORT: Duration = Duration::from_secs(1);
const ROW: &str = "SELECT owner::text || ' ' || fence || ' ' || acquired_at FROM sekali.lock WHERE name = 'a'";

/// What the holder saw after it had stood still.
struct Woken {
    fence: i64,
    is_lost: bool,
    ran: Result<(), Lost>,
    checked: Result<(), LockError>,
    released: Result<(), LockError>,
}

/// A holder whose only thread stops, heartbeat and all, until it is told to go on; as a process does on SIGSTOP.
fn frozen_holder(url: String, has_it: &mpsc::Sender<()>, go_on: &mpsc::Receiver<()>) -> Woken {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = locks(&url);
        let guard = take(&locks, "a", SHORT).await;
        // Renewed a few times before.
        tokio::time::sleep(SHORT * 2).await;
        assert!(!guard.is_lost());
        let mut client = sekali_tests::harness::connect(&url).await.unwrap();
        let tx = client.transaction().await.unwrap();
        tx.execute("INSERT INTO ledger VALUES (1)", &[]).await.unwrap();
        has_it.send(()).unwrap();
        go_on.recv().unwrap();
        let is_lost = guard.is_lost();
        let ran = guard.run(async {}).await;
        // It ignores what it saw, and goes on.
        let checked = guard.check(&tx).await;
        tx.rollback().await.unwrap();
        Woken { fence: guard.fence().number(), is_lost, ran, checked, released: guard.release().await }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_stood_still_beyond_its_time_is_refused_by_the_fence() {
    let database = TestDatabase::create().await;
    a_frozen_holder_is_refused(&database, &database.url()).await;
}

/// With everybody at this URL of the database.
pub(crate) async fn a_frozen_holder_is_refused(database: &TestDatabase, url: &str) {
    database.execute("CREATE TABLE ledger (n int)").await;
    let (has_it, waiting) = mpsc::channel();
    let (wake, go_on) = mpsc::channel();
    let own_url = url.to_owned();
    let holder = std::thread::spawn(move || frozen_holder(own_url, &has_it, &go_on));
    let waiting = tokio::task::spawn_blocking(move || waiting.recv().unwrap());
    waiting.await.unwrap();
    let other = locks(url);
    assert!(other.try_acquire(&name("a"), LONG).await.unwrap().is_none(), "it has the lock when it stops");
    let taken_over = other.acquire(&name("a"), LONG, LIMIT).await.unwrap();
    let row: String = database.scalar(ROW).await;
    wake.send(()).unwrap();
    let woken = tokio::task::spawn_blocking(move || holder.join().unwrap()).await.unwrap();
    assert!(woken.fence < taken_over.fence().number(), "the fence rises");
    assert!(woken.is_lost, "it knows before it asks anybody");
    assert_eq!(woken.ran, Err(Lost));
    assert!(matches!(woken.checked, Err(LockError::Lost(_))), "{:?}", woken.checked);
    assert!(matches!(woken.released, Err(LockError::Lost(_))), "{:?}", woken.released);
    assert_eq!(database.scalar::<String>(ROW).await, row, "nothing of the new owner's row has changed");
    assert!(!taken_over.is_lost());
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM ledger").await, 0);
    taken_over.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_its_database_gives_up_before_another_may_begin() {
    let database = TestDatabase::create().await;
    let (host, port) = database.server().address();
    a_holder_gives_up_in_time(&database, &format!("{host}:{port}")).await;
}

/// With a holder that reaches the database at this address.
pub(crate) async fn a_holder_gives_up_in_time(database: &TestDatabase, address: &str) {
    let other = locks(&database.url());
    for round in 0..2 {
        let (holder, proxy) = cut_off_at(database, address).await;
        let guard = take(&holder, "a", SHORT).await;
        // Late answers: the holder must count from when it asked.
        proxy.delay(Direction::ToClient, SHORT / 8);
        let ended = tokio::spawn(async move {
            let ran = guard.run(std::future::pending::<()>()).await;
            (ran, Instant::now())
        });
        tokio::time::sleep(SHORT * 2).await;
        assert!(!ended.is_finished());
        match round {
            0 => proxy.stall(Direction::ToServer),
            _ => {
                proxy.refuse(true);
                proxy.cut();
            }
        }
        let next = other.acquire(&name("a"), SHORT, LIMIT).await.unwrap();
        let began = Instant::now();
        let (ran, at) = ended.await.unwrap();
        assert_eq!(ran, Err(Lost));
        assert!(at < began, "round {round}: two holders for {:?}", at - began);
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_foreign_token_neither_releases_nor_renews() {
    let database = TestDatabase::create().await;
    let holder = locks(&database.url());
    let (one, two) = (take(&holder, "a", SHORT).await, take(&holder, "b", SHORT).await);
    let steal = "UPDATE sekali.lock SET owner = gen_random_uuid(), fence = nextval('sekali.fence'), \
                 until = now() + interval '1 hour'";
    database.execute(steal).await;
    let row: String = database.scalar(ROW).await;
    let released = one.release().await;
    assert!(matches!(released, Err(LockError::Lost(_))), "{released:?}");
    tokio::time::timeout(SHORT, two.lost()).await.expect("its heartbeat finds out before its time is over");
    drop(two);
    assert_eq!(database.scalar::<String>(ROW).await, row);
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM sekali.lock").await, 2);
}

/// It ran out, and nobody may have it: what was checked is still being written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_has_checked_keeps_others_out_until_it_ends() {
    let database = TestDatabase::create().await;
    let (holder, proxy) = cut_off(&database).await;
    let guard = take(&holder, "a", SHORT).await;
    let mut client = database.connect().await;
    let tx = client.transaction().await.unwrap();
    guard.check(&tx).await.unwrap();
    // The heartbeat is not kept out.
    tokio::time::sleep(SHORT * 2).await;
    assert!(!guard.is_lost());
    proxy.stall(Direction::ToServer);
    guard.lost().await;
    let expired = "SELECT until < clock_timestamp() FROM sekali.lock";
    sekali_tests::harness::eventually("it runs out", LIMIT, async || database.scalar::<bool>(expired).await).await;
    let other = locks(&database.url());
    assert!(other.try_acquire(&name("a"), LONG).await.unwrap().is_none());
    tx.commit().await.unwrap();
    let guard = other.try_acquire(&name("a"), LONG).await.unwrap().expect("nobody uses it any more");
    guard.release().await.unwrap();
}

/// LCK-02: between sending and the database there may be any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_late_takes_nothing_and_a_late_answer_brings_a_lost_lock() {
    let database = TestDatabase::create().await;
    let other = locks(&database.url());
    for (when, step) in [("request", Step::request("taken_over")), ("answer", Step::answer("SELECT"))] {
        let (late, proxy) = cut_off(&database).await;
        take(&late, "warm", LONG).await.release().await.unwrap();
        let steps = if when == "request" { vec![step] } else { vec![Step::request("taken_over"), step] };
        let halt = proxy.halt_at(steps, When::BeforeForwarding);
        let asking = tokio::spawn(async move { (late.try_acquire(&name("a"), SHORT).await.unwrap(), late) });
        halt.reached().await;
        let guard = other.acquire(&name("a"), LONG, LIMIT).await.unwrap();
        tokio::time::sleep(SHORT * 2).await;
        halt.let_go();
        let (found, _late) = asking.await.unwrap();
        match when {
            "request" => assert!(found.is_none(), "another has it"),
            _ => assert!(found.unwrap().is_lost(), "its time was over before it came"),
        }
        assert!(!guard.is_lost());
        let row = "SELECT fence FROM sekali.lock WHERE name = 'a'";
        assert_eq!(database.scalar::<i64>(row).await, guard.fence().number());
        guard.release().await.unwrap();
    }
}

/// LCK-02: neither a worker's clock nor a session's time zone is in the deadline.
#[tokio::test]
async fn the_deadline_is_a_moment_of_the_databases_clock() {
    let database = TestDatabase::create().await;
    let mut fences = Vec::new();
    for zone in ["UTC", "America/St_Johns", "Pacific/Kiritimati"] {
        database.execute(&format!("ALTER DATABASE {} SET timezone = '{zone}'", database.name())).await;
        let locks = locks(&database.url());
        let before: f64 = database.scalar("SELECT extract(epoch FROM clock_timestamp())::float8").await;
        let guard = take(&locks, "a", LONG).await;
        let after: f64 = database.scalar("SELECT extract(epoch FROM clock_timestamp())::float8").await;
        let until: f64 = database.scalar("SELECT extract(epoch FROM until)::float8 FROM sekali.lock").await;
        assert!((before + 60.0..=after + 60.0).contains(&until), "{zone}: {before} {until} {after}");
        fences.push(guard.fence().number());
        guard.release().await.unwrap();
    }
    assert!(fences.is_sorted_by(|a, b| a < b));
}
