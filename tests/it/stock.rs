//! The main job as its users run it: the programs, real data, duplicates, a killed worker and a restarted one. The
//! oracle is the ledger against sums that no code of the product computed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sekali_consumer::Config;
use sekali_schemas::IdempotencyKey;
use sekali_tests::events::{Events, events};
use sekali_tests::group::Group;
use sekali_tests::harness::{Kafka, Outgoing, Process, Program, TestDatabase, eventually, kafka, unique};
use sekali_worker::stock::{Stock, StockMode, create_tables};
use uuid::Uuid;

const PARTITIONS: i32 = 12;
const LIMIT: Duration = Duration::from_secs(300);

struct Run {
    kafka: &'static Kafka,
    database: Arc<TestDatabase>,
    directory: tempfile::TempDir,
    topic: String,
    group: String,
}

impl Run {
    async fn new() -> Run {
        let run = Run {
            kafka: kafka().await,
            database: Arc::new(TestDatabase::create_empty().await),
            directory: tempfile::tempdir().unwrap(),
            topic: unique("retail"),
            group: unique("stock"),
        };
        let config = format!(
            "[kafka]\nbrokers = \"{}\"\n[postgres]\nurl = \"{}\"\n[consumer]\ngroup = \"{}\"\ntopics = [\"{}\"]\n\
             session_timeout = \"6s\"\n[topics]\npartitions = {PARTITIONS}\n[admin]\nlisten = \"none\"\n",
            run.kafka.bootstrap(),
            run.database.url(),
            run.group,
            run.topic
        );
        std::fs::write(run.directory.path().join("sekali.toml"), config).unwrap();
        run
    }

    fn program(&self, name: &str, arguments: &[&str]) -> Process {
        let config = self.directory.path().join("sekali.toml");
        Program::of_workspace(name).arg("--config").arg(config).args(arguments).spawn()
    }

    async fn sekali(&self, arguments: &[&str]) -> String {
        let mut process = self.program("sekali", arguments);
        let status = process.wait(LIMIT).await;
        assert!(status.success(), "sekali {arguments:?}: {status}: {}", process.stderr());
        process.stdout()
    }

    fn worker(&self) -> Process {
        self.program("sekali-worker", &["stock", "--create-tables"])
    }

    async fn in_ledger(&self) -> usize {
        let there: bool = self.database.scalar("SELECT to_regclass('stock_movement') IS NOT NULL").await;
        if !there {
            return 0;
        }
        let count: i64 = self.database.scalar("SELECT count(*) FROM stock_movement").await;
        count as usize
    }

    async fn ledger_reaches(&self, count: usize) {
        eventually("the ledger grows", LIMIT, async || {
            let found = self.in_ledger().await;
            if count <= found { Ok(()) } else { Err(format!("{found} of {count}")) }
        })
        .await;
    }
}

