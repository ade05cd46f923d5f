//! A throw-away PostgreSQL server from the binaries of this machine.
//!
//! The demo and the test bench start one each. It listens on the loopback interface only, has a random password, and
//! ends with the process that started it, even when that one is killed with SIGKILL.

mod binaries;
pub mod supervised;

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};

pub use binaries::{BINARIES_VARIABLE, find_binaries};
use supervised::Supervised;

/// A server that restarts after a crash replays its log first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Another process may take the port between our choice and the server's start.
const PORT_CHOICES: usize = 3;

/// How a private server is to be started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory with `initdb` and `postgres`; by default the newest that [`find_binaries`] finds.
    pub binaries: Option<PathBuf>,
    /// Whether commits wait for the disk. Off is faster, and safe against a killed server but not against a power cut.
    pub fsync: bool,
    /// Connection limit of the server.
    pub max_connections: u16,
    /// Further server settings, name and value; they win over the ones above.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options { binaries: None, fsync: true, max_connections: 200, settings: Vec::new() }
    }
}

/// A running private server. Dropping it stops the server and deletes its data.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: Option<Supervised>,
    binaries: PathBuf,
    user: Option<User>,
    password: String,
    port: u16,
    settings: Vec<(String, String)>,
    // Behind the server: its directory may only go when it has stopped.
    dir: tempfile::TempDir,
}

impl PrivatePostgres {
    /// Makes a new cluster in a temporary directory and starts it. Blocks for one to two seconds; call it from
    /// `spawn_blocking` in asynchronous code.
    ///
    /// Started by root, which PostgreSQL refuses to run as, the server runs as user `postgres` or `nobody`.
    ///
    /// # Errors
    /// No binaries on this machine (the error names the packages to install), or the server does not start (the error
    /// ends with its last words).
    pub fn start(options: Options) -> Result<PrivatePostgres, anyhow::Error> {
        let binaries = match &options.binaries {
            Some(dir) => dir.clone(),
            None => find_binaries()?,
        };
        let user = unprivileged_user()?;
        let dir = tempfile::Builder::new()
            .prefix("sekali-postgres-")
            .tempdir()
            .context("cannot make a directory for the private PostgreSQL; check TMPDIR")?;
        let password = uuid::Uuid::new_v4().simple().to_string();
        let settings = all_settings(&options);
        let mut postgres = PrivatePostgres { server: None, binaries, user, password, port: 0, settings, dir };
        postgres.init()?;
        for choice in 1..=PORT_CHOICES {
            postgres.port = free_port()?;
            match postgres.launch() {
                Err(_) if choice < PORT_CHOICES && postgres.log().contains("in use") => {}
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        Ok(postgres)
    }

    /// Connection URL of a database, for the superuser `postgres`. Contains the password.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// Port on 127.0.0.1; it survives [`PrivatePostgres::restart`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Process id of the postmaster, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Supervised::pid)
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_path()).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default()
    }

    /// Stops the server in good order (`fast`: open transactions are rolled back). Its data stays.
    ///
    /// # Errors
    /// It does not end in time; it is killed then.
    pub fn stop(&mut self) -> Result<(), anyhow::Error> {
        match self.server.take() {
            Some(server) => server.stop(Signal::SIGINT, STOP_TIMEOUT).context("private PostgreSQL"),
            None => Ok(()),
        }
    }

    /// Kills the postmaster with SIGKILL, as a crash would. Its data stays.
    ///
    /// # Errors
    /// The process cannot be signalled.
    pub fn kill(&mut self) -> Result<(), anyhow::Error> {
        match self.server.take() {
            Some(server) => server.stop(Signal::SIGKILL, STOP_TIMEOUT).context("private PostgreSQL"),
            None => Ok(()),
        }
    }

    /// Starts the server again on the same port with the same data, after [`PrivatePostgres::stop`] or
    /// [`PrivatePostgres::kill`]; a running one is stopped first. Blocks until it accepts connections.
    ///
    /// # Errors
    /// As [`PrivatePostgres::start`].
    pub fn restart(&mut self) -> Result<(), anyhow::Error> {
        self.stop()?;
        let begin = Instant::now();
        loop {
            match self.launch() {
                // Backends of a killed postmaster need a moment to notice, and hold the shared memory until then.
                Err(_) if begin.elapsed() < STOP_TIMEOUT && self.log().contains("still in use") => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                outcome => return outcome,
            }
        }
    }

