//! Requests to the programs and routers under test.

use std::time::Duration;

/// Longest wait for one answer.
const LIMIT: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Header `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: String,
}

/// Posts a body, with header `Idempotency-Key` as it is given here; `None` while nobody listens.
///
/// # Panics
/// The answer is no text.
pub async fn post(url: &str, key: Option<&str>, body: &str) -> Option<Answer> {
    let (url, key, body) = (url.to_owned(), key.map(str::to_owned), body.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(LIMIT)).build().into();
        let mut request = agent.post(&url).header("content-type", "application/json");
        if let Some(key) = &key {
            request = request.header("idempotency-key", key);
        }
        let mut answer = request.send(&body).ok()?;
        let content_type = answer.headers().get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_owned();
        let body = answer.body_mut().read_to_string().expect("an answer of text");
        Some(Answer { status: answer.status().as_u16(), content_type, body })
    });
    asked.await.expect("asking does not panic")
}
