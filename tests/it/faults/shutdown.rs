//! Stopping in good order, at bad moments.

use std::time::{Duration, Instant};

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;

use super::bench::{handled, scripted, took_effect_once};

/// SHD-02: nobody waits for the session of a member that has left, whatever the group was doing.
#[tokio::test(flavor = "multi_thread")]
async fn stopping_in_the_middle_of_a_rebalance_hands_over_at_once() {
    let group =
        Group::new("mid-rebalance", 4, |config| config.consumer.session_timeout = Duration::from_secs(30)).await;
    let handler = Scripted::default();
    let mut member = group.start(handler.clone()).await;
    group.produce([scripted("begin", "ok")]).await;
    handled(&handler, "begin").await;
    for round in 0..3 {
        // The group is about to share the partitions out, and now it must again.
        let next = group.start(handler.clone()).await;
        let asked = Instant::now();
        member.stop().await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(8), "leaving took {:?}", asked.elapsed());
        member = next;
        let probe = |partition: i32| format!("probe-{round}-{partition}");
        group.produce((0..4).map(|it| scripted(&probe(it), "ok").partition(it))).await;
        for partition in 0..4 {
            let seen = async || !handler.seen(&probe(partition)).is_empty();
            eventually("the next member has the partition", Duration::from_secs(10), seen).await;
        }
    }
    let asked = Instant::now();
    member.stop().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5), "leaving took {:?}", asked.elapsed());
    assert!(group.kafka.group_members(group.name()).await.is_empty(), "no dead member stays behind");
    took_effect_once(&group, 13).await;
}

/// SHD-03.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_finished_at_shutdown_is_committed() {
    const RECORDS: usize = 4_000;
    let group = Group::new("stop-often", 3, |config| config.consumer.batch_messages_max = 40.try_into().unwrap()).await;
    let script = |it: usize| if it.is_multiple_of(50) { "slow=3" } else { "ok" };
    group.produce((0..RECORDS).map(|it| scripted(&format!("m-{it}"), script(it)).partition((it % 3) as i32))).await;
    let handler = Scripted::default();
    let effects = async || group.database.scalar::<i64>("SELECT count(*) FROM effect").await;
    let mut rounds = 0;
    while effects().await < RECORDS as i64 {
        let enough = effects().await + 100 + 97 * rounds;
        let member = group.start(handler.clone()).await;
        eventually("some are handled", LIMIT, async || {
            let found = effects().await;
            enough <= found || RECORDS as i64 <= found
        })
        .await;
        member.stop().await.unwrap();
        rounds += 1;
        let committed: i64 = group.kafka.committed_offsets(group.name(), &group.topic).await.values().sum();
        assert_eq!(committed, effects().await, "round {rounds}: a finished message is not committed");
    }
    assert!(5 <= rounds, "{rounds} rounds");
    took_effect_once(&group, RECORDS).await;
    let again = (0..RECORDS).filter(|it| handler.seen(&format!("m-{it}")).len() != 1).count();
    assert_eq!(again, 0, "nothing was in hand, so that nothing came again");
}
