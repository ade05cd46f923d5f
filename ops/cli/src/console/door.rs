//! What holds for every request and every answer.

use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::{self, Refusal};

/// Longest query of an address, in bytes: fifty ids and every filter fit.
const QUERY_BYTES_MAX: usize = 8 * 1024;

/// Only what this program serves, no code or style inside pages, no frames, forms to this program alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // With "no-referrer" browsers hide the origin of forms, too.
    (REFERRER_POLICY, "same-origin"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("x-frame-options"), "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Bounds the query, gives refusals their form, and adds the headers.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let query_bytes = request.uri().query().map_or(0, str::len);
    let answered = if QUERY_BYTES_MAX < query_bytes {
        let text = format!("the query is longer than {QUERY_BYTES_MAX} bytes: select by group, topic or time");
        Refusal::new(StatusCode::URI_TOO_LONG, text).into_response()
    } else {
        next.run(request).await
    };
    let mut answered = answer::shaped(answered, is_api);
    for (name, value) in HEADERS {
        answered.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answered
}
