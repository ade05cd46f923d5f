//! Behind PgBouncer (INF-02).

use futures_util::future::join_all;
use sekali_tests::group::{Group, LIMIT, member_process_at};
use sekali_tests::harness::pooler::{Mode, Pooler};
use sekali_tests::harness::servers::say;
use sekali_tests::harness::{Outgoing, TestDatabase, connect, eventually};
use sekali_tests::scripted::{SCRIPT, Scripted};
use sekali_tests::skip;
use tokio_postgres::error::SqlState;

use crate::lock::exclusion::count_up;
use crate::lock::fence::{a_frozen_holder_is_refused, a_holder_gives_up_in_time};

/// Fewer than there are clients, so that a client meets other connections all the time.
const CONNECTIONS: u16 = 5;

async fn pooler(database: &TestDatabase, mode: Mode) -> Result<Pooler, anyhow::Error> {
    Pooler::start(database.server(), mode, CONNECTIONS).await
}

fn events(range: std::ops::Range<usize>) -> impl Iterator<Item = Outgoing> {
    range.map(|it| {
        let script = if it % 50 == 7 { "transient=1" } else { "ok" };
        Outgoing::new(format!("k{}", it % 40), "{}").id(&format!("m-{it}")).header(SCRIPT, script)
    })
}

/// Without named statements and session state, any version and any mode will do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_exclude_each_other_behind_a_pooler_that_shares_out_transactions() {
    let database = TestDatabase::create().await;
    let pooler = match pooler(&database, Mode::TransactionWithoutStatements).await {
        Ok(pooler) => pooler,
        Err(reason) => skip!("{reason:#}"),
    };
    count_up(&database, &pooler.url(&database), 20, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_of_locks_are_fenced_behind_a_pooler() {
    let database = TestDatabase::create().await;
    let pooler = match pooler(&database, Mode::TransactionWithoutStatements).await {
        Ok(pooler) => pooler,
        Err(reason) => skip!("{reason:#}"),
    };
    a_frozen_holder_is_refused(&database, &pooler.url(&database)).await;
    a_holder_gives_up_in_time(&database, &pooler.address()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_behind_a_pooler_counts_once_though_the_pooler_is_restarted() {
    let mut group = Group::new("pooled", 4, |_| {}).await;
    let mut pooler = match pooler(&group.database, Mode::Transaction).await {
        Ok(pooler) => pooler,
        Err(reason) => skip!("{reason:#}"),
    };
    let mode = if pooler.keeps_statements() { Mode::Transaction } else { Mode::Session };
    if mode == Mode::Session {
        let (major, minor) = pooler.version();
        say(&format!("PgBouncer {major}.{minor} keeps no prepared statements: tested in session mode only"));
        pooler.restart(mode).await.unwrap();
    }
    group.config.postgres.url = Some(pooler.url(&group.database).into());
    group.config.postgres.pool_max_connections = 5.try_into().unwrap();
    let member = group.start(Scripted::default()).await;
    // Another process gives its statements the same names. In session mode it would find no connection free.
    let other = (mode == Mode::Transaction).then(|| member_process_at(&group.config, &pooler.url(&group.database)));
    // Two clients each: one for the source topic, one for the retry topics.
    let clients = if other.is_some() { 4 } else { 2 };
    eventually("all have joined", LIMIT, async || {
        let joined = group.kafka.group_members(group.name()).await;
        if joined.len() == clients { Ok(()) } else { Err(format!("{joined:?}")) }
    })
    .await;
    group.produce(events(0..1_500)).await;
    eventually("work begins", LIMIT, async || group.database.scalar::<i64>("SELECT count(*) FROM effect").await > 0)
        .await;
    pooler.restart(mode).await.unwrap();
    group.produce(events(1_500..3_000)).await;
    group.settled().await;
    let effects = group.effects().await;
    assert_eq!(effects.len(), 3_000);
    assert!(effects.values().all(|it| *it == 1), "an effect happened twice");
    let blamed = "SELECT count(*) FROM sekali.inbox WHERE attempt > 2";
    assert_eq!(group.database.scalar::<i64>(blamed).await, 0, "the pooler's restart burned attempts");
    assert!(group.dead_letters().await.is_empty());
    member.stop().await.unwrap();
    if let Some(mut other) = other {
        other.sigterm();
        assert!(other.wait(LIMIT).await.success());
    }
}

/// The wrong setting stops the group; it costs no message an attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_forgets_statements_is_nobodys_fault() {
    const TOTAL: usize = 1_500;
    let change = |config: &mut sekali_consumer::Config| {
        config.relay.embedded = false;
        // Many transactions, so that many meet a connection that does not know their statements.
        config.consumer.batch_messages_max = 5.try_into().unwrap();
    };
    let mut group = Group::new("forgetful", 2, change).await;
    // It begins well, and then somebody changes the pooler.
    let mut pooler = match pooler(&group.database, Mode::Session).await {
        Ok(pooler) => pooler,
        Err(reason) => skip!("{reason:#}"),
    };
    group.config.postgres.url = Some(pooler.url(&group.database).into());
    group.config.postgres.pool_max_connections = 5.try_into().unwrap();
    let member = group.start(Scripted::default()).await;
    let plain =
        |range: std::ops::Range<usize>| range.map(|it| Outgoing::new(format!("k{it}"), "{}").id(&format!("m-{it}")));
    group.produce(plain(0..100)).await;
    group.settled().await;
    pooler.restart(Mode::TransactionWithoutStatements).await.unwrap();
    let url = pooler.url(&group.database);
    group.produce(plain(100..TOTAL)).await;
    join_all((0..8).map(|_| sees_statements_forgotten(&url, 40))).await;
    let blamed = "SELECT count(*) FROM sekali.inbox WHERE state <> 1 OR attempt <> 1";
    assert_eq!(group.database.scalar::<i64>(blamed).await, 0, "an attempt was burned");
    assert!(group.dead_letters().await.is_empty());
    pooler.restart(Mode::Session).await.unwrap();
    group.settled().await;
    let effects = group.effects().await;
    assert_eq!(effects.len(), TOTAL);
    assert!(effects.values().all(|it| *it == 1), "an effect happened twice");
    assert_eq!(group.database.scalar::<i64>(blamed).await, 0, "an attempt was burned");
    member.stop().await.unwrap();
}

/// Works as members do, until it has met connections that do not know its statement. As one of several it also sees to it
/// that a client meets another connection than before.
async fn sees_statements_forgotten(url: &str, times: usize) {
    let mut seen = 0;
    eventually("statements are forgotten", LIMIT, async || {
        let client = connect(url).await?;
        let statement = client.prepare("SELECT pg_sleep(0.002)").await?;
        for _ in 0..50 {
            client.batch_execute("BEGIN; SELECT pg_sleep(0.002); COMMIT").await?;
            if client.execute(&statement, &[]).await.is_err_and(|it| it.code() == Some(&UNKNOWN)) {
                seen += 1;
                break;
            }
        }
        if times <= seen { Ok(()) } else { Err(anyhow::anyhow!("{seen} times")) }
    })
    .await;
}

/// "prepared statement does not exist"
const UNKNOWN: SqlState = SqlState::INVALID_SQL_STATEMENT_NAME;
