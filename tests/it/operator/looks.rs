//! `sekali inbox show`, `sekali outbox status`, and filters with SQL in them.

use std::time::Duration;

use sekali_consumer::config::AfterDeadLetter;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;

use super::{Operator, message};

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_known_of_a_key_is_shown() {
    let group = Group::new("known", 1, |config| {
        config.consumer.after_dead_letter = AfterDeadLetter::Hold;
        config.retry.delays = vec![Duration::from_secs(300)];
    })
    .await;
    let records = [("a", 0, "ok"), ("b", 0, "permanent"), ("b", 1, "ok"), ("c", 0, "transient")];
    group.produce(records.map(|(key, place, script)| message(key, place, script))).await;
    let member = group.start(Scripted::default()).await;
    let decided = "SELECT count(*) FROM sekali.inbox";
    eventually("all are decided", LIMIT, async || group.database.scalar::<i64>(decided).await == 4).await;
    eventually("two keys are held", LIMIT, async || group.held().await == (2, 1)).await;
    member.stop().await.unwrap();
    let operator = Operator::of(&group);

    let (status, shown) = operator.json(&["inbox", "show", "a:0"]).await;
    let known = &shown["groups"][0];
    assert_eq!((status, &known["decision"]["state"]), (0, &"processed".into()), "{shown:#}");
    assert_eq!((&known["group"], known["decision"]["attempt"].as_i64()), (&group.name().into(), Some(1)));
    // The key of the row leads to the same.
    let row = shown["key"].as_str().unwrap();
    assert_eq!(operator.json(&["inbox", "show", row]).await.1["groups"][0]["decision"]["state"], "processed");

    let (_, shown) = operator.json(&["inbox", "show", "b:0", "--group", group.name()]).await;
    let dead = &shown["groups"][0]["dead_letters"][0];
    assert_eq!((&dead["state"], &dead["reason"]), (&"open".into(), &"permanent".into()), "{shown:#}");
    assert_eq!(dead["origin"], format!("{}/0/1", group.topic));
    assert_eq!(shown["groups"][0]["holds"]["messages"], 1);
    let head = shown["key"].clone();
    let (_, shown) = operator.json(&["inbox", "show", "b:1"]).await;
    assert_eq!(shown["groups"][0]["held"]["head"], head, "{shown:#}");
    assert_eq!(shown["groups"][0]["held"]["resource_key"], "b");

    let table = operator.run(&["inbox", "show", "c:0"]).await;
    Operator::table(&table, &["attempt 2 is to run next", "holds key \"c\""]);
    let unknown = operator.run(&["inbox", "show", "nobody"]).await;
    Operator::table(&unknown, &["no group of this database knows it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outbox_and_its_leader_are_shown() {
    let group = Group::new("status", 1, |config| config.relay.embedded = false).await;
    let operator = Operator::of(&group);
    let (status, empty) = operator.json(&["outbox", "status"]).await;
    assert_eq!((status, empty["pending"].as_i64(), &empty["leader"]), (0, Some(0), &serde_json::Value::Null));
    let stuck = "INSERT INTO sekali.outbox (topic, created_at) VALUES ('t', now() - interval '5 minutes'); \
         INSERT INTO sekali.outbox_later (topic, due_at) VALUES ('t', now() + interval '1 hour')";
    group.database.execute(stuck).await;
    let (status, shown) = operator.json(&["outbox", "status"]).await;
    assert_eq!((status, shown["pending"].as_i64(), shown["delayed"].as_i64()), (3, Some(1), Some(1)), "{shown:#}");
    assert!(299.0 < shown["oldest_seconds"].as_f64().unwrap());
    let leader = "INSERT INTO sekali.lock VALUES ('relay', gen_random_uuid(), 41, now() + interval '1 hour')";
    group.database.execute(leader).await;
    let (_, shown) = operator.json(&["outbox", "status"]).await;
    assert_eq!(shown["leader"]["fence"], 41);
    let table = operator.run(&["outbox", "status"]).await;
    assert!(table.stdout.contains("with fence 41") && table.stdout.contains("published "), "{}", table.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_in_a_filter_is_text() {
    let group = Group::new("quoted", 1, |_| {}).await;
    group.produce([message("a", 0, "ok")]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    let operator = Operator::of(&group);
    for text in ["' OR '1'='1", "x'; DROP TABLE sekali.inbox; --", "%", "\\x00ff", "$1", "NULL"] {
        for arguments in [
            &["inbox", "show", text][..],
            &["held", "list", "--key", text, "--topic", text, "--group", text],
            &["lock", "list", "--name", text],
            &["retry", "list", "--key", text, "--class", text, "--resource-key", text],
            &["paused", "--group", text],
        ] {
            let ended = operator.run(arguments).await;
            assert_eq!(ended.status, 0, "{arguments:?}: {}", ended.stderr);
            assert!(!ended.stdout.contains("a:0") && !ended.stdout.contains("processed"), "{arguments:?}");
        }
        let refused = operator.run(&["lock", "release", text, "--reason", text]).await;
        assert_eq!(refused.status, 1, "{}", refused.stderr);
    }
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM sekali.inbox").await, 1);
}
