//! What was asked for, how far it is, and what to do about it.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Redirect;
use maud::{Markup, html};
use sekali_consumer::operate::{AuditQuery, Operation};

use super::layout::Frame;
use super::{Page, audit, runbooks, words};
use crate::console::access::Operator;
use crate::console::answer::{Answer, Refusal};
use crate::console::body::{CSRF_FIELD, Change};
use crate::console::{Shared, api, running};

const OPERATIONS_MAX: u32 = 100;
const AUDIT_MAX: u32 = 100;

pub(super) async fn list(State(console): State<Shared>, Extension(operator): Extension<Operator>) -> Page {
    let operations = console.letters.operations(OPERATIONS_MAX).await?;
    let frame = Frame {
        console: &console,
        operator: &operator,
        title: "Operations",
        screen: "/operations",
        runbook: runbooks::WAITING,
    };
    Ok(frame.page(html! {
        div data-live data-part {
            @if operations.is_empty() { p.panel { "Nobody has asked for anything." } } @else { (table(&operations)) }
        }
        p { "On the command line: " code { "sekali dlq operations" } "." }
    }))
}

fn table(operations: &[Operation]) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Operations" {
            table {
                caption { "The newest first" }
                thead { tr {
                    th.number scope="col" { "Operation" }
                    th scope="col" { "Kind" }
                    th scope="col" { "State" }
                    th scope="col" { "Done" }
                    th scope="col" { "Begun" }
                    th scope="col" { "Who" }
                    th scope="col" { "Reason" }
                } }
                tbody { @for it in operations { tr {
                    td.number { a href={ "/operations/" (it.id) } { (it.id) } }
                    td { (it.kind) }
                    td { (words::state(&it.state)) }
                    td.nowrap { (words::number(it.done)) " of " (words::number(it.letters)) }
                    td { (words::time(it.begun_at)) }
                    td { (words::short(&it.who)) }
                    td.cause { (words::short(&it.reason)) }
                } } }
            }
        }
    }
}

fn number(id: &str) -> Answer<i64> {
    id.parse().map_err(|_| Refusal::new(StatusCode::NOT_FOUND, "that is no number of an operation"))
}

pub(super) async fn page(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
) -> Page {
    let id = number(&id)?;
    let operation = console.letters.operation(id).await.map_err(Refusal::missing)?;
    let query = AuditQuery { operation: Some(id), ..AuditQuery::default() };
    let rows = console.letters.audit(&query, AUDIT_MAX).await?;
    let title = format!("Operation {id}: {}", operation.kind);
    let frame = Frame {
        console: &console,
        operator: &operator,
        title: &title,
        screen: "/operations",
        runbook: runbooks::WAITING,
    };
    let moves = matches!(operation.state.as_str(), "running" | "stopped");
    Ok(frame.page(html! {
        div data-part data-live[moves] {
            (facts(&operation, console.running.error(id)))
            (outcomes(&operation))
            @if frame.may_act() && moves { (controls(&frame, &operation)) }
            h2 { "Audit" }
            @if rows.is_empty() { p { "nothing yet" } } @else { (audit::table(&rows)) }
        }
    }))
}

fn facts(it: &Operation, error: Option<String>) -> Markup {
    html! {
        @if let Some(error) = error { p.refusal role="alert" { "It was given up here: " (error) } }
        dl.facts.panel {
            dt { "State" } dd { (words::state(&it.state)) }
            dt { "Done" } dd {
                progress max=(it.letters) value=(it.done) aria-label="Letters whose turn has come" {}
                " " (words::number(it.done)) " of " (words::number(it.letters))
            }
            dt { "Rate" } dd { (it.rate) " a second" @if it.force { ", with force" } }
            dt { "Who" } dd { (it.who) }
            dt { "Reason" } dd { (it.reason) }
            dt { "Chosen by" } dd { code { (it.selection.to_string()) } }
            dt { "Begun" } dd { (words::time(it.begun_at)) }
            @if let Some(at) = it.ended_at { dt { "Ended" } dd { (words::time(at)) } }
        }
    }
}

fn outcomes(it: &Operation) -> Markup {
    html! {
        @if !it.others.is_empty() {
            p.warning role="status" { "Somebody came first: "
                @for (nr, (id, who)) in it.others.iter().enumerate() {
                    @if 0 < nr { ", " } a href={ "/operations/" (id) } { "operation " (id) } " of " (who)
                }
            }
        }
        @if !it.outcomes.is_empty() {
            h2 { "Outcomes" }
            div.wide tabindex="0" role="region" aria-label="Outcomes" {
                table {
                    thead { tr { th scope="col" { "Outcome" } th.number scope="col" { "Letters" } } }
                    tbody { @for (outcome, letters) in &it.outcomes {
                        tr { td { (outcome) } td.number { (words::number(*letters)) } }
                    } }
                }
            }
        }
    }
}

fn controls(frame: &Frame<'_>, it: &Operation) -> Markup {
    let here = frame.console.running.is_here(it.id);
    html! {
        div.actions {
            @if here {
                form.inline method="post" action={ "/operations/" (it.id) "/stop" } { (frame.csrf()) button { "Stop" } }
            } @else {
                form.inline method="post" action={ "/operations/" (it.id) "/resume" } {
                    (frame.csrf())
                    button { "Resume" }
                }
            }
        }
        form.panel.narrow method="post" action={ "/operations/" (it.id) "/cancel" } {
            (frame.csrf())
            label {
                span { "Reason to cancel; what was done stays done" }
                input name="reason" required maxlength="1024";
            }
            div.actions { button.danger { "Cancel" } }
        }
    }
}

/// The page of an operation that begins now.
pub(super) async fn begin(State(console): State<Shared>, change: Change) -> Answer<Redirect> {
    const OTHERS: [&str; 6] = [CSRF_FIELD, "act", "reason", "count", "rate", "force"];
    let given = &change.pairs;
    let ask = api::Ask {
        act: given.act()?.as_str().to_owned(),
        filter: given.filter(&OTHERS)?,
        reason: given.get("reason").unwrap_or_default().to_owned(),
        count: given
            .number("count")?
            .ok_or_else(|| Refusal::bad("type the number of dead letters that the preview shows"))?,
        rate: given.number("rate")?,
        force: given.get("force").is_some(),
    };
    let operation = api::begin(&console, ask, change.who).await?;
    Ok(Redirect::to(&format!("/operations/{}", operation.id)))
}

pub(super) async fn stop(State(console): State<Shared>, Path(id): Path<String>, _change: Change) -> Answer<Redirect> {
    let id = number(&id)?;
    api::stop(&console, id)?;
    Ok(Redirect::to(&format!("/operations/{id}")))
}

pub(super) async fn resume(State(console): State<Shared>, Path(id): Path<String>, _change: Change) -> Answer<Redirect> {
    let operation = console.letters.operation(number(&id)?).await.map_err(Refusal::missing)?;
    running::start(&console, operation.id);
    Ok(Redirect::to(&format!("/operations/{}", operation.id)))
}

pub(super) async fn cancel(State(console): State<Shared>, Path(id): Path<String>, change: Change) -> Answer<Redirect> {
    let id = number(&id)?;
    console.letters.cancel(id, &change.who, change.pairs.get("reason").unwrap_or_default()).await?;
    Ok(Redirect::to(&format!("/operations/{id}")))
}
