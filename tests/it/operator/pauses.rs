//! `sekali pause|resume|paused`.

use std::time::Duration;

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;

use super::{Operator, audited, message};

/// Messages of some keys, one after the other.
fn messages(from: usize, to: usize) -> impl Iterator<Item = sekali_tests::harness::Outgoing> {
    (from..to).flat_map(|place| ["a", "b", "c", "d"].map(|key| message(key, place, "slow=2")))
}

async fn effects(group: &Group) -> i64 {
    group.database.scalar("SELECT count(*) FROM effect").await
}

/// Waits until nothing takes effect any more.
async fn stands_still(group: &Group) -> i64 {
    let mut last = (effects(group).await, tokio::time::Instant::now());
    eventually("nothing takes effect any more", LIMIT, async || {
        let now = effects(group).await;
        if now != last.0 {
            last = (now, tokio::time::Instant::now());
        }
        Duration::from_secs(7) < last.1.elapsed()
    })
    .await;
    last.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_paused_under_load_stands_still_through_restarts_and_then_goes_on_in_order() {
    let group = Group::new("paused", 2, |_| {}).await;
    group.produce(messages(0, 1_000)).await;
    let (one, two) = (group.start(Scripted::default()).await, group.start(Scripted::default()).await);
    eventually("it works", LIMIT, async || 20 < effects(&group).await).await;
    let operator = Operator::of(&group);
    let (status, paused) = operator.json(&["pause", &group.topic, "--reason", "the other side is away"]).await;
    assert_eq!((status, &paused["outcome"]), (0, &"paused".into()), "{paused:#}");
    let before = stands_still(&group).await;
    assert!(before < 4_000, "{before} took effect before the pause");
    Operator::table(&operator.run(&["paused"]).await, &[&group.topic, "the other side is away"]);

    // A member that starts while it is paused begins nothing, nor does one that gets its partitions.
    one.stop().await.unwrap();
    let three = group.start(Scripted::default()).await;
    two.stop().await.unwrap();
    group.produce(messages(1_000, 1_010)).await;
    assert_eq!(stands_still(&group).await, before);

    let (status, again) = operator.json(&["pause", &group.topic, "--reason", "again"]).await;
    assert_eq!((status, &again["outcome"]), (0, &"paused_already".into()));
    Operator::table(&operator.run(&["resume", &group.topic, "--reason", "it is back"]).await, &["resumed"]);
    group.settled_within(Duration::from_secs(180)).await;
    three.stop().await.unwrap();
    for (key, order) in group.order().await {
        assert_eq!(order, (0..1_010).collect::<Vec<i64>>(), "{key}");
    }
    let outcomes: Vec<String> = audited(&group).await.into_iter().map(|it| it.1).collect();
    assert_eq!(outcomes, ["paused", "paused_already", "resumed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_and_held_messages_of_a_paused_topic_wait_too() {
    let group = Group::new("pausedretry", 1, |config| config.retry.delays = vec![Duration::from_secs(4)]).await;
    let script = |place: usize| if place == 0 { "transient=1" } else { "ok" };
    group.produce((0..4).map(|it| message("a", it, script(it)))).await;
    let member = group.start(Scripted::default()).await;
    eventually("the key is held", LIMIT, async || group.held().await == (1, 3)).await;
    let operator = Operator::of(&group);
    Operator::table(&operator.run(&["pause", "--all", "--reason", "test"]).await, &["all topics"]);
    // A worker may hear of it just after the retry was due.
    let stood = stands_still(&group).await;
    let (status, vain) = operator.json(&["resume", &group.topic, "--reason", "test"]).await;
    assert_eq!((status, &vain["outcome"], &vain["group_is_paused"]), (3, &"not_paused".into(), &true.into()));
    assert_eq!(stands_still(&group).await, stood);
    Operator::table(&operator.run(&["resume", "--all", "--reason", "test"]).await, &["resumed"]);
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.order().await["a"], [0, 1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_not_paused() {
    let group = Group::new("typo", 1, |_| {}).await;
    let operator = Operator::of(&group);
    let never = operator.run(&["pause", &group.topic, "--reason", "test"]).await;
    assert!(never.status == 2 && never.stderr.contains("has never run on this database"), "{}", never.stderr);
    let typo = operator.run(&["pause", "tpyo", "--reason", "test"]).await;
    assert!(typo.status == 2 && typo.stderr.contains(&group.topic), "{}", typo.stderr);
    let silent = operator.run(&["pause", &group.topic]).await;
    assert!(silent.status == 2 && silent.stderr.contains("--reason"), "{}", silent.stderr);
}
