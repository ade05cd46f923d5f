//! `sekali doctor --checklist`.

use std::time::Duration;

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;
use serde_json::Value;

use super::{Operator, message};

const HOUR: Duration = Duration::from_secs(3_600);

fn point(points: &Value, number: usize) -> (&str, String) {
    let it = &points[number - 1];
    assert_eq!(it["number"].as_u64(), Some(number as u64), "{points:#}");
    (
        it["verdict"].as_str().unwrap(),
        format!("{} -> {}", it["figure"].as_str().unwrap(), it["remedy"].as_str().unwrap()),
    )
}

/// The server of the tests may run without what makes it durable.
async fn is_durable(group: &Group) -> bool {
    group.database.scalar("SELECT current_setting('fsync')::bool AND current_setting('full_page_writes')::bool").await
}

async fn worked(label: &str) -> Group {
    let group = Group::new(label, 2, |_| {}).await;
    group.produce((0..30).map(|it| message(&format!("k{}", it % 5), it, "ok"))).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    group
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_deployment_has_warnings_only_for_what_was_not_measured() {
    let group = worked("good").await;
    let operator = Operator::of(&group);
    let drill = "INSERT INTO sekali.drill (id, consumer_id, who, topic, events, decided, kills, outcome, ended_at) \
         SELECT gen_random_uuid(), id, 'test', 't', 300, 300, 2, 'passed', now() FROM sekali.consumer";
    group.database.execute(drill).await;
    let (status, points) = operator.json(&["doctor", "--checklist"]).await;
    assert_eq!(points.as_array().unwrap().len(), 10);
    let durable = is_durable(&group).await;
    for number in 1..=10 {
        let (verdict, text) = point(&points, number);
        let expected = match number {
            2 if !durable => "failure",
            6 | 9 => "warning",
            _ => "ok",
        };
        assert_eq!(verdict, expected, "{number}: {text}");
    }
    assert_eq!(status, if durable { 0 } else { 3 });
    assert!(point(&points, 1).1.contains("header idempotency-key 100 %"), "{points:#}");
    assert!(point(&points, 8).1.contains("records behind committed offsets are decided"), "{points:#}");
    assert!(point(&points, 4).1.contains("no message got more attempts"), "{points:#}");
    assert!(point(&points, 8).1.contains("enable.auto.commit = false"), "{points:#}");
    let table = operator.run(&["doctor", "--checklist"]).await;
    assert!(table.stdout.contains("10 ok       a crash drill was run"), "{}", table.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_deployment_fails_on_the_right_points() {
    let mut group = worked("bad").await;
    // Configured topics that keep their records for an hour; those that are there keep them for longer.
    group.config.inbox.retention = Some(Duration::from_secs(3 * 3_600));
    (group.config.topics.source_retention, group.config.topics.retry_retention) = (HOUR, HOUR);
    group.config.retry.jitter = 0.0;
    let operator = Operator::of(&group);
    let name = group.database.name();
    let spoil = format!(
        "ALTER TABLE sekali.inbox SET UNLOGGED; ALTER DATABASE {name} SET synchronous_commit = off; \
         DELETE FROM sekali.inbox WHERE key IN (SELECT key FROM sekali.inbox LIMIT 3); \
         INSERT INTO sekali.drill (id, consumer_id, who, topic, events, outcome, finding) \
         SELECT gen_random_uuid(), id, 'test', 't', 300, 'failed', 'two were doubled' FROM sekali.consumer; \
         INSERT INTO sekali.dead_letter (id, consumer_id, key, reason, class, code, message, attempts, origin_topic, \
         origin_partition, origin_offset, header_names, header_values, group_fingerprint, first_failed_at, last_failed_at) \
         SELECT gen_random_uuid(), consumer.id, gen_random_uuid(), 'exhausted', 'transient', '', 'm', 30, '{}', 0, it, '{{}}', \
         '{{}}', 1, now() - interval '20 days', now() - interval '20 days' FROM sekali.consumer, generate_series(1, 25) AS it",
        group.topic
    );
    group.database.execute(&spoil).await;
    group.kafka.delete_topics(&[&group.dlq(), &group.retry_topics()[0]]).await;
    group.produce([sekali_tests::harness::Outgoing::new("nobody", "{}")]).await;
    let closed = "http://127.0.0.1:9";
    let arguments = ["doctor", "--checklist", "--prometheus", closed, "--admin", closed];
    let mut found = Value::Null;
    eventually("the dead-letter topic is gone", LIMIT, async || {
        let (status, points) = operator.json(&arguments).await;
        assert_eq!(status, 3, "{points:#}");
        found = points;
        point(&found, 5).1.contains("missing: ") && point(&found, 4).1.contains("missing: ")
    })
    .await;
    for (number, verdict, texts) in [
        (1, "failure", &["1 records have no idempotency key"][..]),
        (2, "failure", &["unlogged: inbox", "synchronous_commit", "inbox.retention"]),
        (3, "warning", &["transient 100 %", "all 25 without a code", "Failure::permanent"]),
        (4, "failure", &["retry.jitter", "missing: ", "25 messages got up to 30 attempts"]),
        (5, "failure", &["sekali topics apply", "25 open, 0 replayed or closed"]),
        (6, "failure", &["the worker was not asked"]),
        (8, "failure", &["3 of 30 records behind committed offsets are not decided"]),
        (9, "failure", &["Prometheus was not asked"]),
        (10, "failure", &["two were doubled"]),
    ] {
        let (is, text) = point(&found, number);
        assert_eq!(is, verdict, "{number}: {text}");
        texts.iter().for_each(|it| assert!(text.contains(it), "{number}: {it:?} is not in {text}"));
    }
}
