//! Commands of `sekali` that end.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::program;

const LIMIT: Duration = Duration::from_secs(120);

/// A command that ended.
pub struct Ended {
    /// Its exit status; -1 after a signal.
    pub status: i32,
    /// What it printed.
    pub stdout: String,
    /// What it printed beside.
    pub stderr: String,
}

impl Ended {
    /// Its result.
    ///
    /// # Panics
    /// It is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    /// How often each outcome of an operation on dead letters came.
    ///
    /// # Panics
    /// Its result is no JSON.
    pub fn outcome(&self, name: &str) -> u64 {
        let json = self.json();
        let outcomes = json["outcomes"].as_array().cloned().unwrap_or_default();
        outcomes.iter().find(|it| it[0] == name).map_or(0, |it| it[1].as_u64().expect("a count"))
    }

    /// It ended so, and said so.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn expect(&self, status: i32, texts: &[&str]) {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in\n{}", self.stderr);
        }
        assert_eq!(self.status, status, "{}{}", self.stdout, self.stderr);
    }
}

/// `sekali`, without what the environment of the test run says to it.
///
/// # Panics
/// The program has not been built.
pub fn sekali(arguments: &[&str]) -> Command {
    let mut command = Command::new(program("sekali"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEKALI_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Waits for its end.
///
/// # Panics
/// It does not end within two minutes, or prints what is no text.
pub async fn ended(mut command: Command) -> Ended {
    let output = tokio::time::timeout(LIMIT, command.output()).await.expect("the command ends").expect("sekali starts");
    Ended {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}
