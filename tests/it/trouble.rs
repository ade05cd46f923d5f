//! Infrastructure trouble is never the message's fault.

use std::time::Duration;

use sekali_consumer::{Consumer, ErrorKind};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::proxy::{Direction, When};
use sekali_tests::harness::{Outgoing, PrivatePostgres, Proxy, TestDatabase, eventually};
use sekali_tests::scripted::{SCRIPT, Scripted};

fn events(count: usize) -> impl Iterator<Item = Outgoing> {
    (0..count).map(|it| Outgoing::new(format!("k{it}"), "{}").id(&format!("m-{it}")).header(SCRIPT, "ok"))
}

/// A group whose database connection goes through a proxy.
async fn proxied(label: &str) -> (Group, Proxy) {
    let mut group = Group::new(label, 2, |config| config.relay.embedded = false).await;
    let (host, port) = group.database.server().address();
    let proxy = Proxy::to(&format!("{host}:{port}")).await.unwrap();
    group.config.postgres.url = Some(group.database.url_through(proxy.port()).into());
    group.config.consumer.batch_messages_max = 20.try_into().unwrap();
    group.config.consumer.buffer_messages_max = 100.try_into().unwrap();
    (group, proxy)
}

async fn all_took_effect_once_without_blame(group: &Group, count: usize) {
    group.settled().await;
    let effects = group.effects().await;
    assert_eq!(effects.len(), count);
    assert!(effects.values().all(|it| *it == 1), "an effect happened twice");
    let sql = "SELECT count(*) FROM sekali.inbox WHERE state <> 1 OR attempt <> 1";
    assert_eq!(group.database.scalar::<i64>(sql).await, 0, "an attempt was burned");
    assert!(group.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_around_commit_is_run_again_and_counted_once() {
    for (label, when) in [("before", When::BeforeForwarding), ("after", When::AfterForwarding)] {
        let (group, proxy) = proxied(&format!("commit-{label}")).await;
        group.produce(events(200)).await;
        let member = group.start(Scripted::default()).await;
        for _cut in 0..5 {
            let trap = proxy.cut_on(b"SELECT 1; COMMIT", Direction::ToServer, when);
            let sprung = tokio::time::timeout(Duration::from_secs(3), trap.sprung()).await;
            if sprung.is_err() {
                break;
            }
        }
        proxy.heal();
        all_took_effect_once_without_blame(&group, 200).await;
        assert!(member.is_running());
        member.stop().await.unwrap();
        // What waited for a commit that never comes is gone with its connection.
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
        assert_eq!(group.database.scalar::<i64>(idle).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_for_a_while_costs_nothing_but_time() {
    let mut server = PrivatePostgres::start(Default::default()).unwrap();
    let mut group = Group::new("restart", 2, |config| config.relay.embedded = false).await;
    let own = sekali_tests::harness::Postgres::at(&server.url("postgres"));
    group.database = TestDatabase::create_on(&own).await;
    group.database.execute(sekali_tests::scripted::LEDGER).await;
    group.config.postgres.url = Some(group.database.url().into());
    let member = group.start(Scripted::default()).await;
    group.produce(events(500)).await;
    eventually("work begins", LIMIT, async || group.database.scalar::<i64>("SELECT count(*) FROM effect").await > 0)
        .await;
    server.kill().unwrap();
    group.produce((500..1_000).map(|it| Outgoing::new("k", "{}").id(&format!("m-{it}")))).await;
    server.restart().unwrap();
    all_took_effect_once_without_blame(&group, 1_000).await;
    assert!(member.is_running());
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn serialization_failures_and_deadlocks_burn_no_attempt() {
    let group = Group::new("conflict", 2, |_| {}).await;
    group
        .database
        .execute(
            "CREATE SEQUENCE tries; CREATE FUNCTION sometimes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('tries') % 7 = 0 THEN RAISE SQLSTATE '40001'; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER sometimes BEFORE INSERT ON effect FOR EACH ROW EXECUTE FUNCTION sometimes()",
        )
        .await;
    let member = group.start(Scripted::default()).await;
    group.produce(events(60)).await;
    all_took_effect_once_without_blame(&group, 60).await;
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_at_start_is_said_in_one_sentence() {
    let group = Group::new("missing", 1, |_| {}).await;
    let refused = async |change: &dyn Fn(&mut sekali_consumer::Config)| {
        let mut config = group.config.clone();
        change(&mut config);
        let error = Consumer::connect(config, Scripted::default()).await.err().expect("it must not start");
        (error.kind(), error.chain())
    };
    let (kind, text) = refused(&|it| it.consumer.topics = vec!["nowhere".to_owned()]).await;
    assert!(kind == ErrorKind::Kafka && text.contains("nowhere") && text.contains("sekali topics apply"), "{text}");
    let (kind, text) = refused(&|it| it.kafka.brokers = "127.0.0.1:1".to_owned()).await;
    assert!(kind == ErrorKind::Kafka && text.contains("kafka.brokers"), "{text}");
    let (kind, text) = refused(&|it| it.postgres.url = Some("postgres://nobody@127.0.0.1:1/x".into())).await;
    assert!(kind == ErrorKind::Postgres && text.contains("postgres.url"), "{text}");
    let empty = TestDatabase::create_empty().await;
    let (kind, text) = refused(&|it| it.postgres.url = Some(empty.url().into())).await;
    assert!(kind == ErrorKind::Migration && text.contains("sekali migrate"), "{text}");
}
