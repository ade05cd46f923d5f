//! Every way that one record can end.

use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::scripted::{SCRIPT, Scripted};

const GOOD: usize = 100;

/// Where a record must be, and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ledger { attempt: i32 },
    Dead { reason: &'static str, class: &'static str, attempts: i16 },
}

fn scripted(key: &str, id: &str, script: &str) -> Outgoing {
    Outgoing::new(key.to_owned(), "{}").id(id).header(SCRIPT, script.to_owned())
}

/// One special record at offset 0, a hundred good ones behind it, three restarts.
async fn ends_as(name: &str, special: Outgoing, id: &str, expected: End) {
    let group = Group::new(&format!("outcome-{name}"), 1, |config| {
        config.consumer.handler_timeout = std::time::Duration::from_millis(700);
    })
    .await;
    group.produce([special]).await;
    group.produce((0..GOOD).map(|it| scripted("good", &format!("good-{it}"), "ok"))).await;
    for _restart in 0..3 {
        let member = group.start(Scripted::default()).await;
        group.settled().await;
        member.stop().await.unwrap();
    }
    let mut effects = group.effects().await;
    let special = effects.remove(id).unwrap_or_default();
    assert_eq!(effects.len(), GOOD, "{name}: the neighbours");
    assert!(effects.values().all(|it| *it == 1), "{name}: a neighbour took effect twice");
    let dead = group.dead_letters().await;
    let on_topic = group.kafka.read_all(&group.dlq()).await.len();
    match expected {
        End::Ledger { attempt } => {
            assert_eq!((special, dead.len(), on_topic), (1, 0, 0), "{name}: {dead:?}");
            let sql = format!("SELECT attempt FROM effect WHERE key_text = '{id}'");
            assert_eq!(group.database.scalar::<i32>(&sql).await, attempt, "{name}");
        }
        End::Dead { reason, class, attempts } => {
            assert_eq!((special, dead.len(), on_topic), (0, 1, 1), "{name}: {dead:?}");
            let (_, found_reason, found_class, found_attempts) = &dead[0];
            assert_eq!(
                (found_reason.as_str(), found_class.as_str(), *found_attempts),
                (reason, class, attempts),
                "{name}"
            );
        }
    }
    assert_eq!(group.kafka.committed_offsets(group.name(), &group.topic).await[&0], 1 + GOOD as i64, "{name}");
}

macro_rules! outcomes {
    ($($name:ident: $script:literal => $end:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                ends_as(&stringify!($name).replace('_', "-"), scripted("k", "special", $script), "special", $end).await;
            }
        )*
    };
}

