//! What the inbox forgets, when, and what it never may.

use rdkafka::mocking::MockCluster;
use sekali_consumer::schemas::{IdempotencyKey, fingerprint};
use sekali_consumer::{Consumer, ErrorKind};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, TestDatabase, eventually, unique};
use sekali_tests::scripted::{SCRIPT, Scripted};

const NINE_DAYS_MS: i64 = 9 * 24 * 3600 * 1000;

async fn group(label: &str) -> Group {
    Group::new(label, 2, |config| {
        config.kafka.properties.insert("statistics.interval.ms".to_owned(), "200".to_owned());
        config.consumer.batch_messages_max = 10.try_into().unwrap();
    })
    .await
}

/// Number of the group's consumer; registered as the first start does it.
async fn consumer_id(group: &Group) -> i16 {
    let sql = format!("INSERT INTO sekali.consumer (name) VALUES ('{}') RETURNING id", group.name());
    group.database.scalar(&sql).await
}

/// Every partition that the group reads was last caught up so many days ago.
async fn caught_up(group: &Group, consumer: i16, days: u32) {
    for topic in std::iter::once(&group.topic).chain(&group.retry_topics()) {
        let sql = format!(
            "INSERT INTO sekali.progress SELECT {consumer}, '{topic}', number, 0, now() - interval '{days} days' \
             FROM generate_series(0, 1) AS number"
        );
        group.database.execute(&sql).await;
    }
}

/// Notes each delete with its number of rows.
async fn count_deletes(database: &TestDatabase) {
    let sql = "CREATE TABLE purge_run (xid xid8, rows bigint); \
         CREATE FUNCTION note_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO purge_run SELECT pg_current_xact_id(), count(*) FROM gone; RETURN NULL; END $$; \
         CREATE TRIGGER note_run AFTER DELETE ON sekali.inbox REFERENCING OLD TABLE AS gone \
         FOR EACH STATEMENT EXECUTE FUNCTION note_run()";
    database.execute(sql).await;
}

