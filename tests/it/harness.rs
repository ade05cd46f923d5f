//! The bench itself, on a real broker and a real database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use sekali::private_postgres::{Options, PrivatePostgres, find_binaries};
use sekali_tests::harness::proxy::{Direction, When};
use sekali_tests::harness::{
    Kafka, Outgoing, OwnBroker, Postgres, Program, Proxy, TestDatabase, connect, eventually, kafka, program, unique,
};
use sekali_tests::skip;
use tokio_postgres::error::SqlState;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn records_come_back_byte_for_byte() {
    let kafka = kafka().await;
    let topic = kafka.topic("records", 2).await;
    let odd = Outgoing {
        key: None,
        payload: None,
        headers: vec![("a".into(), Some(Bytes::from_static(&[0xFF, 0]))), ("a".into(), None), (String::new(), None)],
        partition: Some(1),
        timestamp_ms: Some(1_700_000_000_123),
    };
    let places = kafka.produce(&topic, [Outgoing::new("k", "v").id("1").partition(0), odd.clone()]).await;
    assert_eq!(places.iter().map(|it| (it.partition, it.offset)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);

    let records = kafka.read_all(&topic).await;
    assert_eq!(records.len(), 2);
    assert_eq!((records[0].key.as_deref(), records[0].payload.as_deref()), (Some(&b"k"[..]), Some(&b"v"[..])));
    assert_eq!(records[0].headers.text("idempotency-key"), Some("1"));
    assert_eq!((&records[1].key, &records[1].payload), (&None, &None), "null stays null");
    assert_eq!(records[1].timestamp_ms, odd.timestamp_ms);
    let headers: Vec<_> = records[1].headers.iter().map(|it| (it.name, it.value)).collect();
    assert_eq!(headers, [("a", Some(&[0xFF, 0][..])), ("a", None), ("", None)]);
    assert_eq!(kafka.end_offsets(&topic).await, BTreeMap::from([(0, 1), (1, 1)]));
    assert_eq!(kafka.start_offsets(&topic).await, BTreeMap::from([(0, 0), (1, 0)]));
}

#[tokio::test]
async fn many_records_keep_their_order() {
    let kafka = kafka().await;
    let topic = kafka.topic("many", 1).await;
    let records = (0..20_000).map(|it: u32| Outgoing::new("k", it.to_string()));
    kafka.produce(&topic, records).await;
    let read = kafka.read_all(&topic).await;
    let read = read.iter().map(|it| String::from_utf8_lossy(it.payload.as_deref().unwrap()).into_owned());
    assert!(read.eq((0..20_000).map(|it: u32| it.to_string())));
}

#[tokio::test]
async fn a_group_is_seen_from_outside() {
    let kafka = kafka().await;
    let topic = kafka.topic("group", 2).await;
    kafka.produce(&topic, (0..10).map(|it| Outgoing::new("k", "v").partition(it % 2))).await;
    let group = unique("group");
    assert_eq!(kafka.committed_offsets(&group, &topic).await, BTreeMap::new());
    assert_eq!(kafka.lag(&group, &topic).await, 10);
    assert_eq!(kafka.group_members(&group).await, Vec::<String>::new());

    let mut config = kafka.client_config();
    config.set("group.id", &group).set("client.id", "it-is-me").set("enable.auto.commit", "false");
    let member: BaseConsumer = config.create().unwrap();
    member.subscribe(&[&topic]).unwrap();
    eventually("the member is assigned", LIMIT, async || {
        // Polling drives the client; 50 ms, because it blocks the runtime.
        let _ = member.poll(Duration::from_millis(50));
        member.assignment().unwrap().count() == 2
    })
    .await;
    assert_eq!(kafka.group_members(&group).await, ["it-is-me"]);
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, Offset::Offset(3)).unwrap();
    member.commit(&list, CommitMode::Sync).unwrap();
    assert_eq!(kafka.committed_offsets(&group, &topic).await, BTreeMap::from([(0, 3)]));
    assert_eq!(kafka.lag(&group, &topic).await, 7);
}

