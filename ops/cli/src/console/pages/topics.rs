//! Topics of the groups: which stand still because an operator wants it, and the forms that change that.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::State;
use axum::response::Redirect;
use maud::{Markup, html};
use sekali_consumer::operate::pauses::{self, Paused};

use super::layout::Frame;
use super::{Page, runbooks, words};
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::answer::{Answer, Refusal};
use crate::console::api::{self, PauseAsk};
use crate::console::body::Change;

const ADDRESS: &str = "/topics";

/// Group and topic, all topics first, with the pause if there is one.
type Rows = BTreeMap<(String, Option<String>), Option<Paused>>;

pub(super) async fn page(State(console): State<Shared>, Extension(operator): Extension<Operator>) -> Page {
    let pool = console.letters.pool();
    let (paused, topics) = tokio::try_join!(pauses::list(pool, None), pauses::topics(pool))?;
    let mut rows = Rows::new();
    for it in topics {
        rows.insert((it.group.clone(), None), None);
        rows.insert((it.group, Some(it.topic)), None);
    }
    // Also what no group reads any more.
    rows.extend(paused.into_iter().map(|it| ((it.group.clone(), it.topic.clone()), Some(it))));
    let frame =
        Frame { console: &console, operator: &operator, title: "Topics", screen: ADDRESS, runbook: runbooks::PAUSED };
    Ok(frame.page(html! {
        p {
            "A paused topic begins nothing, retries and held keys neither, through restarts, until somebody resumes it. "
            "Workers hear of it within seconds. On the command line: " code { "sekali pause" } "."
        }
        div data-part {
            @if rows.is_empty() { p.panel { "No group has started on this database yet." } } @else { (table(&frame, &rows)) }
        }
    }))
}

fn table(frame: &Frame<'_>, rows: &Rows) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Topics" {
            table {
                thead { tr {
                    @for name in ["Group", "Topic", "State", "Since", "Who", "Reason"] { th scope="col" { (name) } }
                    @if frame.may_act() { th scope="col" { "Change" } }
                } }
                tbody { @for ((group, topic), pause) in rows {
                    @let whole = topic.is_some() && matches!(rows.get(&(group.clone(), None)), Some(Some(_)));
                    tr {
                        td { (group) }
                        td { (topic.as_deref().unwrap_or("all topics")) }
                        td { (state(pause.is_some(), whole)) }
                        td { @if let Some(it) = pause { (words::time(it.paused_at)) } }
                        td { @if let Some(it) = pause { (words::short(&it.who)) } }
                        td.cause { @if let Some(it) = pause { (words::short(&it.reason)) } }
                        @if frame.may_act() { td { (form(frame, group, topic.as_deref(), pause.is_some())) } }
                    }
                } }
            }
        }
    }
}

fn state(paused: bool, whole: bool) -> Markup {
    html! {
        @if paused { span.state.open { "paused" } }
        @else if whole { span.state.open { "paused with its group" } }
        @else { "flows" }
    }
}

fn form(frame: &Frame<'_>, group: &str, topic: Option<&str>, paused: bool) -> Markup {
    let (act, name) = if paused { ("resume", "Resume") } else { ("pause", "Pause") };
    let what = topic.map_or_else(|| format!("all topics of {group}"), |it| format!("{it} of {group}"));
    html! {
        form.inline method="post" action={ (ADDRESS) "/" (act) } {
            (frame.csrf())
            input type="hidden" name="group" value=(group);
            @if let Some(topic) = topic { input type="hidden" name="topic" value=(topic); }
            input name="reason" required maxlength="1024" placeholder="Reason" aria-label={ "Reason to " (act) " " (what) };
            button.danger[!paused] aria-label={ (name) " " (what) } { (name) }
        }
    }
}

pub(super) async fn pause(State(console): State<Shared>, change: Change) -> Answer<Redirect> {
    turn(&console, change, true).await
}

pub(super) async fn resume(State(console): State<Shared>, change: Change) -> Answer<Redirect> {
    turn(&console, change, false).await
}

async fn turn(console: &Shared, change: Change, pauses_it: bool) -> Answer<Redirect> {
    let given = |name| change.pairs.get(name).map(str::to_owned);
    let ask = PauseAsk {
        group: given("group").ok_or_else(|| Refusal::bad("name the group"))?,
        topic: given("topic"),
        reason: given("reason").unwrap_or_default(),
    };
    api::change_pause(console, ask, change.who, pauses_it).await?;
    Ok(Redirect::to(ADDRESS))
}
