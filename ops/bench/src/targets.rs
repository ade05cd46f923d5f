//! What is to be reached, and whether it is.

use serde::Serialize;

/// Which side of the goal is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The value has to reach the goal.
    AtLeast,
    /// The value may not pass the goal.
    AtMost,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// Its number, such as `T3`.
    pub id: &'static str,
    /// What the value is.
    pub what: String,
    /// As measured.
    pub value: f64,
    /// To be reached, or not to be passed.
    pub goal: f64,
    /// Which of both.
    pub bound: Bound,
    /// Whether it is.
    pub ok: bool,
}

impl Target {
    /// A value that has to reach the goal. One that is no number has not.
    pub fn at_least(id: &'static str, what: impl Into<String>, value: f64, goal: f64) -> Target {
        Target { id, what: what.into(), value, goal, bound: Bound::AtLeast, ok: goal <= value }
    }

    /// A value that may not pass the goal. One that is no number has.
    pub fn at_most(id: &'static str, what: impl Into<String>, value: f64, goal: f64) -> Target {
        Target { id, what: what.into(), value, goal, bound: Bound::AtMost, ok: value <= goal }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let sign = if self.bound == Bound::AtLeast { ">=" } else { "<=" };
        let verdict = if self.ok { "ok" } else { "MISSED" };
        format!("{:<4} {}: {}, goal {sign} {}: {verdict}", self.id, self.what, number(self.value), number(self.goal))
    }
}

/// As many digits as are worth reading.
pub fn number(value: f64) -> String {
    match value.abs() {
        it if !it.is_finite() => "-".to_owned(),
        it if 1_000.0 <= it => grouped(value.round() as i64),
        it if 100.0 <= it || value.fract() == 0.0 => format!("{value:.0}"),
        it if 10.0 <= it => format!("{value:.1}"),
        it if 0.1 <= it => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if 0 < index && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// Median of numbers of runs that stood beside each other: the machine's moods cancel out.
pub fn median_ratio(values: &[f64], beside: &[f64]) -> f64 {
    Spread::of(values.iter().zip(beside).map(|(value, beside)| value / beside).collect()).median
}

/// Median and range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// In the middle.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
}

impl Spread {
    /// Of numbers in any order; not a number when there are none.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let (last, half) = (values.len().saturating_sub(1), values.len() / 2);
        let median = if values.len() % 2 == 1 { at(half) } else { (at(half.saturating_sub(1)) + at(half)) / 2.0 };
        Spread { median, min: at(0), max: at(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_pairs_and_of_nothing() {
        assert_eq!(median_ratio(&[2.0, 9.0, 8.0], &[1.0, 3.0, 2.0]), 3.0);
        assert_eq!(Spread::of(vec![1.0, 4.0]).median, 2.5);
        assert!(Spread::of(Vec::new()).median.is_nan());
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        assert!(!Target::at_least("T1", "rate", f64::NAN, 1.0).ok);
        assert!(!Target::at_most("T1", "delay", f64::NAN, 1.0).ok);
    }

    #[test]
    fn numbers_are_readable() {
        let cases = [(1234567.8, "1,234,568"), (0.00123, "0.0012"), (2.456, "2.46"), (f64::NAN, "-"), (0.0, "0")];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }
}
