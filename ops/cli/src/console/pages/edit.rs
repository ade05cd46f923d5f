//! A dead letter with another payload.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Redirect;
use maud::html;

use super::layout::Frame;
use super::message::letter;
use super::{Page, runbooks};
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::answer::{Answer, Refusal};
use crate::console::body::Change;
use crate::console::view::Payload;

/// The payload, if it is a text that may be seen whole.
fn editable(console: &Shared, payload: Option<&[u8]>) -> Answer<String> {
    if !console.edits {
        return Err(Refusal::forbidden(
            "payloads are not edited here: operate.allow_edit and console.read_only decide",
        ));
    }
    match console.masks.apply(payload) {
        Payload::Bytes(bytes, 0) => {
            String::from_utf8(bytes).map_err(|_| Refusal::forbidden("this payload is no text: use `sekali dlq edit`"))
        }
        Payload::Null => Ok(String::new()),
        _ => Err(Refusal::forbidden("values of this payload are masked, and would be lost: use `sekali dlq edit`")),
    }
}

pub(super) async fn form(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
) -> Page {
    let shown = letter(&console, &id).await?;
    let text = editable(&console, shown.payload.as_deref())?;
    let frame = Frame {
        console: &console,
        operator: &operator,
        title: "Edit and replay",
        screen: "/messages",
        runbook: runbooks::WAITING,
    };
    Ok(frame.page(html! {
        p {
            "A new message with an idempotency key of its own takes the place of this one, and both know of each other."
        }
        form.panel method="post" action={ "/messages/" (shown.letter.id) "/edit" } {
            (frame.csrf())
            // Browsers drop a line end at the beginning.
            label { span { "Payload" } textarea name="payload" spellcheck="false" { "\n" (text) } }
            label { span { "Reason, kept in the audit" } input name="reason" required maxlength="1024"; }
            div.actions { button { "Replay edited" } a href={ "/messages/" (shown.letter.id) } { "Back" } }
        }
    }))
}

pub(super) async fn send(State(console): State<Shared>, Path(id): Path<String>, change: Change) -> Answer<Redirect> {
    let shown = letter(&console, &id).await?;
    editable(&console, shown.payload.as_deref())?;
    // Forms send line ends as CR LF, whatever the payload had.
    let payload = change.pairs.text("payload").unwrap_or_default().replace("\r\n", "\n");
    let reason = change.pairs.get("reason").unwrap_or_default();
    let (copy, _) = console.letters.edit(shown.letter.id, payload.as_bytes(), &change.who, reason).await?;
    Ok(Redirect::to(&format!("/messages/{copy}")))
}
