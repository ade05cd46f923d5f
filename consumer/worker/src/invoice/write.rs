//! The invoice itself, in whatever transaction it is asked for.

use axum::http::StatusCode;
use sekali_consumer::http::StoredResponse;
use sekali_consumer::schemas::events::{InvoiceCreated, OrderPlaced};
use sekali_consumer::tokio_postgres::GenericClient;
use sekali_consumer::tokio_postgres::types::Type;
use sekali_consumer::{Failure, outbox};
use sekali_producer::{Event, ResourceId};

use super::Invoices;

const INSERT: &str = "INSERT INTO public.invoice (order_id, total_minor, currency) VALUES ($1, $2, $3) \
     ON CONFLICT (order_id) DO NOTHING RETURNING reference";

const FIND: &str = "SELECT reference, total_minor, currency FROM public.invoice WHERE order_id = $1";

impl Invoices {
    /// Writes the invoice of an order and announces it. An order that has one, because the inbox has forgotten it,
    /// keeps it.
    pub(super) async fn invoice(
        &self,
        order: &OrderPlaced,
        tx: &impl outbox::InTransaction,
    ) -> Result<StoredResponse, Failure> {
        let total_minor = order.total_minor().ok_or_else(|| Failure::permanent("the total leaves 64 bits"))?;
        let client = tx.connection();
        let inserted = client
            .query_typed_opt(
                INSERT,
                &[(&order.order_id, Type::TEXT), (&total_minor, Type::INT8), (&order.currency, Type::TEXT)],
            )
            .await?;
        let Some(row) = inserted else {
            return answer(&find(client, order, total_minor).await?);
        };
        let created = InvoiceCreated {
            reference: row.get(0),
            order_id: order.order_id.clone(),
            total_minor,
            currency: order.currency.clone(),
        };
        let event = Event::of(&self.created_topic, ResourceId::new(created.order_id.clone())?, &created)?;
        let event = event.idempotency_key(created.idempotency_key()?).source("/sekali/invoice")?;
        match self.contract.as_ref().filter(|_| tx.contract().is_none()) {
            Some(contract) => outbox::enqueue(tx, contract.write(event).await?).await?,
            None => outbox::enqueue(tx, event).await?,
        }
        answer(&created)
    }
}

async fn find(
    client: &(impl GenericClient + Sync),
    order: &OrderPlaced,
    total_minor: i64,
) -> Result<InvoiceCreated, Failure> {
    let row = client.query_typed_one(FIND, &[(&order.order_id, Type::TEXT)]).await?;
    let found = InvoiceCreated {
        reference: row.get(0),
        order_id: order.order_id.clone(),
        total_minor: row.get(1),
        currency: row.get(2),
    };
    if (found.total_minor, &found.currency) == (total_minor, &order.currency) {
        Ok(found)
    } else {
        Err(Failure::permanent("the order has an invoice over another amount").with_code("AMOUNT"))
    }
}

fn answer(invoice: &InvoiceCreated) -> Result<StoredResponse, Failure> {
    Ok(StoredResponse::json(StatusCode::CREATED, invoice)?)
}
