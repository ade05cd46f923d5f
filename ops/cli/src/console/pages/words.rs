//! Moments, numbers and states as people read them.

use jiff::Timestamp;
use maud::{Markup, html};
use sekali_consumer::operate::Act;

/// Longest text in a cell of a table, in characters; it is whole on the page of its message.
const CELL_MAX: usize = 240;

/// A moment with its age.
pub(super) fn time(at: Timestamp) -> Markup {
    html! {
        time datetime=(at.to_string()) title=(age(at)) { (at.strftime("%Y-%m-%d %H:%M:%SZ")) }
    }
}

/// How long ago it was, in one unit.
pub(super) fn age(at: Timestamp) -> String {
    let seconds = Timestamp::now().duration_since(at).as_secs().max(0);
    let (number, unit) = match seconds {
        0..120 => (seconds, "s"),
        120..7_200 => (seconds / 60, "min"),
        7_200..172_800 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{number} {unit}")
}

pub(super) fn state(state: &str) -> Markup {
    // Only a known word becomes a class.
    let known = ["open", "replaying", "resolved", "discarded", "running", "stopped", "done", "cancelled"];
    let class = known.into_iter().find(|it| *it == state).unwrap_or_default();
    html! { span.state.(class) { (state) } }
}

/// The word on buttons.
pub(super) fn act(act: Act) -> &'static str {
    match act {
        Act::Replay => "Replay",
        Act::Discard => "Discard",
        Act::Restore => "Restore",
    }
}

/// A number with its thousands apart.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (nr, digit) in digits.chars().enumerate() {
        if nr > 0 && (digits.len() - nr).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

pub(super) fn short(text: &str) -> String {
    let cut: String = text.chars().take(CELL_MAX).collect();
    if cut.len() < text.len() { cut + "..." } else { cut }
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_apart() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1\u{202f}000"), (100_000, "100\u{202f}000")] {
            assert_eq!(super::number(number), expected);
        }
    }
}
