use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sekali_schemas::inbox::State;
use serde::Serialize;

use crate::once::OnceError;
use crate::{Failure, FailureClass};

/// An answer of media type `application/problem+json` (RFC 9457). Has no payload, no key and no row data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: String,
    #[serde(skip)]
    retry_after_s: Option<u32>,
}

fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl Problem {
    /// A problem of type `urn:sekali:problem:` and `kind`. `detail` says what the client can do.
    pub fn new(status: StatusCode, kind: &str, title: &'static str, detail: impl Into<String>) -> Problem {
        let kind = format!("urn:sekali:problem:{kind}");
        Problem { kind, title, status, detail: detail.into(), retry_after_s: None }
    }

    /// The same with header `Retry-After`, seconds.
    pub fn retry_after_s(mut self, seconds: u32) -> Problem {
        self.retry_after_s = Some(seconds);
        self
    }

    fn in_progress() -> Problem {
        let detail =
            "another request with this Idempotency-Key is being processed; repeat this one, unchanged, a little later";
        Problem::new(StatusCode::CONFLICT, "in-progress", "The request is in progress", detail).retry_after_s(1)
    }

    fn decided(state: State) -> Problem {
        let detail = match state {
            State::Retrying | State::Held => {
                "the same action came as a message and is tried again by itself; ask for its result later"
            }
            _ => "the same action came as a message and could not be done; it waits for an operator",
        };
        let problem = Problem::new(StatusCode::CONFLICT, state.as_str(), "The action was decided elsewhere", detail);
        if matches!(state, State::Retrying | State::Held) { problem.retry_after_s(30) } else { problem }
    }

    fn unavailable() -> Problem {
        let detail = "whether the action was done is not known; repeat the request with the same Idempotency-Key";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "No answer now", detail).retry_after_s(1)
    }
}

/// What a client is told about a failure: its class, and no text, which may name tables. The text goes to the log.
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let info = failure.info();
        let code = if info.code.is_empty() { String::new() } else { format!(" ({})", info.code) };
        let refused = |status, detail: &str| {
            Problem::new(
                status,
                "refused",
                "The request was refused",
                format!("{detail}{code}; nothing was done or stored"),
            )
        };
        match failure.class() {
            FailureClass::Invalid => refused(StatusCode::BAD_REQUEST, "the body cannot be read"),
            FailureClass::Permanent | FailureClass::KeyReuse | FailureClass::Orphan => {
                refused(StatusCode::UNPROCESSABLE_ENTITY, "the action is not possible")
            }
            FailureClass::Contended => Problem::in_progress(),
            FailureClass::Interrupted => {
                tracing::warn!(class = info.class, error = info.message, "a request was interrupted");
                Problem::unavailable()
            }
            FailureClass::Transient
            | FailureClass::Panic
            | FailureClass::Timeout
            | FailureClass::AbortedTransaction => {
                tracing::error!(class = info.class, error = info.message, "a request failed");
                let detail = "nothing was done or stored; repeat the request with the same Idempotency-Key";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "The request failed", detail)
            }
        }
    }
}

impl From<OnceError<Failure>> for Problem {
    fn from(error: OnceError<Failure>) -> Problem {
        match error {
            OnceError::InProgress => Problem::in_progress(),
            OnceError::KeyReuse => {
                let detail = "this Idempotency-Key was used with another body; a new action needs a new key";
                Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "key-reuse",
                    "The key stands for another request",
                    detail,
                )
            }
            OnceError::Decided(state) => Problem::decided(state),
            OnceError::Unreadable => {
                tracing::error!("an action that was done has no stored answer for http");
                let detail = "the action was done, and no answer was stored for it";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no-answer", "No stored answer", detail)
            }
            OnceError::Sql(error) => Failure::of_sql(&error).into(),
            OnceError::Work(failure) => failure.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");
        // A struct of texts and a number can always be written.
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, MEDIA_TYPE)], body).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
