//! The same for programs, under `/api/v1`. `openapi.json` describes it.

mod acts;
mod looks;
mod pauses;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde::Serialize;

use super::Shared;

pub(super) use acts::{Ask, begin, stop};
pub(super) use looks::audit_query;
pub(super) use pauses::{PauseAsk, change as change_pause};

const OPENAPI: &str = include_str!("api/openapi.json");

/// Addresses with their methods, in the words of `openapi.json`.
fn table(edit_bytes_max: usize) -> Vec<(&'static str, &'static [&'static str], MethodRouter<Shared>)> {
    let edit = post(acts::edit).layer(DefaultBodyLimit::max(edit_bytes_max));
    vec![
        ("/api/v1/session", &["get"], get(looks::session)),
        ("/api/v1/overview", &["get"], get(looks::overview)),
        ("/api/v1/groups", &["get"], get(looks::groups)),
        ("/api/v1/messages", &["get"], get(looks::messages)),
        ("/api/v1/messages/{id}", &["get"], get(looks::message)),
        ("/api/v1/messages/{id}/edit", &["post"], edit),
        ("/api/v1/preview", &["get"], get(looks::preview)),
        ("/api/v1/operations", &["get", "post"], get(looks::operations).post(acts::post)),
        ("/api/v1/operations/{id}", &["get"], get(looks::operation)),
        ("/api/v1/operations/{id}/stop", &["post"], post(acts::stop_json)),
        ("/api/v1/operations/{id}/resume", &["post"], post(acts::resume)),
        ("/api/v1/operations/{id}/cancel", &["post"], post(acts::cancel)),
        ("/api/v1/pauses", &["get", "post"], get(pauses::list).post(pauses::pause)),
        ("/api/v1/pauses/resume", &["post"], post(pauses::resume)),
        ("/api/v1/audit", &["get"], get(looks::audit)),
        ("/api/v1/openapi.json", &["get"], get(openapi)),
    ]
}

pub(super) fn routes(edit_bytes_max: usize) -> Router<Shared> {
    let routes = table(edit_bytes_max).into_iter();
    routes.fold(Router::new(), |router, (path, _, methods)| router.route(path, methods))
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// A JSON document.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => {
                tracing::error!(%error, "an answer cannot be written as JSON");
                axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests;
