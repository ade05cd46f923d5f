//! Outages under load: nothing is lost, doubled or blamed, and work goes on by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sekali_consumer::Consumer;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::proxy::Direction;
use sekali_tests::harness::{Kafka, Outgoing, OwnBroker, Postgres, PrivatePostgres, Proxy, TestDatabase, eventually};
use sekali_tests::scripted::{LEDGER, Scripted};
use tokio::task::JoinHandle;

/// Events of one key each, 500 a second, until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    running: JoinHandle<usize>,
}

impl Load {
    fn on(kafka: &'static Kafka, topic: &str) -> Load {
        let (topic, stop) = (topic.to_owned(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            let mut beat = tokio::time::interval(Duration::from_millis(20));
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                beat.tick().await;
                let event = |it: usize| Outgoing::new(format!("k{}", it % 97), "{}").id(&format!("m-{it}"));
                kafka.produce(&topic, (sent..sent + 10).map(event)).await;
                sent += 10;
            }
            sent
        });
        Load { stop, running }
    }

    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.running.await.unwrap()
    }
}

async fn ledger(group: &Group) -> i64 {
    group.database.scalar("SELECT count(*) FROM effect").await
}

async fn work_goes_on(group: &Group) {
    let before = ledger(group).await;
    eventually("work goes on", LIMIT, async || before + 500 < ledger(group).await).await;
}

async fn nobody_is_blamed(group: &Group, produced: usize) {
    let since = Instant::now();
    group.settled().await;
    assert!(since.elapsed() < Duration::from_secs(60), "lag 0 took {:?}", since.elapsed());
    let effects = group.effects().await;
    assert_eq!(effects.len(), produced);
    assert!(effects.values().all(|it| *it == 1), "an effect happened twice");
    let blamed: i64 = group.database.scalar("SELECT count(*) FROM sekali.inbox WHERE state <> 1 OR attempt <> 1").await;
    assert_eq!((blamed, group.dead_letters().await.len()), (0, 0), "an attempt was burned");
}

/// A group on a database server of its own, which its members reach through a proxy.
async fn with_own_database(label: &str) -> (Group, PrivatePostgres, Proxy) {
    let server = PrivatePostgres::start(Default::default()).unwrap();
    let mut group = Group::new(label, 4, |_| {}).await;
    let own = Postgres::at(&server.url("postgres"));
    group.database = TestDatabase::create_on(&own).await;
    group.database.execute(LEDGER).await;
    let (host, port) = own.address();
    let proxy = Proxy::to(&format!("{host}:{port}")).await.unwrap();
    group.config.postgres.url = Some(group.database.url_through(proxy.port()).into());
    group.config.postgres.connect_timeout = Duration::from_secs(1);
    (group, server, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_offsets_stand_still_and_nothing_is_blamed() {
    let (group, mut server, _proxy) = with_own_database("away").await;
    let member = group.start(Scripted::default()).await;
    let load = Load::on(group.kafka, &group.topic);
    work_goes_on(&group).await;
    server.kill().unwrap();
    // What was decided before may still be committed for a beat or two.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let committed = group.kafka.committed_offsets(group.name(), &group.topic).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(group.kafka.committed_offsets(group.name(), &group.topic).await, committed, "an offset moved");
    assert_ne!(group.kafka.lag(group.name(), &group.topic).await, 0);
    server.restart().unwrap();
    work_goes_on(&group).await;
    let produced = load.stop().await;
    nobody_is_blamed(&group, produced).await;
    assert!(member.is_running());
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_became_read_only_is_waited_for() {
    let (group, _server, proxy) = with_own_database("readonly").await;
    let member = group.start(Scripted::default()).await;
    let load = Load::on(group.kafka, &group.topic);
    work_goes_on(&group).await;
    // A failover as clients see it: connections break, and the server that answers is a standby for a while.
    let name = group.database.name().to_owned();
    let readonly = async |value: &str| {
        let sql = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = {value}");
        group.database.server().admin().await.batch_execute(&sql).await.unwrap();
        proxy.cut();
    };
    readonly("on").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = ledger(&group).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(ledger(&group).await, before, "nothing can be written");
    readonly("off").await;
    work_goes_on(&group).await;
    let produced = load.stop().await;
    nobody_is_blamed(&group, produced).await;
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_either_direction_is_noticed_and_survived() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (mut group, _server, proxy) = with_own_database("swallowed").await;
        group.config.postgres.statement_timeout = Duration::from_secs(2);
        group.config.consumer.handler_timeout = Duration::from_secs(2);
        let consumer = Consumer::connect(group.config.clone(), Scripted::default()).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let member = tokio::spawn(consumer.run(async {
            let _asked = stopped.await;
        }));
        let load = Load::on(group.kafka, &group.topic);
        work_goes_on(&group).await;
        proxy.drop_bytes(direction);
        tokio::time::sleep(Duration::from_secs(4)).await;
        proxy.heal();
        // Bytes are missing: no connection of before can be used again.
        proxy.cut();
        work_goes_on(&group).await;
        let produced = load.stop().await;
        // A handler that waits for the database in vain runs into its own time limit, and may be retried for it.
        group.settled().await;
        let effects = group.effects().await;
        assert_eq!((effects.len(), group.dead_letters().await.len()), (produced, 0));
        assert!(effects.values().all(|it| *it == 1), "an effect happened twice");
        stop.send(()).unwrap();
        member.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_connections_is_waited_for() {
    let (mut group, _server, _proxy) = with_own_database("exhausted").await;
    // Relay, housekeeping and both executors share two connections.
    group.config.postgres.pool_max_connections = 2.try_into().unwrap();
    group.config.postgres.acquire_timeout = Duration::from_millis(200);
    let member = group.start(Scripted::default()).await;
    let load = Load::on(group.kafka, &group.topic);
    work_goes_on(&group).await;
    work_goes_on(&group).await;
    let produced = load.stop().await;
    nobody_is_blamed(&group, produced).await;
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_and_a_network_that_breaks_cost_nothing_but_time() {
    let (mut broker, proxy) = match OwnBroker::start_proxied().await {
        Ok(started) => started,
        Err(reason) => sekali_tests::skip!("{reason:#}"),
    };
    let kafka: &'static Kafka = Box::leak(Box::new(broker.kafka().clone()));
    let group = Group::on(kafka, &broker.proxied_bootstrap(), "broker", 4, |_| {}).await;
    let member = group.start(Scripted::default()).await;
    let load = Load::on(kafka, &group.topic);
    work_goes_on(&group).await;
    broker.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    broker.restart().await.unwrap();
    work_goes_on(&group).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.drop_bytes(direction);
        tokio::time::sleep(Duration::from_secs(3)).await;
        proxy.heal();
        proxy.cut();
        work_goes_on(&group).await;
    }
    let produced = load.stop().await;
    nobody_is_blamed(&group, produced).await;
    assert!(member.is_running());
    member.stop().await.unwrap();
}