    fn init(&self) -> Result<(), anyhow::Error> {
        let password_file = self.dir.path().join("password");
        std::fs::write(&password_file, &self.password)?;
        for path in [self.dir.path(), &password_file] {
            if let Some(user) = &self.user {
                std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
            }
        }
        let mut command = Command::new(self.binaries.join("initdb"));
        command
            .args(["--auth=scram-sha-256", "--username=postgres", "--encoding=UTF8", "--locale=C"])
            .args(["--no-sync", "--no-instructions"])
            .arg("--pwfile")
            .arg(&password_file)
            .arg("--pgdata")
            .arg(self.data_dir())
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        supervised::run_as(&mut command, self.user.as_ref());
        let output = command.output().with_context(|| format!("cannot run {}/initdb", self.binaries.display()))?;
        std::fs::remove_file(&password_file)?;
        ensure!(output.status.success(), "initdb failed: {}", last_lines(&String::from_utf8_lossy(&output.stderr)));
        Ok(())
    }

    fn launch(&mut self) -> Result<(), anyhow::Error> {
        // The file of a killed server would pass for the answer of the new one.
        match std::fs::remove_file(self.pid_file()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        std::fs::write(self.log_path(), "")?;
        if let Some(user) = &self.user {
            std::os::unix::fs::chown(self.log_path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        let mut command: Vec<OsString> = vec![self.binaries.join("postgres").into(), "-D".into()];
        command.push(self.data_dir().into());
        command.extend(["-p".into(), self.port.to_string().into()]);
        for (name, value) in &self.settings {
            command.extend(["-c".into(), format!("{name}={value}").into()]);
        }
        let server = supervised::Start {
            command: &command,
            log: &self.log_path(),
            dir: self.dir.path(),
            user: self.user.as_ref(),
            on_orphaned: Signal::SIGQUIT,
        };
        self.server = Some(server.spawn().context("cannot start PostgreSQL")?);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), anyhow::Error> {
        let begin = Instant::now();
        while begin.elapsed() < START_TIMEOUT {
            // Line 8 is the server's state; pg_ctl looks at it, too.
            let state = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
            if state.lines().nth(7).is_some_and(|it| it.trim() == "ready") {
                return Ok(());
            }
            let server = self.server.as_mut().context("the server was stopped while it started")?;
            if server.has_ended()? {
                self.server = None;
                bail!("PostgreSQL ended while it started: {}", last_lines(&self.log()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("PostgreSQL was not ready within {START_TIMEOUT:?}: {}", last_lines(&self.log()))
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn pid_file(&self) -> PathBuf {
        self.data_dir().join("postmaster.pid")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // The data goes with it: nothing to save, and nobody to tell.
            let _ = server.stop(Signal::SIGQUIT, STOP_TIMEOUT);
        }
    }
}

fn all_settings(options: &Options) -> Vec<(String, String)> {
    let fsync = if options.fsync { "on" } else { "off" };
    let max_connections = options.max_connections.to_string();
    let ours = [
        ("listen_addresses", "127.0.0.1"),
        // Nobody needs the socket, and its path would be limited to 107 bytes.
        ("unix_socket_directories", ""),
        ("fsync", fsync),
        ("max_connections", &max_connections),
        // A transaction that somebody forgot must not outlive its test.
        ("idle_in_transaction_session_timeout", "10min"),
        ("logging_collector", "off"),
    ];
    let ours = ours.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    ours.chain(options.settings.iter().cloned()).collect()
}

/// Whom servers run as that refuse to run as root; `None` when this process is not root's.
///
/// # Errors
/// There is neither a user `postgres` nor `nobody`.
pub fn unprivileged_user() -> Result<Option<User>, anyhow::Error> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    bail!("PostgreSQL refuses to run as root, and there is no user postgres or nobody; start this as another user")
}

/// A TCP port on the loopback interface that nobody listens on at this moment.
///
/// # Errors
/// The system has none to give.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|it| !it.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}

/// Whether a directory has the programs that a private server needs.
fn has_programs(dir: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|it| dir.join(it).is_file())
}
