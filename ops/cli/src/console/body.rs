//! What changes something: a form or a JSON document from somebody who may, and from no other page than ours.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::Shared;
use super::access::{ACTOR, Operator};
use super::answer::{Answer, Refusal};
use super::selection::Pairs;

/// Header with the token against forged requests, for scripts that come with a session.
const CSRF_HEADER: &str = "x-csrf-token";
/// The same as a field of forms.
pub(super) const CSRF_FIELD: &str = "csrf";

/// A form of ours.
pub(super) struct Form {
    pub(super) pairs: Pairs,
    pub(super) operator: Operator,
}

/// A form of ours that changes something, from somebody who may.
pub(super) struct Change {
    pub(super) pairs: Pairs,
    /// Name for the audit.
    pub(super) who: String,
}

/// The same as a JSON document.
pub(super) struct JsonChange<T> {
    pub(super) value: T,
    pub(super) who: String,
}

impl FromRequest<Shared> for Form {
    type Rejection = Refusal;

    async fn from_request(request: Request, console: &Shared) -> Answer<Form> {
        let operator = operator(&request)?;
        expect_type(request.headers(), "application/x-www-form-urlencoded")?;
        let pairs = Pairs::parse(&read(request, console).await?);
        if !pairs.text(CSRF_FIELD).is_some_and(|it| console.access.is_csrf(&operator, it)) {
            return Err(Refusal::forbidden("this form was not made for this session: load the page again"));
        }
        Ok(Form { pairs, operator })
    }
}

impl FromRequest<Shared> for Change {
    type Rejection = Refusal;

    async fn from_request(request: Request, console: &Shared) -> Answer<Change> {
        let who = signed(console, &operator(&request)?)?;
        let Form { pairs, .. } = Form::from_request(request, console).await?;
        Ok(Change { pairs, who })
    }
}

impl<T: DeserializeOwned> FromRequest<Shared> for JsonChange<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, console: &Shared) -> Answer<JsonChange<T>> {
        let operator = operator(&request)?;
        let who = signed(console, &operator)?;
        let given = request.headers().get(CSRF_HEADER).and_then(|it| it.to_str().ok());
        if !operator.is_bearer() && !given.is_some_and(|it| console.access.is_csrf(&operator, it)) {
            let text = format!("send {CSRF_HEADER} with what /api/v1/session says, or Authorization: Bearer TOKEN");
            return Err(Refusal::forbidden(text));
        }
        expect_type(request.headers(), "application/json")?;
        let body = read(request, console).await?;
        let value = serde_json::from_slice(&body).map_err(|error| {
            // Its own text may quote what was sent.
            let (line, column) = (error.line(), error.column());
            Refusal::bad(format!("the body is not what /api/v1/openapi.json describes: line {line}, column {column}"))
        })?;
        Ok(JsonChange { value, who })
    }
}

fn operator(request: &Request) -> Answer<Operator> {
    let found = request.extensions().get::<Operator>().cloned();
    found.ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, "a login is needed"))
}

/// Who does it, if anything may be done here.
fn signed(console: &Shared, operator: &Operator) -> Answer<String> {
    if console.section.read_only {
        let text = "this console only shows: set console.read_only = false, or use `sekali dlq`";
        return Err(Refusal::forbidden(text));
    }
    operator.name.clone().ok_or_else(|| Refusal::forbidden(format!("who does this? name somebody in header {ACTOR}")))
}

async fn read(request: Request, console: &Shared) -> Answer<Bytes> {
    Bytes::from_request(request, console).await.map_err(|rejection| {
        let text = if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            "the body is too large"
        } else {
            "the body breaks off"
        };
        Refusal::new(rejection.status(), text)
    })
}

fn expect_type(headers: &HeaderMap, expected: &str) -> Answer<()> {
    let given = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    if given.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("send the body as {expected}")))
}
