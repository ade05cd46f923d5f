//! The invoice group: one invoice for each order, whether it comes over Kafka, over HTTP, or over both at once.
//!
//! Both ways lead through one inbox. The action is known by the order: its idempotency key is `order.placed:` and the
//! order's id, taken from the order itself ([`OrderPlaced::idempotency_key`]), and its fingerprint is that of the bytes
//! of the Kafka value or of the HTTP body. So the same order in the same bytes is one action, and in other bytes it is
//! refused (HTTP 422, on Kafka a dead letter of class `key_reuse`).
//!
//! An HTTP client also has a key of its own in header `Idempotency-Key`. It stands for its request, and is remembered
//! beside that of the order, as `idempotency-key:` and its text: the same key with another order is refused, and two
//! clients with two keys for one order get the same invoice. Whoever asks gets the same answer, with the same
//! reference.
//!
//! The invoice, both inbox rows and event `invoice.created` in the outbox are one transaction.

mod run;
mod web;
mod write;

use std::borrow::Cow;
use std::sync::Arc;

use sekali_consumer::schemas::DecodeError;
use sekali_consumer::schemas::events::{EventType, OrderPlaced};
use sekali_consumer::schemas::idempotency::KeyError;
use sekali_consumer::tokio_postgres::{self, Client};
use sekali_consumer::{Failure, Handler, IdempotencyKey, Message, Record, Reply, Transaction};
use sekali_producer::Contract;
use serde::Deserialize;

pub use run::{InvoiceArgs, run};
pub use web::webhooks;

/// Creates the table `invoice` in schema `public` where it is missing. Two callers at once are fine.
///
/// # Errors
/// The user may not create tables, or a table of that name is something else.
pub async fn create_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(include_str!("../sql/invoice.sql")).await
}

/// Makes an invoice for each [`OrderPlaced`], and stores the answer that HTTP clients get for the same order.
#[derive(Debug, Clone)]
pub struct Invoices {
    created_topic: String,
    contract: Option<Arc<Contract>>,
}

impl Invoices {
    /// Publishes `invoice.created` to this topic, which must be there.
    pub fn new(created_topic: impl Into<String>) -> Invoices {
        Invoices { created_topic: created_topic.into(), contract: None }
    }

    /// Holds what requests announce against schemas, too, as the runtime does for messages.
    pub fn under(mut self, contract: Option<Arc<Contract>>) -> Invoices {
        self.contract = contract;
        self
    }
}

impl Handler for Invoices {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let order = match message.data().map_err(Failure::from).and_then(|it| read(&it)) {
            Ok(order) => order,
            // Nothing was written for it, so that its neighbours stay as they are.
            Err(failure) => return Ok(Reply::rejected(failure)),
        };
        let answer = self.invoice(&order, tx).await?;
        Ok(Reply::stored(serde_json::to_value(answer)?))
    }

    fn idempotency_key(&self, record: &Record) -> Option<Result<IdempotencyKey, KeyError>> {
        Some(key_of(record))
    }
}

/// What of an order says which one it is.
#[derive(Deserialize)]
struct Identity<'a> {
    #[serde(borrow)]
    order_id: Cow<'a, str>,
}

/// Never a key that the headers give: one that names another order would take its place.
fn key_of(record: &Record) -> Result<IdempotencyKey, KeyError> {
    let data = record.data().map_err(|_| KeyError::Missing)?;
    let identity: Identity<'_> = serde_json::from_slice(&data).map_err(|_| KeyError::Missing)?;
    OrderPlaced::key_of(&identity.order_id)
}

/// Decodes an order and holds it against what the schema says beyond types.
fn read(bytes: &[u8]) -> Result<OrderPlaced, Failure> {
    let order: OrderPlaced = serde_json::from_slice(bytes).map_err(|error| DecodeError::from_json(&error))?;
    order.check()?;
    Ok(order)
}

#[cfg(test)]
mod tests;
