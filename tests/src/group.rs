//! A consumer group of a test's own: topics, database, configuration, and members that run inside the test.

use std::collections::BTreeMap;
use std::time::Duration;

use sekali_consumer::{Config, Consumer, Effect, Error, Handler};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::harness::{Kafka, Outgoing, Process, Program, TestDatabase, eventually, kafka, target_dir, unique};
use crate::scripted::LEDGER;

/// Counts the rows of the outbox that the relay has not published: newer than the cursor's snapshot, and not in the part of
/// its window that is done.
pub const UNPUBLISHED: &str = "SELECT count(*) FROM sekali.outbox, sekali.outbox_cursor \
     WHERE NOT pg_visible_in_snapshot(xid, published) \
       AND (window_end IS NULL OR id > window_position OR NOT pg_visible_in_snapshot(xid, window_end))";
/// Longest wait for anything that should happen soon.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Shows the program's log when `RUST_LOG` asks for it.
fn log_lines() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_default_env() {
        // The first of the tests that run side by side sets it up for all.
        let _again = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    }
}

/// One group with its own topics and database.
pub struct Group {
    /// The shared broker.
    pub kafka: &'static Kafka,
    /// The group's database, with the tables of [`LEDGER`].
    pub database: TestDatabase,
    /// Its configuration; change it before starting members.
    pub config: Config,
    /// The source topic.
    pub topic: String,
}

/// A running member.
pub struct Member {
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), Error>>,
}

impl Group {
    /// Creates topics and database. `change` adapts the configuration before the topics are made from it.
    ///
    /// # Panics
    /// A server refuses, as in every function here.
    pub async fn new(label: &str, partitions: i32, change: impl FnOnce(&mut Config)) -> Group {
        let kafka = kafka().await;
        Group::on(kafka, kafka.bootstrap(), label, partitions, change).await
    }

    /// The same on a broker of the test's own; the group's members reach it as `brokers`.
    pub async fn on(
        kafka: &'static Kafka,
        brokers: &str,
        label: &str,
        partitions: i32,
        change: impl FnOnce(&mut Config),
    ) -> Group {
        Group::with_database(kafka, brokers, TestDatabase::create().await, label, partitions, change).await
    }

    /// The same with a database that is there already.
    pub async fn with_database(
        kafka: &'static Kafka,
        brokers: &str,
        database: TestDatabase,
        label: &str,
        partitions: i32,
        change: impl FnOnce(&mut Config),
    ) -> Group {
        log_lines();
        database.execute(LEDGER).await;
        let topic = unique(label);
        let config = Group::configure(brokers, &database.url(), &topic, change);
        let group = Group { kafka, database, config, topic };
        group.create_topics(partitions).await;
        group
    }

