//! Results on standard output: a table for people, JSON for programs.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::exit::Failure;

/// Form of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    Table,
    /// One JSON document for programs.
    Json,
    /// One JSON document a line: each of a list, or the whole result.
    Ndjson,
}

/// Writes a result in the form asked for.
///
/// # Errors
/// Standard output cannot be written; a reader that went away early (`| head`) is no error.
pub(crate) fn show<T: Serialize + ?Sized>(
    format: Format,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let mut text = match format {
        Format::Table => table(value),
        Format::Json => serde_json::to_string_pretty(value).map_err(unwritable)?,
        Format::Ndjson => lines(&serde_json::to_value(value).map_err(unwritable)?),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    print(&text)
}

fn unwritable(error: serde_json::Error) -> Failure {
    Failure::error(format!("cannot write the result as JSON: {error}"))
}

fn lines(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) => items.iter().map(|it| format!("{it}\n")).collect(),
        other => other.to_string(),
    }
}

/// Writes text as it is.
///
/// # Errors
/// As [`show`].
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::error(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A line for people on standard error.
pub(crate) fn note(text: &str) {
    // Nobody reads standard error: there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Columns under headings.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings);
    for row in rows {
        table.add_row(row);
    }
    // Without borders the cells of the last column are padded to its width.
    table.lines().map(|it| it.trim_end().to_owned() + "\n").collect()
}
