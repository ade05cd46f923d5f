//! How far it is, for people who watch.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Lines between two looks at the clock.
const LINES_BETWEEN: u64 = 1024;
const TICK: Duration = Duration::from_millis(200);

/// A bar on standard error; nothing at all when that is no terminal.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new(total_bytes: Option<u64>) -> Progress {
        let (bar, template) = match total_bytes {
            Some(total) => (ProgressBar::new(total), "{bar:40} {percent:>3} %  {msg}  {elapsed}, {eta} to go"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}  {elapsed}"),
        };
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Progress { bar }
    }

    /// Notes how much of the file was read, and how many lines.
    pub(super) fn at(&self, bytes: u64, lines: u64) {
        if !lines.is_multiple_of(LINES_BETWEEN) || self.bar.is_hidden() {
            return;
        }
        let rate = lines as f64 / self.bar.elapsed().as_secs_f64().max(0.001);
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{lines} lines, {rate:.0} a second"));
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