#[tokio::test]
async fn topics_have_the_settings_asked_for_and_can_be_deleted() {
    let kafka = kafka().await;
    let name = unique("small");
    kafka.create_exactly(&[(&name, 3)], &[("max.message.bytes", "200")]).await;
    assert_eq!(kafka.partitions(&name).await, 3);
    let (too_large, topic) = (vec![b'x'; 1000], name.clone());
    let refused = tokio::spawn(async move { kafka.produce(&topic, [Outgoing::new("k", too_large)]).await }).await;
    assert!(refused.is_err(), "the broker takes no record beyond its limit");
    kafka.delete_topics(&[&name]).await;
}

#[tokio::test]
async fn databases_are_migrated_separate_and_dropped() {
    let (one, two) = tokio::join!(TestDatabase::create(), TestDatabase::create());
    one.execute("INSERT INTO sekali.consumer (name) VALUES ('a')").await;
    assert_eq!(one.scalar::<i64>("SELECT count(*) FROM sekali.consumer").await, 1);
    assert_eq!(two.scalar::<i64>("SELECT count(*) FROM sekali.consumer").await, 0);
    let (name, server) = (one.name().to_owned(), one.server().clone());
    let still_open = one.connect().await;
    drop(one);
    let admin = server.admin().await;
    assert!(admin.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name]).await.unwrap().is_none());
    drop(still_open);
}

#[tokio::test]
async fn an_empty_database_has_no_schema() {
    let empty = TestDatabase::create_empty().await;
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'sekali'";
    assert_eq!(empty.scalar::<i64>(schemas).await, 0);
}

/// The two halves of "unknown commit outcome": the client sees the same error, the database does not agree.
#[tokio::test]
async fn a_commit_can_be_cut_before_and_after_the_server_has_it() {
    let database = TestDatabase::create().await;
    database.execute("CREATE TABLE note (text text)").await;
    let (host, port) = database.server().address();
    let proxy = Proxy::to(&format!("{host}:{port}")).await.unwrap();
    for (when, expected) in [(When::BeforeForwarding, 0_i64), (When::AfterForwarding, 1)] {
        let trap = proxy.cut_on(b"COMMIT", Direction::ToServer, when);
        let mut client = connect(&database.url_through(proxy.port())).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO note VALUES ('x')", &[]).await.unwrap();
        let error = transaction.commit().await.expect_err("the client cannot know");
        assert!(error.is_closed() || error.as_db_error().is_none(), "{error:?}");
        trap.sprung().await;
        let what = format!("{expected} rows after a cut {when:?}");
        eventually(&what, LIMIT, async || {
            let rows: i64 = database.scalar("SELECT count(*) FROM note").await;
            if rows == expected { Ok(()) } else { Err(format!("{rows} rows")) }
        })
        .await;
        // Until the server has noticed the cut, a row may still come.
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> \
                      pg_backend_pid() AND backend_type = 'client backend'";
        eventually("the cut connection is gone", LIMIT, async || database.scalar::<i64>(others).await == 0).await;
        assert_eq!(database.scalar::<i64>("SELECT count(*) FROM note").await, expected, "{when:?}");
    }
}

#[tokio::test]
async fn a_private_postgres_survives_its_kill_with_its_data() {
    if let Err(reason) = find_binaries() {
        skip!("{reason:#}");
    }
    let started = tokio::task::spawn_blocking(|| PrivatePostgres::start(Options::default())).await.unwrap();
    let mut server = started.unwrap();
    let database = TestDatabase::create_on(&Postgres::at(&server.url("postgres"))).await;
    database.execute("CREATE TABLE note (text text); INSERT INTO note VALUES ('kept')").await;
    let (url, port, pid) = (database.url(), server.port(), server.pid());
    let server = tokio::task::spawn_blocking(move || {
        server.kill().unwrap();
        assert_eq!(server.pid(), None);
        server
    });
    let mut server = server.await.unwrap();
    assert!(connect(&url).await.is_err());
    let server = tokio::task::spawn_blocking(move || {
        server.restart().unwrap();
        server
    });
    let server = server.await.unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(database.scalar::<String>("SELECT text FROM note").await, "kept");
    assert_eq!(database.scalar::<String>("SHOW fsync").await, "on");
    assert_eq!(database.scalar::<String>("SHOW max_connections").await, "200");
    let refused = connect(&url.replacen("//postgres:", "//postgres:x", 1)).await.expect_err("a password is required");
    let code = refused.downcast_ref::<tokio_postgres::Error>().and_then(|it| it.code());
    assert_eq!(code, Some(&SqlState::INVALID_PASSWORD), "{refused:?}");
}

