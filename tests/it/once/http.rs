//! The same behind a real port: what clients of header `Idempotency-Key` see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use deadpool_postgres::Transaction;
use sekali_consumer::Failure;
use sekali_consumer::http::{Action, HttpInbox, KeyHeader, Problem, StoredResponse};
use sekali_consumer::once::OnceError;
use sekali_tests::harness::{TestDatabase, eventually};
use sekali_tests::http::{self, Answer};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use super::{LIMIT, desk, note, notes, rows};

/// What an action does, as the body of its request says.
#[derive(Deserialize)]
struct Order {
    status: u16,
    #[serde(default)]
    sleep_s: f64,
    #[serde(default)]
    fail: Option<String>,
}

impl Order {
    async fn write(&self, tx: &Transaction<'_>) -> Result<StoredResponse, Failure> {
        let nr = note(tx, "http").await?;
        tx.execute("SELECT pg_sleep($1)", &[&self.sleep_s]).await?;
        match self.fail.as_deref() {
            Some("transient") => return Err(Failure::transient("secret")),
            Some("permanent") => return Err(Failure::permanent("secret").with_code("PRICE")),
            Some("contended") => return Err(Failure::contended("secret")),
            Some(sql) => tx.batch_execute(sql).await?,
            None => {}
        }
        let status = StatusCode::from_u16(self.status)?;
        Ok(StoredResponse::text(status, "text/csv", format!("\"number\",\t{nr}\r\n")))
    }
}

impl Action for Order {
    async fn act(&self, tx: &Transaction<'_>) -> Result<StoredResponse, OnceError<Failure>> {
        Ok(self.write(tx).await?)
    }
}

async fn orders(State(inbox): State<Arc<HttpInbox>>, KeyHeader(key): KeyHeader, body: Bytes) -> Response {
    match serde_json::from_slice::<Order>(&body) {
        Ok(order) => inbox.answer(&key, &body, &order).await,
        Err(_) => Problem::from(Failure::invalid("no order")).into_response(),
    }
}

struct Shop {
    database: TestDatabase,
    url: String,
}

impl Shop {
    async fn open(wait: Duration) -> Shop {
        let (database, pool, inbox) = desk(4).await;
        let inbox = HttpInbox::new(inbox, pool).wait(wait);
        let router = axum::Router::new().route("/orders", post(orders)).with_state(Arc::new(inbox));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        Shop { database, url }
    }

    /// Waits until a request sleeps in the database.
    async fn works(&self) {
        let works = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep%'";
        eventually("a request is at work", LIMIT, async || self.database.scalar::<i64>(works).await == 1).await;
    }

    async fn ask(&self, key: &str, body: &str) -> Answer {
        http::post(&self.url, Some(key), body).await.expect("the port is open")
    }
}

const OK: &str = r#"{"status": 201}"#;
const PATIENT: Duration = Duration::from_secs(20);

