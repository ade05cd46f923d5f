//! What is wrong at the moment, in a line.

use jiff::Timestamp;
use maud::{Markup, html};
use sekali_consumer::operate::{Overview, Waiting};

use super::{runbooks, words};
use crate::console::lag::Known;

/// From this age on, something that should flow has stopped.
const OUTBOX_SECONDS_MAX: i64 = 60;

pub(super) fn strip(lag: &Known, overview: &Overview, waiting: &Waiting) -> Markup {
    let outbox_old = waiting.outbox_since.is_some_and(|it| OUTBOX_SECONDS_MAX < seconds(waiting.now, it));
    html! {
        dl.strip aria-label="What waits" {
            (lag_figure(lag))
            (figure("Open dead letters", &words::number(overview.open), 0 < overview.open,
                since(overview.oldest_at, "the oldest: "), runbooks::OLD))
            (figure("Retries overdue", &words::number(waiting.retries_overdue), 0 < waiting.retries_overdue,
                since(waiting.retry_since, "decided "), runbooks::RETRIES))
            (figure("Held keys", &words::number(waiting.held_keys), 0 < waiting.held_keys,
                html! { (words::number(waiting.held_messages)) " messages wait; " (since(waiting.held_since, "")) },
                runbooks::HELD))
            (figure("Outbox", &waiting.outbox_since.map_or_else(|| "0 s".to_owned(), words::age), outbox_old,
                html! { "age of the oldest record" }, runbooks::OUTBOX))
            (figure("On their way back", &words::number(overview.replaying), false,
                html! { "replayed, not decided" }, runbooks::WAITING))
        }
    }
}

fn figure(name: &str, figure: &str, alert: bool, more: Markup, runbook: &str) -> Markup {
    html! {
        div.alert[alert] {
            dt { a href={ "/runbooks/" (runbook) } { (name) } }
            dd.figure { (figure) }
            dd.quiet { (more) }
        }
    }
}

fn lag_figure(lag: &Known) -> Markup {
    let (number, more) = match lag {
        Known::Asking => ("?".to_owned(), html! { "Kafka is being asked" }),
        Known::NotConfigured => ("-".to_owned(), html! { "no broker, group or topic is configured" }),
        Known::Failed { error, at } => ("?".to_owned(), html! { (error) ", " (words::age(*at)) " ago" }),
        Known::Measured { behind, delayed, at } => (
            words::number(behind.unsigned_abs()),
            html! { "records; " (words::number(delayed.unsigned_abs())) " in retry topics, " (words::age(*at)) " ago" },
        ),
    };
    figure("Lag", &number, matches!(lag, Known::Failed { .. }), more, runbooks::LAG)
}

fn since(at: Option<Timestamp>, before: &str) -> Markup {
    html! {
        @match at {
            Some(at) => { (before) (words::age(at)) " ago" }
            None => { "none" }
        }
    }
}

fn seconds(now: Timestamp, then: Timestamp) -> i64 {
    now.duration_since(then).as_secs()
}
