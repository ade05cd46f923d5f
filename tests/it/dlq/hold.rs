//! Keys that wait behind their dead letter.

use sekali_consumer::config::AfterDeadLetter;
use sekali_tests::group::Group;
use sekali_tests::harness::eventually;
use serde_json::json;

use super::{LIMIT, Repairable, dlq, message, once, states_become};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_waits_behind_its_dead_letter_until_that_is_replayed_or_discarded() {
    let group = Group::new("holds", 1, |config| config.consumer.after_dead_letter = AfterDeadLetter::Hold).await;
    let handler = Repairable::default();
    let member = group.start(handler.clone()).await;
    for (key, cause) in [("a", "stock"), ("b", "price")] {
        group.produce((0..5).map(|nr| message(key, nr, if nr == 1 { cause } else { "none" }))).await;
    }
    states_become(&group, "both heads are dead", [2, 0, 0, 0]).await;
    eventually("the others wait", LIMIT, async || group.held().await == (2, 6)).await;
    let of = async |key: &str| {
        let listed = dlq(&group, &["list", "--text", key]).await.json();
        listed["letters"][0]["id"].as_str().unwrap().to_owned()
    };
    let (a, b) = (of("a:1").await, of("b:1").await);
    let shown = dlq(&group, &["show", &a]).await.json();
    assert_eq!(shown["holds"]["messages"], json!(3));
    let dry = dlq(&group, &["replay", "--class", "permanent", "--reason", "x"]).await.json();
    assert_eq!(dry["preview"]["keys_at_risk"], json!(0), "nothing has moved on: {dry:#}");

    // A replay that fails again lets nobody pass.
    dlq(&group, &["replay", &a, "--reason", "perhaps", "--yes"]).await;
    eventually("it is open again", LIMIT, async || {
        let shown = dlq(&group, &["show", &a]).await.json();
        shown["state"] == json!("open") && shown["replays"] == json!(1)
    })
    .await;
    assert_eq!((&group.order().await["a"], &group.order().await["b"]), (&vec![0], &vec![0]));

    handler.repair(&handler.stock);
    let replayed = dlq(&group, &["replay", &a, "--reason", "repaired", "--yes"]).await;
    assert_eq!(replayed.outcome("replaying"), 1, "{}", replayed.stderr);
    eventually("the first key flows, in order", LIMIT, async || group.order().await["a"] == [0, 1, 2, 3, 4]).await;
    assert_eq!(group.order().await["b"], [0]);
    let discarded = dlq(&group, &["discard", &b, "--reason", "wrong", "--yes"]).await;
    assert_eq!(discarded.outcome("discarded"), 1, "{}", discarded.stderr);
    eventually("the second key flows without it", LIMIT, async || group.order().await["b"] == [0, 2, 3, 4]).await;
    eventually("nothing is held", LIMIT, async || group.held().await == (0, 0)).await;
    member.stop().await.unwrap();
    once(&group, 9).await;
}
