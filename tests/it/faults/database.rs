//! PostgreSQL that is slow, silent, or half there.

use std::time::Duration;

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::proxy::Direction;
use sekali_tests::harness::{Proxy, eventually};
use sekali_tests::scripted::Scripted;

use super::bench::{handled, scripted, took_effect_once};

/// A group whose database is behind a proxy, for everything but the test itself.
async fn proxied(label: &str, change: impl FnOnce(&mut sekali_consumer::Config)) -> (Group, Proxy) {
    let mut group = Group::new(label, 2, |config| {
        config.relay.embedded = false;
        change(config);
    })
    .await;
    let (host, port) = group.database.server().address();
    let proxy = Proxy::to(&format!("{host}:{port}")).await.unwrap();
    group.config.postgres.url = Some(group.database.url_through(proxy.port()).into());
    (group, proxy)
}

/// INF-01: handlers are dropped at any await, and the session that they used is never handed on half-way.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_dropped_half_way_leaves_no_transaction_behind() {
    let (group, proxy) = proxied("dropped", |config| {
        config.relay.embedded = true;
        config.consumer.handler_timeout = Duration::from_millis(120);
        config.consumer.batch_messages_max = 3.try_into().unwrap();
        config.retry.delays = vec![Duration::from_millis(200)];
        config.retry.max_attempts = 1_000.try_into().ok();
    })
    .await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce((0..2).map(|it| scripted(&format!("before-{it}"), "ok").partition(it))).await;
    group.settled().await;
    // Each round trip takes longer than a handler may.
    proxy.delay(Direction::ToServer, Duration::from_millis(150));
    group.produce((0..20).map(|it| scripted(&format!("slow-{it}"), "ok").partition(it % 2))).await;
    eventually("handlers are dropped", LIMIT, async || {
        (0..20).filter(|it| 1 < handler.seen(&format!("slow-{it}")).len()).count() >= 5
    })
    .await;
    proxy.heal();
    group.produce((0..50).map(|it| scripted(&format!("after-{it}"), "ok").partition(it % 2))).await;
    group.settled().await;
    took_effect_once(&group, 72).await;
    assert!(group.dead_letters().await.is_empty());
    let left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND state LIKE 'idle in transaction%' AND state_change < now() - interval '1 s'";
    assert_eq!(group.database.scalar::<i64>(left).await, 0);
    let aborted = "SELECT count(*) FROM sekali.dead_letter WHERE class = 'aborted_transaction'";
    assert_eq!(group.database.scalar::<i64>(aborted).await, 0);
    member.stop().await.unwrap();
}

/// A message whose handler hangs outside the database bears the blame: its own limit ends it before the server ends the
/// transaction that idles meanwhile, also when both limits are the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_is_blamed_before_the_server_ends_its_transaction() {
    let group = Group::new("hangs-idle", 1, |config| {
        config.consumer.handler_timeout = Duration::from_secs(2);
        config.postgres.statement_timeout = Duration::from_secs(2);
        config.retry.delays = vec![Duration::from_millis(200)];
        config.retry.max_attempts = 2.try_into().ok();
    })
    .await;
    let member = group.start(Scripted::default()).await;
    group.produce([scripted("hangs", "hang"), scripted("good", "ok")]).await;
    group.settled().await;
    took_effect_once(&group, 1).await;
    let dead: Vec<(String, i16)> =
        group.dead_letters().await.into_iter().map(|(_, _, class, attempts)| (class, attempts)).collect();
    assert_eq!(dead, [("timeout".to_owned(), 2)]);
    member.stop().await.unwrap();
}

/// INF-04: a hole in the network, while a statement waits for a lock and while connections idle.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_database_costs_neither_membership_nor_messages() {
    let (group, proxy) = proxied("silent", |config| {
        config.consumer.handler_timeout = Duration::from_secs(1);
        config.postgres.connect_timeout = Duration::from_secs(1);
        config.postgres.acquire_timeout = Duration::from_secs(1);
        config.retry.max_attempts = 1_000.try_into().ok();
        config.retry.delays = vec![Duration::from_millis(200)];
        config.relay.embedded = true;
    })
    .await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce([scripted("before", "ok")]).await;
    group.settled().await;
    let members = group.kafka.group_members(group.name()).await;
    let mut lock = group.database.connect().await;
    let lock = lock.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE effect").await.unwrap();
    group.produce((0..10).map(|it| scripted(&format!("m-{it}"), "ok").partition(it % 2))).await;
    handled(&handler, "m-0").await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.drop_bytes(direction);
    }
    // Longer than the session of a member, and than every deadline above.
    let began = std::time::Instant::now();
    eventually("the silence has lasted", LIMIT, async || Duration::from_secs(7) < began.elapsed()).await;
    assert_eq!(group.kafka.group_members(group.name()).await, members, "who cannot work stays a member");
    lock.rollback().await.unwrap();
    proxy.heal();
    // What was said into the hole is never answered.
    group.settled().await;
    took_effect_once(&group, 11).await;
    assert!(group.dead_letters().await.is_empty());
    member.stop().await.unwrap();
}

/// INF-04: an answer to `COMMIT` that never comes, on a connection that stays open.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_never_answered_ends_by_a_deadline() {
    let (group, proxy) =
        proxied("unanswered", |config| config.consumer.batch_messages_max = 5.try_into().unwrap()).await;
    let member = group.start(Scripted::default()).await;
    group.produce((0..200).map(|it| scripted(&format!("m-{it}"), "slow=5").partition(it % 2))).await;
    let effects = "SELECT count(*) FROM effect";
    eventually("work goes on", LIMIT, async || 20 < group.database.scalar::<i64>(effects).await).await;
    proxy.drop_bytes(Direction::ToClient);
    let sent = proxy.counts().bytes_to_server;
    eventually("both executors wait for an answer", LIMIT, async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'sekali-consumer' \
             AND state = 'active'";
        sent < proxy.counts().bytes_to_server && group.database.scalar::<i64>(sql).await == 0
    })
    .await;
    proxy.heal();
    group.settled().await;
    took_effect_once(&group, 200).await;
    member.stop().await.unwrap();
}
