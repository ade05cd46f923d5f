//! The stock group: quantities by SKU, and a ledger of every movement.

mod batch;
mod compare;

use futures_util::future::join;
use sekali_consumer::schemas::events::{EventType, StockAdjusted};
use sekali_consumer::tokio_postgres::types::ToSql;
use sekali_consumer::tokio_postgres::{self, Client, Statement};
use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};

use batch::Columns;

/// Creates the tables `stock` and `stock_movement` in schema `public` where they are missing. Two callers at once are
/// fine.
///
/// # Errors
/// The user may not create tables, or a table of that name is something else.
pub async fn create_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(include_str!("../sql/stock.sql")).await
}

/// How [`Stock`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StockMode {
    /// Two statements a batch.
    Batch,
    /// Two statements a message, in one round trip.
    PerEvent,
    /// Reads the version of the SKU's row and writes only if it is still that (optimistic locking), for rows that others
    /// write, too.
    CompareAndSet,
}

/// Applies [`StockAdjusted`] events: a row in the ledger, and the quantity of the SKU.
///
/// A payload that cannot be read, and a SKU that the schema forbids, are refused one by one and cost the others of
/// their batch nothing. A quantity beyond 64 bits is PostgreSQL's to refuse (SQLSTATE 22003), which is permanent.
#[derive(Debug, Clone)]
pub struct Stock {
    mode: StockMode,
}

impl Stock {
    /// A handler that writes in the given way.
    pub fn new(mode: StockMode) -> Stock {
        Stock { mode }
    }
}

impl Handler for Stock {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let event = match read(message) {
            Ok(event) => event,
            Err(failure) => return Ok(Reply::rejected(failure)),
        };
        if self.mode == StockMode::CompareAndSet {
            compare::adjust(&event, tx).await?;
            record(message, &event, &tx.prepare_cached(MOVEMENT).await?, tx).await?;
        } else {
            write(message, &event, tx).await?;
        }
        Ok(Reply::done())
    }

    async fn handle_batch(&self, messages: &[Message], tx: &Transaction<'_>) -> Result<Vec<Reply>, Failure> {
        let mut replies = Vec::with_capacity(messages.len());
        if self.mode != StockMode::Batch {
            return self.handle_each(messages, tx).await;
        }
        let mut columns = Columns::for_messages(messages.len());
        for message in messages {
            replies.push(match read(message) {
                Ok(event) => {
                    columns.add(message, event);
                    Reply::done()
                }
                Err(failure) => Reply::rejected(failure),
            });
        }
        columns.write(tx).await?;
        Ok(replies)
    }
}

impl Stock {
    /// One after the other, by SKU: two batches that share SKUs lock their rows in the same order and cannot deadlock.
    async fn handle_each(&self, messages: &[Message], tx: &Transaction<'_>) -> Result<Vec<Reply>, Failure> {
        let sku = |it: &usize| read(&messages[*it]).map(|it| it.sku).unwrap_or_default();
        let mut places: Vec<usize> = (0..messages.len()).collect();
        // Stable: the messages of one SKU stay in their order.
        places.sort_by_cached_key(sku);
        let mut replies = Vec::with_capacity(messages.len());
        for place in places {
            replies.push((place, self.handle(&messages[place], tx).await?));
        }
        replies.sort_unstable_by_key(|it| it.0);
        Ok(replies.into_iter().map(|it| it.1).collect())
    }
}

/// Decodes a message and holds it against what the schema says beyond types.
fn read(message: &Message) -> Result<StockAdjusted, Failure> {
    let event: StockAdjusted = message.json()?;
    event.check()?;
    Ok(event)
}

const MOVEMENT: &str = "INSERT INTO public.stock_movement (key, sku, delta, topic, \"partition\", \"offset\", occurred_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7)";

const ADJUST: &str = "INSERT INTO public.stock AS row (sku, quantity, version) VALUES ($1, $2, 1) \
     ON CONFLICT (sku) DO UPDATE SET quantity = row.quantity + excluded.quantity, version = row.version + 1";

async fn write(message: &Message, event: &StockAdjusted, tx: &Transaction<'_>) -> Result<(), Failure> {
    let (insert, adjust) = (tx.prepare_cached(MOVEMENT).await?, tx.prepare_cached(ADJUST).await?);
    let (moved, adjusted) =
        join(record(message, event, &insert, tx), tx.execute(&adjust, &[&event.sku, &event.delta])).await;
    // The first error is the cause; a statement behind it only says that the transaction is aborted.
    moved?;
    adjusted?;
    Ok(())
}

/// Writes the row of the ledger.
async fn record(
    message: &Message,
    event: &StockAdjusted,
    insert: &Statement,
    tx: &Transaction<'_>,
) -> Result<u64, tokio_postgres::Error> {
    let (key, origin) = (message.idempotency_key().uuid(), message.origin());
    let topic: &str = &origin.topic;
    let values: [&(dyn ToSql + Sync); 7] =
        [&key, &event.sku, &event.delta, &topic, &origin.partition, &origin.offset, &event.occurred_at];
    tx.execute(insert, &values).await
}

#[cfg(test)]
mod tests;
