//! The outbox when the database has an old snapshot to keep.

use std::time::Duration;

use sekali_producer::config::{KafkaSection, PostgresSection, RelaySection};
use sekali_producer::{OutboundRecord, Relay, outbox};
use sekali_schemas::Headers;
use sekali_tests::group::LIMIT;
use sekali_tests::harness::{TestDatabase, eventually, kafka};
use tokio_util::sync::CancellationToken;

/// OBX-05: vacuum may take nothing away, and the relay must not walk over all that is dead, again and again. Counted in
/// pages, since time says little on a busy machine.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_transaction_does_not_make_the_relay_read_all_that_is_dead() {
    const ROUNDS: usize = 8;
    const ROWS: usize = 1_500;
    let (kafka, database) = (kafka().await, TestDatabase::create().await);
    let topic = kafka.topic("dead-rows", 1).await;
    let mut old = database.connect().await;
    let old =
        old.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start().await.unwrap();
    old.query_one("SELECT count(*) FROM sekali.outbox", &[]).await.unwrap();
    let postgres = PostgresSection { url: Some(database.url().into()), ..PostgresSection::default() };
    let relay =
        Relay::new(postgres.pool("relay").unwrap(), &KafkaSection::new(kafka.bootstrap()), &RelaySection::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.unwrap().run(stop.clone()));
    let mut client = database.connect().await;
    let mut costs = Vec::new();
    for round in 0..ROUNDS {
        let before = pages_read(&database).await;
        let tx = client.transaction().await.unwrap();
        let records: Vec<OutboundRecord> = (0..ROWS)
            .map(|it| OutboundRecord {
                topic: topic.clone(),
                key: Some("k".into()),
                payload: Some(format!("{round} {it}").into()),
                headers: Headers::default(),
            })
            .collect();
        outbox::enqueue_all(&tx, &records).await.unwrap();
        tx.commit().await.unwrap();
        eventually("the outbox is empty", LIMIT, async || {
            database.scalar::<i64>("SELECT count(*) FROM sekali.outbox").await == 0
        })
        .await;
        costs.push(pages_read(&database).await - before);
    }
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap();
    old.rollback().await.unwrap();
    let dead: i64 = database.scalar("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox'").await;
    assert!((ROUNDS * ROWS) as i64 <= dead, "{dead} dead rows: something was vacuumed, and this shows nothing");
    assert!(costs[ROUNDS - 1] < 2 * costs[1], "pages read in each round: {costs:?}");
}

/// Pages of the outbox and its index that were looked at so far, by everybody.
async fn pages_read(database: &TestDatabase) -> i64 {
    let sql = "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables WHERE relname = 'outbox'";
    // Sessions report what they did with a delay.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    database.scalar(sql).await
}
