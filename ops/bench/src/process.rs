//! A child with its output in a file.

use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use crate::child::{ARGUMENT, Child};

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: tokio::process::Child,
    log: tempfile::NamedTempFile,
    pid: i32,
}

impl Child {
    /// Starts the present program again as this child.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self) -> Result<Process, anyhow::Error> {
        let log = tempfile::NamedTempFile::new().context("cannot make a file for the program's output")?;
        let file = |log: &tempfile::NamedTempFile| File::options().append(true).open(log.path()).map(Stdio::from);
        // Not by its path: a build in the middle of a run must not change what is compared.
        let mut command = Command::new(Path::new("/proc/self/exe"));
        command.arg(ARGUMENT).arg(serde_json::to_string(self)?);
        if !self.origin.with_environment {
            let ours = std::env::vars_os().filter(|it| it.0.to_string_lossy().starts_with("SEKALI_"));
            for (variable, _) in ours {
                command.env_remove(variable);
            }
        }
        command.stdin(Stdio::null()).stdout(file(&log)?).stderr(file(&log)?).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.program.name()))?;
        let pid = child.id().and_then(|it| it.try_into().ok()).context("the program has ended at once")?;
        Ok(Process { child, log, pid })
    }
}

impl Process {
    /// Process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What it wrote, at its end.
    pub fn last_words(&self) -> String {
        let text = std::fs::read(self.log.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|it| !it.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(5)..].join("; ")
    }

    /// Fails when it has ended.
    ///
    /// # Errors
    /// It has; the text ends with its last words.
    pub fn require_running(&mut self) -> Result<(), anyhow::Error> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the program ended with {status}: {}", self.last_words()),
        }
    }

    /// Kills it as a crash would.
    ///
    /// # Errors
    /// It has ended before.
    pub async fn sigkill(&mut self) -> Result<(), anyhow::Error> {
        self.child.kill().await.context("cannot kill the program")
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// It takes longer, or ends with an error.
    pub async fn sigterm(&mut self, timeout: Duration) -> Result<(), anyhow::Error> {
        kill(Pid::from_raw(self.pid), Signal::SIGTERM).context("cannot signal the program")?;
        let status: ExitStatus = match tokio::time::timeout(timeout, self.child.wait()).await {
            Ok(status) => status?,
            Err(_) => bail!("the program still runs {timeout:?} after SIGTERM: {}", self.last_words()),
        };
        if !status.success() {
            bail!("the program ended with {status}: {}", self.last_words());
        }
        Ok(())
    }
}
