//! Dead letters, page by page, to choose from.

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use sekali_consumer::operate::{Act, DeadLetter, Filter, LetterState};

use super::layout::Frame;
use super::{Page, runbooks, words};
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::selection::{ANY, Pairs, address, pairs};

/// As many ids as fit into an address.
const PAGE: u32 = 50;

pub(super) async fn page(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Page {
    let given = Pairs::parse(query.unwrap_or_default().as_bytes());
    let mut filter = given.filter(&["before"])?;
    // Without a word about the state, what there is to do.
    if given.get("state").is_none() {
        filter.state = Some(LetterState::Open);
    }
    let before = given.id("before")?;
    let (found, count) = tokio::try_join!(console.letters.list(&filter, before, PAGE), console.letters.count(&filter))?;
    let frame = Frame {
        console: &console,
        operator: &operator,
        title: "Messages",
        screen: "/messages",
        runbook: runbooks::WAITING,
    };
    let next = found.next.map(|next| {
        let state = filter.state.is_none().then(|| ("state", ANY.to_owned()));
        address("/messages", pairs(&filter).into_iter().chain(state).chain([("before", next.to_string())]))
    });
    Ok(frame.page(html! {
        (filters(&filter))
        p role="status" {
            (words::number(count)) " dead letters fit" @if before.is_some() { "; this is a later page" } "."
        }
        @if frame.may_act() && 0 < count { (whole(&filter, count)) }
        @if !found.letters.is_empty() { (choice(&frame, &found.letters, filter.state)) }
        @if let Some(next) = next { p { a href=(next) rel="next" { "Older messages" } } }
    }))
}

fn filters(filter: &Filter) -> Markup {
    let field = |name: &str, said: &str, value: Option<&str>, example: &str| {
        let value = value.unwrap_or_default();
        html! {
            label { span { (said) } input name=(name) value=(value) placeholder=(example) maxlength="1024"; }
        }
    };
    let at = |it: &Option<jiff::Timestamp>| it.map(|it| it.to_string());
    html! {
        form.panel method="get" action="/messages" role="search" aria-label="Filter messages" {
            div.fields {
                label { span { "State" } select name="state" {
                    option value=(ANY) selected[filter.state.is_none()] { "any" }
                    @for it in LetterState::ALL {
                        option value=(it.as_str()) selected[filter.state == Some(it)] { (it.as_str()) }
                    }
                } }
                (field("text", "Text of the error, or part of the key", filter.text.as_deref(), ""))
                (field("key", "Idempotency key or record key", filter.key.as_deref(), ""))
                (field("topic", "Topic", filter.topic.as_deref(), ""))
                (field("consumer", "Consumer", filter.consumer.as_deref(), ""))
                (field("class", "Class", filter.class.as_deref(), "permanent"))
                (field("group", "Failure group", filter.group.as_deref(), "16 digits"))
                (field("since", "Failed since", at(&filter.since).as_deref(), "2h"))
                (field("until", "Failed before", at(&filter.until).as_deref(), "2030-01-31T08:00:00Z"))
                div { button { "Filter" } }
            }
        }
    }
}

fn acts(state: Option<LetterState>) -> &'static [Act] {
    match state {
        Some(LetterState::Open) => &[Act::Replay, Act::Discard],
        Some(LetterState::Discarded) => &[Act::Restore],
        Some(LetterState::Replaying) => &[Act::Replay],
        Some(LetterState::Resolved) => &[],
        None => &Act::ALL,
    }
}

/// Everything that fits, whatever page it is on.
fn whole(filter: &Filter, count: u64) -> Markup {
    html! {
        div.actions {
            @for act in acts(filter.state) {
                @let chosen = pairs(filter).into_iter().chain([("act", act.as_str().to_owned())]);
                a.button.second href=(address("/preview", chosen)) {
                    (words::act(*act)) " all " (words::number(count)) " that fit"
                }
            }
        }
    }
}

/// The letters of this page, with boxes to choose some.
fn choice(frame: &Frame<'_>, letters: &[DeadLetter], state: Option<LetterState>) -> Markup {
    let may_act = frame.may_act() && !acts(state).is_empty();
    html! {
        form method="get" action="/preview" {
            div.wide tabindex="0" role="region" aria-label="Messages" {
                table {
                    caption { "The newest first" }
                    thead { tr {
                        @if may_act {
                            th scope="col" {
                                input type="checkbox" data-check-all hidden aria-label="Choose all on this page";
                                span.quiet { "Choose" }
                            }
                        }
                        th scope="col" { "Failed last" }
                        th scope="col" { "Key" }
                        th scope="col" { "Failure" }
                        th scope="col" { "Place" }
                        th.number scope="col" { "Attempts" }
                        th scope="col" { "State" }
                    } }
                    tbody { @for it in letters { (row(it, may_act)) } }
                }
            }
            @if may_act {
                div.actions {
                    @for act in acts(state) { button name="act" value=(act.as_str()) { (words::act(*act)) " chosen" } }
                }
            }
        }
    }
}

fn row(it: &DeadLetter, may_act: bool) -> Markup {
    let key = it.key_text.clone().unwrap_or_else(|| it.key.to_string());
    html! {
        tr {
            @if may_act {
                td { input type="checkbox" name="id" value=(it.id) aria-label={ "Choose " (words::short(&key)) }; }
            }
            td { a href={ "/messages/" (it.id) } { (words::time(it.last_failed_at)) } }
            td.code { (words::short(&key)) }
            td.cause { (words::short(&it.message)) div.quiet { (it.class) @if !it.code.is_empty() { " " (it.code) } } }
            td.code { (it.topic) "/" (it.partition) "/" (it.offset) }
            td.number { (it.attempts) @if 0 < it.replays { div.quiet { (it.replays) " replays" } } }
            td { (words::state(&it.state)) }
        }
    }
}
