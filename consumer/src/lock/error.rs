//! Why a lock is not there.

use crate::Error;

/// The lock ran out or was taken over: another process may be at work.
///
/// As a [`Failure`](crate::Failure), through `?`, it is *contended*: later, and no attempt is burned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lock is lost")]
pub struct Lost;

/// What went wrong with a lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else has it. As a [`Failure`](crate::Failure) it is *contended*.
    #[error("the lock is taken")]
    Contended,
    /// It is not, or no longer, the asker's.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The database said no, or nothing; or a parameter is out of bounds.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The database did not answer in time: nobody's fault.
#[derive(Debug, thiserror::Error)]
#[error("the database does not answer")]
pub(crate) struct NoAnswer;
