//! What an operation would come to, and the form that begins it.

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use sekali_consumer::operate::{Act, Filter, Preview};

use super::layout::Frame;
use super::{Page, runbooks, words};
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::answer::Refusal;
use crate::console::selection::{Pairs, pairs};

pub(super) async fn page(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Page {
    let given = Pairs::parse(query.unwrap_or_default().as_bytes());
    let act = given.act()?;
    let filter = given.filter(&["act"])?;
    if filter.ids.is_empty() && !given.has_filter() {
        return Err(Refusal::bad("nothing is chosen: go back and choose messages, or a filter"));
    }
    let preview = console.letters.preview(act, &filter).await?;
    let letters = if preview.letters == 1 { "dead letter" } else { "dead letters" };
    let title = format!("{} {} {letters}?", words::act(act), words::number(preview.letters));
    let frame = Frame {
        console: &console,
        operator: &operator,
        title: &title,
        screen: "/messages",
        runbook: runbooks::WAITING,
    };
    Ok(frame.page(html! {
        p { "Nothing has been changed yet." }
        (warnings(&preview))
        (sample(&preview))
        @if preview.letters == 0 {
            p.panel { "Nothing is selected: the letters are in another state by now." }
        } @else if frame.may_act() {
            (form(&frame, act, &filter, &preview))
        }
    }))
}

fn warnings(preview: &Preview) -> Markup {
    html! {
        @if 0 < preview.keys_at_risk {
            div.warning {
                strong { "Order at risk: " } "of " (words::number(preview.keys_at_risk))
                " keys later messages may have taken effect since, such as "
                @for (nr, (topic, key)) in preview.at_risk.iter().enumerate() {
                    @if 0 < nr { ", " } code { (words::short(key)) } " (" (topic) ")"
                }
            }
        }
        @if 0 < preview.over_cap {
            p.warning {
                (words::number(preview.over_cap))
                " were replayed as often as operate.replays_max allows, and stay as they are without force."
            }
        }
        @if 0 < preview.without_route {
            p.warning { (words::number(preview.without_route)) " have no retry topic to go to, and stay as they are." }
        }
    }
}

fn sample(preview: &Preview) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Sample" {
            table {
                caption { "The newest of them" }
                thead { tr { @for name in ["Failed last", "Key", "Failure", "State"] { th scope="col" { (name) } } } }
                tbody { @for it in &preview.sample { tr {
                    td { a href={ "/messages/" (it.id) } { (words::time(it.last_failed_at)) } }
                    td.code { (words::short(it.key_text.as_deref().unwrap_or("none"))) }
                    td.cause { (words::short(&it.message)) }
                    td { (words::state(&it.state)) }
                } } }
            }
        }
    }
}

fn form(frame: &Frame<'_>, act: Act, filter: &Filter, preview: &Preview) -> Markup {
    let letters = preview.letters;
    html! {
        form.panel.narrow method="post" action="/operations" {
            (frame.csrf())
            input type="hidden" name="act" value=(act.as_str());
            @for (name, value) in pairs(filter) { input type="hidden" name=(name) value=(value); }
            label { span { "Reason, kept in the audit" } input name="reason" required maxlength="1024"; }
            @if letters == 1 {
                input type="hidden" name="count" value="1";
            } @else {
                label { span { "Type the number of dead letters: " (letters) }
                    input name="count" required inputmode="numeric" autocomplete="off" data-count=(letters);
                }
            }
            @if act == Act::Replay {
                label {
                    span { "Letters a second; empty for operate.replay_rate" }
                    input name="rate" inputmode="numeric";
                }
                label {
                    input type="checkbox" name="force" value="yes";
                    " Beyond operate.replays_max, and though a replay is on its way"
                }
            }
            div.actions {
                button.danger[act == Act::Discard] { (words::act(act)) " " (words::number(letters)) }
                a href="/messages" { "Back" }
            }
        }
    }
}