/// The launcher is killed with SIGKILL, so that nothing in it can clean up: the kernel closes its pipe, and the shell
/// behind the pipe ends the server and deletes its directory.
#[tokio::test]
async fn a_private_server_does_not_outlive_a_killed_parent() {
    if let Err(reason) = find_binaries() {
        skip!("{reason:#}");
    }
    let mut launcher = Command::new(program("sekali-test-servers"))
        .args(["hold", "postgres"])
        .env("SEKALI_TEST_CONTAINERS", "never")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(launcher.stdout.take().unwrap());
    let url = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        line
    });
    let server = Postgres::at(url.await.unwrap().trim());
    let directory: String = server.admin().await.query_one("SHOW data_directory", &[]).await.unwrap().get(0);
    let directory = PathBuf::from(directory);
    assert!(directory.is_dir());

    launcher.kill().unwrap();
    launcher.wait().unwrap();
    eventually("the server is gone", LIMIT, async || connect(&server.url("postgres")).await.is_err()).await;
    eventually("its directory is gone", LIMIT, async || !Path::new(&directory).parent().unwrap().exists()).await;
}

#[tokio::test]
async fn a_broker_survives_its_kill_with_its_data() {
    let (mut broker, proxy) = match OwnBroker::start_proxied().await {
        Ok(started) => started,
        Err(reason) => skip!("{reason:#}"),
    };
    let topic = broker.kafka().topic("kept", 1).await;
    let behind = Kafka::at(&broker.proxied_bootstrap()).unwrap();
    behind.produce(&topic, [Outgoing::new("k", "v")]).await;
    assert!(proxy.counts().bytes_to_server > 0, "the second address leads through the proxy");

    broker.kill();
    broker.restart().await.unwrap();
    let records = broker.kafka().read_all(&topic).await;
    assert_eq!(records.len(), 1);
    assert_eq!(behind.read_all(&topic).await.len(), 1, "clients find it again");

    broker.freeze();
    let frozen = broker.kafka().clone();
    let asked = topic.clone();
    let mut answer = tokio::spawn(async move { frozen.end_offsets(&asked).await });
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut answer).await.is_err(), "a frozen broker is silent");
    broker.thaw();
    assert_eq!(answer.await.unwrap(), BTreeMap::from([(0, 1)]));
}

#[tokio::test]
async fn processes_can_be_watched_frozen_and_killed() {
    let script = "echo begin; exec sleep 60";
    let mut process = Program::at(Path::new("/bin/sh")).args(["-c", script]).env("SEKALI_X", "1").spawn();
    process.wait_for_output("begin", LIMIT).await;
    process.sigstop();
    let stat = format!("/proc/{}/stat", process.pid());
    let state = |wanted: &'static str| {
        let stat = stat.clone();
        move || std::fs::read_to_string(&stat).unwrap().split(") ").nth(1).unwrap().starts_with(wanted)
    };
    let stopped = state("T");
    eventually("the process is frozen", LIMIT, async || stopped()).await;
    process.sigcont();
    eventually("the process is thawed", LIMIT, async || !stopped()).await;
    assert!(process.is_running());
    process.sigkill().await;
    assert!(!process.is_running());

    let mut clean = Program::at(Path::new("/bin/sh")).args(["-c", "env; exit 3"]).spawn();
    assert_eq!(clean.wait(LIMIT).await.code(), Some(3));
    assert!(!clean.stdout().contains("SEKALI_TEST"), "the suite's own variables are kept from programs");
}
