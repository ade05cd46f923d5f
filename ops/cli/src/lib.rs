//! The operator's command line of Sekali.
//!
//! Results go to standard output, messages to standard error. Exit status: 0 done, 1 error, 2 usage or configuration,
//! 3 done and found something that needs attention.

mod args;
mod bench;
mod commands;
mod console;
mod demo;
mod drill;
mod exit;
mod output;
pub mod private_postgres;
mod produce;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

pub use exit::{Failure, Outcome};

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs one command. The first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match args::Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are "errors" of status 0.
            let status = u8::try_from(error.exit_code()).unwrap_or(2);
            return error.print().map_or(ExitCode::FAILURE, |()| ExitCode::from(status));
        }
    };
    if let args::Command::BenchProgram { description } = &cli.command {
        return bench::run_program(description);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("error: cannot start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(commands::run(cli));
    // A client that is still trying to reach its server must not hold up the exit.
    runtime.shutdown_background();
    match result {
        Ok(outcome) => outcome.code(),
        Err(failure) => {
            output::note(&format!("error: {failure}"));
            failure.code()
        }
    }
}
