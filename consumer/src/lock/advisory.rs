//! Locks of a transaction.

use sekali_producer::InTransaction;
use tokio_postgres::types::Type;

use super::{Name, table};
use crate::Error;

/// Names are hashed to 64 bits with a seed of our own, so that they do not meet the advisory locks of others. Other
/// programs get the same lock with the same expression. Never change it: old and new versions run side by side.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 5421234))";
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 5421234))";

/// Waits until no other transaction has the lock of this name, and has it until `tx` ends, whatever way. For work that is
/// all inside one short transaction: there is no row, no time to live and nothing to lose or release. The wait holds the
/// transaction open and ends with `lock_timeout`. Take several in one order everywhere, or transactions deadlock.
///
/// Knows nothing of [`Locks`](super::Locks): the same name there is another lock.
///
/// # Errors
/// The statement failed, and with it your transaction.
pub async fn advisory(tx: &impl InTransaction, name: &Name) -> Result<(), Error> {
    use tokio_postgres::GenericClient;
    let locked = tx.connection().query_typed(LOCK, &[(&name.as_str(), Type::TEXT)]).await;
    locked.map(drop).map_err(|error| table::failed("take an advisory lock", &error))
}

/// The same without waiting; whether the transaction has the lock.
///
/// # Errors
/// As [`advisory`].
pub async fn try_advisory(tx: &impl InTransaction, name: &Name) -> Result<bool, Error> {
    use tokio_postgres::GenericClient;
    let locked = tx.connection().query_typed_one(TRY_LOCK, &[(&name.as_str(), Type::TEXT)]).await;
    locked.map(|it| it.get(0)).map_err(|error| table::failed("take an advisory lock", &error))
}
