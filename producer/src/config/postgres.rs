use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::{duration, secret};
use crate::{Error, ErrorKind, SqlError};

mod tls;
mod url;

pub use tls::PostgresTls;
use url::SslMode;

/// Section `postgres`: the database that holds your tables and schema `sekali`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresSection {
    /// Connection URL, `postgres://user@host:5432/database`. Several hosts separated by commas are tried in turn; add
    /// `target_session_attrs=read-write` to find the primary. `sslmode` says how connections are protected, as for libpq:
    /// `disable`, `prefer` (the default), `require`, `verify-ca`, `verify-full`. Only the last one keeps out somebody in
    /// the middle. No default.
    #[serde(serialize_with = "secret::hidden")]
    pub url: Option<SecretString>,
    /// File that holds the URL, instead of `url`.
    pub url_file: Option<PathBuf>,
    /// Password, when it is not part of the URL.
    #[serde(serialize_with = "secret::hidden")]
    pub password: Option<SecretString>,
    /// File that holds the password, instead of `password`.
    pub password_file: Option<PathBuf>,
    /// PEM file of the authorities that may have signed the server's certificate. With it, `sslmode=require` checks the
    /// certificate like `verify-ca`, as libpq does. Default: those the system trusts.
    pub ssl_root_cert_file: Option<PathBuf>,
    /// PEM file of the certificate to show the server, with those between it and the authority. Read at start. No default.
    pub ssl_cert_file: Option<PathBuf>,
    /// PEM file of that certificate's private key, without a password. No default.
    pub ssl_key_file: Option<PathBuf>,
    /// Connections that this process opens at most. Too few: executors and relay wait for each other; too many: the
    /// server's `max_connections` over all replicas. Default 8.
    pub pool_max_connections: NonZeroUsize,
    /// Longest wait for a new connection. Too short: a loaded server is taken for a dead one. Default `"5s"`.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// Longest wait for a free connection of the pool. Default `"5s"`.
    #[serde(with = "duration")]
    pub acquire_timeout: Duration,
    /// Longest run of one statement and the longest wait for a lock; five seconds more is the longest idle time inside
    /// a transaction. Too short: batches fail on a slow disk; too long: a stuck statement holds its locks.
    /// Default `"30s"`.
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
            ssl_root_cert_file: None,
            ssl_cert_file: None,
            ssl_key_file: None,
            pool_max_connections: POOL_MAX_CONNECTIONS,
            connect_timeout: Duration::from_secs(5),
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

const POOL_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// How much longer a transaction may idle than a statement may run. A handler that hangs outside the database is ended by
/// its own limit, which may equal that of a statement: were the server first, the message would bear no blame, and run
/// and hang for ever.
const IDLE_GRACE: Duration = Duration::from_secs(5);
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
        if self.ssl_cert_file.is_some() != self.ssl_key_file.is_some() {
            problems
                .push("postgres.ssl_cert_file and postgres.ssl_key_file belong together: set both or none".to_owned());
        }
        if let Some(url) = &self.url
            && let Err(error) = self.parse(url)
        {
            problems.push(error.chain());
        }
    }

    /// Reads a URL, and sees whether the other keys go with it.
    fn parse(&self, url: &SecretString) -> Result<(tokio_postgres::Config, SslMode), Error> {
        let (config, mode) = url::parse(url)?;
        let given = [&self.ssl_root_cert_file, &self.ssl_cert_file].into_iter().any(Option::is_some);
        if given && mode < SslMode::Require {
            let doing = "use postgres.ssl_root_cert_file or postgres.ssl_cert_file: with the sslmode of postgres.url the \
                         connection may stay unencrypted; add sslmode=verify-full to it";
            return Err(Error::new(ErrorKind::Config, doing));
        }
        Ok((config, mode))
    }

    /// How each connection is made: address, password, keep-alives and server-side timeouts.
    ///
    /// # Errors
    /// No URL, one that cannot be read, or an unreadable file. The text never shows the URL.
    pub fn connection_config(&self, application_name: &str) -> Result<tokio_postgres::Config, Error> {
        Ok(self.read(application_name)?.0)
    }

    /// How connections are encrypted. For what is done beside a pool, such as cancelling a statement.
    ///
    /// # Errors
    /// As [`PostgresSection::connection_config`], or a file with certificates cannot be used.
    pub fn tls(&self) -> Result<PostgresTls, Error> {
        let (config, mode) = self.read("")?;
        PostgresTls::new(self, mode, config.get_ssl_negotiation())
    }

    /// A connection beside any pool, driven on the present runtime.
    ///
    /// # Errors
    /// As [`PostgresSection::tls`], or the server does not take it.
    pub async fn connect(&self, application_name: &str) -> Result<Client, Error> {
        let config = self.connection_config(application_name)?;
        let connected = config.connect(self.tls()?.0).await;
        let (client, connection) = connected
            .map_err(|error| Error::new(ErrorKind::Postgres, "connect to postgresql").because(SqlError::of(&error)))?;
        // Its errors reach the client as a closed connection.
        tokio::spawn(connection);
        Ok(client)
    }

    fn read(&self, application_name: &str) -> Result<(tokio_postgres::Config, SslMode), Error> {
        let url = secret::resolve("postgres.url", self.url.as_ref(), self.url_file.as_deref())?
            .ok_or_else(|| Error::new(ErrorKind::Config, "find postgres.url: it is not set"))?;
        let (mut config, mode) = self.parse(&url)?;
        if let Some(password) =
            secret::resolve("postgres.password", self.password.as_ref(), self.password_file.as_deref())?
        {
            config.password(password.expose_secret());
        }
        let timeout_ms = self.statement_timeout.as_millis();
        let idle_ms = (self.statement_timeout + IDLE_GRACE).as_millis();
        let mut options = config.get_options().unwrap_or_default().to_owned();
        for (name, ms) in [
            ("statement_timeout", timeout_ms),
            ("lock_timeout", timeout_ms),
            ("idle_in_transaction_session_timeout", idle_ms),
        ] {
            options.push_str(&format!(" -c {name}={ms}"));
        }
        config
            .options(options.trim_start())
            .application_name(application_name)
            .connect_timeout(self.connect_timeout)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .tcp_user_timeout(TCP_USER_TIMEOUT);
        Ok((config, mode))
    }

    /// A pool of such connections. Opens none yet: the first `get` does.
    ///
    /// # Errors
    /// As [`PostgresSection::tls`].
    pub fn pool(&self, application_name: &str) -> Result<Pool, Error> {
        let config = self.connection_config(application_name)?;
        // A new connection is checked by its use; one that was closed meanwhile is dropped without a round trip.
        let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, self.tls()?.0, how);
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