/// Status, and the problem's type without its prefix.
fn problem(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.content_type, "application/problem+json", "{answer:?}");
    let json: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(json["status"], answer.status, "{answer:?}");
    assert!(json["title"].is_string() && 20 < json["detail"].as_str().unwrap().len(), "{answer:?}");
    assert!(!answer.body.contains("secret") && !answer.body.contains("note"), "{answer:?}");
    (answer.status, json["type"].as_str().unwrap().strip_prefix("urn:sekali:problem:").unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_gets_the_same_answer_and_another_body_422() {
    let shop = Shop::open(PATIENT).await;
    let first = shop.ask("\"k-1\"", OK).await;
    assert_eq!((first.status, &*first.content_type, &*first.body), (201, "text/csv", "\"number\",\t1\r\n"));
    assert_eq!(shop.ask("\"k-1\"", OK).await, first);
    assert_eq!(shop.ask("k-1", OK).await, first, "the bare form is the same key");
    let other = shop.ask("\"k-1\"", r#"{"status":201}"#).await;
    assert_eq!(problem(&other), (422, "key-reuse".into()));
    assert_eq!(notes(&shop.database).await, 1, "nothing was written for it");
    assert_ne!(shop.ask("\"k-2\"", OK).await, first, "another key is another action");
    assert_eq!((notes(&shop.database).await, rows(&shop.database).await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_usable_key_nothing_is_done() {
    let shop = Shop::open(PATIENT).await;
    let missing = http::post(&shop.url, None, OK).await.unwrap();
    assert_eq!(problem(&missing), (400, "key-missing".into()));
    for key in ["", "\"\"", "\"open", "two words", "\"a\", \"b\"", &"k".repeat(256)] {
        assert_eq!(problem(&shop.ask(key, OK).await), (400, "key-malformed".into()), "{key}");
    }
    assert_eq!(problem(&shop.ask("k", "no order").await), (400, "refused".into()));
    assert_eq!((notes(&shop.database).await, rows(&shop.database).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_stored_and_server_errors_are_not() {
    let shop = Shop::open(PATIENT).await;
    let refusal = r#"{"status": 402}"#;
    let first = shop.ask("refused", refusal).await;
    assert_eq!(first.status, 402);
    assert_eq!(shop.ask("refused", refusal).await, first);
    assert_eq!(notes(&shop.database).await, 1, "a refusal is a result");

    for (body, status, kind) in [
        (r#"{"status": 201, "fail": "transient"}"#, 500, "failed"),
        (r#"{"status": 201, "fail": "SELECT FROM nowhere"}"#, 500, "failed"),
        (r#"{"status": 201, "fail": "permanent"}"#, 422, "refused"),
        (r#"{"status": 201, "fail": "contended"}"#, 409, "in-progress"),
        (r#"{"status": 201, "fail": "SELECT pg_terminate_backend(pg_backend_pid())"}"#, 503, "unavailable"),
    ] {
        assert_eq!(problem(&shop.ask("failed", body).await), (status, kind.into()), "{body}");
    }
    let unstored = shop.ask("failed", r#"{"status": 501}"#).await;
    assert_eq!((unstored.status, &*unstored.content_type), (501, "text/csv"));
    assert_eq!((notes(&shop.database).await, rows(&shop.database).await), (1, 1), "nothing of them was kept");
    assert_eq!(shop.ask("failed", OK).await.status, 201, "the key is as good as new");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_wait_for_the_first_answer_and_not_for_ever() {
    let patient = Shop::open(PATIENT).await;
    let slow = r#"{"status": 201, "sleep_s": 0.5}"#;
    let answers = futures_util::future::join_all((0..20).map(|_| patient.ask("k", slow))).await;
    assert!(answers.iter().all(|it| it.status == 201 && *it == answers[0]), "{answers:?}");
    assert_eq!(notes(&patient.database).await, 1);

    let hasty = Shop::open(Duration::from_millis(100)).await;
    let slow = r#"{"status": 201, "sleep_s": 3}"#;
    let second = async {
        hasty.works().await;
        let begun = Instant::now();
        (hasty.ask("k", slow).await, begun.elapsed())
    };
    let (first, (second, waited)) = tokio::join!(hasty.ask("k", slow), second);
    assert_eq!(problem(&second), (409, "in-progress".into()));
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    assert_eq!(first.status, 201);
    assert_eq!(hasty.ask("k", slow).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_half_way_can_ask_again() {
    let shop = Shop::open(PATIENT).await;
    let slow = r#"{"status": 201, "sleep_s": 1}"#;
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: \"k\"\r\ncontent-length: {}\r\n\r\n{slow}",
        slow.len()
    );
    let address = shop.url.strip_prefix("http://").unwrap().strip_suffix("/orders").unwrap();
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    shop.works().await;
    drop(client);
    // Whether the first one was cut off or ended unheard, there is one of it.
    let answer = shop.ask("\"k\"", slow).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(shop.ask("\"k\"", slow).await, answer);
    assert_eq!((notes(&shop.database).await, rows(&shop.database).await), (1, 1));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %'";
    assert_eq!(shop.database.scalar::<i64>(open).await, 0);
}
