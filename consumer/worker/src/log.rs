//! Log lines on standard error.

use std::io::{IsTerminal, stderr};

use sekali_consumer::config::{LogFormat, LogSection};
use sekali_consumer::{Error, ErrorKind};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Sends the log of the whole process to standard error, in the form and from the level that the section asks for.
///
/// # Errors
/// The filter cannot be read, or the process has set up its log before.
pub fn init(section: &LogSection) -> Result<(), Error> {
    let filter = EnvFilter::try_new(&section.filter).map_err(|error| {
        Error::new(ErrorKind::Config, "read log.filter: use a level, or \"info,sekali_consumer=debug\"").because(error)
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    let set = match section.format {
        LogFormat::Json => lines.json().finish().try_init(),
        _ => lines.with_ansi(stderr().is_terminal()).finish().try_init(),
    };
    set.map_err(|error| Error::new(ErrorKind::System, "set up the log").because(error))
}
