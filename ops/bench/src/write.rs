//! Ledger and quantity by two statements an event: the same for the product's handlers and the loops by hand.

use futures_util::future::{join, try_join_all};
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};
use uuid::Uuid;

pub(crate) const MOVEMENT: &str = "INSERT INTO public.stock_movement (key, sku, delta, topic, \"partition\", \"offset\", occurred_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7)";

pub(crate) const ADJUST: &str = "INSERT INTO public.stock AS row (sku, quantity, version) VALUES ($1, $2, 1) \
     ON CONFLICT (sku) DO UPDATE SET quantity = row.quantity + excluded.quantity, version = row.version + 1";

/// What the statements write of an event.
pub(crate) struct Movement<'a> {
    pub(crate) key: Uuid,
    pub(crate) sku: &'a str,
    pub(crate) delta: i64,
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) occurred_at: Option<Timestamp>,
}

/// Two batches that share SKUs lock their rows in the same order and cannot deadlock. The events of one SKU stay in
/// their order.
pub(crate) fn sort(movements: &mut [Movement<'_>]) {
    movements.sort_by_key(|it| it.sku);
}

/// Waits for each answer before the next statement is sent.
pub(crate) async fn awaited(
    client: &Client,
    movement: &Statement,
    adjust: &Statement,
    movements: &[Movement<'_>],
) -> Result<(), Error> {
    for it in movements {
        record(client, movement, it).await?;
        client.execute(adjust, &[&it.sku, &it.delta]).await?;
    }
    Ok(())
}

/// Sends all statements, then looks at the answers. After the first error PostgreSQL refuses the rest.
pub(crate) async fn pipelined(
    client: &Client,
    movement: &Statement,
    adjust: &Statement,
    movements: &[Movement<'_>],
) -> Result<(), Error> {
    let both = movements.iter().map(async |it: &Movement<'_>| {
        let values: [&(dyn ToSql + Sync); 2] = [&it.sku, &it.delta];
        let (recorded, adjusted) = join(record(client, movement, it), client.execute(adjust, &values)).await;
        recorded?;
        adjusted
    });
    try_join_all(both).await.map(drop)
}

async fn record(client: &Client, statement: &Statement, it: &Movement<'_>) -> Result<u64, Error> {
    let values: [&(dyn ToSql + Sync); 7] =
        [&it.key, &it.sku, &it.delta, &it.topic, &it.partition, &it.offset, &it.occurred_at];
    client.execute(statement, &values).await
}
