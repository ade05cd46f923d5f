//! `sekali doctor`, with one fault after the other.

use sekali_tests::harness::{TestDatabase, kafka};
use serde_json::Value;

use super::Operator;

/// Names of the checks by status.
fn named(checks: &Value, status: &str) -> Vec<String> {
    let matching = checks.as_array().unwrap().iter().filter(|it| it["status"] == status);
    matching.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

fn finding(checks: &Value, name: &str) -> String {
    let found = checks.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    format!("{} {}", found["finding"].as_str().unwrap(), found["remedy"].as_str().unwrap())
}

/// The test server may run without fsync, and no worker leads the relay.
fn expected_warnings(checks: &Value) -> bool {
    named(checks, "warn").iter().all(|it| it == "durability" || it == "relay")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_group_has_no_findings() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    operator.run(&["topics", "apply"]).await.expect(0, &[]);
    let (status, checks) = operator.json(&["doctor"]).await;
    assert_eq!(status, 0, "{checks:#}");
    assert!(expected_warnings(&checks), "{checks:#}");
    assert_eq!(checks.as_array().unwrap().len(), 11);
    database.execute("INSERT INTO sekali.lock VALUES ('relay', gen_random_uuid(), 1, now() + interval '1 hour')").await;
    let (_, checks) = operator.json(&["doctor", "--check", "relay"]).await;
    assert_eq!(named(&checks, "ok"), ["relay"], "{checks:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topics_and_tables_are_failures() {
    let database = TestDatabase::create_empty().await;
    let operator = Operator::new(&database).await;
    let (status, checks) = operator.json(&["doctor"]).await;
    assert_eq!(status, 3);
    assert_eq!(named(&checks, "fail"), ["topics", "schema"], "{checks:#}");
    assert_eq!(named(&checks, "skipped"), ["retention", "permissions", "outbox", "relay"], "{checks:#}");
    assert!(finding(&checks, "topics").contains("sekali topics apply"));
    assert!(finding(&checks, "schema").contains("sekali migrate"));
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_is_that_of_the_cluster() {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    let twenty_days = (20_i64 * 24 * 3600 * 1000).to_string();
    kafka().await.create_exactly(&[(&operator.topic, 3)], &[("retention.ms", &twenty_days)]).await;
    let (status, checks) = operator.json(&["doctor", "--check", "retention"]).await;
    assert_eq!((status, named(&checks, "fail")), (3, vec!["retention".to_owned()]), "{checks:#}");
    let finding = finding(&checks, "retention");
    assert!(finding.contains("9days") && finding.contains("20days") && finding.contains(&operator.topic), "{finding}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_rights_an_old_outbox_and_a_small_server_are_noticed() {
    let database = TestDatabase::create().await;
    let mut operator = Operator::new(&database).await;
    database.execute("INSERT INTO sekali.outbox (topic, created_at) VALUES ('t', now() - interval '5 minutes')").await;
    let (status, checks) = operator.json(&["doctor", "--check", "outbox"]).await;
    assert_eq!((status, named(&checks, "fail")), (3, vec!["outbox".to_owned()]), "{checks:#}");

    let before = operator.url.clone();
    let role = database.name().replace("sekali_test", "r");
    let grants = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA sekali TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA sekali TO {role}"
    );
    database.execute(&grants).await;
    let (authority, host) = (before.find("://").unwrap() + 3, before.rfind('@').unwrap());
    operator.url = format!("{}{role}:x{}", &before[..authority], &before[host..]);
    operator.configure();
    let (status, checks) = operator.json(&["doctor", "--check", "permissions"]).await;
    assert_eq!((status, named(&checks, "fail")), (3, vec!["permissions".to_owned()]), "{checks:#}");
    assert!(finding(&checks, "permissions").contains("inbox"), "{checks:#}");
    assert!(!finding(&checks, "permissions").contains("migration"), "reading is enough there: {checks:#}");
    database.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;

    operator.url = before;
    operator.configure();
    let path = operator.dir.path().join("sekali.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("[postgres]\n", "[postgres]\npool_max_connections = 100000\n")).unwrap();
    let (status, checks) = operator.json(&["doctor", "--check", "connections"]).await;
    assert_eq!((status, named(&checks, "fail")), (3, vec!["connections".to_owned()]), "{checks:#}");
}
