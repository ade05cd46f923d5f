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

use sekali_schemas::array_literal;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use crate::{Contract, Error, ErrorKind, IntoRecord, OutboundRecord, SqlError};

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

const INSERT_ONE: &str = "INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
                          VALUES ($1, $2, $3, $4, $5)";

/// PostgreSQL has no ragged arrays: each record's headers travel as the text of an array, read back by the cast.
const INSERT_MANY: &str = "INSERT INTO sekali.outbox (topic, key, payload, header_names, header_values) \
     SELECT topic, key, payload, header_names::text[], header_values::bytea[] \
     FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::text[], $5::text[]) \
          WITH ORDINALITY AS record (topic, key, payload, header_names, header_values, nr) \
     ORDER BY nr";

/// Enqueues one [`Event`](crate::Event) or [`OutboundRecord`], in one round trip.
///
/// # Errors
/// The event is invalid, or the statement failed, and with it your transaction. In a transaction that has a contract, as
/// a handler's has: what [`Contract::write`] refuses.
pub async fn enqueue(tx: &impl InTransaction, record: impl IntoRecord) -> Result<(), Error> {
    let record = match tx.contract() {
        Some(contract) => contract.write(record).await?,
        None => record.into_record()?,
    };
    record.check()?;
    let names: Vec<&str> = record.headers.iter().map(|it| it.name).collect();
    let values: Vec<Option<&[u8]>> = record.headers.iter().map(|it| it.value).collect();
    let (key, payload) = (record.key.as_deref(), record.payload.as_deref());
    let params: [(&(dyn ToSql + Sync), Type); 5] = [
        (&record.topic, Type::TEXT),
        (&key, Type::BYTEA),
        (&payload, Type::BYTEA),
        (&names, Type::TEXT_ARRAY),
        (&values, Type::BYTEA_ARRAY),
    ];
    tx.connection().execute_typed(INSERT_ONE, &params).await.map_err(|error| failed(&error))?;
    Ok(())
}

/// Enqueues many records as they are and in their order, in one statement and one round trip. What is to be held against
/// schemas goes through [`Contract::write`] before.
///
/// # Errors
/// As [`enqueue`]; then none is enqueued.
pub async fn enqueue_all(tx: &impl InTransaction, records: &[OutboundRecord]) -> Result<(), Error> {
    if records.is_empty() {
        return Ok(());
    }
    records.iter().try_for_each(OutboundRecord::check)?;
    let topics: Vec<&str> = records.iter().map(|it| it.topic.as_str()).collect();
    let keys: Vec<Option<&[u8]>> = records.iter().map(|it| it.key.as_deref()).collect();
    let payloads: Vec<Option<&[u8]>> = records.iter().map(|it| it.payload.as_deref()).collect();
    let names: Vec<String> = records.iter().map(|it| array_literal::names(&it.headers)).collect();
    let values: Vec<String> = records.iter().map(|it| array_literal::values(&it.headers)).collect();
    let params: [(&(dyn ToSql + Sync), Type); 5] = [
        (&topics, Type::TEXT_ARRAY),
        (&keys, Type::BYTEA_ARRAY),
        (&payloads, Type::BYTEA_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&values, Type::TEXT_ARRAY),
    ];
    tx.connection().execute_typed(INSERT_MANY, &params).await.map_err(|error| failed(&error))?;
    Ok(())
}

fn failed(error: &tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Postgres, "enqueue into sekali.outbox").because(SqlError::of(error))
}

#[cfg(test)]
mod tests;
