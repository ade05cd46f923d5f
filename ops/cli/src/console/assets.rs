//! Style, script and icon, which are part of the program.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use super::Shared;

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/icon.svg");

pub(super) fn routes() -> Router<Shared> {
    let file =
        |kind: &'static str, text: &'static str| get(async move || ([(CONTENT_TYPE, kind)], text).into_response());
    Router::new()
        .route("/assets/console.css", file("text/css; charset=utf-8", STYLE))
        .route("/assets/console.js", file("text/javascript; charset=utf-8", SCRIPT))
        .route("/assets/icon.svg", file("image/svg+xml", ICON))
}
