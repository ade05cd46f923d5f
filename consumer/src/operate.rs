//! What an operator does about dead letters, messages, keys, topics and leases. Functions return plain data; whoever calls
//! them decides how it looks.
//!
//! Dead letters are work: find the cause, replay or discard exactly the right ones, and show later who did what.
//! [`DeadLetters`] is what the command line and a console are built on. Everything it changes goes through an operation:
//! [`preview`](DeadLetters::preview) says what a selection comes to, [`begin`](DeadLetters::begin) pins its ids, and
//! [`run`](DeadLetters::run) carries it out in small transactions, which may end anywhere and go on later. The rules are
//! pure ([`crate::core::operator`]). What else changes something takes an [`Actor`] and is recorded in `sekali.audit`, in
//! the same transaction.

mod actor;
mod audit;
pub mod drill;
mod edit;
mod export;
mod filter;
mod foreign;
mod foreign_topic;
mod groups;
pub mod held;
mod import;
pub mod inbox;
mod letters;
pub mod locks;
mod operations;
pub mod outbox;
pub mod pauses;
mod preview;
pub mod retries;
mod rows;
mod show;
mod trend;
mod waiting;

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::time::timeout;

use crate::config::{Config, OperateSection};
use crate::{Error, ErrorKind, SqlError, admin};

pub use crate::core::operator::{Act, LetterState, Told};
pub use actor::Actor;
pub use audit::{AuditQuery, AuditRow};
pub use export::Exported;
pub use filter::Filter;
pub use groups::{Group, Overview};
pub use import::Imported;
pub use letters::{DeadLetter, Page};
pub use operations::{Ask, Operation, Progress};
pub use preview::Preview;
pub use rows::{Listed, key_bytes, open, shown_key};
pub use show::{Attempt, Held, InboxRow, Shown, ShownHeader};
pub use trend::{TREND_HOURS, Trend};
pub use waiting::Waiting;

/// Longest wait for one answer of the database.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The dead-letter store of a database, for operators. Cheap to clone.
#[derive(Clone)]
pub struct DeadLetters {
    pool: Pool,
    bounds: OperateSection,
}

impl DeadLetters {
    /// Connects to the database of a configuration.
    ///
    /// # Errors
    /// It cannot be reached, or its tables are missing or of another version.
    pub async fn connect(config: &Config) -> Result<DeadLetters, Error> {
        Ok(DeadLetters { pool: open(config).await?, bounds: config.operate.clone() })
    }

    /// Connections to the database, for what is not about dead letters.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn client(&self) -> Result<Object, Error> {
        admin::connect(&self.pool).await
    }
}

/// Waits for the database, but not for ever. `doing` completes "failed to".
async fn answered<T>(doing: &str, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
    let error = || Error::new(ErrorKind::Postgres, doing);
    match timeout(ANSWER_TIMEOUT, work).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(cause)) => Err(error().because(SqlError::of(&cause))),
        Err(_elapsed) => Err(error().because("the database did not answer in time")),
    }
}

fn refused(doing: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, doing)
}
