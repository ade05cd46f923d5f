//! What the demo says while it runs: lines, and a bar on a terminal.

use std::cell::Cell;
use std::fmt::Display;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use super::found::Tally;
use super::plan::{Kind, Plan};
use super::verdict::Verdict;
use crate::output;

/// Without a terminal, a line of progress so often.
const LINE_EVERY: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);

/// Tells the story on standard error.
pub(super) struct Narration {
    bar: ProgressBar,
    last_line: Cell<Instant>,
}

impl Narration {
    /// For a plan with so many events.
    pub(super) fn new(events: usize) -> Narration {
        let bar = ProgressBar::new(events as u64);
        let template = "{bar:32} {human_pos} of {human_len} events decided, {msg}";
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Narration { bar, last_line: Cell::new(Instant::now()) }
    }

    /// One line of the story.
    pub(super) fn say(&self, line: impl Display) {
        self.bar.suspend(|| output::note(&line.to_string()));
    }

    /// Begins to show progress.
    pub(super) fn follow(&self) {
        self.last_line.set(Instant::now());
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(TICK);
        }
    }

    /// Notes how far it is.
    pub(super) fn at(&self, tally: Tally) {
        let decided = (tally.counted + tally.dead) as u64;
        let message = format!("{} waiting for another attempt, {} dead letters", tally.retrying, tally.dead);
        if self.bar.is_hidden() {
            if LINE_EVERY <= self.last_line.get().elapsed() {
                self.last_line.set(Instant::now());
                let of = HumanCount(self.bar.length().unwrap_or_default());
                self.say(format_args!("  {} of {of} events decided, {message}", HumanCount(decided)));
            }
            return;
        }
        self.bar.set_message(message);
        self.bar.set_position(decided);
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// A number with commas.
pub(super) fn grouped(number: usize) -> HumanCount {
    HumanCount(number as u64)
}

/// The result for people.
pub(super) fn table(plan: &Plan, verdict: &Verdict) -> String {
    let dead = plan.count(|it| !it.is_counted());
    let rows = [
        ("records published", plan.order.len(), verdict.produced, ""),
        ("distinct events", plan.events.len(), verdict.distinct, ""),
        ("applied, each in one transaction", plan.count(Kind::is_counted), verdict.processed, "the ledger"),
        ("duplicates that changed nothing", plan.duplicates(), verdict.duplicates, "the inbox knew them"),
        ("tried again later", plan.count(Kind::is_retried), verdict.retried, "by way of two retry topics"),
        ("dead letters, for a person to see", dead, verdict.dead, "the store, and the dead-letter topic"),
        ("workers killed on the way", 1, verdict.workers_killed, ""),
        ("SKUs with a wrong quantity", 0, verdict.skus_wrong, ""),
        ("lost", 0, verdict.lost, ""),
        ("doubled", 0, verdict.doubled, ""),
    ];
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["", "EXPECTED", "FOUND", ""]);
    for (what, expected, found, where_) in rows {
        table.add_row([what, &grouped(expected).to_string(), &grouped(found).to_string(), where_]);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|it| it.trim_end().to_owned() + "\n").collect()
}
