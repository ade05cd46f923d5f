//! The screens.

mod audit;
mod edit;
mod groups;
pub(super) mod layout;
mod login;
mod message;
mod message_parts;
mod messages;
mod operations;
mod preview;
mod runbooks;
mod strip;
mod topics;
mod words;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::Html;
use axum::routing::{get, post};

use super::Shared;
use super::answer::Answer;

/// A page, or why there is none.
type Page = Answer<Html<String>>;

pub(super) fn routes(edit_bytes_max: usize) -> Router<Shared> {
    let edit = get(edit::form).post(edit::send).layer(DefaultBodyLimit::max(edit_bytes_max));
    Router::new()
        .route("/", get(groups::page))
        .route("/messages", get(messages::page))
        .route("/messages/{id}", get(message::page))
        .route("/messages/{id}/payload", get(message::download))
        .route("/messages/{id}/edit", edit)
        .route("/preview", get(preview::page))
        .route("/operations", get(operations::list).post(operations::begin))
        .route("/operations/{id}", get(operations::page))
        .route("/operations/{id}/stop", post(operations::stop))
        .route("/operations/{id}/resume", post(operations::resume))
        .route("/operations/{id}/cancel", post(operations::cancel))
        .route("/topics", get(topics::page))
        .route("/topics/pause", post(topics::pause))
        .route("/topics/resume", post(topics::resume))
        .route("/audit", get(audit::page))
        .route("/runbooks/{name}", get(runbooks::page))
        .route("/login", get(login::form).post(login::begin))
        .route("/logout", post(login::end))
}
