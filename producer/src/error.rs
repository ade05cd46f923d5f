//! The error of the runtime crates.

use std::{error, fmt};

use tokio_postgres::error::SqlState;

type BoxError = Box<dyn error::Error + Send + Sync>;

/// Which neighbour an [`Error`] concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A key of the configuration, or how keys fit together.
    Config,
    /// Kafka: connection, authentication, topics, delivery.
    Kafka,
    /// PostgreSQL: connection, authentication, statements.
    Postgres,
    /// The tables: missing or of another version.
    Migration,
    /// Payloads and their schemas, or the registry that has these.
    Schema,
    /// The operating system: files, sockets, threads.
    System,
    /// An operator: what was asked for is not allowed, or not possible any more.
    Refused,
}

/// What could not be done. `Display` says its own layer only; the cause is in `source()`.
///
/// Text and causes carry no payloads, keys, secrets or row data.
pub struct Error {
    kind: ErrorKind,
    doing: String,
    source: Option<BoxError>,
}

impl Error {
    /// An error without a deeper cause. `doing` completes "failed to ...".
    pub fn new(kind: ErrorKind, doing: impl Into<String>) -> Error {
        Error { kind, doing: doing.into(), source: None }
    }

    /// The same error with its cause.
    pub fn because(mut self, source: impl Into<BoxError>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// Which neighbour it concerns.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The whole chain in one line: this layer, then each cause after a colon.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = error::Error::source(self);
        while let Some(it) = cause {
            text.push_str(": ");
            text.push_str(&it.to_string());
            cause = it.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to {}", self.doing)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.kind).field("chain", &self.chain()).finish()
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_ref().map(|it| &**it as _)
    }
}

/// A PostgreSQL error without row data: SQLSTATE, table, column and constraint, never message values or `DETAIL`.
#[derive(Debug)]
pub struct SqlError {
    text: String,
    state: Option<SqlState>,
    connection: bool,
}

/// How the text of an error begins when a connection could not be encrypted, for whatever reason.
const TLS: &str = "error performing TLS handshake";

impl SqlError {
    /// Keeps what is safe to log of a client error.
    pub fn of(error: &tokio_postgres::Error) -> SqlError {
        let Some(db) = error.as_db_error() else {
            // Not from the server: connection, TLS or protocol. Its text has no row data.
            let mut text = error.to_string();
            if let Some(cause) = error::Error::source(error) {
                text.push_str(": ");
                text.push_str(&cause.to_string());
            }
            let io = error::Error::source(error).is_some_and(|it| it.is::<std::io::Error>());
            // The client library tells its kinds of error by their texts alone.
            let connection = io || error.is_closed() || text.contains(TLS);
            return SqlError { text, state: None, connection };
        };
        let mut text = format!("SQLSTATE {}", db.code().code());
        for (name, value) in [("table", db.table()), ("column", db.column()), ("constraint", db.constraint())] {
            if let Some(value) = value {
                text.push_str(&format!(", {name} {value}"));
            }
        }
        SqlError { text, state: Some(db.code().clone()), connection: false }
    }

    /// What the server said; `None` when the error arose on this side.
    pub fn state(&self) -> Option<&SqlState> {
        self.state.as_ref()
    }

    /// Whether the connection is gone.
    pub fn is_connection(&self) -> bool {
        self.connection
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl error::Error for SqlError {}