/// Samples the committed offsets from outside: none may pass an undecided record. Returns how many samples it took.
async fn watch_offsets(
    kafka: &'static Kafka,
    database: Arc<TestDatabase>,
    topic: String,
    group: String,
    keys: BTreeMap<i32, Vec<Uuid>>,
    stop: Arc<AtomicBool>,
) -> Result<u64, String> {
    let client = database.connect().await;
    let mut checked: BTreeMap<i32, usize> = BTreeMap::new();
    let samples = AtomicU64::new(0);
    while !stop.load(Ordering::Relaxed) {
        for (partition, committed) in kafka.committed_offsets(&group, &topic).await {
            let Some(keys) = keys.get(&partition) else { continue };
            let from = checked.insert(partition, committed as usize).unwrap_or_default();
            let to = committed as usize;
            if to < from {
                return Err(format!("the committed offset of partition {partition} went back from {from} to {to}"));
            }
            let passed: Vec<Uuid> =
                keys[from..to.min(keys.len())].iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            let sql = "SELECT count(*) FROM sekali.inbox WHERE key = ANY($1)";
            let decided: i64 = client.query_one(sql, &[&passed]).await.map_err(|error| error.to_string())?.get(0);
            if decided as usize != passed.len() {
                return Err(format!(
                    "offset {committed} of partition {partition} passes {} undecided records",
                    passed.len() - decided as usize
                ));
            }
        }
        samples.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(samples.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_movement_counts_once_though_records_come_twice_and_workers_die() {
    let run = Run::new().await;
    let Events { file, count, sums, origin } = events(run.directory.path());
    let file = file.to_string_lossy().into_owned();
    run.sekali(&["migrate"]).await;
    run.sekali(&["topics", "apply"]).await;
    let tenth = (count / 10).to_string();
    run.sekali(&["produce", &file, "--topic", &run.topic]).await;
    run.sekali(&["produce", &file, "--topic", &run.topic, "--limit", &tenth]).await;

    // What lies where, read by the bench; the identity is the record's own header.
    let mut keys: BTreeMap<i32, Vec<Uuid>> = BTreeMap::new();
    for record in run.kafka.read_all(&run.topic).await {
        let id = record.headers.text("idempotency-key").expect("a key in the headers");
        let of_partition = keys.entry(record.partition).or_default();
        assert_eq!(of_partition.len() as i64, record.offset, "no holes in this topic");
        of_partition.push(IdempotencyKey::new(id).unwrap().uuid());
    }
    let produced: usize = keys.values().map(Vec::len).sum();
    assert_eq!(produced, count + count / 10);

    let stop = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn(watch_offsets(
        run.kafka,
        run.database.clone(),
        run.topic.clone(),
        run.group.clone(),
        keys,
        stop.clone(),
    ));
    let (mut killed, mut restarted) = (run.worker(), run.worker());
    run.ledger_reaches(count / 5).await;
    killed.sigkill().await;
    let mut replacement = run.worker();
    run.ledger_reaches(count / 2).await;
    restarted.sigterm();
    let status = restarted.wait(Duration::from_secs(30)).await;
    assert!(status.success(), "a graceful stop: {status}: {}", restarted.stderr());
    let mut again = run.worker();
    run.ledger_reaches(count).await;
    eventually("the group has caught up", LIMIT, async || {
        let lag = run.kafka.lag(&run.group, &run.topic).await;
        if lag == 0 { Ok(()) } else { Err(format!("lag {lag}")) }
    })
    .await;
    for worker in [&mut replacement, &mut again] {
        worker.sigterm();
        let status = worker.wait(Duration::from_secs(30)).await;
        assert!(status.success(), "a graceful stop: {status}: {}", worker.stderr());
    }
    stop.store(true, Ordering::Relaxed);
    let samples = watcher.await.unwrap().unwrap_or_else(|broken| panic!("the offset rule is broken: {broken}"));
    assert!(5 <= samples, "{samples} samples of the offsets");

    let distinct: i64 = run.database.scalar("SELECT count(DISTINCT key) FROM stock_movement").await;
    assert_eq!((run.in_ledger().await, distinct as usize), (count, count), "every id once in the ledger ({origin})");
    let client = run.database.connect().await;
    for sql in ["SELECT sku, quantity FROM stock", "SELECT sku, sum(delta)::bigint FROM stock_movement GROUP BY sku"] {
        let rows = client.query(sql, &[]).await.unwrap();
        let found: BTreeMap<String, i64> = rows.iter().map(|it| (it.get(0), it.get(1))).collect();
        assert!(found == sums, "{sql}: the sums of {origin} are wrong");
    }
    assert_eq!(run.kafka.committed_offsets(&run.group, &run.topic).await, run.kafka.end_offsets(&run.topic).await);
    let dead: i64 = run.database.scalar("SELECT count(*) FROM sekali.dead_letter").await;
    assert_eq!(dead, 0, "nothing was anybody's fault");
}

/// Others write the same rows by their versions: nobody overwrites anybody.
#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_loses_no_change_of_anybody() {
    const SKUS: usize = 4;
    const EACH: usize = 150;
    const FOREIGN: &str = "UPDATE stock SET quantity = quantity + 1000, version = version + 1 WHERE sku = 'sku-0'";
    // Many small transactions, so that others come between them.
    let small = |config: &mut Config| config.consumer.batch_messages_max = 5.try_into().unwrap();
    let group = Group::new("compare-and-set", 4, small).await;
    create_tables(&group.database.connect().await).await.unwrap();
    let stock = || Stock::new(StockMode::CompareAndSet);
    let members = [group.start(stock()).await, group.start(stock()).await];
    let record = |it: usize| {
        let sku = format!("sku-{}", it % SKUS);
        let payload = format!("{{\"sku\": \"{sku}\", \"delta\": {}}}", it as i64 - 200);
        // Not by its key: the messages of a SKU are spread over all partitions and meet at its row.
        Outgoing::new(format!("any-{it}"), payload).id(&format!("m-{it}"))
    };
    group.produce((0..SKUS * EACH).map(record)).await;
    let client = group.database.connect().await;
    let mut foreign = 0;
    let moved = async || -> i64 { client.query_one("SELECT count(*) FROM stock_movement", &[]).await.unwrap().get(0) };
    while moved().await < (SKUS * EACH) as i64 {
        foreign += client.execute(FOREIGN, &[]).await.unwrap() as i64;
    }
    group.settled().await;
    for member in members {
        member.stop().await.unwrap();
    }
    assert!(10 < foreign, "only {foreign} changes of others");
    for sku in 0..SKUS {
        let expected: i64 = (0..SKUS * EACH).filter(|it| it % SKUS == sku).map(|it| it as i64 - 200).sum();
        let others = if sku == 0 { foreign } else { 0 };
        let sql = format!("SELECT (quantity, version)::text FROM stock WHERE sku = 'sku-{sku}'");
        let found: String = group.database.scalar(&sql).await;
        assert_eq!(found, format!("({},{})", expected + 1000 * others, EACH as i64 + others));
    }
    assert_eq!(group.dead_letters().await.len(), 0);
}
