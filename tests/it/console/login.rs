//! Who comes in, and who does not.

use std::time::Duration;

use sekali_tests::harness::{Program, TestDatabase};
use serde_json::json;

use super::{Console, LIMIT, TOKEN, id, letters, open_letters};

const DISCARD: [(&str, &str); 4] = [("act", "discard"), ("state", "open"), ("count", "5"), ("reason", "x")];

async fn five() -> TestDatabase {
    let database = TestDatabase::create().await;
    letters(&database, 5, "{}").await;
    database
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_or_with_a_wrong_one_nobody_comes_in() {
    let database = five().await;
    let console = Console::start(&database.url(), &[]).await;
    let stranger = console.stranger();
    for path in
        ["/", "/messages", "/audit", "/operations", "/runbooks/SekaliDeadLettersOld", &format!("/messages/{}", id(1))]
    {
        let answer = stranger.get(path).await;
        let place = answer.header("location").unwrap_or_default();
        assert!(answer.status == 303 && place.starts_with("/login?next=%2F"), "{path}: {answer:?}");
    }
    for client in [
        stranger.clone(),
        stranger.clone().header("authorization", "Bearer wrong"),
        stranger.clone().header("authorization", "Bearer "),
        stranger.clone().header("authorization", &format!("Basic {TOKEN}")),
        stranger.clone().header("cookie", "sekali_session=0123456789abcdef"),
        // No proxy is configured.
        stranger.clone().header("x-forwarded-user", "root").header("remote-user", "root"),
    ] {
        let answer = client.get("/api/v1/messages").await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(!answer.body.contains("warehouse"));
        let ask = json!({"act": "discard", "filter": {"state": "open"}, "reason": "x", "count": 5});
        assert_eq!(client.post_json("/api/v1/operations", &ask).await.status, 401);
        assert_eq!(client.post("/operations", &DISCARD).await.status, 401);
    }
    let csrf = stranger.get("/login").await.csrf();
    for (name, token, status) in [("anna", "wrong", 401), ("anna", "", 401), ("", TOKEN, 400), ("a\nb", TOKEN, 400)] {
        let answer = stranger.post("/login", &[("csrf", csrf.as_str()), ("name", name), ("token", token)]).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (status, None), "{name} {token}");
    }
    // With the token, but without a name for the audit.
    let nameless = stranger.header("authorization", &format!("Bearer {TOKEN}"));
    assert_eq!(nameless.get("/api/v1/messages").await.status, 200);
    let ask = json!({"act": "discard", "filter": {"state": "open"}, "reason": "x", "count": 5});
    assert_eq!(nameless.post_json("/api/v1/operations", &ask).await.status, 403);
    assert_eq!(open_letters(&database).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_five_wrong_tokens_an_address_waits_even_with_the_right_one_and_sessions_go_on() {
    let database = five().await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    let guess = console.stranger().header("authorization", "Bearer guess");
    for _ in 0..5 {
        assert_eq!(guess.get("/api/v1/messages").await.status, 401);
    }
    let refused = console.program("build").get("/api/v1/messages").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.body);
    assert!(refused.body.contains("come again in 1 s"), "{}", refused.body);
    let csrf = console.stranger().get("/login").await.csrf();
    let form = [("csrf", csrf.as_str()), ("name", "bert"), ("token", TOKEN)];
    assert_eq!(console.stranger().post("/login", &form).await.status, 429, "the form is the same door");
    assert_eq!(anna.get("/api/v1/messages").await.status, 200, "who is in stays in");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(guess.get("/api/v1/messages").await.status, 401, "one more guess");
    let refused = guess.get("/api/v1/messages").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("2")), "{}", refused.body);
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    assert_eq!(console.stranger().post("/login", &form).await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_its_owner_leaves() {
    let database = five().await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    assert_eq!(anna.get("/").await.status, 200);
    let left = anna.act("/logout", &[]).await;
    assert!(left.header("set-cookie").is_some_and(|it| it.contains("Max-Age=0")), "{left:?}");
    assert_eq!(anna.get("/").await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_other_sites_and_of_other_sessions_change_nothing() {
    let database = five().await;
    let console = Console::start(&database.url(), &[]).await;
    let (anna, bert) = (console.operator("anna").await, console.operator("bert").await);
    let csrf = anna.csrf().await;
    let with = |csrf: &'static str| [&[("csrf", csrf)][..], &DISCARD].concat();
    for path in ["/operations", "/operations/1/stop", "/operations/1/resume", "/operations/1/cancel", "/logout"] {
        assert_eq!(anna.post(path, &DISCARD).await.status, 403, "{path} without a token");
        assert_eq!(anna.post(path, &with("0123")).await.status, 403, "{path} with a wrong one");
        let of_anna = [&[("csrf", csrf.as_str())][..], &DISCARD].concat();
        assert_eq!(bert.post(path, &of_anna).await.status, 403, "{path} with that of another session");
        for (name, value) in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
        {
            let forged = anna.clone().header(name, value);
            assert_eq!(forged.post(path, &of_anna).await.status, 403, "{path} {name}: {value}");
        }
    }
    let ask = json!({"act": "discard", "filter": {"state": "open"}, "reason": "x", "count": 5});
    assert_eq!(anna.post_json("/api/v1/operations", &ask).await.status, 403, "a cookie alone");
    // What a form of another site can send without asking.
    let plain = anna.send("POST", "/api/v1/operations", "text/plain", ask.to_string().as_bytes()).await;
    assert_eq!(plain.status, 403);
    let program =
        console.program("p").send("POST", "/api/v1/operations", "text/plain", ask.to_string().as_bytes()).await;
    assert_eq!(program.status, 415);
    assert_eq!(open_letters(&database).await, 5);
    let own =
        anna.clone().header("origin", &format!("http://{}", console.address)).header("sec-fetch-site", "same-origin");
    assert_eq!(own.act("/operations", &DISCARD).await.status, 303, "the same from its own page");
    let scripted = anna.header("x-csrf-token", &csrf);
    let answer = scripted.post_json("/api/v1/operations/1/resume", &json!({})).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_is_read_only_and_without_a_login_it_answers_to_this_machine_alone() {
    let database = five().await;
    let console = Console::with(&database.url(), &[]).await;
    let anybody = console.stranger();
    let page = anybody.get("/messages").await;
    assert!(page.status == 200 && page.body.contains("read-only") && !page.body.contains("Discard"), "{}", page.body);
    assert_eq!(anybody.act("/operations", &DISCARD).await.status, 403);
    let ask = json!({"act": "discard", "filter": {"state": "open"}, "reason": "x", "count": 5});
    let csrf = anybody.csrf().await;
    assert_eq!(anybody.clone().header("x-csrf-token", &csrf).post_json("/api/v1/operations", &ask).await.status, 403);
    assert_eq!(anybody.clone().host("evil.example").get("/messages").await.status, 403, "a name that points here");
    assert_eq!(open_letters(&database).await, 5);
    // The same with a login.
    let console = Console::with(&database.url(), &[("SEKALI_CONSOLE__TOKEN", TOKEN)]).await;
    assert_eq!(console.operator("anna").await.act("/operations", &DISCARD).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_believed_when_it_is_the_one_that_is_trusted() {
    let database = five().await;
    let env = |proxies: &'static str| {
        [
            ("SEKALI_CONSOLE__USER_HEADER", "x-user"),
            ("SEKALI_CONSOLE__TRUSTED_PROXIES", proxies),
            ("SEKALI_CONSOLE__READ_ONLY", "false"),
            ("SEKALI_CONSOLE__URL", "https://sekali.example.com"),
        ]
    };
    let stranger = Console::with(&database.url(), &env("[\"192.0.2.1\"]")).await;
    let said = stranger.stranger().header("x-user", "root");
    assert_eq!((said.get("/").await.status, said.get("/api/v1/messages").await.status), (401, 401));
    let trusted = Console::with(&database.url(), &env("[\"127.0.0.1\"]")).await;
    assert_eq!(trusted.stranger().get("/").await.status, 401, "the proxy names nobody");
    let carla = trusted.stranger().header("x-user", "carla").host("internal:80");
    assert_eq!(carla.get("/").await.status, 200);
    assert_eq!(carla.clone().header("origin", "https://evil.example").act("/operations", &DISCARD).await.status, 403);
    let discarded = carla.clone().header("origin", "https://sekali.example.com").act("/operations", &DISCARD).await;
    assert_eq!(discarded.status, 303, "{}", discarded.body);
    let csrf = carla.csrf().await;
    let dora = trusted.stranger().header("x-user", "dora");
    assert_eq!(dora.post("/operations", &[&[("csrf", csrf.as_str())][..], &DISCARD].concat()).await.status, 403);
    sekali_tests::harness::eventually("the audit names who the proxy named", LIMIT, async || {
        let who: Vec<String> =
            database.scalar("SELECT coalesce(array_agg(who), '{}') FROM sekali.audit WHERE action = 'discard'").await;
        if who == ["carla"; 5] { Ok(()) } else { Err(format!("{who:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_that_others_could_reach_without_a_login_does_not_start() {
    let database = TestDatabase::create().await;
    for (env, key) in [
        ([("LISTEN", "0.0.0.0:0"), ("MASK", "[]")], "console.listen"),
        ([("LISTEN", "127.0.0.1:0"), ("READ_ONLY", "false")], "console.read_only"),
        ([("LISTEN", "127.0.0.1:0"), ("TOKEN", "short")], "console.token"),
        ([("LISTEN", "127.0.0.1:0"), ("USER_HEADER", "x-user")], "console.user_header"),
        ([("LISTEN", "127.0.0.1:0"), ("MASK", "[\"email\"]")], "console.mask"),
        ([("LISTEN", "127.0.0.1:0"), ("URL", "https://h/path")], "console.url"),
    ] {
        let program = Program::of_workspace("sekali").arg("console").env("SEKALI_POSTGRES__URL", database.url());
        let set =
            |program: Program, (name, value): &(&str, &str)| program.env(&format!("SEKALI_CONSOLE__{name}"), *value);
        let mut process = env.iter().fold(program, set).spawn();
        let status = process.wait(LIMIT).await.code();
        let said = process.stderr();
        assert_eq!((status, said.contains(key)), (Some(2), true), "{env:?}: {said}");
        assert!(!said.contains("short"), "{said}");
    }
}
