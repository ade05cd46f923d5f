//! What a drain costs, counted rather than timed, so that it holds on any machine: transactions, round trips, waits for
//! the disk, offset commits, allocations.
//!
//! A program of its own: the allocator counts for the whole process, and the database server for all of its databases.

use std::alloc::System;
use std::time::Instant;

use sekali::private_postgres::{Options, PrivatePostgres};
use sekali_benchmark::offsets;
use sekali_benchmark::postgres::Usage;
use sekali_producer::config::KafkaSection;
use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, Postgres, Proxy, TestDatabase, kafka};
use sekali_worker::stock::{Stock, StockMode, create_tables};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const EVENTS: usize = 60_000;
/// Events of a transaction, at least on average.
const BATCH: f64 = 500.0;
const ROUND_TRIPS_OF_A_BATCH: f64 = 3.0;
const FSYNCS_OF_A_BATCH: f64 = 1.1;
const OFFSET_COMMITS_OF_A_SECOND: f64 = 1.1;
const ALLOCATIONS_OF_AN_EVENT: f64 = 6.0;

/// What is done whatever the number of events: connecting, preparing, joining, and housekeeping every few seconds.
fn fixed(seconds: f64) -> f64 {
    100.0 + 10.0 * seconds
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_costs_few_transactions_round_trips_flushes_commits_and_allocations() {
    let options = Options { fsync: true, ..Options::default() };
    let server = tokio::task::spawn_blocking(|| PrivatePostgres::start(options)).await.unwrap().unwrap();
    let database = TestDatabase::create_on(&Postgres::at(&server.url("postgres"))).await;
    let kafka = kafka().await;
    let quiet = |config: &mut sekali_consumer::Config| config.relay.embedded = false;
    let mut group = Group::with_database(kafka, kafka.bootstrap(), database, "counters", 6, quiet).await;
    let client = group.database.connect().await;
    create_tables(&client).await.unwrap();
    let event = |it: usize| {
        let sku = format!("sku-{}", it % 977);
        Outgoing::new(sku.clone(), format!("{{\"sku\":\"{sku}\",\"delta\":1}}")).id(&uuid::Uuid::now_v7().to_string())
    };
    group.produce((0..EVENTS).map(event)).await;
    let proxy = Proxy::to(&format!("127.0.0.1:{}", server.port())).await.unwrap();
    let through = group.database.url_through(proxy.port());
    group.config.postgres.url = Some(through.into());

    let (before, region, began) = (Usage::now(&client).await.unwrap(), Region::new(ALLOCATOR), Instant::now());
    let member = group.start(Stock::new(StockMode::Batch)).await;
    group.settled().await;
    let seconds = began.elapsed().as_secs_f64();
    let allocated = region.change();
    let turns = proxy.counts().turns as f64;
    member.stop().await.unwrap();
    let after = Usage::now(&client).await.unwrap();

    let count = async |sql: &str| group.database.scalar::<i64>(sql).await;
    let applied = count("SELECT count(*) FROM stock_movement").await;
    assert_eq!((applied, count("SELECT sum(quantity)::bigint FROM stock").await), (EVENTS as i64, EVENTS as i64));
    let batches = count("SELECT count(DISTINCT xmin::text) FROM stock_movement").await as f64;
    assert!(EVENTS as f64 / batches >= BATCH, "{batches} transactions for {EVENTS} events");
    assert!(turns <= ROUND_TRIPS_OF_A_BATCH * batches + fixed(seconds), "{turns} round trips for {batches} batches");
    if let Some((after, before)) = after.fsyncs.zip(before.fsyncs) {
        let fsyncs = (after - before) as f64;
        let text = format!("{fsyncs} waits for the disk for {batches} batches in {seconds} s");
        assert!(fsyncs <= FSYNCS_OF_A_BATCH * batches + fixed(seconds), "{text}");
    }
    let (section, name) = (KafkaSection::new(kafka.bootstrap()), group.name().to_owned());
    let commits = tokio::task::spawn_blocking(move || offsets::of_group(&section, &name)).await.unwrap().unwrap();
    // The last one comes when the group ends, whenever that is; none at all would be no thrift but a fault.
    let most = OFFSET_COMMITS_OF_A_SECOND * seconds + 2.0;
    assert!((1.0..=most).contains(&(commits.count as f64)), "{} offset commits in {seconds} s", commits.count);
    // Growth of what is there counts as well. The clients in C are not in it.
    let allocations = (allocated.allocations + allocated.reallocations) as f64 / EVENTS as f64;
    assert!(allocations <= ALLOCATIONS_OF_AN_EVENT, "{allocations} allocations an event");
}
