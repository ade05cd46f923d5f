//! Refusals: a page for people, problem details for programs.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use maud::html;
use sekali_consumer::{Error, ErrorKind};
use serde_json::json;

use super::pages::layout;

/// Why a request is not answered: a sentence with the remedy. The guard at the door gives it its form.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    status: StatusCode,
    text: String,
    /// When to come again, in seconds.
    retry_after: Option<u64>,
}

pub(super) type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Refusal {
        Refusal { status, text: text.into(), retry_after: None }
    }

    /// Too many requests of a kind.
    pub(super) fn later(wait: Duration, text: &str) -> Refusal {
        let seconds = wait.as_secs() + u64::from(0 < wait.subsec_nanos());
        let text = format!("{text}: come again in {seconds} s");
        Refusal { retry_after: Some(seconds), ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, text) }
    }

    pub(super) fn bad(text: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn forbidden(text: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, text)
    }

    /// What was looked for by its id.
    pub(super) fn missing(error: Error) -> Refusal {
        let found = Refusal::from(error);
        if found.status == StatusCode::CONFLICT { Refusal::new(StatusCode::NOT_FOUND, found.text) } else { found }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let status = match error.kind() {
            ErrorKind::Config => StatusCode::BAD_REQUEST,
            ErrorKind::Refused => StatusCode::CONFLICT,
            ErrorKind::Postgres | ErrorKind::Kafka => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            tracing::error!(error = error.chain(), "a request failed");
        }
        Refusal::new(status, error.chain())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives a refusal its form, also one that the web framework made.
pub(super) fn shaped(mut response: Response, is_api: bool) -> Response {
    let status = response.status();
    let ours = response.extensions_mut().remove::<Refusal>();
    let Some(refusal) = ours.or_else(|| foreign(status, &response)) else { return response };
    let headers = std::mem::take(response.headers_mut());
    let mut shaped = if is_api { problem(&refusal) } else { page(&refusal) };
    for name in [axum::http::header::ALLOW, axum::http::header::SET_COOKIE] {
        if let Some(value) = headers.get(&name) {
            shaped.headers_mut().insert(name, value.clone());
        }
    }
    if let Some(seconds) = refusal.retry_after {
        shaped.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if is_api && status == StatusCode::UNAUTHORIZED {
        shaped.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    shaped
}

/// Refusals of extractors have a text without form.
fn foreign(status: StatusCode, response: &Response) -> Option<Refusal> {
    let is_text = response.headers().get(CONTENT_TYPE).is_none_or(|it| it.as_bytes().starts_with(b"text/plain"));
    let text = match status {
        StatusCode::PAYLOAD_TOO_LARGE => "the body is too large",
        StatusCode::BAD_REQUEST => "the address or the body cannot be read",
        _ => return None,
    };
    is_text.then(|| Refusal::new(status, text))
}

fn problem(refusal: &Refusal) -> Response {
    let title = refusal.status.canonical_reason().unwrap_or_default();
    let body = json!({"status": refusal.status.as_u16(), "title": title, "detail": refusal.text});
    (refusal.status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

fn page(refusal: &Refusal) -> Response {
    let title = refusal.status.canonical_reason().unwrap_or("Refused");
    let page = layout::bare(
        title,
        html! {
            p.refusal role="alert" { (refusal.text) }
            p { a href="/" { "Groups" } }
        },
    );
    (refusal.status, Html(page.into_string())).into_response()
}

pub(super) async fn not_found() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is nothing at this address")
}

pub(super) async fn not_allowed() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this address takes other methods")
}
