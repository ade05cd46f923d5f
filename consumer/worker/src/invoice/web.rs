//! Orders over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use sekali_consumer::deadpool_postgres::Transaction;
use sekali_consumer::http::{Action, HttpInbox, KeyHeader, Problem, StoredResponse};
use sekali_consumer::once::{Inbox, OnceError};
use sekali_consumer::schemas::events::OrderPlaced;
use sekali_consumer::schemas::fingerprint;
use sekali_consumer::{Failure, IdempotencyKey};

use super::{Invoices, read};

struct Shared {
    inbox: HttpInbox,
    invoices: Invoices,
}

/// `POST /webhooks/orders`: an order in JSON, in the bytes of the Kafka record if it comes there as well. Answers 201
/// and the invoice.
///
/// Asks nobody who he is: put something in front of it that does.
pub fn webhooks(inbox: HttpInbox, invoices: Invoices) -> Router {
    let shared = Arc::new(Shared { inbox, invoices });
    Router::new().route("/webhooks/orders", post(place)).with_state(shared)
}

async fn place(State(shared): State<Arc<Shared>>, KeyHeader(key): KeyHeader, body: Bytes) -> Response {
    match prepare(&shared, &key, &body) {
        Ok((key, order)) => shared.inbox.answer(&key, &body, &order).await,
        Err(failure) => Problem::from(failure).into_response(),
    }
}

/// The key under which the request is remembered, never one of an order, and what it asks for.
fn prepare<'a>(
    shared: &'a Shared,
    key: &IdempotencyKey,
    body: &[u8],
) -> Result<(IdempotencyKey, PlacedOrder<'a>), Failure> {
    let order = read(body)?;
    let placed = PlacedOrder {
        invoices: &shared.invoices,
        inbox: shared.inbox.inbox(),
        key: order.idempotency_key()?,
        fingerprint: fingerprint(Some(body)),
        order,
    };
    Ok((IdempotencyKey::new(format!("idempotency-key:{}", key.as_str()))?, placed))
}

/// An order with the identity that it also has on Kafka.
struct PlacedOrder<'a> {
    invoices: &'a Invoices,
    inbox: Inbox,
    key: IdempotencyKey,
    fingerprint: i64,
    order: OrderPlaced,
}

impl Action for PlacedOrder<'_> {
    async fn act(&self, tx: &Transaction<'_>) -> Result<StoredResponse, OnceError<Failure>> {
        let invoice = self.invoices.invoice(&self.order, tx);
        Ok(self.inbox.once(tx, &self.key, self.fingerprint, invoice).await?.into_result())
    }
}
