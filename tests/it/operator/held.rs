//! `sekali held list|release`.

use std::time::Duration;

use sekali_consumer::config::AfterDeadLetter;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;

use super::{Operator, audited, effects_of, message};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_behind_an_open_dead_letter_goes_on_only_when_order_may_be_broken_or_it_is_closed() {
    let group = Group::new("release", 1, |config| config.consumer.after_dead_letter = AfterDeadLetter::Hold).await;
    let script = |place: usize| if place == 0 { "permanent" } else { "ok" };
    group.produce(["a", "b"].into_iter().flat_map(|key| (0..3).map(move |it| message(key, it, script(it))))).await;
    let member = group.start(Scripted::default()).await;
    eventually("both keys are held", LIMIT, async || group.held().await == (2, 4)).await;
    let operator = Operator::of(&group);

    let (_, listed) = operator.json(&["held", "list", "--topic", &group.topic]).await;
    assert_eq!(listed["rows"].as_array().unwrap().len(), 2, "{listed:#}");
    let first = &listed["rows"][0];
    assert_eq!((first["messages"].as_i64(), &first["head_state"]), (Some(2), &"dead".into()), "{listed:#}");
    let (_, one) = operator.json(&["held", "list", "--limit", "1"]).await;
    assert_eq!((one["rows"].as_array().unwrap().len(), one["more"].as_i64()), (1, Some(1)));
    let lines = operator.run(&["held", "list", "-o", "ndjson"]).await;
    assert_eq!(lines.stdout.lines().count(), 2, "{}", lines.stdout);

    // Refused, with what to do instead.
    let named = ["held", "release", "--topic", &group.topic, "--key", "a", "--reason", "test"];
    let refused = operator.run(&named).await;
    assert_eq!(refused.status, 3, "{}", refused.stderr);
    assert!(
        refused.stdout.contains("replay or discard") && refused.stdout.contains("--break-order"),
        "{}",
        refused.stdout
    );
    assert_eq!(group.held().await, (2, 4));
    // A selection is a dry run.
    let dry = operator.run(&["held", "release", "--group", group.name(), "--break-order", "--reason", "test"]).await;
    assert!(dry.status == 0 && dry.stderr.contains("dry run"), "{}{}", dry.stdout, dry.stderr);
    assert_eq!(group.held().await, (2, 4));

    let broken = operator.run(&[&named[..], &["--break-order"]].concat()).await;
    Operator::table(&broken, &["released_out_of_order"]);
    eventually("the first key flows", LIMIT, async || effects_of(&group, "a").await == [1, 2]).await;
    // Closed by an operator, its head can come no more.
    let closed = "WITH closed AS (UPDATE sekali.dead_letter SET state = 'discarded' WHERE key_text = 'b:0' RETURNING key) \
         UPDATE sekali.inbox SET state = 5 WHERE key IN (SELECT key FROM closed)";
    group.database.execute(closed).await;
    let (status, released) =
        operator.json(&["held", "release", "--topic", &group.topic, "--yes", "--reason", "test"]).await;
    assert_eq!((status, &released[0]["outcome"]), (0, &"released".into()), "{released:#}");
    eventually("the second key flows", LIMIT, async || effects_of(&group, "b").await == [1, 2]).await;
    eventually("nothing is held", LIMIT, async || group.held().await == (0, 0)).await;
    member.stop().await.unwrap();
    let outcomes: Vec<String> = audited(&group).await.into_iter().map(|it| it.1).collect();
    assert_eq!(outcomes, ["refused", "released_out_of_order", "released"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_behind_a_retry_is_released_only_out_of_order_and_its_head_still_takes_effect() {
    let group = Group::new("overtaken", 1, |config| config.retry.delays = vec![Duration::from_secs(20)]).await;
    let script = |place: usize| if place == 0 { "transient=1" } else { "ok" };
    group.produce((0..3).map(|it| message("a", it, script(it)))).await;
    let member = group.start(Scripted::default()).await;
    eventually("the key is held", LIMIT, async || group.held().await == (1, 2)).await;
    let operator = Operator::of(&group);
    let named = ["held", "release", "--key", "a", "--reason", "test"];
    let refused = operator.run(&named).await;
    assert!(refused.status == 3 && refused.stdout.contains("retry run-now"), "{}{}", refused.stdout, refused.stderr);
    Operator::table(&operator.run(&[&named[..], &["--break-order"]].concat()).await, &["released_out_of_order"]);
    eventually("the later ones flow", LIMIT, async || effects_of(&group, "a").await == [1, 2]).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(effects_of(&group, "a").await, [1, 2, 0]);
    assert_eq!(group.held().await, (0, 0));
}