async fn old_rows(database: &TestDatabase, consumer: i16, count: u32) {
    let sql = format!(
        "INSERT INTO sekali.inbox (key, fingerprint, decided_at, consumer_id, state, attempt) \
         SELECT gen_random_uuid(), 0, now() - interval '10 days', {consumer}, 1, 1 FROM generate_series(1, {count})"
    );
    database.execute(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_finished_decisions_of_an_idle_group_are_forgotten_in_small_runs_and_nothing_else() {
    let group = group("purge").await;
    let (consumer, database) = (consumer_id(&group).await, &group.database);
    // Nothing to commit for weeks.
    caught_up(&group, consumer, 30).await;
    let cases = "CREATE TABLE expected (key uuid PRIMARY KEY DEFAULT gen_random_uuid(), consumer int, state int, \
         age interval, letter text, stays bool); \
         INSERT INTO expected (consumer, state, age, letter, stays) \
         SELECT $C, state, age, NULL, state IN (2, 3, 6) OR age < interval '9 days' \
         FROM generate_series(1, 6) AS state, (VALUES (interval '10 days'), (interval '8 days 23 hours')) AS ages (age) \
         WHERE state <> 4; \
         INSERT INTO expected (consumer, state, age, letter, stays) \
         SELECT $C, 4, interval '10 days', letter, letter IN ('open', 'replaying') \
         FROM unnest(ARRAY['open', 'replaying', 'resolved', 'discarded']) AS letter; \
         INSERT INTO expected (consumer, state, age, stays) VALUES ($C + 1, 1, interval '10 days', true); \
         INSERT INTO sekali.inbox (key, fingerprint, decided_at, consumer_id, state, attempt) \
         SELECT key, 0, now() - age, consumer, state, 1 FROM expected; \
         INSERT INTO sekali.dead_letter (id, consumer_id, key, state, reason, class, code, message, attempts, \
         origin_topic, origin_partition, origin_offset, header_names, header_values, group_fingerprint, first_failed_at) \
         SELECT gen_random_uuid(), consumer, key, letter, 'permanent', 'permanent', '', '', 1, 't', 0, 0, '{}', '{}', 0, \
         now() FROM expected WHERE letter IS NOT NULL";
    database.execute(&cases.replace("$C", &consumer.to_string())).await;
    old_rows(database, consumer, 12_000).await;
    count_deletes(database).await;

    let member = group.start(Scripted::default()).await;
    let wrong = "SELECT count(*) FROM (SELECT key FROM sekali.inbox) AS row FULL JOIN (SELECT key FROM expected WHERE stays) \
         AS kept ON row.key = kept.key WHERE row.key IS NULL OR kept.key IS NULL";
    eventually("what may go has gone", LIMIT, async || {
        let wrong = database.scalar::<i64>(wrong).await;
        if wrong == 0 { Ok(()) } else { Err(format!("{wrong} rows too many or too few")) }
    })
    .await;
    member.stop().await.unwrap();

    let runs = "SELECT count(DISTINCT xid) FROM purge_run WHERE rows > 0";
    assert!(3 <= database.scalar::<i64>(runs).await, "small transactions");
    let largest: i64 = database.scalar("SELECT max(rows) FROM purge_run").await;
    assert!(largest <= 6_000, "{largest} rows in one transaction");
    let locks: i64 = database.scalar("SELECT count(*) FROM sekali.lock WHERE name LIKE 'purge%'").await;
    assert_eq!(locks, 0, "who stops gives the lease back");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_ten_days_of_downtime_nothing_that_kafka_may_deliver_again_is_forgotten() {
    const DECIDED: usize = 200;
    let group = group("downtime").await;
    let (consumer, database) = (consumer_id(&group).await, &group.database);
    // A process decided two hundred messages, was killed before it could commit their offsets, and nobody came for ten
    // days. One message in the middle is undecided, and slow: behind it the group commits, but is not caught up.
    caught_up(&group, consumer, 10).await;
    let record = |id: &str| Outgoing::new("k", "{}").id(id).partition(0);
    let blocker = record("blocker").header(SCRIPT, "slow=9000");
    let mut records: Vec<Outgoing> = (0..DECIDED).map(|it| record(&format!("m-{it}"))).collect();
    records.insert(50, blocker);
    group.produce(records).await;
    let client = database.connect().await;
    let insert = "INSERT INTO sekali.inbox (key, fingerprint, decided_at, consumer_id, state, attempt) \
         VALUES ($1, $2, now() - interval '10 days', $3, 1, 1)";
    for it in 0..DECIDED {
        let key = IdempotencyKey::new(format!("m-{it}")).unwrap().uuid();
        client.execute(insert, &[&key, &fingerprint(Some(b"{}")), &consumer]).await.unwrap();
    }
    // On the group's clock, this one is ten days older than the retention allows.
    database
        .execute(&format!(
            "INSERT INTO sekali.inbox (key, fingerprint, decided_at, consumer_id, state, attempt) \
             VALUES ('00000000-0000-0000-0000-000000000001', 0, now() - interval '20 days', {consumer}, 1, 1)"
        ))
        .await;

    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    let oldest = "SELECT count(*) FROM sekali.inbox WHERE key = '00000000-0000-0000-0000-000000000001'";
    eventually("the purge has run", LIMIT, async || database.scalar::<i64>(oldest).await == 0).await;
    let noted = format!("SELECT max(position) FROM sekali.progress WHERE topic = '{}'", group.topic);
    eventually("a part is committed and noted", LIMIT, async || 50 <= database.scalar::<i64>(&noted).await).await;
    let renewed = "SELECT until::text FROM sekali.lock WHERE name LIKE 'purge:%'";
    for _round in 0..2 {
        let before: String = database.scalar(renewed).await;
        eventually("the purge looks again", LIMIT, async || database.scalar::<String>(renewed).await != before).await;
    }
    assert!(group.effects().await.is_empty(), "the group is not caught up");
    group.settled().await;
    assert_eq!(group.effects().await, [("blocker".to_owned(), 1)].into(), "nothing else ran again");
    // Caught up: what is committed may go.
    let rows = "SELECT count(*) FROM sekali.inbox";
    eventually("the clock goes on", LIMIT, async || database.scalar::<i64>(rows).await == 1).await;
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_sweep_once() {
    let group = group("sweep-once").await;
    let (consumer, database) = (consumer_id(&group).await, &group.database);
    caught_up(&group, consumer, 0).await;
    old_rows(database, consumer, 20_000).await;
    let pages: i64 = database.scalar("SELECT pg_relation_size('sekali.inbox') / 8192").await;
    count_deletes(database).await;
    let members = [group.start(Scripted::default()).await, group.start(Scripted::default()).await];
    eventually("the old rows have gone", LIMIT, async || {
        database.scalar::<i64>("SELECT count(*) FROM sekali.inbox").await == 0
    })
    .await;
    let owner = "SELECT owner::text FROM sekali.lock WHERE name LIKE 'purge:%'";
    let leader: String = database.scalar(owner).await;
    // Both look every two seconds.
    let renewed = "SELECT (until - interval '57 s' > now() AND acquired_at < now() - interval '5 s') \
         FROM sekali.lock WHERE name LIKE 'purge:%'";
    eventually("the leader goes on", LIMIT, async || database.scalar::<bool>(renewed).await).await;
    assert_eq!(database.scalar::<String>(owner).await, leader);
    let runs: i64 = database.scalar("SELECT count(*) FROM purge_run").await;
    assert!(runs <= pages / 48 + 1, "{runs} runs over {pages} pages");
    for member in members {
        member.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_outlives_the_inbox_is_refused_at_start() {
    let mut group = group("outlive").await;
    let refused = async |config: &sekali_consumer::Config| {
        let error = Consumer::connect(config.clone(), Scripted::default()).await.err().expect("it must not start");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.chain()
    };
    // Less than the retention, but not by the retry path: an hour of contention and the delays.
    other_source(&mut group, &(NINE_DAYS_MS - 1000).to_string()).await;
    let text = refused(&group.config).await;
    for part in ["inbox.retention is 9days", "8days 23h 59m 59s", &group.topic, "raise inbox.retention", "retry path"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    group.config.inbox.retention = Some(std::time::Duration::from_secs(10 * 24 * 3600));
    Consumer::connect(group.config.clone(), Scripted::default()).await.unwrap();

    other_source(&mut group, "-1").await;
    let text = refused(&group.config).await;
    for part in ["for ever", "10days", &group.topic, "inbox.retention = \"forever\""] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    group.config.inbox.retention = None;
    Consumer::connect(group.config.clone(), Scripted::default()).await.unwrap();
}

/// Makes the group read another topic, which keeps its records for so long.
async fn other_source(group: &mut Group, retention_ms: &str) {
    group.topic = unique("outlive");
    group.config.consumer.topics = vec![group.topic.clone()];
    let names = group.config.group_topics().unwrap();
    let own: Vec<(&str, i32)> = names.topics[0].retry.iter().map(|it| (it.1.as_str(), 2)).collect();
    group.kafka.create_exactly(&own, &[]).await;
    group.kafka.create_exactly(&[(&names.topics[0].dlq, 2)], &[]).await;
    group.kafka.create_exactly(&[(&group.topic, 2)], &[("retention.ms", retention_ms)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_forgets_nothing_needs_no_look_at_the_topics() {
    let cluster = MockCluster::new(1).unwrap();
    let database = TestDatabase::create().await;
    let topic = unique("mock");
    // It knows no settings of topics.
    let config =
        Group::configure(&cluster.bootstrap_servers(), &database.url(), &topic, |it| it.inbox.retention = None);
    for name in
        config.group_topics().unwrap().topics.iter().flat_map(|it| {
            [it.source.clone(), it.dlq.clone()].into_iter().chain(it.retry.iter().map(|it| it.1.clone()))
        })
    {
        cluster.create_topic(&name, 1, 1).unwrap();
    }
    Consumer::connect(config, Scripted::default()).await.unwrap();
}
