//! The two worker processes.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use sekali_consumer::metrics;
use tempfile::TempDir;

use super::stage::Stage;
use crate::exit::Failure;
use crate::private_postgres::free_port;
use crate::private_postgres::supervised::{Start, Supervised};

const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(2);

/// A running worker. Dropping it kills the process and deletes its directory.
pub(super) struct Worker {
    pub(super) number: u32,
    /// Address of `/metrics`, `/livez` and `/readyz`.
    pub(super) admin: SocketAddr,
    process: Supervised,
    // Behind the process, which writes its log there.
    dir: TempDir,
}

impl Worker {
    /// Starts this very program again, as a worker.
    pub(super) fn start(number: u32, stage: &Stage) -> Result<Worker, Failure> {
        Worker::try_start(number, stage)
            .map_err(|error| Failure::error(format!("cannot start worker {number}: {error:#}")))
    }

    fn try_start(number: u32, stage: &Stage) -> Result<Worker, anyhow::Error> {
        // The configuration holds a password.
        let private = std::fs::Permissions::from_mode(0o700);
        let prefix = format!("sekali-demo-worker-{number}-");
        let dir = tempfile::Builder::new().prefix(&prefix).permissions(private).tempdir()?;
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        std::fs::write(config_file(dir.path()), stage.settings(admin))?;
        let command: [OsString; 4] =
            [std::env::current_exe()?.into(), "demo-worker".into(), "--config".into(), config_file(dir.path()).into()];
        let log = dir.path().join("log");
        let start = Start { command: &command, log: &log, dir: dir.path(), user: None, on_orphaned: Signal::SIGKILL };
        Ok(Worker { number, admin, process: start.spawn()?, dir })
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The file it was started with.
    pub(super) fn config_file(&self) -> PathBuf {
        config_file(self.dir.path())
    }

    /// What it writes on standard error.
    pub(super) fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Fails when the process has ended, with its last words.
    pub(super) fn require_alive(&mut self) -> Result<(), Failure> {
        let ended = self.process.has_ended().map_err(|error| Failure::error(format!("worker: {error}")))?;
        if !ended {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let last = log.lines().rev().find(|it| !it.trim().is_empty()).unwrap_or("it left no word");
        Err(Failure::error(format!("worker {} ended by itself: {last}", self.number)))
    }

    /// Number of source partitions that it owns; `None` while its admin port does not answer.
    pub(super) async fn assigned(&self) -> Option<usize> {
        let url = format!("http://{}/metrics", self.admin);
        let text = tokio::task::spawn_blocking(move || scrape(&url)).await.ok()??;
        let own = text.lines().filter(|it| it.starts_with(metrics::ASSIGNED.name));
        Some(own.filter_map(|it| it.rsplit_once(' ')?.1.parse::<usize>().ok()).sum())
    }

    /// Kills it as a crash would: no signal that it could catch, nothing that it could finish.
    pub(super) fn kill(self) -> Result<(), Failure> {
        self.stop(Signal::SIGKILL)
    }

    /// Asks it to finish what it has in hand and to leave the group.
    pub(super) fn shut_down(self) -> Result<(), Failure> {
        self.stop(Signal::SIGTERM)
    }

    fn stop(self, signal: Signal) -> Result<(), Failure> {
        let number = self.number;
        self.process
            .stop(signal, STOP_TIMEOUT)
            .map_err(|error| Failure::error(format!("cannot stop worker {number}: {error:#}")))
    }
}

fn config_file(dir: &Path) -> PathBuf {
    dir.join("sekali.toml")
}

fn scrape(url: &str) -> Option<String> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(SCRAPE_TIMEOUT)).proxy(None).build().into();
    agent.get(url).call().ok()?.body_mut().read_to_string().ok()
}
