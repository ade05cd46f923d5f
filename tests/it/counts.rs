//! What a drain costs, counted: transactions, round trips, offset commits.

use std::time::Instant;

use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, Proxy};
use sekali_worker::stock::{Stock, StockMode, create_tables};

const EVENTS: usize = 30_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_costs_few_transactions_round_trips_and_commits() {
    let mut group = Group::new("counts", 6, |config| config.relay.embedded = false).await;
    create_tables(&group.database.connect().await).await.unwrap();
    let event = |it: usize| {
        let sku = format!("sku-{}", it % 977);
        Outgoing::new(sku.clone(), format!("{{\"sku\":\"{sku}\",\"delta\":1}}")).id(&uuid::Uuid::now_v7().to_string())
    };
    group.produce((0..EVENTS).map(event)).await;
    let address = group.database.server().address();
    let proxy = Proxy::to(&format!("{}:{}", address.0, address.1)).await.unwrap();
    let through = group.database.url_through(proxy.port());
    group.config.postgres.url = Some(through.into());

    let xacts = "SELECT count(DISTINCT xmin::text) FROM stock_movement";
    let began = Instant::now();
    let turns_before = proxy.counts().turns;
    let member = group.start(Stock::new(StockMode::Batch)).await;
    group.settled().await;
    let seconds = began.elapsed().as_secs_f64();
    let turns = proxy.counts().turns - turns_before;
    member.stop().await.unwrap();

    let batches = group.database.scalar::<i64>(xacts).await as f64;
    let total: i64 = group.database.scalar("SELECT count(*) FROM stock_movement").await;
    let sum: i64 = group.database.scalar("SELECT sum(quantity)::bigint FROM stock").await;
    assert_eq!((total, sum), (EVENTS as i64, EVENTS as i64));
    assert!(batches / EVENTS as f64 <= 1.0 / 200.0, "{batches} transactions for {EVENTS} events");
    // Connecting, preparing and housekeeping every five seconds are in the count, and do not grow with the events.
    let fixed = 60.0 + 10.0 * seconds;
    assert!(turns as f64 <= 4.0 * batches + fixed, "{turns} round trips for {batches} batches in {seconds} s");
    // Each commit is one record in the offsets topic; the beat is one second.
    let commits = group.database.scalar::<i64>("SELECT count(*) FROM sekali.progress").await;
    assert!(0 < commits, "positions are noted in the database");
}
