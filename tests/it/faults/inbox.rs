//! Decisions, their scope, and transactions that meet.

use std::time::Duration;

use sekali_consumer::{Config, Failure, Handler, Message, Reply, Transaction};
use sekali_tests::group::{Group, LIMIT, Member};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::scripted::Scripted;
use serde_json::Value;

use super::bench::{commit, make_topics_for, scripted, took_effect_once};

/// IDM-01: as after a kill between the commits of database and offset.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_were_decided_and_not_committed_come_back_as_duplicates() {
    let group = Group::new("uncommitted", 2, |_| {}).await;
    let records = || (0..60).map(|it| scripted(&format!("m-{it}"), "ok").partition(it % 2));
    // The same key twice in a row, too.
    group.produce(records().flat_map(|it| [it.clone(), it])).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    commit(&group, &group.topic, &[(0, 0), (1, 7)]).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce([scripted("new", "ok")]).await;
    group.settled().await;
    member.stop().await.unwrap();
    for it in 0..60 {
        assert!(handler.seen(&format!("m-{it}")).is_empty(), "m-{it} was handled again");
    }
    took_effect_once(&group, 61).await;
    for topic in group.retry_topics().into_iter().chain([group.dlq()]) {
        assert!(group.kafka.end_offsets(&topic).await.values().all(|it| *it == 0), "{topic}");
    }
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM sekali.inbox WHERE state <> 1").await, 0);
}

/// Another group on the database and the source topic of one.
async fn beside(first: &Group, label: &str, change: impl FnOnce(&mut Config)) -> Group {
    let mut second = Group::new(label, 1, change).await;
    second.config.postgres.url = Some(first.database.url().into());
    second.config.consumer.topics = vec![first.topic.clone()];
    make_topics_for(&second, 0).await;
    second
}

/// Waits until both have read all, and stops their members.
async fn both_ended(first: &Group, second: &Group, members: [Member; 2]) {
    first.settled().await;
    eventually("the other group has caught up", LIMIT, async || {
        first.kafka.lag(second.name(), &first.topic).await == 0
    })
    .await;
    for member in members {
        member.stop().await.unwrap();
    }
}

/// Does well whatever the script says.
struct Content(Scripted);

impl Handler for Content {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let key = message.idempotency_key();
        let sql = "INSERT INTO content (key_text) VALUES ($1)";
        tx.execute_cached(sql, &[&key.as_str()]).await?;
        // Noted as seen, with its script silenced.
        drop(self.0.seen(key.as_str()));
        Ok(Reply::done())
    }
}

/// IDM-02: every statement on the inbox knows whose row it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_a_key_in_one_group_means_nothing_to_another() {
    let first = Group::new("whose", 1, |_| {}).await;
    let second = beside(&first, "whose-too", |_| {}).await;
    first.database.execute("CREATE TABLE content (key_text text)").await;
    for (id, script) in [
        ("ok", "ok"),
        ("later", "transient=1"),
        ("result", "result"),
        ("exhausted", "transient"),
        ("dies", "permanent"),
        ("rejected", "reject=1"),
    ] {
        first.produce([scripted(id, script)]).await;
    }
    let members = [first.start(Scripted::default()).await, second.start(Content(Scripted::default())).await];
    both_ended(&first, &second, members).await;
    took_effect_once(&first, 4).await;
    let content = "SELECT count(DISTINCT key_text) * 100 + count(*) FROM content";
    assert_eq!(first.database.scalar::<i64>(content).await, 606, "six, each once");
    let states = "SELECT string_agg(name || ' ' || state || ' ' || count, ', ' ORDER BY name, state) FROM (SELECT \
         CASE WHEN name LIKE 'whose-too%' THEN 'second' ELSE 'first' END AS name, state, count(*) FROM sekali.inbox \
         JOIN sekali.consumer ON consumer.id = consumer_id GROUP BY 1, 2) AS it";
    assert_eq!(first.database.scalar::<String>(states).await, "first 1 4, first 4 2, second 1 6");
}

/// IDM-02: as a zombie beside its successor, on every batch. Whatever a claim expects of its keys, somebody else may be
/// inserting them at this moment, and none is handled again.
#[tokio::test(flavor = "multi_thread")]
async fn two_groups_that_race_for_one_inbox_decide_each_key_once() {
    const COUNT: usize = 300;
    let small = |config: &mut Config| config.consumer.batch_messages_max = 7.try_into().unwrap();
    let first = Group::new("race", 1, small).await;
    let second = beside(&first, "race-too", |config| {
        small(config);
        config.consumer.name = Some(first.config.consumer_name().to_owned());
    })
    .await;
    // Those that come again, at once and later, make claims expect known keys for a while.
    let ids = (0..COUNT).flat_map(|it| [it, it / 2 + it % 2]);
    first.produce(ids.map(|it| scripted(&format!("m-{it}"), "slow=2"))).await;
    let members = [first.start(Scripted::default()).await, second.start(Scripted::default()).await];
    both_ended(&first, &second, members).await;
    took_effect_once(&first, COUNT).await;
    let decided = "SELECT count(*) FROM sekali.inbox WHERE state = 1 AND attempt = 1";
    assert_eq!(first.database.scalar::<i64>(decided).await, COUNT as i64);
    assert!(first.dead_letters().await.is_empty());
}

