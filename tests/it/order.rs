//! Order of the messages of one key, across retries.

use std::time::Duration;

use sekali_consumer::config::{AfterDeadLetter, Order};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::scripted::{SCRIPT, Scripted};

/// Message `place` of a key, with what its handler is to do.
fn message(key: &str, place: usize, script: &str) -> Outgoing {
    Outgoing::new(key.to_owned(), format!("{{\"place\": {place}}}"))
        .id(&format!("{key}:{place}"))
        .header(SCRIPT, script.to_owned())
}

fn places(range: std::ops::Range<usize>) -> Vec<i64> {
    range.map(|it| it as i64).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_is_overtaken_by_nobody_of_its_key_and_by_all_others() {
    let group = Group::new("order", 1, |_| {}).await;
    let script = |key: &str, place: usize| match (key, place) {
        ("a", 1) => "transient=2",
        // One that was held fails itself.
        ("a", 3) => "transient=1",
        ("c", 0) => "reject=1",
        ("d", 2) => "permanent",
        _ => "ok",
    };
    let records = (0..6).flat_map(|place| ["a", "b", "c", "d"].map(|key| message(key, place, script(key, place))));
    group.produce(records).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    eventually("the others flow while one waits", Duration::from_secs(20), async || {
        group.order().await.get("b").is_some_and(|it| it.len() == 6)
    })
    .await;
    group.settled().await;
    eventually("nothing is held", LIMIT, async || group.held().await == (0, 0)).await;
    member.stop().await.unwrap();
    let order = group.order().await;
    for key in ["a", "b", "c"] {
        assert_eq!(order[key], places(0..6), "{key}");
    }
    assert_eq!(order["d"], [0, 1, 3, 4, 5], "a dead letter lets the others go on");
    assert_eq!(group.dead_letters().await.len(), 1);
    assert!(1 < handler.seen("a:1").len());
    let decided: i64 = group.database.scalar("SELECT count(*) FROM sekali.inbox WHERE state IN (1, 4)").await;
    assert_eq!(decided, 24);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_key_moves_behind_its_dead_letter_when_it_is_to_be_held() {
    let group = Group::new("hold", 2, |config| config.consumer.after_dead_letter = AfterDeadLetter::Hold).await;
    let script = |place: usize| match place {
        2 => "permanent",
        _ => "ok",
    };
    group.produce((0..6).map(|it| message("a", it, script(it)))).await;
    // The one that was held dies in its turn, after its retries.
    let late = |place: usize| if place < 2 { "transient" } else { "ok" };
    group.produce((0..4).map(|it| message("b", it, late(it)))).await;
    group.produce((0..4).map(|it| message("c", it, "ok"))).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    eventually("both dead letters hold", LIMIT, async || group.held().await == (2, 6)).await;
    // Newcomers wait as well, also for a member that did not see it happen.
    member.stop().await.unwrap();
    let member = group.start(Scripted::default()).await;
    group.produce((6..8).map(|it| message("a", it, "ok"))).await;
    group.settled().await;
    assert_eq!(group.held().await, (2, 8));
    let order = group.order().await;
    assert_eq!((&order["a"], order.get("b"), &order["c"]), (&places(0..2), None, &places(0..4)));
    // What an operator's discard does: the head is closed, and what waits may run.
    let discard = "WITH closed AS (UPDATE sekali.dead_letter SET state = 'discarded' RETURNING key), \
         rows AS (UPDATE sekali.inbox SET state = 5 WHERE key IN (SELECT key FROM closed)) \
         UPDATE sekali.held_key SET ready = true WHERE head IN (SELECT key FROM closed)";
    group.database.execute(discard).await;
    eventually("the rest of the first key flows", LIMIT, async || group.order().await["a"].len() == 7).await;
    eventually("the second dead letter holds", LIMIT, async || group.dead_letters().await.len() == 3).await;
    assert_eq!(group.held().await, (1, 2));
    group.database.execute(discard).await;
    eventually("all flows", LIMIT, async || group.held().await == (0, 0)).await;
    member.stop().await.unwrap();
    let order = group.order().await;
    assert_eq!(order["a"], [0, 1, 3, 4, 5, 6, 7]);
    assert_eq!(order["b"], [2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_order_a_failed_message_is_overtaken() {
    let group = Group::new("unordered", 1, |config| config.consumer.order = Order::None).await;
    group.produce((0..4).map(|it| message("a", it, if it == 0 { "transient=1" } else { "ok" }))).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.order().await["a"], [1, 2, 3, 0]);
    assert_eq!(group.held().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_hold_stops_its_partition_and_nothing_else_and_then_goes_on() {
    let group = Group::new("full", 2, |config| {
        config.consumer.held_messages_per_key_max = 5.try_into().unwrap();
        config.retry.delays = vec![Duration::from_secs(8)];
    })
    .await;
    let to = |record: Outgoing, partition: i32| record.partition(partition);
    let script = |place: usize| if place == 0 { "transient=1" } else { "ok" };
    group.produce((0..12).map(|it| to(message("a", it, script(it)), 0))).await;
    group.produce((0..3).map(|it| to(message("x", it, "ok"), 0))).await;
    group.produce((0..30).map(|it| to(message("b", it, "ok"), 1))).await;
    let member = group.start(Scripted::default()).await;
    eventually("the other partition flows", Duration::from_secs(10), async || {
        group.order().await.get("b").is_some_and(|it| it.len() == 30)
    })
    .await;
    // In one look: the limit is reached and kept, and what stands behind it in the log waits.
    let full = "SELECT (SELECT count(*) FROM sekali.held_key) = 1 AND (SELECT count(*) FROM sekali.held_message) = 5 \
         AND NOT EXISTS (SELECT FROM effect WHERE key_text LIKE 'x:%')";
    eventually("the limit is reached", LIMIT, async || group.database.scalar::<bool>(full).await).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(group.database.scalar::<bool>(full).await, "the limit is kept");
    group.settled().await;
    member.stop().await.unwrap();
    let order = group.order().await;
    assert_eq!(order["a"], places(0..12));
    assert_eq!(order["x"], places(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn order_holds_through_failures_rebalances_and_a_kill() {
    const KEYS: usize = 200;
    const EVENTS: usize = 20_000;
    let group = Group::new("sequence", 6, |config| {
        config.retry.delays = vec![Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];
        config.consumer.batch_messages_max = 200.try_into().unwrap();
    })
    .await;
    // 5 % fail once or twice, half of them by a rejection inside their batch.
    let script = |it: usize| match ((it * 2_654_435_761) >> 16) % 80 {
        0 => "transient=1",
        1 => "transient=2",
        2 => "reject=1",
        3 => "reject=2",
        _ => "ok",
    };
    let record = |it: usize| message(&format!("k{}", it % KEYS), it / KEYS, script(it));
    group.produce((0..EVENTS / 2).map(record)).await;
    let reaches = async |count: usize| {
        eventually("the ledger grows", 3 * LIMIT, async || {
            let found: i64 = group.database.scalar("SELECT count(*) FROM effect").await;
            if count as i64 <= found { Ok(()) } else { Err(format!("{found} of {count}")) }
        })
        .await;
    };
    let mut first = group.start_process();
    reaches(1_000).await;
    let second = group.start(Scripted::default()).await;
    reaches(3_000).await;
    first.sigkill().await;
    group.produce((EVENTS / 2..EVENTS).map(record)).await;
    reaches(8_000).await;
    let third = group.start(Scripted::default()).await;
    reaches(14_000).await;
    second.stop().await.unwrap();
    group.settled_within(3 * LIMIT).await;
    eventually("nothing is held", LIMIT, async || group.held().await == (0, 0)).await;
    third.stop().await.unwrap();
    let order = group.order().await;
    assert_eq!(order.len(), KEYS);
    for (key, found) in &order {
        assert_eq!(*found, places(0..EVENTS / KEYS), "{key}");
    }
    let retried: i64 = group.database.scalar("SELECT count(*) FROM sekali.inbox WHERE 1 < attempt").await;
    assert!(500 < retried, "{retried} messages were retried");
}
