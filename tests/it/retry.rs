//! Retry topics: delays, lateness, and what goes on meanwhile.

use std::time::Duration;

use sekali_consumer::Config;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::scripted::{SCRIPT, Scripted};

const LONG: Duration = Duration::from_secs(11);

fn short_poll_limit(config: &mut Config) {
    config.retry.delays = vec![Duration::from_secs(1), LONG];
    config.consumer.session_timeout = Duration::from_secs(6);
    config.consumer.max_poll_interval = Duration::from_secs(8);
    config.consumer.handler_timeout = Duration::from_secs(2);
    config.consumer.drain_timeout = Duration::from_secs(3);
}

fn scripted(id: &str, script: &str) -> Outgoing {
    Outgoing::new(id.to_owned(), "{}").id(id).header(SCRIPT, script.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_runs_again_after_each_delay_while_the_others_flow() {
    let group = Group::new("delays", 2, short_poll_limit).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce([scripted("fails", "transient=2"), scripted("neighbour", "ok")]).await;
    eventually("the second attempt failed", LIMIT, async || handler.attempts("fails").len() == 2).await;
    let members = group.kafka.group_members(group.name()).await;

    // The main topic flows while the retry topic waits for longer than max.poll.interval.ms.
    for round in 0..20 {
        let id = format!("flow-{round}");
        group.produce([scripted(&id, "ok")]).await;
        eventually("a message of the main topic is handled at once", Duration::from_secs(2), async || {
            !handler.seen(&id).is_empty()
        })
        .await;
        assert!(handler.attempts("fails").len() == 2, "the long delay was not kept");
    }
    group.settled().await;
    assert_eq!(group.kafka.group_members(group.name()).await, members, "the member never left the group");
    member.stop().await.unwrap();

    let seen = handler.attempts("fails");
    assert_eq!(seen.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2, 3], "k failures, k + 1 runs");
    for (index, delay) in [Duration::from_secs(1), LONG].into_iter().enumerate() {
        let waited = seen[index + 1].1 - seen[index].1;
        assert!(delay.mul_f64(0.9) <= waited, "attempt {} came after {waited:?} instead of {delay:?}", index + 2);
        assert!(waited <= delay.mul_f64(1.1) + Duration::from_secs(1), "attempt {} was late: {waited:?}", index + 2);
    }
    assert_eq!(group.effects().await["fails"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_may_exceed_the_number_of_tiers() {
    let group = Group::new("many-attempts", 1, |config| {
        config.retry.delays = vec![Duration::from_millis(50)];
        config.retry.max_attempts = 12.try_into().ok();
    })
    .await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce([scripted("never", "transient"), scripted("late", "transient=11")]).await;
    group.settled().await;
    member.stop().await.unwrap();
    let attempts: Vec<u32> = handler.attempts("never").iter().map(|it| it.0).collect();
    assert_eq!(attempts, (1..=12).collect::<Vec<u32>>());
    assert_eq!(group.effects().await, [("late".to_owned(), 1)].into());
    assert_eq!(group.dead_letters().await[0].3, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_while_a_retry_waits_is_quick_and_loses_nothing() {
    let group = Group::new("waiting", 1, |config| config.retry.delays = vec![Duration::from_secs(5)]).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    group.produce([scripted("fails", "transient=1")]).await;
    let retry = group.retry_topics().remove(0);
    eventually("the retry record is published", LIMIT, async || group.kafka.end_offsets(&retry).await[&0] == 1).await;
    let asked = std::time::Instant::now();
    member.stop().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5), "stopping took {:?}", asked.elapsed());
    assert_eq!(group.kafka.committed_offsets(group.name(), &retry).await.get(&0).copied().unwrap_or_default(), 0);
    let member = group.start(handler.clone()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(handler.seen("fails"), [1, 2]);
}
