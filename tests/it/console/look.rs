//! What is shown, and what is not.

use sekali_tests::harness::TestDatabase;

use super::{Console, id, letters};

const SECRET: &str = "jane@example.com";

#[tokio::test(flavor = "multi_thread")]
async fn masked_values_are_nowhere_and_what_cannot_be_masked_is_withheld() {
    let database = TestDatabase::create().await;
    let payload =
        format!("{{\"email\":\"{SECRET}\", \"lines\": [{{\"iban\":\"{SECRET}\",\"n\":12345678901234567890}}]}}");
    letters(&database, 1, &payload).await;
    let env = [("SEKALI_CONSOLE__MASK", "[\"/email\", \"/lines/*/iban\"]"), ("SEKALI_OPERATE__ALLOW_EDIT", "true")];
    let console = Console::start(&database.url(), &env).await;
    let anna = console.operator("anna").await;
    let place = format!("/messages/{}", id(1));
    let address: String = SECRET.bytes().map(|it| format!(" {it:02x}")).collect();
    for path in [&place, &format!("{place}?as=hex"), &format!("{place}/payload"), &format!("/api/v1{place}")] {
        let answer = anna.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.contains(SECRET) && !answer.body.contains(&address), "{path}: {}", answer.body);
    }
    let raw = anna.get(&format!("{place}/payload")).await.body;
    assert_eq!(raw, "{\"email\":\"***\", \"lines\": [{\"iban\":\"***\",\"n\":12345678901234567890}]}");
    let json = anna.get(&format!("/api/v1{place}")).await.json();
    assert_eq!((&json["payload_values_masked"], &json["payload_withheld"]), (&2.into(), &false.into()));
    let page = anna.get(&place).await.body;
    assert!(page.contains("2 values are masked") && page.contains("12345678901234567890"), "{page}");
    let edit = anna.get(&format!("{place}/edit")).await;
    assert!(edit.status == 403 && edit.body.contains("masked"), "what is masked would be lost: {}", edit.body);

    database.execute(&format!("UPDATE sekali.dead_letter SET payload = '{SECRET} is no JSON'")).await;
    let page = anna.get(&place).await.body;
    assert!(page.contains("console.mask") && !page.contains(SECRET), "{page}");
    assert_eq!(anna.get(&format!("{place}/payload")).await.status, 403);
    let json = anna.get(&format!("/api/v1{place}")).await.json();
    assert_eq!((&json["payload_withheld"], json["payload"].is_null()), (&true.into(), true), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_its_headers_and_every_screen_its_runbook() {
    let database = TestDatabase::create().await;
    letters(&database, 3, "{}").await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    for path in [
        "/",
        "/messages",
        &format!("/messages/{}", id(2)),
        "/operations",
        "/topics",
        "/audit",
        "/preview?act=discard&state=open",
    ] {
        let answer = anna.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let named =
            answer.body.rsplit("href=\"/runbooks/").next().and_then(|it| it.split('"').next()).unwrap_or_default();
        let runbook = anna.get(&format!("/runbooks/{named}")).await;
        assert!(runbook.status == 200 && runbook.body.contains("## Meaning"), "{path} names {named}");
    }
    for (client, path) in [
        (&anna, "/"),
        (&anna, "/nowhere"),
        (&anna, "/assets/console.css"),
        (&anna, "/api/v1/overview"),
        (&anna, "/api/v1/nowhere"),
        (&console.stranger(), "/"),
        (&console.stranger(), "/api/v1/groups"),
    ] {
        let answer = client.get(path).await;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
    }
    let missing = anna.get("/api/v1/nowhere").await;
    assert_eq!((missing.status, missing.json()["status"].as_u64()), (404, Some(404)));
    assert_eq!(anna.send("DELETE", "/api/v1/messages", "", b"").await.status, 405);
    assert_eq!(anna.get("/api/v1/openapi.json").await.json()["openapi"], "3.1.0");
    let missing = anna.get(&format!("/messages/{}", id(4))).await;
    assert!(missing.status == 404 && missing.body.contains("there is none of that id"), "{}", missing.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_strip_says_what_waits() {
    let database = TestDatabase::create().await;
    letters(&database, 7, "{}").await;
    // A retry that nobody ran, one that is not due yet, a key that is held, and a record that nobody has published.
    database
        .execute(
            "INSERT INTO sekali.inbox (key, fingerprint, decided_at, consumer_id, state, attempt) \
             SELECT md5(nr::text)::uuid, 0, now() - nr * interval '1 hour', 1, 2, 2 FROM generate_series(0, 1) AS nr; \
             INSERT INTO sekali.attempt (consumer_id, key, attempt, class, code, cause, worker) \
             SELECT 1, md5(nr::text)::uuid, 1, 'transient', '', 'x', 'w' FROM generate_series(0, 1) AS nr; \
             INSERT INTO sekali.held_key (consumer_id, topic, resource_key, head) \
             VALUES (1, 't', 'k', md5('1')::uuid); \
             INSERT INTO sekali.outbox (topic, created_at) VALUES ('t', now() - interval '3 minutes')",
        )
        .await;
    let console = Console::start(&database.url(), &[]).await;
    let overview = console.program("p").get("/api/v1/overview").await.json();
    let waiting = &overview["waiting"];
    assert_eq!((&overview["dead_letters"]["open"], &overview["lag"]["state"]), (&7.into(), &"not_configured".into()));
    assert_eq!(
        (&waiting["retries_overdue"], &waiting["held_keys"], &waiting["held_messages"]),
        (&1.into(), &1.into(), &0.into())
    );
    let since: jiff::Timestamp = waiting["outbox_since"].as_str().unwrap().parse().unwrap();
    let now: jiff::Timestamp = waiting["now"].as_str().unwrap().parse().unwrap();
    assert!((180..600).contains(&now.duration_since(since).as_secs()), "{waiting}");
    let page = console.operator("anna").await.get("/").await.body;
    assert!(page.contains("Retries overdue") && page.contains(" min"), "{page}");
    let trends = console.program("p").get("/api/v1/groups").await.json()["trends"].clone();
    let sum: u64 = trends
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|it| it["letters"].as_array().unwrap())
        .map(|it| it.as_u64().unwrap())
        .sum();
    assert_eq!(sum, 7, "{trends}");
}
