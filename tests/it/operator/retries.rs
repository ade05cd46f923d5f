//! `sekali retry list|run-now`.

use std::time::{Duration, Instant};

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;

use super::{Operator, audited, effects_of, message};

/// What waits for an attempt and is published.
async fn is_waiting(group: &Group, operator: &Operator, count: usize) {
    eventually("the retries wait", LIMIT, async || {
        let (_, listed) = operator.json(&["retry", "list"]).await;
        let rows = listed["rows"].as_array().unwrap();
        rows.len() == count && rows.iter().all(|it| it["place"].as_str().unwrap().starts_with(&group.topic))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_runs_now_with_its_attempt_and_in_its_order() {
    let group = Group::new("now", 2, |config| {
        config.retry.delays = [1, 600].map(Duration::from_secs).to_vec();
        config.retry.jitter = 0.0;
    })
    .await;
    let script = |place: usize| if place == 0 { "transient=2" } else { "ok" };
    group.produce(["a", "b"].into_iter().flat_map(|key| (0..3).map(move |it| message(key, it, script(it))))).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    let operator = Operator::of(&group);
    let second = "SELECT count(*) FROM sekali.inbox WHERE state = 2 AND attempt = 3";
    eventually("both failed twice", LIMIT, async || group.database.scalar::<i64>(second).await == 2).await;
    is_waiting(&group, &operator, 2).await;

    let (status, listed) = operator.json(&["retry", "list", "--key", "a:0"]).await;
    let row = &listed["rows"][0];
    assert_eq!((status, row["attempt"].as_i64(), &row["class"]), (0, Some(3), &"transient".into()), "{listed:#}");
    assert!(500.0 < row["due_in_seconds"].as_f64().unwrap() && row["code"] == "SCRIPT", "{listed:#}");
    let table = operator.run(&["retry", "list", "--resource-key", "b"]).await;
    Operator::table(&table, &["b:0", "transient SCRIPT"]);

    // A selection is a dry run.
    let dry = operator.run(&["retry", "run-now", "--topic", &group.topic, "--reason", "test"]).await;
    assert!(dry.status == 0 && dry.stderr.contains("dry run"), "{}", dry.stderr);
    assert_eq!(audited(&group).await, []);
    let started = Instant::now();
    let (status, done) = operator.json(&["retry", "run-now", "--key", "a:0", "--reason", "fixed"]).await;
    assert_eq!((status, &done[0]["outcome"], done[0]["attempt"].as_i64()), (0, &"due".into(), Some(3)), "{done:#}");
    eventually("all of the key is there", LIMIT, async || effects_of(&group, "a").await == [0, 1, 2]).await;
    assert!(started.elapsed() < Duration::from_secs(60), "it ran before it was due");
    assert_eq!(handler.attempts("a:0").iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(effects_of(&group, "b").await, [0; 0], "the other one waits");

    // The first copy is stale now, and nothing waits for an attempt of this key.
    let (status, again) = operator.json(&["retry", "run-now", "--key", "a:0", "--reason", "again"]).await;
    assert_eq!((status, again.as_array().unwrap().len()), (3, 0), "{again:#}");
    assert_eq!(operator.json(&["retry", "list", "--key", "a:0"]).await.1["stale"], 1);
    // Twice at once: one effect.
    let bulk = ["retry", "run-now", "--topic", &group.topic, "--yes", "--reason", "all"];
    let (one, two) = tokio::join!(operator.run(&bulk), operator.run(&bulk));
    assert!(one.status == 0 || two.status == 0, "{}{}", one.stderr, two.stderr);
    eventually("all is there", LIMIT, async || effects_of(&group, "b").await == [0, 1, 2]).await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await.values().copied().max(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_record_is_gone_is_found() {
    let group = Group::new("gone", 1, |_| {}).await;
    group.produce([message("a", 0, "ok")]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    let operator = Operator::of(&group);
    assert_eq!(operator.json(&["retry", "list", "--missing"]).await.0, 0);
    group
        .database
        .execute("UPDATE sekali.inbox SET state = 2, attempt = 2, decided_at = now() - interval '5 minutes'")
        .await;
    let (status, listed) = operator.json(&["retry", "list", "--missing"]).await;
    assert_eq!((status, listed["missing"].as_array().unwrap().len()), (3, 1), "{listed:#}");
}
