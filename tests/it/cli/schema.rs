//! Migrations, and what they end in.

use std::path::Path;

use sekali_schemas::migrations::Part;
use sekali_tests::harness::{TestDatabase, workspace_root};
use serde_json::json;
use tokio::join;

use super::Operator;

/// Set to write the golden file anew instead of comparing with it.
const WRITE: &str = "SEKALI_TEST_WRITE_GOLDEN";

#[tokio::test(flavor = "multi_thread")]
async fn migrating_twice_and_at_once_is_safe() {
    let database = TestDatabase::create_empty().await;
    let operator = Operator::new(&database).await;
    let (one, two, three) =
        join!(operator.json(&["migrate"]), operator.json(&["migrate"]), operator.json(&["migrate"]));
    let applied: Vec<usize> = [&one, &two, &three].map(|it| it.1["applied"].as_array().unwrap().len()).to_vec();
    let versions = json!({"outbox": Part::Outbox.latest_version(), "inbox": Part::Inbox.latest_version()});
    let latest: i64 = Part::ALL.iter().map(|it| it.latest_version()).sum();
    assert_eq!([one.0, two.0, three.0], [0; 3]);
    assert_eq!(applied.iter().sum::<usize>() as i64, latest, "each migration ran once: {applied:?}");
    let (status, again) = operator.json(&["migrate"]).await;
    assert_eq!((status, &again["applied"], &again["versions"]), (0, &json!([]), &versions));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_only_publishes_gets_the_outbox_and_a_group_the_rest_later() {
    let database = TestDatabase::create_empty().await;
    let operator = Operator::new(&database).await;
    let (status, report) = operator.json(&["migrate", "--only", "outbox"]).await;
    assert_eq!((status, &report["versions"]), (0, &json!({"outbox": Part::Outbox.latest_version()})));
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'sekali' AND tablename IN ('outbox', 'inbox')";
    assert_eq!(database.scalar::<i64>(tables).await, 1);
    let found = operator.run(&["doctor", "--check", "schema"]).await;
    assert_eq!(found.status, 3);
    let words: Vec<&str> = found.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("has no part inbox"), "{}", found.stdout);
    let (status, report) = operator.json(&["migrate"]).await;
    assert_eq!((status, &report["applied"][0]["part"]), (0, &json!("inbox")));
    assert_eq!(database.scalar::<i64>(tables).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_left_alone() {
    let database = TestDatabase::create().await;
    database.execute("INSERT INTO sekali.migration_inbox VALUES (9999, 'future', '2030-01-01T00:00:00Z', '1')").await;
    let operator = Operator::new(&database).await;
    let (status, report) = operator.json(&["migrate"]).await;
    assert_eq!((status, &report["versions"]["inbox"]), (0, &9999.into()));
    assert_eq!(operator.run(&["doctor", "--check", "schema"]).await.status, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_create_is_told_so_and_writes_nothing() {
    let database = TestDatabase::create_empty().await;
    let role = database.name().replace("sekali_test", "r");
    database.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'x'")).await;
    let mut operator = Operator::new(&database).await;
    let authority = operator.url.find("://").unwrap() + 3;
    let host = operator.url.rfind('@').unwrap();
    operator.url.replace_range(authority..host, &format!("{role}:x"));
    operator.configure();
    operator.run(&["migrate"]).await.expect(1, &["create schema sekali", "needs CREATE", "42501"]);
    let schemas: i64 = database.scalar("SELECT count(*) FROM pg_namespace WHERE nspname = 'sekali'").await;
    assert_eq!(schemas, 0);
    database.execute(&format!("DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_migration_is_noticed() {
    let database = TestDatabase::create().await;
    database.execute("UPDATE sekali.migration_inbox SET checksum = '1' WHERE version = 1").await;
    let operator = Operator::new(&database).await;
    operator.run(&["migrate"]).await.expect(1, &["migration 1 was applied with another text"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_let_in_says_why() {
    let database = TestDatabase::create().await;
    let mut operator = Operator::new(&database).await;
    let url = operator.url.clone();
    operator.url = format!("{}/no_such_database", url.rsplit_once('/').unwrap().0);
    operator.configure();
    operator.run(&["migrate"]).await.expect(1, &["open the database: it does not exist", "3D000"]);
    let (authority, host) = (url.find("://").unwrap() + 3, url.rfind('@').unwrap());
    let user = url[authority..host].split(':').next().unwrap().to_owned();
    operator.url = format!("{}{user}:wrong-password{}", &url[..authority], &url[host..]);
    operator.configure();
    let ended = operator.run(&["migrate"]).await;
    ended.expect(1, &["the password is wrong"]);
    assert!(!ended.stderr.contains("wrong-password"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_is_the_golden_one() {
    let database = TestDatabase::create().await;
    let path = workspace_root().join("tests/golden/schema.txt");
    let dump = dump(&database).await;
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &dump).unwrap();
    }
    assert_same(&path, &dump);
}

fn assert_same(path: &Path, dump: &str) {
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    let differing = dump.lines().zip(golden.lines()).find(|(now, then)| now != then);
    assert!(
        dump == golden,
        "the schema differs from {} at {differing:?}; a change on purpose is written there with {WRITE}=1",
        path.display()
    );
}

/// Tables, columns, constraints, indexes, sequences and storage settings as text, whatever the server's version.
async fn dump(database: &TestDatabase) -> String {
    let client = database.connect().await;
    let mut dump = String::new();
    for (heading, sql) in [
        (
            "columns",
            "SELECT table_name || '.' || column_name || ' ' || data_type
                    || CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
                    || coalesce(' default ' || column_default, '')
                    || coalesce(' generated ' || lower(identity_generation) || ' as identity', '')
             FROM information_schema.columns WHERE table_schema = 'sekali' ORDER BY table_name, ordinal_position",
        ),
        (
            // Not-null constraints have entries of their own from version 18.
            "constraints",
            "SELECT conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid)
             FROM pg_constraint WHERE connamespace = 'sekali'::regnamespace AND contype <> 'n'
             ORDER BY conrelid::regclass::text, conname",
        ),
        ("indexes", "SELECT indexdef FROM pg_indexes WHERE schemaname = 'sekali' ORDER BY indexname"),
        (
            "sequences",
            "SELECT sequence_name || ' ' || data_type || ' from ' || start_value || ' by ' || increment
             FROM information_schema.sequences WHERE sequence_schema = 'sekali' ORDER BY sequence_name",
        ),
        (
            "storage",
            "SELECT relname || ' ' || array_to_string(reloptions, ', ') FROM pg_class
             WHERE relnamespace = 'sekali'::regnamespace AND reloptions IS NOT NULL ORDER BY relname",
        ),
        (
            "functions and triggers",
            "SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'sekali'::regnamespace
             UNION ALL
             SELECT 'trigger ' || tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
             WHERE relnamespace = 'sekali'::regnamespace AND NOT tgisinternal ORDER BY 1",
        ),
    ] {
        dump.push_str(&format!("# {heading}\n"));
        for row in client.query(sql, &[]).await.unwrap() {
            dump.push_str(&format!("{}\n", row.get::<_, String>(0)));
        }
        dump.push('\n');
    }
    dump
}
