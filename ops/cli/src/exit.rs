//! Exit statuses, and how an error is said.

use std::fmt;
use std::process::ExitCode;

use sekali_producer::{Error, ErrorKind};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did what was asked: status 0.
    Done,
    /// It did, and found something that needs attention: status 3.
    Found,
}

/// Why a command could not do what was asked: a sentence for the operator with the remedy.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Error = 1,
    Usage = 2,
}

impl Failure {
    /// The world did not cooperate: status 1.
    pub fn error(text: impl Into<String>) -> Failure {
        Failure { status: Status::Error, text: text.into() }
    }

    /// The command line or the configuration is wrong: status 2.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { status: Status::Usage, text: text.into() }
    }

    /// The exit status.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.status as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = if error.kind() == ErrorKind::Config { Status::Usage } else { Status::Error };
        Failure { status, text: error.chain() }
    }
}

impl Outcome {
    /// The exit status.
    pub fn code(self) -> ExitCode {
        match self {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Found => ExitCode::from(3),
        }
    }
}