    /// A configuration for tests: short times, no admin port.
    pub fn configure(brokers: &str, url: &str, topic: &str, change: impl FnOnce(&mut Config)) -> Config {
        let text = format!(
            "[kafka]\nbrokers = \"{brokers}\"\n[postgres]\nurl = \"{url}\"\n\
             [consumer]\ngroup = \"{topic}-group\"\ntopics = [\"{topic}\"]\nsession_timeout = \"6s\"\ndrain_timeout = \"10s\"\n\
             [retry]\ndelays = [\"300ms\", \"900ms\"]\n[admin]\nlisten = \"none\"\n"
        );
        let mut config = Config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.chain()));
        if let Ok(facilities) = std::env::var("SEKALI_TEST_KAFKA_DEBUG") {
            config.kafka.properties.insert("debug".to_owned(), facilities);
        }
        change(&mut config);
        config
    }

    async fn create_topics(&self, partitions: i32) {
        let topics = self.config.group_topics().expect("the test's topics are legal");
        let mut names = Vec::new();
        for source in &topics.topics {
            names.push(source.source.as_str());
            names.push(source.dlq.as_str());
            names.extend(source.retry.iter().map(|it| it.1.as_str()));
        }
        let topics: Vec<(&str, i32)> = names.iter().map(|it| (*it, partitions)).collect();
        self.kafka.create_exactly(&topics, &[]).await;
    }

    /// Name of the group.
    pub fn name(&self) -> &str {
        &self.config.consumer.group
    }

    /// Name of the dead-letter topic.
    pub fn dlq(&self) -> String {
        self.config.group_topics().expect("the test's topics are legal").topics[0].dlq.clone()
    }

    /// Names of the retry topics, shortest delay first.
    pub fn retry_topics(&self) -> Vec<String> {
        let topics = self.config.group_topics().expect("the test's topics are legal");
        topics.topics[0].retry.iter().map(|it| it.1.clone()).collect()
    }

    /// Starts a member.
    pub async fn start(&self, handler: impl Handler) -> Member {
        let consumer = Consumer::connect(self.config.clone(), handler).await;
        let consumer = consumer.unwrap_or_else(|error| panic!("the consumer does not start: {}", error.chain()));
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(consumer.run(async {
            let _dropped = stopped.await;
        }));
        Member { stop: Some(stop), running }
    }

    /// Starts a member with an effect.
    pub async fn start_effect(&self, effect: impl Effect) -> Member {
        let consumer = Consumer::connect_effect(self.config.clone(), effect).await;
        let consumer = consumer.unwrap_or_else(|error| panic!("the consumer does not start: {}", error.chain()));
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(consumer.run(async {
            let _dropped = stopped.await;
        }));
        Member { stop: Some(stop), running }
    }

    /// Starts a member with the effect of [`crate::performing`], as a process of its own.
    pub fn start_effect_process(&self) -> Process {
        member_program(&self.config, &self.database.url()).env("SEKALI_TEST_EFFECT", self.database.url()).spawn()
    }

    /// Starts a member as a process of its own.
    pub fn start_process(&self) -> Process {
        member_process(&self.config, &self.database)
    }

    /// Writes records to the source topic.
    pub async fn produce(&self, records: impl IntoIterator<Item = Outgoing>) {
        self.kafka.produce(&self.topic, records).await;
    }

    /// Waits until nothing of source and retry topics is unread and nothing waits in the outbox.
    pub async fn settled(&self) {
        self.settled_within(LIMIT).await;
    }

    /// As [`Group::settled`], for much work.
    pub async fn settled_within(&self, limit: Duration) {
        eventually("everything is decided and committed", limit, async || {
            let mut lag = BTreeMap::new();
            for topic in std::iter::once(&self.topic).chain(&self.retry_topics()) {
                lag.insert(topic.clone(), self.kafka.lag(self.name(), topic).await);
            }
            // In this order: what was read by then shows here until it is done.
            let (waiting, held, outbox) = self.pending().await;
            if waiting + held + outbox == 0 && lag.values().all(|it| *it == 0) {
                Ok(())
            } else {
                Err(format!("{waiting} wait for a retry, {held} are held, {outbox} in the outbox, lag {lag:?}"))
            }
        })
        .await;
    }

    /// What is on its way: attempts that somebody must still make, messages that wait behind one that is not dead, and
    /// rows of the outbox that are not published.
    async fn pending(&self) -> (i64, i64, i64) {
        const WAITING: &str = "SELECT count(*) FROM sekali.inbox WHERE state = 2";
        const HELD: &str = "SELECT count(*) FROM sekali.held_message AS it \
             JOIN sekali.held_key AS hold USING (consumer_id, topic, resource_key) LEFT JOIN sekali.inbox AS head \
             ON head.consumer_id = hold.consumer_id AND head.key = hold.head WHERE head.state IS DISTINCT FROM 4";
        (self.database.scalar(WAITING).await, self.database.scalar(HELD).await, self.database.scalar(UNPUBLISHED).await)
    }

    /// The effects: key text to how often.
    pub async fn effects(&self) -> BTreeMap<String, i64> {
        let client = self.database.connect().await;
        let rows =
            client.query("SELECT key_text, count(*) FROM effect GROUP BY 1", &[]).await.expect("the ledger is there");
        rows.iter().map(|it| (it.get(0), it.get(1))).collect()
    }

    /// Places of the effects of each resource key, in the order in which they were written: keys are the part of the
    /// idempotency key before the first colon, places the number behind it.
    pub async fn order(&self) -> BTreeMap<String, Vec<i64>> {
        const SQL: &str =
            "SELECT split_part(key_text, ':', 1), split_part(key_text, ':', 2)::bigint FROM effect ORDER BY nr";
        let rows = self.database.connect().await.query(SQL, &[]).await.expect("the ledger is there");
        let mut order: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for row in rows {
            order.entry(row.get(0)).or_default().push(row.get(1));
        }
        order
    }

    /// Keys and messages that are held.
    pub async fn held(&self) -> (i64, i64) {
        let count = async |table: &str| self.database.scalar(&format!("SELECT count(*) FROM sekali.{table}")).await;
        (count("held_key").await, count("held_message").await)
    }

    /// The dead letters: key text (or `-`), reason, class, attempts.
    pub async fn dead_letters(&self) -> Vec<(String, String, String, i16)> {
        const SQL: &str =
            "SELECT coalesce(key_text, '-'), reason, class, attempts FROM sekali.dead_letter ORDER BY 1, 2";
        let rows = self.database.connect().await.query(SQL, &[]).await.expect("the table is there");
        rows.iter().map(|it| (it.get(0), it.get(1), it.get(2), it.get(3))).collect()
    }
}

/// A member as a process of its own, with the handler of [`crate::scripted`].
///
/// # Panics
/// The program was not built, or the target directory cannot be written.
pub fn member_process(config: &Config, database: &TestDatabase) -> Process {
    member_process_at(config, &database.url())
}

/// The same with another URL of the database.
///
/// # Panics
/// As [`member_process`].
pub fn member_process_at(config: &Config, url: &str) -> Process {
    member_program(config, url).spawn()
}

fn member_program(config: &Config, url: &str) -> Program {
    let path = target_dir().join("test-logs").join(format!("{}.toml", unique("member")));
    std::fs::create_dir_all(path.parent().expect("it has a directory")).expect("the directory can be made");
    std::fs::write(&path, config.print()).expect("the configuration can be written");
    let member = Program::of_workspace("sekali-test-member").arg(&path);
    member.env("SEKALI_POSTGRES__URL", url)
}

impl Member {
    /// Asks it to stop and waits until it has.
    pub async fn stop(mut self) -> Result<(), Error> {
        if let Some(stop) = self.stop.take() {
            let _ended_already = stop.send(());
        }
        let ended = tokio::time::timeout(LIMIT, &mut self.running).await;
        ended.expect("the consumer stops in time").expect("the consumer does not panic")
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        !self.running.is_finished()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.running.abort();
    }
}
