//! The outbox for the blocking `postgres` crate. What is said of [`outbox`](super) holds here, too.
//!
//! ```no_run
//! # fn example(client: &mut postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use sekali_producer::{Event, ResourceId, outbox};
//! use sekali_schemas::events::StockAdjusted;
//!
//! let mut tx = client.transaction()?;
//! let sold = StockAdjusted { sku: "SKU-1".to_owned(), delta: -1, occurred_at: None };
//! outbox::sync::enqueue(&mut tx, &Event::of("stock", ResourceId::new("SKU-1")?, &sold)?)?;
//! tx.commit()?;
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use postgres::Transaction;

use super::failed;
use super::statements::{Delayed, Many, One};
use crate::{Error, IntoRecord, OutboundRecord};

/// As [`outbox::enqueue`](super::enqueue).
///
/// # Errors
/// As there.
pub fn enqueue(tx: &mut Transaction<'_>, record: impl IntoRecord) -> Result<(), Error> {
    let record = checked(record)?;
    tx.execute_typed(One::SQL, &One::of(&record).params()).map_err(|error| failed(&error))?;
    Ok(())
}

/// As [`outbox::enqueue_after`](super::enqueue_after).
///
/// # Errors
/// As there.
pub fn enqueue_after(tx: &mut Transaction<'_>, delay: Duration, record: impl IntoRecord) -> Result<(), Error> {
    let record = checked(record)?;
    tx.execute_typed(Delayed::SQL, &Delayed::of(&record, delay)?.params()).map_err(|error| failed(&error))?;
    Ok(())
}

/// As [`outbox::enqueue_all`](super::enqueue_all).
///
/// # Errors
/// As there.
pub fn enqueue_all<R: IntoRecord>(tx: &mut Transaction<'_>, records: impl IntoIterator<Item = R>) -> Result<(), Error> {
    let records: Vec<OutboundRecord> = records.into_iter().map(checked).collect::<Result<_, _>>()?;
    if records.is_empty() {
        return Ok(());
    }
    tx.execute_typed(Many::SQL, &Many::of(&records).params()).map_err(|error| failed(&error))?;
    Ok(())
}

fn checked(record: impl IntoRecord) -> Result<OutboundRecord, Error> {
    let record = record.into_record()?;
    record.check()?;
    Ok(record)
}
