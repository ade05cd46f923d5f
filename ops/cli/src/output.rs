//! Results on standard output: a table for people, JSON for programs.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;

use crate::exit::Failure;

/// Form of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    Table,
    /// One JSON document for programs.
    Json,
    /// One JSON document a line: of a list, each of its rows.
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
        Format::Json => serde_json::to_string_pretty(value).map_err(|error| unwritten(&error))?,
        Format::Ndjson => lines(serde_json::to_value(value).map_err(|error| unwritten(&error))?),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    print(&text)
}

fn unwritten(error: &serde_json::Error) -> Failure {
    Failure::error(format!("cannot write the result as JSON: {error}"))
}

/// A list, or the rows of one, line by line; anything else is one line.
fn lines(value: Value) -> String {
    let rows = match value {
        Value::Array(rows) => rows,
        Value::Object(mut object) => match object.remove("rows") {
            Some(Value::Array(rows)) => rows,
            Some(other) => {
                object.insert("rows".to_owned(), other);
                vec![Value::Object(object)]
            }
            None => vec![Value::Object(object)],
        },
        other => vec![other],
    };
    rows.iter().map(|it| format!("{it}\n")).collect()
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

/// How many seconds, for people.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        it if it < 0.0 => format!("-{}", self::seconds(-it)),
        it if it < 10.0 => format!("{it:.1}s"),
        it => humantime::format_duration(std::time::Duration::from_secs(it as u64)).to_string(),
    }
}

/// What is said below a list that goes on.
pub(crate) fn and_more(more: u64) -> String {
    if more == 0 { String::new() } else { format!("and {more} more (--limit)\n") }
}
