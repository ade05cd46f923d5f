//! What the commands share: connections, statements, keys as text.

use std::fmt::Write as _;

use deadpool_postgres::{ClientWrapper, Object, Pool};
use sekali_producer::{Error, ErrorKind, SqlError};
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use crate::admin;
use crate::config::Config;

/// The first of what was found, and how many more there are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Listed<T> {
    /// As many as were asked for.
    pub rows: Vec<T>,
    /// Beyond those.
    pub more: u64,
}

impl<T> Listed<T> {
    /// Of so many in total.
    pub(crate) fn of(rows: Vec<T>, total: i64) -> Listed<T> {
        let more = total.unsigned_abs().saturating_sub(rows.len() as u64);
        Listed { rows, more }
    }
}

/// A pool of connections for an operator's commands; the tables have this program's version, or a newer one.
///
/// # Errors
/// PostgreSQL cannot be reached, or tables are missing or too old.
pub async fn open(config: &Config) -> Result<Pool, Error> {
    let pool = config.postgres.pool("sekali-operator")?;
    let client = admin::connect(&pool).await?;
    admin::require_schema(&client).await?;
    drop(client);
    Ok(pool)
}

/// The Kafka key of a record for people: text as it is, other bytes as `\x` and hexadecimal digits.
pub fn shown_key(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(char::is_control) && !text.starts_with("\\x") => text.to_owned(),
        _ => key.iter().fold(String::from("\\x"), |mut shown, it| {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{it:02x}");
            shown
        }),
    }
}

/// The bytes of what [`shown_key`] shows.
pub fn key_bytes(shown: &str) -> Vec<u8> {
    let digits =
        shown.strip_prefix("\\x").filter(|it| it.len() % 2 == 0 && it.bytes().all(|it| it.is_ascii_hexdigit()));
    let Some(digits) = digits else { return shown.as_bytes().to_vec() };
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|it| u8::from_str_radix(it, 16).ok());
    digits.as_bytes().chunks(2).filter_map(byte).collect()
}

/// Runs one statement without a name, so that no pooler can lose it.
pub(super) async fn query(
    client: &ClientWrapper,
    doing: &str,
    sql: &str,
    params: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Error> {
    client.query_typed(sql, params).await.map_err(|error| failed(doing, &error))
}

/// What could not be done, and why.
pub(super) fn failed(doing: &str, error: &tokio_postgres::Error) -> Error {
    let busy = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
    let remedy = if busy { ": a transaction that is still open has it; try again when it has ended" } else { "" };
    Error::new(ErrorKind::Postgres, format!("{doing}{remedy}")).because(SqlError::of(error))
}

/// A transaction on a connection of its own: dropped without [`Open::commit`], the connection ends, and with it the
/// transaction.
pub(super) struct Open(ClientWrapper);

impl Open {
    pub(super) async fn begin(pool: &Pool) -> Result<Open, Error> {
        let client = Object::take(admin::connect(pool).await?);
        let begun = client.batch_execute("BEGIN; SET LOCAL lock_timeout = '5s'").await;
        begun.map_err(|error| failed("begin a transaction", &error))?;
        Ok(Open(client))
    }

    pub(super) fn client(&self) -> &ClientWrapper {
        &self.0
    }

    /// A plain `COMMIT` of an aborted transaction succeeds, and rolls back.
    pub(super) async fn commit(self) -> Result<(), Error> {
        self.0.batch_execute("SELECT 1; COMMIT").await.map_err(|error| failed("commit", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_shown_as_text_that_leads_back_to_it() {
        for key in [&b"SKU-1"[..], b"", "\u{fc}".as_bytes(), b"\xff\x00", b"a\nb", b"\\x41"] {
            assert_eq!(key_bytes(&shown_key(key)), key, "{}", shown_key(key));
        }
        assert_eq!((shown_key(b"SKU-1"), shown_key(b"\xff")), ("SKU-1".to_owned(), "\\xff".to_owned()));
        assert_eq!(key_bytes("\\xzz"), b"\\xzz");
    }
}
