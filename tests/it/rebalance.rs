//! Members that come and go.

use std::time::Duration;

use sekali_consumer::config::GroupProtocol;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::scripted::{SCRIPT, Scripted};

fn slow(id: usize, partition: i32) -> Outgoing {
    Outgoing::new(format!("k{id}"), "{}").id(&format!("m-{id}")).header(SCRIPT, "slow=2").partition(partition)
}

async fn members_come_and_go(protocol: GroupProtocol) {
    const EVENTS: usize = 3_000;
    let group = Group::new("rebalance", 6, |config| {
        config.consumer.group_protocol = protocol;
        config.consumer.batch_messages_max = 50.try_into().unwrap();
    })
    .await;
    group.produce((0..EVENTS).map(|it| slow(it, (it % 6) as i32))).await;
    let effects = async || group.database.scalar::<i64>("SELECT count(*) FROM effect").await;
    let reaches = async |count: i64| {
        eventually("the ledger grows", LIMIT, async || {
            let found = effects().await;
            if count <= found { Ok(()) } else { Err(format!("{found} of {count}")) }
        })
        .await;
    };
    let first = group.start(Scripted::default()).await;
    reaches(200).await;
    let joins = Scripted::default();
    let second = group.start(joins.clone()).await;
    // The broker hands partitions over in its own time; there must be something left to do when it has.
    let mut produced = EVENTS;
    eventually("the second member works", LIMIT, async || {
        if 0 < joins.calls() {
            return true;
        }
        group.produce((produced..produced + 60).map(|it| slow(it, (it % 6) as i32))).await;
        produced += 60;
        false
    })
    .await;
    reaches(800).await;
    first.stop().await.unwrap();
    let third = group.start(Scripted::default()).await;
    reaches(1_800).await;
    second.stop().await.unwrap();
    group.settled().await;
    third.stop().await.unwrap();
    // The client library describes classic groups only.
    if protocol == GroupProtocol::Classic {
        assert!(group.kafka.group_members(group.name()).await.is_empty(), "who stops leaves the group at once");
    }
    let effects = group.effects().await;
    assert_eq!(effects.len(), produced);
    assert!(effects.values().all(|it| *it == 1));
    // A hand-over finishes what is in hand and commits it: nothing was even delivered twice to a handler that had won.
    let states: i64 = group.database.scalar("SELECT count(*) FROM sekali.inbox WHERE state = 1 AND attempt = 1").await;
    assert_eq!(states as usize, produced);
    assert!(group.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_while_members_come_and_go() {
    members_come_and_go(GroupProtocol::Classic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_under_the_brokers_own_protocol() {
    members_come_and_go(GroupProtocol::Consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pausing_with_a_warm_prefetch_skips_nothing() {
    const EVENTS: usize = 12_000;
    let group = Group::new("pause", 3, |config| {
        config.consumer.batch_messages_max = 100.try_into().unwrap();
        // Far below what the client prefetches, so that partitions are paused and resumed all the time.
        config.consumer.buffer_messages_max = 300.try_into().unwrap();
    })
    .await;
    let script = |it: usize| if it.is_multiple_of(100) { "slow=30" } else { "ok" };
    let record = |it: usize| {
        Outgoing::new(format!("k{it}"), "{}")
            .id(&format!("m-{it}"))
            .header(SCRIPT, script(it))
            .partition((it % 3) as i32)
    };
    group.produce((0..EVENTS).map(record)).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    let sql = "SELECT count(*) FROM effect";
    assert_eq!(group.database.scalar::<i64>(sql).await as usize, EVENTS);
    assert_eq!(group.effects().await.len(), EVENTS);
    // One effect for each offset, without a hole, in order within each partition.
    let holes = "SELECT count(*) FROM (SELECT \"offset\" - lag(\"offset\") OVER (PARTITION BY partition ORDER BY \"offset\") AS step \
         FROM effect) AS steps WHERE step <> 1";
    assert_eq!(group.database.scalar::<i64>(holes).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_partitions_stops_quickly() {
    let group = Group::new("idle", 1, |_| {}).await;
    let first = group.start(Scripted::default()).await;
    let second = group.start(Scripted::default()).await;
    eventually("both are members", LIMIT, async || group.kafka.group_members(group.name()).await.len() == 4).await;
    for member in [first, second] {
        let asked = std::time::Instant::now();
        member.stop().await.unwrap();
        // Far from the session timeout, after which the broker would let it go.
        assert!(asked.elapsed() < Duration::from_secs(15), "stopping took {:?}", asked.elapsed());
    }
    // Started and stopped at once.
    group.start(Scripted::default()).await.stop().await.unwrap();
}
