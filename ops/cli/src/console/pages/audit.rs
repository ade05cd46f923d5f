//! Who did what, when and why.

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use sekali_consumer::operate::{AuditQuery, AuditRow};

use super::layout::Frame;
use super::{Page, runbooks, words};
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::api;
use crate::console::selection::{Pairs, address};

const PAGE: u32 = 100;

pub(super) async fn page(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Page {
    let given = Pairs::parse(query.unwrap_or_default().as_bytes());
    let asked = api::audit_query(&given)?;
    let rows = console.letters.audit(&asked, PAGE).await?;
    let frame =
        Frame { console: &console, operator: &operator, title: "Audit", screen: "/audit", runbook: runbooks::WAITING };
    let full = rows.len() == PAGE as usize;
    let next = rows
        .last()
        .filter(|_| full)
        .map(|it| address("/audit", [pairs(&asked), vec![("before", it.id.to_string())]].concat()));
    Ok(frame.page(html! {
        form.panel method="get" action="/audit" role="search" aria-label="Filter the audit" {
            div.fields {
                label { span { "Who" } input name="who" value=[asked.who.as_deref()] maxlength="200"; }
                label { span { "Operation" } input name="operation" inputmode="numeric" value=[asked.operation]; }
                label { span { "Dead letter" } input name="dead_letter" value=[asked.dead_letter]; }
                label { span { "Since" } input name="since" placeholder="2h" value=[asked.since]; }
                div { button { "Filter" } }
            }
        }
        p { "Rows are added and never changed. On the command line: " code { "sekali audit" } "." }
        @if rows.is_empty() { p.panel { "Nothing fits." } } @else { (table(&rows)) }
        @if let Some(next) = next { p { a href=(next) rel="next" { "Earlier actions" } } }
    }))
}

fn pairs(asked: &AuditQuery) -> Vec<(&'static str, String)> {
    let given = [
        ("who", asked.who.clone()),
        ("operation", asked.operation.map(|it| it.to_string())),
        ("dead_letter", asked.dead_letter.map(|it| it.to_string())),
        ("since", asked.since.map(|it| it.to_string())),
    ];
    given.into_iter().filter_map(|(name, it)| Some((name, it?))).collect()
}

pub(super) fn table(rows: &[AuditRow]) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Audit" {
            table {
                thead { tr {
                    th scope="col" { "When" }
                    th scope="col" { "Who" }
                    th scope="col" { "Action" }
                    th scope="col" { "Outcome" }
                    th scope="col" { "Reason" }
                    th scope="col" { "Chosen by" }
                    th scope="col" { "Message" }
                    th scope="col" { "Operation" }
                } }
                tbody { @for it in rows { tr {
                    td { (words::time(it.at)) }
                    td { (words::short(&it.who)) }
                    td { (it.action) }
                    td { (it.outcome) }
                    td.cause { (words::short(&it.reason)) }
                    td.code { (words::short(&it.selection.to_string())) }
                    td.code { @if let Some(id) = it.dead_letter { a href={ "/messages/" (id) } { (id) } } }
                    td.number { @if let Some(id) = it.operation { a href={ "/operations/" (id) } { (id) } } }
                } } }
            }
        }
    }
}
