//! Replays: once, whoever asks and whatever dies.

use std::time::Duration;

use sekali_consumer::schemas::control;
use sekali_tests::group::Group;
use sekali_tests::harness::eventually;
use sekali_tests::scripted::{SCRIPT, Scripted};
use serde_json::json;
use tokio::join;

use super::{LIMIT, Repairable, dlq, message, once, sekali, start, states, states_become};

const MANY: usize = 200;

/// A group whose messages all are dead of a cause that is repaired by now.
async fn repaired(label: &str) -> (Group, Repairable, sekali_tests::group::Member) {
    let group = Group::new(label, 2, |_| {}).await;
    let handler = Repairable::default();
    let member = group.start(handler.clone()).await;
    group.produce((0..MANY).map(|nr| message(&format!("k{nr}"), nr, "stock"))).await;
    states_become(&group, "all are dead", [MANY as i64, 0, 0, 0]).await;
    handler.repair(&handler.stock);
    (group, handler, member)
}

/// RTY-11.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_operators_one_replays_and_the_other_is_told_so() {
    let (group, _, member) = repaired("operators").await;
    let replay = |who: &'static str| {
        let group = &group;
        async move {
            let arguments =
                ["dlq", "replay", "--class", "permanent", "--reason", "again", "--rate", "400", "--yes", "-o", "json"];
            sekali(group, &arguments, &[("SEKALI_ACTOR", who)]).await
        }
    };
    let (anna, bert) = join!(replay("anna"), replay("bert"));
    let sent = anna.outcome("replaying") + bert.outcome("replaying");
    assert_eq!(sent, MANY as u64, "{}{}", anna.stdout, bert.stdout);
    states_become(&group, "all took effect", [0, 0, MANY as i64, 0]).await;
    once(&group, MANY).await;
    let told = |it: &super::Ended| it.outcome("already_replaying") + it.outcome("already_resolved");
    let refused = told(&anna) + told(&bert);
    // Who began when the other had done with some selects the rest alone.
    assert!(refused <= MANY as u64 && (refused == 0 || anna.status == 3 || bert.status == 3));
    let again = dlq(&group, &["replay", "--state", "resolved", "--class", "permanent", "--reason", "x", "--yes"]).await;
    assert_eq!((again.status, again.outcome("already_resolved")), (3, MANY as u64), "{}", again.stderr);
    assert!(again.stderr.contains("came first"), "{}", again.stderr);
    let retries = group.kafka.end_offsets(&group.retry_topics()[0]).await;
    assert_eq!(retries.values().sum::<i64>(), MANY as i64, "nothing was sent twice");
    member.stop().await.unwrap();
}

