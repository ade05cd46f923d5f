use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;

use super::{duration, secret};
use crate::{Error, ErrorKind};

/// Section `postgres`: the database that holds your tables and schema `sekali`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresSection {
    /// Connection URL, `postgres://user@host:5432/database`. Several hosts separated by commas are tried in turn; add
    /// `target_session_attrs=read-write` to find the primary. No default.
    #[serde(serialize_with = "secret::hidden")]
    pub url: Option<SecretString>,
    /// File that holds the URL, instead of `url`.
    pub url_file: Option<PathBuf>,
    /// Password, when it is not part of the URL.
    #[serde(serialize_with = "secret::hidden")]
    pub password: Option<SecretString>,
    /// File that holds the password, instead of `password`.
    pub password_file: Option<PathBuf>,
    /// Connections that this process opens at most. Too few: executors and relay wait for each other; too many: the
    /// server's `max_connections` over all replicas. Default 8.
    pub pool_max_connections: NonZeroUsize,
    /// Longest wait for a new connection. Too short: a loaded server is taken for a dead one. Default `"5s"`.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// Longest wait for a free connection of the pool. Default `"5s"`.
    #[serde(with = "duration")]
    pub acquire_timeout: Duration,
    /// Longest run of one statement, the longest wait for a lock, and the longest idle time inside a transaction. Too
    /// short: batches fail on a slow disk; too long: a stuck statement holds its locks. Default `"30s"`.
    #[serde(with = "duration")]
    pub statement_timeout: Duration,
}

impl Default for PostgresSection {
    fn default() -> PostgresSection {
        PostgresSection {
            url: None,
            url_file: None,
            password: None,
            password_file: None,
            pool_max_connections: POOL_MAX_CONNECTIONS,
            connect_timeout: Duration::from_secs(5),
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

const POOL_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// After this silence the kernel asks whether the server is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Unacknowledged data for this long ends the connection: a server that vanished without a word.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

impl PostgresSection {
    /// Appends what cannot work, each with its key and the remedy.
    pub fn validate(&self, problems: &mut Vec<String>) {
        if self.url.is_none() && self.url_file.is_none() {
            problems.push(
                "postgres.url is not set: give postgres://user@host:5432/database, or postgres.url_file".to_owned(),
            );
        }
        secret::validate_one_of("postgres.url", self.url.as_ref(), self.url_file.as_deref(), problems);
        secret::validate_one_of("postgres.password", self.password.as_ref(), self.password_file.as_deref(), problems);
        for (key, duration) in [
            ("connect_timeout", self.connect_timeout),
            ("acquire_timeout", self.acquire_timeout),
            ("statement_timeout", self.statement_timeout),
        ] {
            if duration < Duration::from_millis(1) {
                problems.push(format!(
                    "postgres.{key} must be at least 1ms: without a limit a dead server is waited for for ever"
                ));
            }
        }
        if let Some(url) = &self.url
            && let Err(error) = parse(url)
        {
            problems.push(error.chain());
        }
    }

    /// How each connection is made: address, password, keep-alives and server-side timeouts.
    ///
    /// # Errors
    /// No URL, one that cannot be read or asks for TLS, or an unreadable file. The text never shows the URL.
    pub fn connection_config(&self, application_name: &str) -> Result<tokio_postgres::Config, Error> {
        let url = secret::resolve("postgres.url", self.url.as_ref(), self.url_file.as_deref())?
            .ok_or_else(|| Error::new(ErrorKind::Config, "find postgres.url: it is not set"))?;
        let mut config = parse(&url)?;
        if let Some(password) =
            secret::resolve("postgres.password", self.password.as_ref(), self.password_file.as_deref())?
        {
            config.password(password.expose_secret());
        }
        let timeout_ms = self.statement_timeout.as_millis();
        let mut options = config.get_options().unwrap_or_default().to_owned();
        for name in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
            options.push_str(&format!(" -c {name}={timeout_ms}"));
        }
        config
            .options(options.trim_start())
            .application_name(application_name)
            .connect_timeout(self.connect_timeout)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .tcp_user_timeout(TCP_USER_TIMEOUT);
        Ok(config)
    }

    /// A pool of such connections. Opens none yet: the first `get` does.
    ///
    /// # Errors
    /// As [`PostgresSection::connection_config`].
    pub fn pool(&self, application_name: &str) -> Result<Pool, Error> {
        let config = self.connection_config(application_name)?;
        // A new connection is checked by its use; one that was closed meanwhile is dropped without a round trip.
        let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        // The only place that knows how connections are encrypted.
        let manager = Manager::from_config(config, NoTls, how);
        let timeouts = Timeouts {
            wait: Some(self.acquire_timeout),
            create: Some(self.connect_timeout),
            recycle: Some(self.connect_timeout),
        };
        let pool = Pool::builder(manager)
            .max_size(self.pool_max_connections.get())
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build();
        pool.map_err(|error| Error::new(ErrorKind::Config, "build the connection pool").because(error))
    }
}

fn parse(url: &SecretString) -> Result<tokio_postgres::Config, Error> {
    let text = url.expose_secret();
    let ssl_mode = text.split_once("sslmode=").map(|(_, rest)| rest.split(['&', ' ']).next().unwrap_or_default());
    if ssl_mode.is_some_and(|it| !matches!(it.trim_matches('\''), "disable" | "allow" | "prefer")) {
        return Err(Error::new(
            ErrorKind::Config,
            "use postgres.url: it asks for TLS (sslmode), which this version does not speak; connect over a trusted \
             network with sslmode=disable, or through a local TLS tunnel",
        ));
    }
    let parsed: Result<tokio_postgres::Config, _> = text.replace("sslmode=allow", "sslmode=prefer").parse();
    // The parser's own text may quote a part of the password.
    let config = parsed.map_err(|_| {
        Error::new(
            ErrorKind::Config,
            "read postgres.url: not a connection url; expected postgres://user@host:5432/database, with special \
             characters in percent form",
        )
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(Error::new(ErrorKind::Config, "use postgres.url: it names no host"));
    }
    Ok(config)
}
