//! `Inbox::once`: one action once, for code without Kafka.

mod http;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::{Pool, Transaction};
use sekali_consumer::once::{Inbox, Once, OnceError, until_decided};
use sekali_consumer::schemas::fingerprint;
use sekali_consumer::schemas::inbox::State;
use sekali_consumer::{Failure, IdempotencyKey};
use sekali_producer::config::PostgresSection;
use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, TestDatabase, eventually};
use sekali_tests::scripted::Scripted;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);
/// Long enough for a slow machine, and nothing like a wait for somebody else.
const AT_ONCE: Duration = Duration::from_secs(2);

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).unwrap()
}

fn pool(database: &TestDatabase, connections: usize) -> Pool {
    let section = PostgresSection {
        url: Some(database.url().into()),
        pool_max_connections: connections.try_into().unwrap(),
        ..PostgresSection::default()
    };
    section.pool("sekali-tests").unwrap()
}

async fn note(tx: &Transaction<'_>, text: &str) -> Result<i64, Failure> {
    Ok(tx.query_one("INSERT INTO note (text) VALUES ($1) RETURNING nr", &[&text]).await?.get(0))
}

/// A database with a table of notes, and an inbox in it.
async fn desk(connections: usize) -> (TestDatabase, Pool, Inbox) {
    let database = TestDatabase::create().await;
    database.execute("CREATE TABLE note (nr bigint GENERATED ALWAYS AS IDENTITY, text text)").await;
    let pool = pool(&database, connections);
    let inbox = Inbox::open(&pool.get().await.unwrap(), "desk").await.unwrap();
    (database, pool, inbox)
}

async fn notes(database: &TestDatabase) -> i64 {
    database.scalar("SELECT count(*) FROM note").await
}

async fn rows(database: &TestDatabase) -> i64 {
    database.scalar("SELECT count(*) FROM sekali.inbox").await
}

#[tokio::test]
async fn a_repeat_gets_the_stored_result_and_other_bytes_are_refused() {
    let (database, pool, inbox) = desk(2).await;
    let ask = async |text: &str, fingerprint: i64| {
        let mut client = pool.get().await.unwrap();
        let tx = client.transaction().await.unwrap();
        let answer = inbox.once(&tx, &key(text), fingerprint, note(&tx, text)).await;
        tx.commit().await.unwrap();
        answer
    };
    assert_eq!(ask("a", 7).await.unwrap(), Once::Fresh(1));
    assert_eq!(ask("a", 7).await.unwrap(), Once::Repeat(1));
    assert!(matches!(ask("a", 8).await, Err(OnceError::KeyReuse)));
    assert_eq!(ask("b", 8).await.unwrap(), Once::Fresh(2));
    assert_eq!((notes(&database).await, rows(&database).await), (2, 2));

    // Another consumer is another scope.
    let other = Inbox::open(&pool.get().await.unwrap(), "other").await.unwrap();
    assert_eq!(Inbox::open(&pool.get().await.unwrap(), "desk").await.unwrap(), inbox, "the same consumer again");
    let mut client = pool.get().await.unwrap();
    let tx = client.transaction().await.unwrap();
    assert_eq!(other.once(&tx, &key("a"), 8, note(&tx, "a")).await.unwrap(), Once::Fresh(3));
    // A result of another type is not taken for one.
    let wrong = inbox.once(&tx, &key("a"), 7, async { Ok::<String, Failure>(String::new()) }).await;
    assert!(matches!(wrong, Err(OnceError::Unreadable)), "{wrong:?}");
    tx.commit().await.unwrap();
    assert_eq!(notes(&database).await, 3);
}