/// RTY-11: discarding what is being replayed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_its_way_is_neither_sent_again_nor_closed_and_records_that_come_twice_count_once() {
    let (group, _, member) = repaired("twice").await;
    member.stop().await.unwrap();
    let replayed =
        dlq(&group, &["replay", "--all", "--count", "200", "--reason", "x", "--rate", "5000", "--yes"]).await;
    assert_eq!(replayed.outcome("replaying"), MANY as u64, "{}", replayed.stderr);
    for act in ["replay", "discard"] {
        let refused =
            dlq(&group, &[act, "--state", "replaying", "--class", "permanent", "--reason", "x", "--yes"]).await;
        assert_eq!((refused.status, refused.outcome("already_replaying")), (3, MANY as u64), "{act}");
    }
    // Every record comes a second time, and half of them by force once more: what was sent before comes too late.
    let copies = "INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
         SELECT topic, key, payload, header_names, header_values FROM sekali.outbox WHERE topic LIKE '%retry%'";
    group.database.execute(copies).await;
    let forced = dlq(
        &group,
        &["replay", "--state", "replaying", "--text", "k1", "--force", "--reason", "lost?", "--rate", "5000", "--yes"],
    )
    .await;
    assert!(100 < forced.outcome("replaying"), "{}{}", forced.stdout, forced.stderr);
    let handler = Repairable::default();
    handler.repair(&handler.stock);
    let member = group.start(handler).await;
    states_become(&group, "all took effect", [0, 0, MANY as i64, 0]).await;
    group.settled().await;
    member.stop().await.unwrap();
    once(&group, MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_in_the_middle_of_replays_applies_each_once() {
    let group = Group::new("dies", 2, |_| {}).await;
    let mut worker = group.start_process();
    let scripted = |nr: usize| {
        sekali_tests::harness::Outgoing::new(format!("k{nr}"), "{}").id(&format!("i{nr}")).header(SCRIPT, "transient=3")
    };
    group.produce((0..MANY).map(scripted)).await;
    // Three attempts fail; the fourth is that of the replay.
    states_become(&group, "all are dead", [MANY as i64, 0, 0, 0]).await;
    let mut operator = start(&group, &["replay", "--class", "transient", "--reason", "x", "--rate", "200", "--yes"]);
    eventually("replays take effect", LIMIT, async || {
        0 < group.database.scalar::<i64>("SELECT count(*) FROM effect").await
    })
    .await;
    worker.sigkill().await;
    let mut worker = group.start_process();
    assert_eq!(operator.wait(LIMIT).await.code(), Some(0), "{}", operator.stderr());
    states_become(&group, "all took effect", [0, 0, MANY as i64, 0]).await;
    once(&group, MANY).await;
    worker.sigterm();
    worker.wait(LIMIT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_again_is_open_again_with_its_attempts_and_replays_end_at_the_cap() {
    let group = Group::new("cap", 1, |_| {}).await;
    let member = group.start(Repairable::default()).await;
    group.produce([message("k", 0, "stock")]).await;
    states_become(&group, "it is dead", [1, 0, 0, 0]).await;
    let id = dlq(&group, &["list"]).await.json()["letters"][0]["id"].as_str().unwrap().to_owned();
    for nr in 1..=3 {
        let replayed = dlq(&group, &["replay", &id, "--reason", "perhaps", "--yes"]).await;
        assert_eq!((replayed.status, replayed.outcome("replaying")), (0, 1), "{}", replayed.stderr);
        states_become(&group, "it is open again", [1, 0, 0, 0]).await;
        let shown = dlq(&group, &["show", &id]).await.json();
        assert_eq!((&shown["replays"], &shown["attempts"]), (&json!(nr), &json!(nr + 1)));
        let attempts: Vec<_> = shown["timeline"].as_array().unwrap().iter().map(|it| it["attempt"].clone()).collect();
        assert_eq!(attempts.len(), nr + 1, "{shown:#}");
    }
    let capped = dlq(&group, &["replay", &id, "--reason", "perhaps", "--yes"]).await;
    assert_eq!((capped.status, capped.outcome("too_many_replays")), (3, 1), "{}", capped.stderr);
    let forced = dlq(&group, &["replay", &id, "--reason", "perhaps", "--force", "--yes"]).await;
    assert_eq!(forced.outcome("replaying"), 1);
    states_become(&group, "it is open again", [1, 0, 0, 0]).await;
    assert_eq!(group.dead_letters().await.len(), 1, "one letter, however often it comes back");
    eventually("the relay has published every letter", LIMIT, async || {
        match group.kafka.read_all(&group.dlq()).await.len() {
            5 => Ok(()),
            found => Err(format!("{found} of 5")),
        }
    })
    .await;
    member.stop().await.unwrap();
    // Headers stay as they are, however often it goes around.
    let hops = group.kafka.read_all(&group.retry_topics()[0]).await;
    assert_eq!(hops.len(), 4);
    let letters = group.kafka.read_all(&group.dlq()).await;
    assert_eq!((letters.len(), letters[0].headers.len()), (5, letters[4].headers.len()));
    assert!(hops.iter().all(|it| it.headers.text(control::REPLAY) == Some(&id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_without_a_key_and_reused_keys_are_replayed_under_the_key_of_their_letter() {
    let group = Group::new("keyless", 1, |config| config.retry.delays = vec![Duration::from_millis(100)]).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    let keyless = sekali_tests::harness::Outgoing::new("k", "{\"a\":1}");
    let one = sekali_tests::harness::Outgoing::new("k", "{\"a\":2}").id("same");
    let other = sekali_tests::harness::Outgoing::new("k", "{\"a\":3}").id("same");
    group.produce([keyless, one, other]).await;
    states_become(&group, "two are dead", [2, 0, 0, 0]).await;
    let replayed = dlq(&group, &["replay", "--all", "--count", "2", "--reason", "x", "--yes"]).await;
    assert_eq!(replayed.outcome("replaying"), 2, "{}{}", replayed.stdout, replayed.stderr);
    states_become(&group, "both took effect", [0, 0, 2, 0]).await;
    member.stop().await.unwrap();
    once(&group, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_took_effect_meanwhile_is_not_sent_and_the_operator_is_told() {
    let (group, _, member) = repaired("late").await;
    // What a transaction that commits late leaves behind.
    group.database.execute("UPDATE sekali.inbox SET state = 1").await;
    let replayed = dlq(&group, &["replay", "--class", "permanent", "--reason", "x", "--rate", "5000", "--yes"]).await;
    assert_eq!((replayed.status, replayed.outcome("already_processed")), (3, MANY as u64), "{}", replayed.stderr);
    assert_eq!(states(&group).await, [0, 0, MANY as i64, 0]);
    assert_eq!(group.kafka.end_offsets(&group.retry_topics()[0]).await.values().sum::<i64>(), 0);
    member.stop().await.unwrap();
}
