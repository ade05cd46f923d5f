//! Topics are paused and resumed from the console.

use sekali_tests::harness::TestDatabase;
use serde_json::json;

use super::{Console, TOKEN};

/// A group that reads two topics.
async fn group() -> TestDatabase {
    let database = TestDatabase::create().await;
    let sql = "INSERT INTO sekali.consumer (name) VALUES ('stock') ON CONFLICT DO NOTHING; \
         INSERT INTO sekali.route (consumer_id, topic, group_name, retry_topics, dlq_topic, ordered) \
         SELECT id, topic, name, '{}', 'd', true FROM sekali.consumer, unnest(ARRAY['a.<b>', 'c']) AS topic WHERE name = 'stock'";
    database.execute(sql).await;
    database
}

async fn paused(database: &TestDatabase) -> Vec<(String, String, String)> {
    let sql = "SELECT topic, who, reason FROM sekali.paused_topic ORDER BY topic";
    let rows = database.connect().await.query(sql, &[]).await.unwrap();
    rows.iter().map(|it| (it.get(0), it.get(1), it.get(2))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_pauses_a_topic_and_resumes_it_and_the_audit_says_who_and_why() {
    let database = group().await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    let page = anna.get("/topics").await.body;
    assert!(page.contains("a.&lt;b&gt;") && page.contains("all topics of stock"), "{page}");
    assert!(!page.contains("a.<b>") && page.contains("/runbooks/SekaliTopicPausedLong"), "{page}");
    let form = [("group", "stock"), ("topic", "a.<b>"), ("reason", "the mill is away")];
    let answer = anna.act("/topics/pause", &form).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/topics")), "{}", answer.body);
    let one = ("a.<b>".to_owned(), "anna".to_owned(), "the mill is away".to_owned());
    assert_eq!(paused(&database).await, [one]);
    let page = anna.get("/topics").await.body;
    assert!(page.contains("the mill is away") && page.contains("Resume a.&lt;b&gt; of stock"), "{page}");

    let program = console.program("build");
    let all = json!({"group": "stock", "reason": "maintenance"});
    let answer = program.post_json("/api/v1/pauses", &all).await;
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("paused")), "{}", answer.body);
    let listed = program.get("/api/v1/pauses").await.json();
    assert_eq!(listed["pauses"].as_array().unwrap().len(), 2, "{listed:#}");
    assert_eq!(listed["topics"][1], json!({"group": "stock", "topic": "c"}), "{listed:#}");
    assert!(anna.get("/topics").await.body.contains("paused with its group"));
    let answer = anna.act("/topics/resume", &[("group", "stock"), ("reason", "it is back")]).await;
    assert_eq!(answer.status, 303, "{}", answer.body);
    assert!(paused(&database).await.is_empty(), "the group takes its topics along");

    let sql = "SELECT who, action, reason, outcome FROM sekali.audit ORDER BY id";
    let rows = database.connect().await.query(sql, &[]).await.unwrap();
    let audited: Vec<[String; 4]> = rows.iter().map(|it| [0, 1, 2, 3].map(|at| it.get(at))).collect();
    assert_eq!(
        audited,
        [
            ["anna", "pause", "the mill is away", "paused"],
            ["build", "pause", "maintenance", "paused"],
            ["anna", "resume", "it is back", "resumed"],
        ]
        .map(|it| it.map(str::to_owned))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_paused_without_a_reason_a_form_of_ours_and_the_right_to_it() {
    let database = group().await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    for (form, status) in [
        (&[("group", "stock"), ("topic", "c"), ("reason", " ")][..], 400),
        (&[("group", "stock"), ("topic", "stock.retry.5m"), ("reason", "x")], 400),
        (&[("group", "nobody"), ("reason", "x")], 400),
        (&[("topic", "c"), ("reason", "x")], 400),
    ] {
        let answer = anna.act("/topics/pause", form).await;
        assert_eq!(answer.status, status, "{form:?}: {}", answer.body);
    }
    let form = [("group", "stock"), ("topic", "c"), ("reason", "x")];
    assert_eq!(anna.post("/topics/pause", &form).await.status, 403, "without the token of its session");
    assert_eq!(console.stranger().post("/topics/pause", &form).await.status, 401);
    let read_only = Console::with(&database.url(), &[("SEKALI_CONSOLE__TOKEN", TOKEN)]).await;
    let bert = read_only.operator("bert").await;
    assert!(!bert.get("/topics").await.body.contains("/topics/pause"));
    assert_eq!(bert.act("/topics/pause", &form).await.status, 403);
    assert_eq!(paused(&database).await, []);
}
