//! Members that come, go, and do not know that they are gone.

use std::time::Duration;

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;

use super::bench::{OffsetWatch, handled, scripted, took_effect_once};

/// REB-01: a commit that meets a rebalance must not leave a partition that is owned and never read.
#[tokio::test(flavor = "multi_thread")]
async fn every_partition_delivers_again_after_each_of_many_rebalances() {
    const PARTITIONS: i32 = 4;
    let group = Group::new("many-rebalances", PARTITIONS, |_| {}).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    let mut produced = 0;
    for round in 0_usize..8 {
        let second = group.start(handler.clone()).await;
        // Under load, and a different while each time.
        for _ in 0..(round * 37 % 8) * 15 {
            group.produce([scripted(&format!("load-{produced}"), "ok")]).await;
            produced += 1;
        }
        second.stop().await.unwrap();
        let probe = |partition: i32| format!("probe-{round}-{partition}");
        group.produce((0..PARTITIONS).map(|it| scripted(&probe(it), "ok").partition(it))).await;
        for partition in 0..PARTITIONS {
            let what = format!("partition {partition} delivers after round {round}");
            let seen = async || !handler.seen(&probe(partition)).is_empty();
            // A member learns of a rebalance with its heartbeat, and a cooperative one has two rounds.
            eventually(&what, Duration::from_secs(40), seen).await;
        }
    }
    group.settled().await;
    member.stop().await.unwrap();
    took_effect_once(&group, produced + 8 * PARTITIONS as usize).await;
}

/// REB-04.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_stops_its_own_partition_until_its_deadline() {
    let group = Group::new("hangs", 2, |config| config.consumer.handler_timeout = Duration::from_secs(8)).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce([scripted("hangs", "hang=1").partition(0)]).await;
    handled(&handler, "hangs").await;
    for it in 0..15 {
        let id = format!("flows-{it}");
        group.produce([scripted(&id, "ok").partition(1)]).await;
        handled(&handler, &id).await;
    }
    assert_eq!(handler.seen("hangs"), [1], "it still hangs, and its neighbours are done");
    assert_eq!(group.effects().await.len(), 15);
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(handler.seen("hangs").last(), Some(&2), "the deadline burned an attempt");
    took_effect_once(&group, 16).await;
}

/// REB-05: what is kept goes on, and what is taken away is not marked by who lost it.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_kept_is_not_delivered_again() {
    let group = Group::new("kept", 2, |config| config.consumer.batch_messages_max = 10.try_into().unwrap()).await;
    group.produce((0..40).map(|it| scripted(&format!("m-{it}"), "slow=100").partition(it % 2))).await;
    let watch = OffsetWatch::start(&group);
    // One handler for both, so that it sees whatever is delivered twice.
    let handler = Scripted::default();
    let first = group.start(handler.clone()).await;
    handled(&handler, "m-0").await;
    handled(&handler, "m-1").await;
    let second = group.start(handler.clone()).await;
    group.settled().await;
    watch.end().await;
    for it in 0..40 {
        assert_eq!(handler.seen(&format!("m-{it}")), [1], "m-{it}");
    }
    took_effect_once(&group, 40).await;
    for member in [first, second] {
        member.stop().await.unwrap();
    }
}

/// REB-07.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_instance_id_was_taken_over_ends_instead_of_idling() {
    let group = Group::new("fenced", 2, |config| config.consumer.group_instance_id = Some("pod-0".to_owned())).await;
    let first = group.start(Scripted::default()).await;
    group.produce([scripted("before", "ok")]).await;
    group.settled().await;
    let second = group.start(Scripted::default()).await;
    eventually("the first one ends", Duration::from_secs(30), async || !first.is_running()).await;
    let error = first.stop().await.expect_err("its client is dead").chain();
    assert!(error.contains("FencedInstanceId") || error.contains("fenced"), "{error}");
    group.produce((0..10).map(|it| scripted(&format!("m-{it}"), "ok"))).await;
    eventually("the second one works", LIMIT, async || group.effects().await.len() == 11).await;
    group.settled().await;
    second.stop().await.unwrap();
    took_effect_once(&group, 11).await;
}
