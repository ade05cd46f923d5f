//! The worker that is killed.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::exit::Failure;
use crate::output;

/// Longest wait for a graceful end: a drain, and leaving the group.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A process of its own group, which ends with this one.
pub(super) struct Worker {
    child: Child,
    group: Pid,
}

impl Worker {
    /// Starts the command through a shell, which it replaces.
    pub(super) fn start(command: &str, log: Option<&Path>) -> Result<Worker, Failure> {
        let failed = |what: &str, error: &std::io::Error| Failure::error(format!("cannot {what}: {error}"));
        let (stdout, stderr) = match log {
            None => (Stdio::null(), Stdio::null()),
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file = file.map_err(|error| failed(&format!("write {}", path.display()), &error))?;
                let twin = file.try_clone().map_err(|error| failed("share the worker's log", &error))?;
                (file.into(), twin.into())
            }
        };
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("exec {command}"));
        shell.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0).kill_on_drop(true);
        let child = shell.spawn().map_err(|error| failed("start the worker", &error))?;
        let id = child.id().and_then(|it| i32::try_from(it).ok());
        let group =
            id.map(Pid::from_raw).ok_or_else(|| Failure::error("the worker ended at once: see --worker-log"))?;
        Ok(Worker { child, group })
    }

    /// Ends it as a crash would.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(Failure::error(format!("the worker ended by itself ({status}): see --worker-log")));
        }
        self.signal(Signal::SIGKILL)?;
        self.child.wait().await.map_err(|error| Failure::error(format!("cannot wait for the worker: {error}")))?;
        Ok(())
    }

    /// Ends it as a deployment would.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        self.signal(Signal::SIGTERM)?;
        match tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(_ended) => Ok(()),
            Err(_elapsed) => self.kill().await,
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        killpg(self.group, signal)
            .map_err(|error| Failure::error(format!("cannot send {signal} to the worker: {error}")))
    }
}

/// Has a person do it.
pub(super) async fn ask_for_a_kill() -> Result<(), Failure> {
    output::note("kill a worker of the group now (kill -9), let it start again, and press Enter");
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    match read.map_err(std::io::Error::other).flatten() {
        Ok(0) => Err(Failure::error("nobody answers on standard input: give the worker with --worker-command")),
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::error(format!("cannot read standard input: {error}"))),
    }
}
