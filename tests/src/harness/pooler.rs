//! A PgBouncer between tests and their database server.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::User;
use sekali::private_postgres::supervised::{Start, Supervised};
use sekali::private_postgres::{free_port, unprivileged_user};

use super::eventually::eventually;
use super::kafka::blocking;
use super::postgres::{Postgres, TestDatabase};

/// Names the program, before every other place.
pub const PGBOUNCER_VARIABLE: &str = "SEKALI_TEST_PGBOUNCER";
/// From this version on, a statement that a client has prepared is there on every connection to the server.
const KEEPS_STATEMENTS: (u32, u32) = (1, 21);
const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How the pooler shares out its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To transactions; prepared statements are kept, if the version can.
    Transaction,
    /// To transactions, forgetting that statements were prepared: the mistake.
    TransactionWithoutStatements,
    /// To clients, for as long as they are connected.
    Session,
}

/// A running pooler with a few connections to each database of one server. Dropping it ends it.
pub struct Pooler {
    server: Option<Supervised>,
    program: PathBuf,
    version: (u32, u32),
    user: Option<User>,
    upstream: Postgres,
    connections: u16,
    port: u16,
    dir: tempfile::TempDir,
}

impl Pooler {
    /// Starts one in front of a server.
    ///
    /// # Errors
    /// There is no PgBouncer on this machine, or it does not start.
    pub async fn start(upstream: &Postgres, mode: Mode, connections: u16) -> Result<Pooler, anyhow::Error> {
        let program = find()?;
        let version = version(&program)?;
        let (user, port) = (unprivileged_user()?, free_port()?);
        let dir = tempfile::Builder::new().prefix("sekali-pgbouncer-").tempdir()?;
        let upstream = upstream.clone();
        let mut pooler = Pooler { server: None, program, version, user, upstream, connections, port, dir };
        pooler.restart(mode).await?;
        Ok(pooler)
    }

    /// Whether this version keeps prepared statements in [`Mode::Transaction`].
    pub fn keeps_statements(&self) -> bool {
        KEEPS_STATEMENTS <= self.version
    }

    /// Major and minor version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// URL of a database through the pooler.
    pub fn url(&self, database: &TestDatabase) -> String {
        database.url_through(self.port)
    }

    /// Ends it, which closes every connection, and starts it on the same port.
    ///
    /// # Errors
    /// It does not start.
    pub async fn restart(&mut self, mode: Mode) -> Result<(), anyhow::Error> {
        self.stop().await?;
        self.write_settings(mode)?;
        let command = [self.program.clone().into(), self.path("pgbouncer.ini").into()];
        let start = Start {
            command: &command,
            log: &self.path("log"),
            dir: self.dir.path(),
            user: self.user.as_ref(),
            on_orphaned: Signal::SIGKILL,
        };
        let mut server = start.spawn()?;
        let address = ("127.0.0.1", self.port);
        let listens = eventually("the pooler listens, or ends", START_TIMEOUT, async || {
            if server.has_ended().unwrap_or(true) {
                return Some(false);
            }
            tokio::net::TcpStream::connect(address).await.is_ok().then_some(true)
        });
        let listens = listens.await;
        ensure!(listens, "PgBouncer ended while it started: {}", std::fs::read_to_string(self.path("log"))?);
        self.server = Some(server);
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), anyhow::Error> {
        match self.server.take() {
            // The polite signals mean other things in other versions.
            Some(server) => blocking(move || server.stop(Signal::SIGKILL, STOP_TIMEOUT)).await,
            None => Ok(()),
        }
    }

    fn write_settings(&self, mode: Mode) -> Result<(), anyhow::Error> {
        let (host, port) = self.upstream.address();
        let config: tokio_postgres::Config = self.upstream.url("postgres").parse()?;
        let user = config.get_user().context("the server's URL names no user")?;
        let password = String::from_utf8_lossy(config.get_password().unwrap_or_default()).into_owned();
        let pool_mode = if mode == Mode::Session { "session" } else { "transaction" };
        let mut text = format!(
            "[databases]\n* = host={host} port={port} user={user} password={password}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {pool_mode}\ndefault_pool_size = {}\nmax_client_conn = 300\n\
             ignore_startup_parameters = extra_float_digits, options\n",
            self.port, self.connections
        );
        if self.keeps_statements() {
            let kept = if mode == Mode::TransactionWithoutStatements { 0 } else { 200 };
            text.push_str(&format!("max_prepared_statements = {kept}\n"));
        }
        let path = self.path("pgbouncer.ini");
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        std::fs::write(self.path("log"), "")?;
        for it in [self.dir.path(), &path, &self.path("log")] {
            if let Some(user) = &self.user {
                chown(it, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // Before its directory goes.
            let _ = server.stop(Signal::SIGKILL, STOP_TIMEOUT);
        }
    }
}

fn find() -> Result<PathBuf, anyhow::Error> {
    if let Some(program) = std::env::var_os(PGBOUNCER_VARIABLE) {
        return Ok(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where the distribution has it, which is not on everybody's search path.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = dirs.map(|it| it.join("pgbouncer")).find(|it| it.is_file());
    found.with_context(|| {
        format!("no PgBouncer: install package pgbouncer, or name the program in {PGBOUNCER_VARIABLE}")
    })
}

fn version(program: &Path) -> Result<(u32, u32), anyhow::Error> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some(version) = parse_version(&text) else { bail!("{} does not say its version: {text:?}", program.display()) };
    Ok(version)
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("PgBouncer ")?.split_whitespace().next()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(parse_version("PgBouncer 1.25.2\nlibevent 2.1.12-stable\n"), Some((1, 25)));
        assert_eq!(parse_version("PgBouncer version 1"), None);
        assert!(parse_version("PgBouncer 1.9.0\n").unwrap() < KEEPS_STATEMENTS);
    }
}
