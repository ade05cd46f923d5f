//! Publishing as part of your database transaction.
//!
//! [`enqueue`] writes the record into `sekali.outbox` with your transaction. If it commits, the [`Relay`](crate::Relay)
//! publishes the record at least once, if it rolls back nobody ever sees it.
//!
//! **Order.** Records of one key are published in the order they were enqueued, also across transactions, provided that
//! whoever enqueues for a key has locked or changed that key's row before, as an `UPDATE` does. Between keys there is no
//! order.
//!
//! It takes a transaction and never a client, on which the record would be a transaction of its own:
//!
//! ```compile_fail
//! # async fn example(client: tokio_postgres::Client, record: sekali_producer::OutboundRecord) {
//! sekali_producer::outbox::enqueue(&client, &record).await.unwrap();
//! # }
//! ```
//!
//! ```
//! # async fn example(client: &mut tokio_postgres::Client, record: sekali_producer::OutboundRecord) {
//! let tx = client.transaction().await.unwrap();
//! sekali_producer::outbox::enqueue(&tx, &record).await.unwrap();
//! # }
//! ```
//!
//! Feature `sync` has the same for the blocking `postgres` crate, in module `sync`; it knows no contract.

use std::time::Duration;

use tokio_postgres::GenericClient;

use self::statements::{Delayed, Many, One};
use crate::{Contract, Error, ErrorKind, IntoRecord, OutboundRecord, SqlError};

mod statements;
#[cfg(feature = "sync")]
pub mod sync;

/// An open transaction of yours.
///
/// Implement it for your own transaction type by giving the connection it runs on; never for something that is not in a
/// transaction.
pub trait InTransaction: Sync {
    /// Runs statements inside the transaction.
    fn connection(&self) -> &(impl GenericClient + Sync);

    /// What events that are enqueued here are held against. None, by default: then it is up to [`Contract::write`].
    fn contract(&self) -> Option<&Contract> {
        None
    }
}

impl InTransaction for tokio_postgres::Transaction<'_> {
    fn connection(&self) -> &(impl GenericClient + Sync) {
        self
    }
}

impl InTransaction for deadpool_postgres::Transaction<'_> {
    fn connection(&self) -> &(impl GenericClient + Sync) {
        &**self
    }
}

/// Enqueues one [`Event`](crate::Event) or [`OutboundRecord`](crate::OutboundRecord), in one round trip.
///
/// # Errors
/// The event is invalid, or the statement failed, and with it your transaction. In a transaction that has a contract, as
/// a handler's has: what [`Contract::write`] refuses.
pub async fn enqueue(tx: &impl InTransaction, record: impl IntoRecord) -> Result<(), Error> {
    let record = written(tx, record).await?;
    let one = One::of(&record);
    tx.connection().execute_typed(One::SQL, &one.params()).await.map_err(|error| failed(&error))?;
    Ok(())
}

/// Enqueues one record that is not to be published before so much time has passed, by the database's clock and counted
/// from the beginning of your transaction. The relay looks for what is due every second.
///
/// Delayed records come in the order in which they are due. What is enqueued without a delay does not wait for them, also
/// of the same key.
///
/// # Errors
/// As [`enqueue`]; or the delay is longer than a year.
pub async fn enqueue_after(tx: &impl InTransaction, delay: Duration, record: impl IntoRecord) -> Result<(), Error> {
    let record = written(tx, record).await?;
    let delayed = Delayed::of(&record, delay)?;
    tx.connection().execute_typed(Delayed::SQL, &delayed.params()).await.map_err(|error| failed(&error))?;
    Ok(())
}

/// Enqueues many events or records in their order, in one statement and one round trip.
///
/// # Errors
/// As [`enqueue`]; then none is enqueued.
pub async fn enqueue_all<R: IntoRecord>(
    tx: &impl InTransaction,
    records: impl IntoIterator<Item = R>,
) -> Result<(), Error> {
    let mut written_all = Vec::new();
    for record in records {
        written_all.push(written(tx, record).await?);
    }
    if written_all.is_empty() {
        return Ok(());
    }
    let many = Many::of(&written_all);
    tx.connection().execute_typed(Many::SQL, &many.params()).await.map_err(|error| failed(&error))?;
    Ok(())
}

/// The record as it goes out, under the contract of the transaction if it has one.
async fn written(tx: &impl InTransaction, record: impl IntoRecord) -> Result<OutboundRecord, Error> {
    let record = match tx.contract() {
        Some(contract) => contract.write(record).await?,
        None => record.into_record()?,
    };
    record.check()?;
    Ok(record)
}

fn failed(error: &tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Postgres, "enqueue into sekali.outbox").because(SqlError::of(error))
}

#[cfg(test)]
mod tests;
