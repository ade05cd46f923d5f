//! `sekali bench` on servers that others use, too.

use sekali_tests::harness::{TestDatabase, eventually, kafka};

use super::{LIMIT, Operator};

const QUICK: [&str; 6] = ["bench", "--events", "2000", "--rounds", "1", "--partitions=3"];

/// What it made: only it makes names that begin so.
async fn left(database: &TestDatabase) -> (i64, Vec<String>) {
    let databases = database.scalar("SELECT count(*) FROM pg_database WHERE datname LIKE 'sekali\\_bench\\_%'").await;
    let client = kafka().await.admin().inner();
    let metadata = client.fetch_metadata(None, std::time::Duration::from_secs(30)).unwrap();
    let topics = metadata.topics().iter().map(|it| it.name().to_owned());
    (databases, topics.filter(|it| it.starts_with("sekali-bench-")).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_benchmark_measures_beside_a_loop_by_hand_and_leaves_nothing() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    let programs = "P0,P0c,P1,P1x,P1x-plain,P1e,P1a,M1,M2,M3,M4";
    let asked = operator.run(&[&QUICK[..], &["--programs", programs, "-o", "json"]].concat()).await;
    asked.expect(2, &["add --yes"]);
    let (status, results) = operator.json(&[&QUICK[..], &["--programs", programs, "--yes"]].concat()).await;
    assert_eq!(status, 0, "{results:#}");
    let rows = results["workloads"]["W1"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    for row in rows {
        assert_eq!(row["oracle"], "ok", "{row:#}");
        assert!(0.0 < row["events_per_second"]["median"].as_f64().unwrap(), "{row:#}");
    }
    eventually("nothing is left", LIMIT, async || match left(&database).await {
        (0, topics) if topics.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_benchmark_refuses_a_database_at_work() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    let progress = "INSERT INTO sekali.consumer (name) VALUES ('orders'); \
         INSERT INTO sekali.progress (consumer_id, topic, partition, position) SELECT id, 't', 0, 1 FROM sekali.consumer";
    database.execute(progress).await;
    let refused = operator.run(&[&QUICK[..], &["--yes"]].concat()).await;
    refused.expect(1, &["looks like production", "--beside-live-data"]);
}
