//! The product's handlers that write two statements an event.

use sekali_consumer::schemas::events::{EventType, StockAdjusted};
use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};

use crate::write::{ADJUST, MOVEMENT, Movement, awaited, pipelined, sort};

/// Writes two statements an event in the batch's transaction.
pub(crate) enum PerEvent {
    /// All at once.
    Pipelined,
    /// One after another.
    Awaited,
}

impl Handler for PerEvent {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let mut replies = self.handle_batch(std::slice::from_ref(message), tx).await?;
        Ok(replies.pop().unwrap_or_else(Reply::done))
    }

    async fn handle_batch(&self, messages: &[Message], tx: &Transaction<'_>) -> Result<Vec<Reply>, Failure> {
        let events: Vec<Result<StockAdjusted, Failure>> = messages.iter().map(read).collect();
        let good = messages.iter().zip(&events).filter_map(|(message, event)| Some((message, event.as_ref().ok()?)));
        let mut movements: Vec<Movement<'_>> = good.map(|(message, event)| movement(message, event)).collect();
        sort(&mut movements);
        let (movement, adjust) = (tx.prepare_cached(MOVEMENT).await?, tx.prepare_cached(ADJUST).await?);
        match self {
            PerEvent::Pipelined => pipelined(tx, &movement, &adjust, &movements).await?,
            PerEvent::Awaited => awaited(tx, &movement, &adjust, &movements).await?,
        }
        drop(movements);
        Ok(events.into_iter().map(|it| it.map_or_else(Reply::rejected, |_| Reply::done())).collect())
    }
}

fn read(message: &Message) -> Result<StockAdjusted, Failure> {
    let event: StockAdjusted = message.json()?;
    event.check()?;
    Ok(event)
}

fn movement<'a>(message: &'a Message, event: &'a StockAdjusted) -> Movement<'a> {
    let origin = message.origin();
    Movement {
        key: message.idempotency_key().uuid(),
        sku: &event.sku,
        delta: event.delta,
        topic: &origin.topic,
        partition: origin.partition,
        offset: origin.offset,
        occurred_at: event.occurred_at,
    }
}
