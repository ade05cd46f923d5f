use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// An answer that can be given again: the result that the inbox keeps. A Kafka handler stores the same with
/// [`Reply::stored`](crate::Reply::stored), so that an HTTP repeat of its action gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResponse {
    status: u16,
    content_type: String,
    /// Text, and not JSON in JSON: it comes back byte for byte.
    body: String,
}

impl StoredResponse {
    /// An answer in JSON.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Result<StoredResponse, serde_json::Error> {
        Ok(StoredResponse::text(status, "application/json", serde_json::to_string(value)?))
    }

    /// An answer of any media type that is text. PostgreSQL stores no U+0000.
    pub fn text(status: StatusCode, content_type: impl Into<String>, body: impl Into<String>) -> StoredResponse {
        StoredResponse { status: status.as_u16(), content_type: content_type.into(), body: body.into() }
    }

    /// The body.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Whether repeats get it.
    pub(super) fn is_kept(&self) -> bool {
        self.status < 500
    }
}

impl IntoResponse for StoredResponse {
    fn into_response(self) -> Response {
        // What was stored by other code may be no status and no header value.
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let octets = HeaderValue::from_static("application/octet-stream");
        let content_type = HeaderValue::from_str(&self.content_type).unwrap_or(octets);
        (status, [(header::CONTENT_TYPE, content_type)], self.body).into_response()
    }
}