#[tokio::test]
async fn failed_work_leaves_nothing_and_the_transaction_goes_on() {
    let (database, pool, inbox) = desk(2).await;
    let mut client = pool.get().await.unwrap();
    let a = key("a");
    let tx = client.transaction().await.unwrap();
    note(&tx, "before").await.unwrap();
    let refused = inbox.once(&tx, &a, 7, async {
        note(&tx, "inside").await?;
        Err::<i64, Failure>(Failure::permanent("no"))
    });
    assert!(matches!(refused.await, Err(OnceError::Work(_))));
    let violated = inbox.once(&tx, &a, 7, async {
        note(&tx, "inside").await?;
        tx.batch_execute("SELECT 1 / 0").await?;
        Ok::<i64, Failure>(1)
    });
    assert!(matches!(violated.await, Err(OnceError::Work(_))));
    // The mistake of the field: an SQL error is swallowed, and nothing after it has happened.
    let swallowed = inbox.once(&tx, &a, 7, async {
        let nr = note(&tx, "inside").await?;
        let _swallowed = tx.batch_execute("SELECT 1 / 0").await;
        Ok::<i64, Failure>(nr)
    });
    let error = swallowed.await.unwrap_err();
    assert!(matches!(&error, OnceError::Sql(it) if it.state().is_some_and(|it| it.code() == "25P02")), "{error}");
    let unstorable = inbox.once(&tx, &a, 7, async {
        note(&tx, "inside").await?;
        Ok::<Value, Failure>(json!({ "text": "\0" }))
    });
    let error = unstorable.await.unwrap_err();
    assert!(matches!(&error, OnceError::Sql(it) if it.state().is_some_and(|it| it.code() == "22P05")), "{error}");
    note(&tx, "after").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((notes(&database).await, rows(&database).await), (2, 0), "only what was written outside");

    let tx = client.transaction().await.unwrap();
    assert!(matches!(inbox.once(&tx, &a, 7, note(&tx, "again")).await, Ok(Once::Fresh(_))));
    drop(tx);
    assert_eq!((notes(&database).await, rows(&database).await), (2, 0), "it happens with the caller's commit");
}

#[tokio::test]
async fn who_comes_while_another_transaction_works_is_told_at_once() {
    let (database, pool, inbox) = desk(4).await;
    let (mut first, mut second) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let working = first.transaction().await.unwrap();
    inbox.once(&working, &key("a"), 7, note(&working, "first")).await.unwrap();

    let tx = second.transaction().await.unwrap();
    let begun = Instant::now();
    for _again in 0..3 {
        let answer = inbox.once(&tx, &key("a"), 7, note(&tx, "second")).await;
        assert!(matches!(answer, Err(OnceError::InProgress)), "{answer:?}");
    }
    assert!(begun.elapsed() < AT_ONCE, "it waited {:?}", begun.elapsed());
    // Another key is not in anybody's way.
    assert_eq!(inbox.once(&tx, &key("b"), 7, note(&tx, "b")).await.unwrap(), Once::Fresh(2));
    // When the first one gives up, the second one may.
    working.rollback().await.unwrap();
    assert_eq!(inbox.once(&tx, &key("a"), 7, note(&tx, "second")).await.unwrap(), Once::Fresh(3));
    tx.commit().await.unwrap();
    assert_eq!((notes(&database).await, rows(&database).await), (2, 2));
}

