//! Payloads, headers, keys, addresses and filters that mean harm.

use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, TestDatabase};

use super::wire::escaped;
use super::{Console, id, letters, open_letters};
use crate::dlq::{Repairable, states_become};

const SCRIPT: &str = "<script>alert(1)</script>";
const BROKEN_OUT: &str = "\"><img src=x onerror=alert(1)>";

#[tokio::test(flavor = "multi_thread")]
async fn html_and_scripts_of_messages_are_shown_and_not_run() {
    let group = Group::new("console-html", 1, |_| {}).await;
    let member = group.start(Repairable::default()).await;
    let payload = format!("{{\"{SCRIPT}\":\"</pre>{BROKEN_OUT}\"}}");
    let hostile = Outgoing::new(BROKEN_OUT.to_owned(), payload)
        .id(&format!("{SCRIPT}{BROKEN_OUT}"))
        .header("cause", "stock".to_owned())
        .header(SCRIPT, format!("'{BROKEN_OUT}"));
    group.produce([hostile]).await;
    states_become(&group, "it is dead", [1, 0, 0, 0]).await;
    let console = Console::of(&group, &[("SEKALI_OPERATE__ALLOW_EDIT", "true")]).await;
    let anna = console.operator(&format!("anna{SCRIPT}")).await;
    let id = anna.get("/api/v1/messages").await.json()["letters"][0]["id"].as_str().unwrap().to_owned();
    let reason = format!("{SCRIPT}{BROKEN_OUT}");
    let form = [("act", "discard"), ("id", id.as_str()), ("count", "1"), ("reason", reason.as_str())];
    let operation = super::operation(&anna.act("/operations", &form).await);
    states_become(&group, "it is discarded", [0, 0, 0, 1]).await;
    let mut shown = 0;
    for path in [
        "/".to_owned(),
        "/?state=discarded".to_owned(),
        "/messages?state=discarded".to_owned(),
        format!("/messages?text={}", escaped(&reason)),
        format!("/messages/{id}"),
        format!("/messages/{id}?as=hex"),
        format!("/messages/{id}/edit"),
        format!("/preview?act=restore&id={id}"),
        format!("/preview?act=replay&topic={}", escaped(&reason)),
        "/operations".to_owned(),
        format!("/operations/{operation}"),
        "/audit".to_owned(),
        format!("/audit?who={}", escaped(&reason)),
        format!("/{}", escaped(SCRIPT)),
    ] {
        let answer = anna.get(&path).await;
        assert!(!answer.body.contains("<script>alert") && !answer.body.contains("<img"), "{path}: {}", answer.body);
        shown += usize::from(answer.body.contains("&lt;script&gt;alert(1)"));
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(!answer.body.contains(" style=") && !answer.body.contains(" onclick="), "{path}");
    }
    assert!(10 < shown, "the texts are shown, on {shown} pages");
    let login = console.stranger().get(&format!("/login?next={}", escaped(BROKEN_OUT))).await;
    assert!(login.status == 200 && !login.body.contains("<img"), "{}", login.body);
    let payload = anna.get(&format!("/messages/{id}/payload")).await;
    assert_eq!(payload.header("content-type"), Some("application/octet-stream"));
    assert_eq!(payload.header("content-disposition"), Some(format!("attachment; filename=\"{id}.bin\"").as_str()));
    assert_eq!(payload.header("x-content-type-options"), Some("nosniff"));
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_leads_to_files() {
    let database = TestDatabase::create().await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    for path in [
        "/assets/../../../../etc/passwd",
        "/assets/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/assets/%2e%2e/%2e%2e/etc/passwd",
        "/runbooks/../../../etc/passwd",
        "/runbooks/..%2f..%2fCargo.toml",
        "/messages/..%2f..%2f..%2fetc%2fpasswd",
        "/messages/%00",
        "/messages/%ff%fe/payload",
        "/operations/..%2f1",
        "/api/v1/messages/..%2f..%2fetc%2fpasswd",
        "/api/v1/../../etc/passwd",
        "//etc/passwd",
    ] {
        for client in [&anna, &console.stranger()] {
            let answer = client.get(path).await;
            assert!([303, 400, 401, 404].contains(&answer.status), "{path}: {}", answer.status);
            assert!(!answer.body.contains("root:") && !answer.body.contains("[workspace]"), "{path}: {}", answer.body);
        }
        assert!([400, 404].contains(&anna.get(path).await.status), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused() {
    let database = TestDatabase::create().await;
    letters(&database, 1, "{}").await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    let csrf = anna.csrf().await;
    let long = "x".repeat(8 * 1024);
    for path in ["/messages", "/api/v1/messages", "/login"] {
        for client in [&anna, &console.stranger()] {
            assert_eq!(client.get(&format!("{path}?text={long}")).await.status, 414, "{path}");
        }
    }
    let large = "x".repeat(65 * 1024);
    let form =
        [("csrf", csrf.as_str()), ("act", "discard"), ("state", "open"), ("count", "1"), ("reason", large.as_str())];
    assert_eq!(anna.post("/operations", &form).await.status, 413);
    assert_eq!(console.stranger().post("/login", &[("token", large.as_str())]).await.status, 413);
    let program = console.program("p");
    assert_eq!(program.send("POST", "/api/v1/operations", "application/json", large.as_bytes()).await.status, 413);
    let edit = format!("/messages/{}/edit", id(1));
    let huge = "x".repeat(4 * 1024 * 1024);
    assert_eq!(anna.post(&edit, &[("csrf", csrf.as_str()), ("payload", huge.as_str())]).await.status, 413);
    let deep = "[".repeat(60_000);
    assert_eq!(program.send("POST", "/api/v1/operations", "application/json", deep.as_bytes()).await.status, 400);
    assert_eq!(open_letters(&database).await, 1);
    assert_eq!(anna.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_in_a_filter_is_a_text_to_look_for() {
    let database = TestDatabase::create().await;
    letters(&database, 20, "{}").await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    let (places, names) = (["/", "/messages", "/api/v1/groups", "/api/v1/messages"], FILTERS);
    for sql in SQL {
        let value = escaped(sql);
        for (place, name) in places.iter().flat_map(|it| names.iter().map(move |name| (it, name))) {
            let answer = anna.get(&format!("{place}?{name}={value}")).await;
            assert!([200, 400].contains(&answer.status), "{place} {name} {sql}: {} {}", answer.status, answer.body);
            if answer.status == 200 && place.ends_with("messages") {
                assert!(!answer.body.contains(&id(1)), "{name} {sql} fits nothing");
            }
        }
        for path in [
            "/audit?who",
            "/audit?operation",
            "/audit?dead_letter",
            "/audit?since",
            "/messages?before",
            "/messages?first",
            "/api/v1/audit?who",
            "/api/v1/audit?before",
            "/api/v1/operations?first",
        ] {
            let answer = anna.get(&format!("{path}={value}")).await;
            assert!([200, 400].contains(&answer.status), "{path} {sql}: {} {}", answer.status, answer.body);
        }
        for name in names {
            let form = [("act", "discard"), (name, sql), ("count", "20"), ("reason", sql)];
            let answer = anna.act("/operations", &form).await;
            assert!([400, 409].contains(&answer.status), "{name} {sql}: {} {}", answer.status, answer.body);
        }
    }
    assert_eq!(open_letters(&database).await, 20);
    let operations: i64 = database.scalar("SELECT count(*) FROM sekali.operation").await;
    assert_eq!(operations, 0);
}

const FILTERS: [&str; 10] = ["consumer", "state", "topic", "group", "class", "key", "text", "since", "until", "id"];

const SQL: [&str; 8] = [
    "' OR '1'='1",
    "'; DROP TABLE sekali.dead_letter; --",
    "\\'; DELETE FROM sekali.dead_letter; --",
    "$1",
    "x' UNION SELECT rolname FROM pg_roles --",
    "%' OR 1=1 --",
    "\u{0}",
    "0) OR (1=1",
];
