//! Everything about one dead letter.

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use sekali_consumer::operate::{Act, Shown};
use uuid::Uuid;

use super::layout::Frame;
use super::message_parts as parts;
use super::{Page, runbooks, words};
use crate::console::access::Operator;
use crate::console::answer::{Answer, Refusal};
use crate::console::selection::{Pairs, address};
use crate::console::view::{self, Payload};
use crate::console::{Console, Shared};

/// The letter, or that there is none.
pub(super) async fn letter(console: &Console, id: &str) -> Answer<Shown> {
    let missing = || Refusal::new(StatusCode::NOT_FOUND, "that is no id of a dead letter");
    let id: Uuid = id.parse().map_err(|_| missing())?;
    console.letters.show(id).await.map_err(Refusal::missing)
}

pub(super) async fn page(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Page {
    let given = Pairs::parse(query.unwrap_or_default().as_bytes());
    let as_bytes = given.get("as") == Some("hex");
    let shown = letter(&console, &id).await?;
    let frame = Frame {
        console: &console,
        operator: &operator,
        title: "Message",
        screen: "/messages",
        runbook: runbooks::BURST,
    };
    let payload = console.masks.apply(shown.payload.as_deref());
    Ok(frame.page(html! {
        (parts::facts(&shown))
        @if frame.may_act() { (actions(&frame, &shown, &payload)) }
        h2 { "Payload" }
        (payload_part(&shown, &payload, as_bytes))
        (parts::headers(&shown))
        (parts::timeline(&shown))
        (parts::audit(&shown))
    }))
}

fn actions(frame: &Frame<'_>, shown: &Shown, payload: &Payload) -> Markup {
    let it = &shown.letter;
    let acts: &[Act] = match it.state.as_str() {
        "open" => &[Act::Replay, Act::Discard],
        "replaying" => &[Act::Replay],
        "discarded" => &[Act::Restore],
        _ => &[],
    };
    let masked = matches!(payload, Payload::Withheld | Payload::Bytes(_, 1..));
    html! {
        div.actions {
            @for act in acts {
                @let chosen = [("act", act.as_str().to_owned()), ("id", it.id.to_string())];
                a.button href=(address("/preview", chosen)) { (words::act(*act)) }
            }
            @if frame.console.edits && it.state == "open" && !masked {
                a.button.second href={ "/messages/" (it.id) "/edit" } { "Edit and replay" }
            }
        }
    }
}

fn payload_part(shown: &Shown, payload: &Payload, as_bytes: bool) -> Markup {
    let page = format!("/messages/{}", shown.letter.id);
    let (bytes, masked) = match payload {
        Payload::Null => return html! { p.panel { "null" } },
        Payload::Withheld => {
            return html! { p.warning { "Not shown: console.mask hides values of JSON, and this is none." } };
        }
        Payload::Bytes(bytes, masked) => (bytes, *masked),
    };
    let view = view::shown(bytes, as_bytes);
    html! {
        div.actions {
            span {
                (bytes.len()) " bytes, " (view.kind)
                @if let Some(schema) = view.schema { ", schema " (schema) " of the registry" }
            }
            a href=(page) aria-current=[(!as_bytes).then_some("true")] { "Text" }
            a href={ (page) "?as=hex" } aria-current=[as_bytes.then_some("true")] { "Hex" }
            a href={ (page) "/payload" } { "Download" }
        }
        @if 0 < masked { p.warning { (masked) " values are masked (console.mask), here and in the download." } }
        pre tabindex="0" aria-label="Payload" { (view.text) }
        @if view.is_cut { p { "The rest is in the download." } }
    }
}

/// The payload as a file, which no browser shows or runs.
pub(super) async fn download(State(console): State<Shared>, Path(id): Path<String>) -> Answer<Response> {
    let shown = letter(&console, &id).await?;
    let bytes = match console.masks.apply(shown.payload.as_deref()) {
        Payload::Bytes(bytes, _) => bytes,
        Payload::Null => return Err(Refusal::new(StatusCode::NOT_FOUND, "the payload is null")),
        Payload::Withheld => {
            return Err(Refusal::forbidden("console.mask hides values of JSON, and this payload is none"));
        }
    };
    let name = format!("attachment; filename=\"{}.bin\"", shown.letter.id);
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, bytes).into_response())
}
