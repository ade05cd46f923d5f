//! How `once` ends without a result.

use std::{error, fmt};

use sekali_schemas::inbox::State;

use crate::SqlError;

/// Why there is no result. `E` is the error of the work. After each of them nothing of the call is in the transaction.
#[derive(Debug)]
#[non_exhaustive]
pub enum OnceError<E> {
    /// Somebody else works on the action now: a transaction that has not committed, or an effect with a lease. Later.
    InProgress,
    /// The key stands for an action on other bytes.
    KeyReuse,
    /// The action came to another end, or to none yet: what the state says about a message of the consumer group.
    Decided(State),
    /// The stored result is not of this type: it was stored by other code, or not at all.
    Unreadable,
    /// A statement of the inbox failed.
    Sql(SqlError),
    /// The work failed.
    Work(E),
}

impl<E> OnceError<E> {
    /// The same with another error of the work.
    pub fn map_work<F>(self, change: impl FnOnce(E) -> F) -> OnceError<F> {
        self.and_then(|it| OnceError::Work(change(it)))
    }

    fn and_then<F>(self, change: impl FnOnce(E) -> OnceError<F>) -> OnceError<F> {
        match self {
            OnceError::InProgress => OnceError::InProgress,
            OnceError::KeyReuse => OnceError::KeyReuse,
            OnceError::Decided(state) => OnceError::Decided(state),
            OnceError::Unreadable => OnceError::Unreadable,
            OnceError::Sql(error) => OnceError::Sql(error),
            OnceError::Work(error) => change(error),
        }
    }
}

impl<E> OnceError<OnceError<E>> {
    /// What a call inside the work of another one says, as if it were the outer one's own.
    pub fn flatten(self) -> OnceError<E> {
        self.and_then(|it| it)
    }
}

/// So that `?` works inside work that consists of another call.
impl<E> From<E> for OnceError<E> {
    fn from(error: E) -> OnceError<E> {
        OnceError::Work(error)
    }
}

impl<E> fmt::Display for OnceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnceError::InProgress => f.write_str("the action is in progress"),
            OnceError::KeyReuse => f.write_str("the idempotency key stands for an action on other bytes"),
            OnceError::Decided(state) => write!(f, "the action is {}", state.as_str()),
            OnceError::Unreadable => f.write_str("the stored result is missing or of another type"),
            OnceError::Sql(error) => write!(f, "a statement of the inbox failed: {error}"),
            OnceError::Work(_) => f.write_str("the work failed"),
        }
    }
}

impl<E: error::Error + 'static> error::Error for OnceError<E> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            OnceError::Work(error) => Some(error),
            _ => None,
        }
    }
}