/// A batch of a consumer group has claimed the row and not committed: no advisory lock tells of it.
#[tokio::test]
async fn a_batch_that_has_the_row_is_not_waited_for() {
    let (database, pool, inbox) = desk(4).await;
    let (batch, mut other) = (database.connect().await, pool.get().await.unwrap());
    let claim = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
         SELECT $1, 7, id, 1, 1 FROM sekali.consumer WHERE name = 'desk'";
    batch.batch_execute("BEGIN").await.unwrap();
    batch.execute(claim, &[&key("a").uuid()]).await.unwrap();
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("SET LOCAL lock_timeout = '12345ms'").await.unwrap();
    let begun = Instant::now();
    let answer = inbox.once(&tx, &key("a"), 7, note(&tx, "second")).await;
    assert!(matches!(answer, Err(OnceError::InProgress)), "{answer:?}");
    assert!(begun.elapsed() < AT_ONCE, "it waited {:?}", begun.elapsed());
    let limit = async |tx: &Transaction<'_>| -> String { tx.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0) };
    assert_eq!(limit(&tx).await, "12345ms", "after an error");
    inbox
        .once(&tx, &key("b"), 7, async {
            assert_eq!(limit(&tx).await, "12345ms", "the limit is not for the work");
            note(&tx, "b").await
        })
        .await
        .unwrap();
    assert_eq!(limit(&tx).await, "12345ms", "after success");
    batch.batch_execute("COMMIT").await.unwrap();
    // The batch stored no result: a reader that needs one is told.
    let answer = inbox.once(&tx, &key("a"), 7, note(&tx, "second")).await;
    assert!(matches!(answer, Err(OnceError::Unreadable)), "{answer:?}");
    let done = inbox.once(&tx, &key("a"), 7, async { Ok::<(), Failure>(()) }).await.unwrap();
    assert_eq!(done, Once::Repeat(()));
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_in_the_session() {
    let (_database, pool, inbox) = desk(1).await;
    let mut client = pool.get().await.unwrap();
    let before: i64 = client.query_one("SELECT count(*) FROM pg_prepared_statements", &[]).await.unwrap().get(0);
    for fingerprint in [7, 7, 8] {
        let tx = client.transaction().await.unwrap();
        let _refused_last = inbox.once(&tx, &key("a"), fingerprint, async { Ok::<i64, Failure>(1) }).await;
        tx.commit().await.unwrap();
    }
    let left = "SELECT (SELECT count(*) FROM pg_prepared_statements), \
         (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), \
         current_setting('lock_timeout')";
    let row = client.query_one(left, &[]).await.unwrap();
    // The question itself is a prepared statement, as the one before was.
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, &str>(2)), (before, 0, "30s"));
}

/// Whoever repeats while the first one works gets its answer, though there are fewer connections than callers.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_callers_at_once_get_one_answer() {
    let (database, pool, inbox) = desk(4).await;
    let runs = std::sync::Arc::new(AtomicU32::new(0));
    let call = |pool: Pool, runs: std::sync::Arc<AtomicU32>| async move {
        until_decided(LIMIT, || async {
            let mut client = pool.get().await.map_err(Failure::from)?;
            let tx = client.transaction().await.map_err(Failure::from)?;
            let work = async {
                // The first one fails after a while, and whoever comes next must not see a trace of it.
                let run = runs.fetch_add(1, Ordering::Relaxed);
                let nr = note(&tx, "once").await?;
                tx.batch_execute("SELECT pg_sleep(0.3)").await?;
                if run == 0 { Err(Failure::transient("the first run fails")) } else { Ok(nr) }
            };
            let answer = inbox.once(&tx, &key("a"), 7, work).await?;
            tx.commit().await.map_err(Failure::from)?;
            Ok::<_, OnceError<Failure>>(answer)
        })
        .await
    };
    let calls: Vec<_> = (0..50).map(|_| tokio::spawn(call(pool.clone(), runs.clone()))).collect();
    let (mut fresh, mut repeats, mut failed) = (Vec::new(), Vec::new(), 0);
    for call in calls {
        match call.await.unwrap() {
            Ok(Once::Fresh(nr)) => fresh.push(nr),
            Ok(Once::Repeat(nr)) => repeats.push(nr),
            Err(error) => {
                assert!(matches!(error, OnceError::Work(_)), "{error}");
                failed += 1;
            }
        }
    }
    assert_eq!((fresh.len(), repeats.len(), failed), (1, 48, 1));
    assert!(repeats.iter().all(|it| *it == fresh[0]), "{fresh:?} {repeats:?}");
    assert_eq!((runs.load(Ordering::Relaxed), notes(&database).await), (2, 1));
}

