//! `sekali drill`, with a real worker that is killed.

use sekali_tests::group::Group;
use sekali_tests::harness::program;

use super::Operator;

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_kills_a_real_worker_and_finds_each_event_decided_once() {
    let group = Group::new("drill", 2, |_| {}).await;
    let operator = Operator::of(&group);
    let command = format!("{} sekali.toml", program("sekali-test-member").display());
    let arguments = [
        "drill",
        "--staging",
        "--events",
        "150",
        "--kills",
        "2",
        "--worker-command",
        &command,
        "--worker-log",
        "worker.log",
        "--reason",
        "test",
    ];
    let (status, ended) = operator.json(&arguments).await;
    let log = std::fs::read_to_string(operator.directory.path().join("worker.log")).unwrap_or_default();
    assert_eq!((status, &ended["passed"]), (0, &true.into()), "{ended:#}\n{log}");
    assert_eq!((ended["kills"].as_i64(), ended["ledger"]["decided"].as_i64()), (Some(2), Some(150)), "{ended:#}");
    assert_eq!(group.effects().await.values().filter(|it| **it == 1).count(), 150, "the ledger agrees");
    let (_, points) = operator.json(&["doctor", "--checklist"]).await;
    assert_eq!(points[9]["verdict"], "ok", "{points:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_without_a_worker_fails_and_says_so() {
    let group = Group::new("nodrill", 1, |_| {}).await;
    let operator = Operator::of(&group);
    let unsaid = operator.run(&["drill", "--reason", "test"]).await;
    assert!(unsaid.status == 2 && unsaid.stderr.contains("--staging"), "{}", unsaid.stderr);
    let arguments =
        ["drill", "--staging", "--events", "10", "--within", "3s", "--worker-command", "sleep 60", "--reason", "test"];
    let (status, ended) = operator.json(&arguments).await;
    assert_eq!((status, &ended["passed"]), (3, &false.into()), "{ended:#}");
    assert!(ended["finding"].as_str().unwrap().contains("decided in time"), "{ended:#}");
    assert_eq!(operator.json(&["doctor", "--checklist"]).await.1[9]["verdict"], "failure");
}
