//! Dead letters by cause: the screen to begin with.

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use sekali_consumer::operate::{Act, Filter, Group, LetterState, Overview, TREND_HOURS, Trend};

use super::layout::Frame;
use super::{Page, runbooks, strip, words};
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::selection::{Pairs, address, pairs};

const BAR: u64 = 4;
const HEIGHT: u64 = 28;

pub(super) async fn page(
    State(console): State<Shared>,
    Extension(operator): Extension<Operator>,
    RawQuery(query): RawQuery,
) -> Page {
    let filter = Pairs::parse(query.unwrap_or_default().as_bytes()).filter(&[])?;
    let letters = &console.letters;
    let all = Filter { state: Some(LetterState::Open), ..Filter::default() };
    let asked = Filter { state: filter.state.or(all.state), ..filter.clone() };
    let replaying = Filter { state: Some(LetterState::Replaying), ..Filter::default() };
    // The groups of all open letters are counted once, though the strip needs them as well.
    let others = async { if asked == all { Ok(None) } else { letters.groups(&all).await.map(Some) } };
    let (groups, trends, others, replaying, waiting) = tokio::try_join!(
        letters.groups(&asked),
        letters.trends(&asked),
        others,
        letters.count(&replaying),
        letters.waiting(console.retry_path),
    )?;
    let overview = Overview::of(others.as_ref().unwrap_or(&groups), replaying);
    let frame = Frame {
        console: &console,
        operator: &operator,
        title: "Failure groups",
        screen: "/",
        runbook: runbooks::BURST,
    };
    let trend = |group: &Group| trends.iter().find(|it| it.group == group.id && it.consumer == group.consumer);
    let state = filter.state.unwrap_or(LetterState::Open);
    Ok(frame.page(html! {
        div data-live data-part {
            (strip::strip(&console.lag.known(), &overview, &waiting))
            @if groups.is_empty() {
                p.panel { "No dead letter is " (state.as_str()) "." }
            } @else {
                (table(&frame, &groups, &trend, state))
            }
        }
        (states(state))
    }))
}

/// Links to the groups of other states.
fn states(now: LetterState) -> Markup {
    html! {
        p { "Groups of letters that are: "
            @for it in LetterState::ALL {
                @let filter = Filter { state: Some(it), ..Filter::default() };
                a href=(address("/", pairs(&filter))) aria-current=[(it == now).then_some("true")] { (it.as_str()) } " "
            }
        }
    }
}

fn table<'a>(
    frame: &Frame<'_>,
    groups: &'a [Group],
    trend: &impl Fn(&'a Group) -> Option<&'a Trend>,
    state: LetterState,
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Failure groups" {
            table {
                caption { "Causes of " (state.as_str()) " dead letters, the most frequent first" }
                thead { tr {
                    th.number scope="col" { "Letters" }
                    th scope="col" { "Cause" }
                    th scope="col" { "Consumer, topic" }
                    th scope="col" { "First, last" }
                    th scope="col" { "Last 24 hours" }
                    @if frame.may_act() { th scope="col" { "Actions" } }
                } }
                tbody { @for group in groups { (row(frame, group, trend(group), state)) } }
            }
        }
    }
}

fn row(frame: &Frame<'_>, group: &Group, trend: Option<&Trend>, state: LetterState) -> Markup {
    let filter = Filter {
        consumer: Some(group.consumer.clone()),
        group: Some(group.id.clone()),
        state: Some(state),
        ..Filter::default()
    };
    let chosen = pairs(&filter);
    let acts: &[Act] = match state {
        LetterState::Open => &[Act::Replay, Act::Discard],
        LetterState::Discarded => &[Act::Restore],
        LetterState::Replaying | LetterState::Resolved => &[],
    };
    html! {
        tr {
            td.number { (words::number(group.letters)) }
            td.cause {
                a href=(address("/messages", chosen.clone())) { (words::short(&group.cause)) }
                div.quiet { (group.class) @if !group.code.is_empty() { " " (group.code) } }
            }
            td { (group.consumer) div.quiet { (group.topic) } }
            td { (words::time(group.oldest_at)) br; (words::time(group.newest_at)) }
            td { @if let Some(trend) = trend { (sparkline(trend)) } @else { span.quiet { "none" } } }
            @if frame.may_act() {
                td.nowrap {
                    @for act in acts {
                        @let preview = chosen.iter().cloned().chain([("act", act.as_str().to_owned())]);
                        @let said = format!("{} this group: {}", words::act(*act), words::short(&group.cause));
                        a.button.second href=(address("/preview", preview)) aria-label=(said) { (words::act(*act)) } " "
                    }
                }
            }
        }
    }
}

/// Letters of each hour as bars, the last hour at the right.
fn sparkline(trend: &Trend) -> Markup {
    let most = trend.letters.iter().max().copied().unwrap_or_default().max(1);
    let sum: u64 = trend.letters.iter().sum();
    let width = TREND_HOURS as u64 * BAR;
    let said = format!(
        "{sum} in the last {TREND_HOURS} hours, at most {most} in one, {} in this one",
        trend.letters[TREND_HOURS - 1]
    );
    html! {
        @let view = format!("0 0 {width} {HEIGHT}");
        svg.sparkline role="img" aria-label=(said) width=(width) height=(HEIGHT) viewBox=(view) {
            title { (said) }
            @for (hour, letters) in trend.letters.iter().enumerate().filter(|it| 0 < *it.1) {
                @let height = (letters * HEIGHT / most).max(1);
                rect x=(hour as u64 * BAR) y=(HEIGHT - height) width=(BAR - 1) height=(height) {}
            }
        }
    }
}
