//! What to do, beside what is shown.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use maud::{Markup, html};

use super::Page;
use super::layout::Frame;
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::answer::Refusal;

pub(super) const BURST: &str = "SekaliDeadLetterBurst";
pub(super) const WAITING: &str = "SekaliDeadLettersWaiting";
pub(super) const OLD: &str = "SekaliDeadLettersOld";
pub(super) const LAG: &str = "SekaliConsumerLagHigh";
pub(super) const RETRIES: &str = "SekaliRetriesOverdue";
pub(super) const HELD: &str = "SekaliHeldKeysOld";
pub(super) const PAUSED: &str = "SekaliTopicPausedLong";
pub(super) const OUTBOX: &str = "SekaliOutboxBacklogOld";

macro_rules! texts {
    ($($name:ident: $file:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../runbooks/", $file, ".md")))),*]
    };
}

/// Those that the screens name.
const TEXTS: [(&str, &str); 8] = texts![
    BURST: "SekaliDeadLetterBurst",
    WAITING: "SekaliDeadLettersWaiting",
    OLD: "SekaliDeadLettersOld",
    LAG: "SekaliConsumerLagHigh",
    RETRIES: "SekaliRetriesOverdue",
    HELD: "SekaliHeldKeysOld",
    PAUSED: "SekaliTopicPausedLong",
    OUTBOX: "SekaliOutboxBacklogOld",
];

pub(super) fn link(name: &str) -> Markup {
    html! { a href={ "/runbooks/" (name) } { (name) } }
}

pub(super) async fn page(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
) -> Page {
    let found = TEXTS.into_iter().find(|it| it.0 == name);
    let (name, text) = found.ok_or_else(|| {
        Refusal::new(StatusCode::NOT_FOUND, "that runbook is not in this program: look in ops/runbooks")
    })?;
    let frame = Frame { console: &console, operator: &operator, title: name, screen: "", runbook: name };
    Ok(frame.page(html! { pre tabindex="0" { (text) } }))
}
