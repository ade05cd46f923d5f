//! The parts of a message's page.

use maud::{Markup, html};
use sekali_consumer::operate::{Filter, Shown};

use super::{audit as audit_page, words};
use crate::console::selection::{address, pairs};

pub(super) fn facts(shown: &Shown) -> Markup {
    let it = &shown.letter;
    let group = Filter { consumer: Some(it.consumer.clone()), group: Some(it.group.clone()), ..Filter::default() };
    let kcat = format!("kcat -C -b $BROKERS -t {} -p {} -o {} -c 1", it.topic, it.partition, it.offset);
    html! {
        dl.facts.panel {
            dt { "State" } dd { (words::state(&it.state)) @if 0 < it.replays { " after " (it.replays) " replays" } }
            dt { "Failure" } dd { strong { (it.message) } }
            dt { "Class, code, reason" } dd { (it.class) " " (it.code) " " (it.reason) }
            dt { "Group" } dd { a href=(address("/messages", pairs(&group))) { (shown.cause) } }
            dt { "Consumer" } dd { (it.consumer) }
            dt { "Idempotency key" } dd { code { (it.key_text.as_deref().unwrap_or("none in the record")) } }
            dt { "Inbox key" } dd { code { (it.key) } }
            dt { "Record key" } dd { code { @match &it.resource_key { Some(key) => (key), None => "null" } } }
            dt { "Place" } dd { code { (it.topic) "/" (it.partition) "/" (it.offset) } br; code.quiet { (kcat) } }
            dt { "Inbox" } dd { @match &shown.inbox {
                Some(row) => { (row.state) ", attempt " (row.attempt) ", " (words::time(row.decided_at)) }
                None => { "has no row of it" }
            } }
            dt { "Effects" } dd { (effects(shown)) }
            dt { "Trace" } dd { code { (trace(shown).unwrap_or_else(|| "none".to_owned())) } }
            @if let Some(held) = &shown.holds {
                dt { "Holds" } dd { (held.messages) " messages of its key wait behind it, " (words::age(held.since)) }
            }
            dt { "Failed" } dd { "first " (words::time(it.first_failed_at)) ", last " (words::time(it.last_failed_at)) }
            @if let Some(from) = it.edited_from { dt { "Edited from" } dd { (letter(from)) } }
            @if !shown.edits.is_empty() {
                dt { "Edited copies" } dd { @for edit in &shown.edits { (letter(*edit)) " " } }
            }
            @if let Some(id) = it.operation { dt { "Last operation" } dd { a href={ "/operations/" (id) } { (id) } } }
            dt { "On the command line" } dd { code { "sekali dlq show " (it.id) } }
        }
    }
}

/// Whether the business change was committed.
fn effects(shown: &Shown) -> &'static str {
    match shown.inbox.as_ref().map(|it| it.state.as_str()) {
        Some("processed") => "committed",
        Some(_) => "none committed",
        None => "unknown: the inbox has forgotten it, or never had it",
    }
}

/// The trace id of `traceparent`.
fn trace(shown: &Shown) -> Option<String> {
    let header = shown.headers.iter().rev().find(|it| it.name == "traceparent")?;
    let text = std::str::from_utf8(header.value.as_deref()?).ok()?;
    let id = text.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|it| it.is_ascii_hexdigit())).then(|| id.to_owned())
}

fn letter(id: uuid::Uuid) -> Markup {
    html! { a href={ "/messages/" (id) } { (id) } }
}

pub(super) fn headers(shown: &Shown) -> Markup {
    html! {
        h2 { "Headers" }
        @if shown.headers.is_empty() { p { "none" } } @else {
            div.wide tabindex="0" role="region" aria-label="Headers" {
                table {
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } } }
                    tbody { @for header in &shown.headers {
                        tr { td.code { (header.name) } td.code { @match &header.value {
                            Some(value) => (value_text(value)),
                            None => span.quiet { "null" },
                        } } }
                    } }
                }
            }
        }
    }
}

fn value_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().map(|it| format!("{it:02x}")).collect(),
    }
}

pub(super) fn timeline(shown: &Shown) -> Markup {
    html! {
        h2 { "Attempts" }
        @if shown.timeline.is_empty() { p { "none are remembered" } } @else {
            div.wide tabindex="0" role="region" aria-label="Attempts" {
                table {
                    thead { tr {
                        th.number scope="col" { "Attempt" }
                        th scope="col" { "Decided" }
                        th scope="col" { "Failure" }
                        th scope="col" { "Process" }
                    } }
                    tbody { @for it in &shown.timeline {
                        tr {
                            td.number { (it.attempt) }
                            td { (words::time(it.at)) }
                            td.cause { (it.cause) div.quiet { (it.class) " " (it.code) } }
                            td.code { (it.worker) }
                        }
                    } }
                }
            }
        }
    }
}

pub(super) fn audit(shown: &Shown) -> Markup {
    html! {
        h2 { "What was done about it" }
        @if shown.audit.is_empty() { p { "nothing" } } @else { (audit_page::table(&shown.audit)) }
    }
}
