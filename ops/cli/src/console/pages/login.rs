//! Logging in and out.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::header::SET_COOKIE;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::{Extension, http::StatusCode};
use maud::html;

use super::Page;
use super::layout;
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::answer::{Answer, Refusal};
use crate::console::body::Form;
use crate::console::selection::Pairs;

pub(super) async fn form(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Page {
    if !console.access.has_token() {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "nobody logs in here with a token"));
    }
    let given = Pairs::parse(query.unwrap_or_default().as_bytes());
    let page = layout::bare(
        "Log in",
        html! {
            form.panel.narrow method="post" action="/login" {
                (layout::csrf(&console, &operator))
                input type="hidden" name="next" value=(given.get("next").unwrap_or("/"));
                label {
                    span { "Your name, for the audit" }
                    input name="name" required maxlength="200" autocomplete="username";
                }
                label { span { "Token" } input name="token" type="password" required autocomplete="current-password"; }
                div.actions { button { "Log in" } }
            }
        },
    );
    Ok(Html(page.into_string()))
}

pub(super) async fn begin(
    State(console): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    form: Form,
) -> Answer<Response> {
    let given = |name| form.pairs.text(name).unwrap_or_default();
    let cookie = console.access.log_in(peer.ip(), given("name"), given("token"))?;
    Ok(([(SET_COOKIE, cookie)], Redirect::to(inside(given("next")))).into_response())
}

pub(super) async fn end(State(console): State<Shared>, form: Form) -> Response {
    let cookie = console.access.log_out(&form.operator);
    ([(SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

/// An address of this console, and of no other site.
fn inside(next: &str) -> &str {
    let mut bytes = next.bytes();
    let ours = bytes.next() == Some(b'/') && !matches!(bytes.next(), Some(b'/' | b'\\'));
    if ours && next.bytes().all(|it| it.is_ascii_graphic()) { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn a_login_leads_to_no_other_site() {
        for (next, expected) in [
            ("/messages?state=open", "/messages?state=open"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("/a\r\nSet-Cookie: x", "/"),
            ("", "/"),
        ] {
            assert_eq!(inside(next), expected);
        }
    }
}