/// IDM-02: within a consumer a key is one business action, whatever topic brings it.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_on_two_topics_of_a_group_is_one_message() {
    let mut group = Group::new("two-topics", 1, |_| {}).await;
    let other = Group::new("two-topics-b", 1, |_| {}).await;
    group.config.consumer.topics.push(other.topic.clone());
    make_topics_for(&group, 1).await;
    group.produce([scripted("same", "ok"), scripted("a", "ok")]).await;
    group.kafka.produce(&other.topic, [scripted("same", "ok"), scripted("b", "ok")]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    eventually("the other topic is read", LIMIT, async || group.kafka.lag(group.name(), &other.topic).await == 0).await;
    member.stop().await.unwrap();
    took_effect_once(&group, 3).await;
}

/// Puts what it gets where PostgreSQL takes no U+0000.
struct Storing;

impl Handler for Storing {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let place = message.headers().text("place").unwrap_or_default();
        let value: Value = message.json()?;
        let text = value["text"].as_str().unwrap_or_default();
        match place {
            "result" => return Ok(Reply::stored(value)),
            "jsonb" => drop(tx.execute_cached("INSERT INTO stored (body) VALUES ($1)", &[&value]).await?),
            "text" => drop(tx.execute_cached("INSERT INTO stored (line) VALUES ($1)", &[&text]).await?),
            "error" => return Err(Failure::permanent(format!("refused: {text}")).with_code(text)),
            _ => {}
        }
        Ok(Reply::done())
    }
}

/// IDM-05.
#[tokio::test(flavor = "multi_thread")]
async fn text_with_a_nul_never_leaves_a_message_in_between() {
    let group = Group::new("nul-everywhere", 1, |_| {}).await;
    group.database.execute("CREATE TABLE stored (body jsonb, line text)").await;
    let nul = "{\"text\":\"a\\u0000b\"}";
    let at =
        |place: &'static str, payload: &'static str| Outgoing::new("k\0", payload).id(place).header("place", place);
    group
        .produce([
            at("result", nul),
            at("jsonb", nul),
            at("text", nul),
            at("error", nul),
            at("lone surrogate", "{\"text\":\"\\ud800\"}"),
            at("bytes", "{\"text\":\"\u{0}\"}").header("raw", vec![0_u8, 0xFF]),
            at("behind them", "{}"),
        ])
        .await;
    let member = group.start(Storing).await;
    group.settled().await;
    member.stop().await.unwrap();
    let dead = group.dead_letters().await;
    let keys: Vec<(&str, i16)> = dead.iter().map(|it| (it.0.as_str(), it.3)).collect();
    assert_eq!(
        keys,
        [("bytes", 1), ("error", 1), ("jsonb", 1), ("lone surrogate", 1), ("result", 1), ("text", 1)],
        "dead at the first attempt: {dead:?}"
    );
    let between = "SELECT count(*) FROM sekali.inbox WHERE state NOT IN (1, 4)";
    assert_eq!(group.database.scalar::<i64>(between).await, 0);
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM sekali.inbox WHERE state = 1").await, 1);
    assert_eq!(group.kafka.read_all(&group.dlq()).await.len(), 6);
}

/// Inserts a row that may be there, and another one.
struct Insisting;

impl Handler for Insisting {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let taken = tx.savepoint(tx.execute_cached("INSERT INTO taken VALUES (1)", &[])).await?;
        assert!(taken.is_err(), "it is there");
        let text = message.idempotency_key().as_str();
        tx.execute_cached("INSERT INTO content (key_text) VALUES ($1)", &[&text]).await?;
        Ok(Reply::done())
    }
}

/// IDM-07.
#[tokio::test(flavor = "multi_thread")]
async fn under_a_savepoint_a_violated_constraint_costs_only_its_statement() {
    let group = Group::new("savepoint", 1, |_| {}).await;
    group.database.execute("CREATE TABLE content (key_text text)").await;
    group.produce((0..20).map(|it| scripted(&format!("m-{it}"), "ok"))).await;
    let member = group.start(Insisting).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM content").await, 20);
    assert!(group.dead_letters().await.is_empty());
}

/// Moves money between two accounts, in the order that the message says.
struct Transfer;

impl Handler for Transfer {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        // Found soon: one second is PostgreSQL's own.
        tx.batch_execute("SET LOCAL deadlock_timeout = '30ms'").await?;
        let order = message.headers().text("order").unwrap_or_default().to_owned();
        for account in order.split(',') {
            let sql = "UPDATE account SET balance = balance + 1 WHERE id = $1";
            tx.execute_cached(sql, &[&account]).await?;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        Ok(Reply::done())
    }
}

/// IDM-08.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_deadlock_are_run_again_and_burn_no_attempt() {
    const EACH: i32 = 60;
    let group = Group::new("deadlock", 2, |config| config.consumer.batch_messages_max = 5.try_into().unwrap()).await;
    group
        .database
        .execute(
            "CREATE TABLE account (id text PRIMARY KEY, balance int); INSERT INTO account VALUES ('a', 0), ('b', 0)",
        )
        .await;
    let record = |it: i32| {
        let order = if it % 2 == 0 { "a,b" } else { "b,a" };
        scripted(&format!("m-{it}"), "ok").header("order", order).partition(it % 2)
    };
    group.produce((0..2 * EACH).map(record)).await;
    let member = group.start(Transfer).await;
    group.settled().await;
    member.stop().await.unwrap();
    let balance = "SELECT string_agg(id || balance, ' ' ORDER BY id) FROM account";
    assert_eq!(group.database.scalar::<String>(balance).await, format!("a{0} b{0}", 2 * EACH));
    let burned = "SELECT count(*) FROM sekali.inbox WHERE state <> 1 OR attempt <> 1";
    assert_eq!(group.database.scalar::<i64>(burned).await, 0);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    eventually("there were deadlocks", LIMIT, async || 0 < group.database.scalar::<i64>(deadlocks).await).await;
}