outcomes! {
    ok_ends_in_the_ledger: "ok" => End::Ledger { attempt: 1 };
    a_transient_failure_ends_in_the_ledger_later: "transient=1" => End::Ledger { attempt: 2 };
    transient_failures_without_end_are_exhausted: "transient" => End::Dead { reason: "exhausted", class: "transient", attempts: 3 };
    a_permanent_failure_dies_at_once: "permanent" => End::Dead { reason: "permanent", class: "permanent", attempts: 1 };
    a_panic_is_contained_and_retried: "panic=1" => End::Ledger { attempt: 2 };
    a_panic_without_end_is_exhausted: "panic" => End::Dead { reason: "exhausted", class: "panic", attempts: 3 };
    a_handler_that_hangs_is_ended_and_retried: "hang=1" => End::Ledger { attempt: 2 };
    a_swallowed_sql_error_is_not_acknowledged: "swallow=1" => End::Ledger { attempt: 2 };
    swallowing_without_end_is_exhausted: "swallow" => End::Dead { reason: "exhausted", class: "aborted_transaction", attempts: 3 };
    an_sql_error_about_data_is_permanent: "sql=22P02" => End::Dead { reason: "permanent", class: "permanent", attempts: 1 };
    an_sql_error_of_another_kind_is_transient: "sql=P0001" => End::Dead { reason: "exhausted", class: "transient", attempts: 3 };
    contention_burns_no_attempt: "contended=4" => End::Ledger { attempt: 1 };
    a_rejection_inside_a_batch_is_retried: "reject=2" => End::Ledger { attempt: 3 };
    a_permanent_rejection_inside_a_batch_dies_at_once: "reject-permanent" => End::Dead { reason: "permanent", class: "permanent", attempts: 1 };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_idempotency_key_is_invalid() {
    let record = Outgoing::new("k", "{}");
    let end = End::Dead { reason: "invalid", class: "invalid", attempts: 1 };
    ends_as("missing-key", record, "-", end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_key_with_another_payload_does_not_vanish() {
    let group = Group::new("key-reuse", 1, |_| {}).await;
    group.produce([Outgoing::new("k", "first").id("same"), Outgoing::new("k", "second").id("same")]).await;
    for _restart in 0..2 {
        let member = group.start(Scripted::default()).await;
        group.settled().await;
        group.produce([Outgoing::new("k", "second").id("same")]).await;
        group.settled().await;
        member.stop().await.unwrap();
    }
    assert_eq!(group.effects().await["same"], 1);
    let dead = group.dead_letters().await;
    assert_eq!(dead.len(), 1, "one dead letter for one other payload: {dead:?}");
    assert_eq!((dead[0].1.as_str(), dead[0].2.as_str()), ("key_reuse", "key_reuse"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_takes_effect_once_wherever_it_comes() {
    let group = Group::new("duplicate", 2, |_| {}).await;
    let copy = |partition| scripted("k", "twice", "ok").partition(partition);
    group.produce([copy(0), copy(0), copy(1)]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    group.produce([copy(0), copy(1)]).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.effects().await, [("twice".to_owned(), 1)].into());
    assert!(group.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn work_cancelled_by_shutdown_is_not_committed_and_burns_no_attempt() {
    let group =
        Group::new("cancelled", 1, |config| config.consumer.drain_timeout = std::time::Duration::from_secs(1)).await;
    group.produce([scripted("k", "hangs", "hang")]).await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    eventually("the handler hangs", sekali_tests::group::LIMIT, async || !handler.seen("hangs").is_empty()).await;
    member.stop().await.unwrap();
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM sekali.inbox").await, 0);
    let committed = group.kafka.committed_offsets(group.name(), &group.topic).await;
    assert_eq!(committed.get(&0).copied().unwrap_or_default(), 0, "{committed:?}");
    assert_eq!(handler.seen("hangs"), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_record_that_nobody_decided_is_an_orphan() {
    let group = Group::new("orphan", 1, |_| {}).await;
    let mut record = scripted("k", "orphan", "ok");
    let headers = [
        ("sekali-attempt", "2"),
        ("sekali-due-at", "0"),
        ("sekali-group", group.name()),
        ("sekali-origin-topic", group.topic.as_str()),
        ("sekali-origin-partition", "0"),
        ("sekali-origin-offset", "7"),
        ("sekali-first-failed-at", "0"),
    ];
    for (name, value) in headers {
        record = record.header(name, value.to_owned());
    }
    let retry = group.retry_topics().remove(0);
    // The same without its attempt: unreadable, and not attempt 0.
    let mut unreadable = record.clone();
    unreadable.headers.retain(|it| it.0 != "sekali-attempt");
    group.kafka.produce(&retry, [record, unreadable]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert!(group.effects().await.is_empty());
    let reasons: Vec<String> = group.dead_letters().await.into_iter().map(|it| it.1).collect();
    assert_eq!(reasons, ["invalid", "orphan"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_result_is_stored_with_its_decision() {
    let group = Group::new("result", 1, |_| {}).await;
    group.produce([scripted("k", "result", "result"), scripted("k", "plain", "ok")]).await;
    let member = group.start(Scripted::default()).await;
    group.settled().await;
    member.stop().await.unwrap();
    let stored: Vec<serde_json::Value> = {
        let client = group.database.connect().await;
        let rows = client.query("SELECT result FROM sekali.inbox WHERE result IS NOT NULL", &[]).await.unwrap();
        rows.iter().map(|it| it.get(0)).collect()
    };
    assert_eq!(stored, [serde_json::json!({"attempt": 1})]);
}