#[tokio::test]
async fn patience_ends() {
    let begun = Instant::now();
    let attempts = AtomicU32::new(0);
    let never = until_decided(Duration::from_millis(300), || async {
        attempts.fetch_add(1, Ordering::Relaxed);
        Err::<(), OnceError<Failure>>(OnceError::InProgress)
    });
    assert!(matches!(never.await, Err(OnceError::InProgress)));
    assert!(Duration::from_millis(300) <= begun.elapsed() && begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!((4..20).contains(&attempts.into_inner()), "pauses grow");
}

/// One action by two names: the second call is inside the first one's work.
#[tokio::test]
async fn a_call_inside_another_ones_work_is_part_of_it() {
    let (database, pool, inbox) = desk(4).await;
    let ask = async |outer: &str, inner: &str| {
        let mut client = pool.get().await.unwrap();
        let tx = client.transaction().await.unwrap();
        let inside = async {
            let answer = inbox.once(&tx, &key(inner), 7, note(&tx, inner)).await?;
            Ok::<i64, OnceError<Failure>>(answer.into_result())
        };
        let answer = inbox.once(&tx, &key(outer), 7, inside).await.map_err(OnceError::flatten);
        tx.commit().await.unwrap();
        answer
    };
    assert_eq!(ask("header-1", "order-1").await.unwrap(), Once::Fresh(1));
    assert_eq!(ask("header-1", "order-1").await.unwrap(), Once::Repeat(1));
    assert_eq!(
        ask("header-2", "order-1").await.unwrap(),
        Once::Fresh(1),
        "new by the outer name, done by the inner one"
    );
    assert_eq!((notes(&database).await, rows(&database).await), (1, 3));

    let mut busy = pool.get().await.unwrap();
    let working = busy.transaction().await.unwrap();
    inbox.once(&working, &key("order-2"), 7, note(&working, "x")).await.unwrap();
    let answer = ask("header-3", "order-2").await;
    assert!(matches!(answer, Err(OnceError::InProgress)), "{answer:?}");
    working.rollback().await.unwrap();
    assert_eq!(rows(&database).await, 3, "the outer name was not kept either");
}

/// A consumer group and code without Kafka share the decisions of one consumer.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_and_a_caller_share_one_inbox() {
    let group = Group::new("shared", 1, |_| {}).await;
    let pool = pool(&group.database, 2);
    let inbox = Inbox::open(&pool.get().await.unwrap(), group.name()).await.unwrap();
    let ask = async |text: &str, payload: &[u8]| {
        let mut client = pool.get().await.unwrap();
        let tx = client.transaction().await.unwrap();
        let work = async { Ok::<Value, Failure>(json!("mine")) };
        let answer = inbox.once(&tx, &key(text), fingerprint(Some(payload)), work).await;
        tx.commit().await.unwrap();
        answer
    };
    assert_eq!(ask("mine-first", b"{}").await.unwrap(), Once::Fresh(json!("mine")));
    group
        .produce([
            Outgoing::new("k", "{}").id("mine-first"),
            Outgoing::new("k", "{}").id("theirs").header("script", "result"),
            Outgoing::new("k", "{}").id("dead").header("script", "permanent"),
        ])
        .await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    let Once::Repeat(theirs) = ask("theirs", b"{}").await.unwrap() else { panic!("the group has done it") };
    assert_ne!(theirs, json!("mine"), "the result that the handler stored");
    assert!(!theirs.is_null());
    assert!(matches!(ask("theirs", b"{ }").await, Err(OnceError::KeyReuse)));
    let dead = ask("dead", b"{}").await;
    assert!(matches!(dead, Err(OnceError::Decided(State::Dead))), "{dead:?}");
    assert_eq!(dead.unwrap_err().to_string(), "the action is dead");
    member.stop().await.unwrap();
    let effects = group.effects().await;
    assert_eq!(effects.keys().collect::<Vec<_>>(), ["theirs"], "what was mine was a duplicate for the group");
    eventually("nothing is in anybody's way", LIMIT, async || {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = \
                    current_database()";
        group.database.scalar::<i64>(open).await == 0
    })
    .await;
}
