//! The columns of a batch, and the two statements that write them.

use futures_util::future::join;
use jiff::Timestamp;
use sekali_consumer::schemas::events::StockAdjusted;
use sekali_consumer::{Failure, Message, Transaction};
use uuid::Uuid;

const MOVEMENTS: &str = "INSERT INTO public.stock_movement (key, sku, delta, topic, \"partition\", \"offset\", occurred_at) \
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::int[], $6::bigint[], $7::timestamptz[])";

const ADJUST: &str = "INSERT INTO public.stock AS row (sku, quantity, version) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) \
     ON CONFLICT (sku) DO UPDATE SET quantity = row.quantity + excluded.quantity, version = row.version + excluded.version";

/// One movement a row, in the order of the messages.
pub(super) struct Columns<'a> {
    keys: Vec<Uuid>,
    skus: Vec<String>,
    deltas: Vec<i64>,
    topics: Vec<&'a str>,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    occurred_at: Vec<Option<Timestamp>>,
}

impl<'a> Columns<'a> {
    pub(super) fn for_messages(count: usize) -> Columns<'a> {
        Columns {
            keys: Vec::with_capacity(count),
            skus: Vec::with_capacity(count),
            deltas: Vec::with_capacity(count),
            topics: Vec::with_capacity(count),
            partitions: Vec::with_capacity(count),
            offsets: Vec::with_capacity(count),
            occurred_at: Vec::with_capacity(count),
        }
    }

    pub(super) fn add(&mut self, message: &'a Message, event: StockAdjusted) {
        let origin = message.origin();
        self.keys.push(message.idempotency_key().uuid());
        self.skus.push(event.sku);
        self.deltas.push(event.delta);
        self.topics.push(&origin.topic);
        self.partitions.push(origin.partition);
        self.offsets.push(origin.offset);
        self.occurred_at.push(event.occurred_at);
    }

    /// Writes ledger and quantities in one round trip.
    pub(super) async fn write(&self, tx: &Transaction<'_>) -> Result<(), Failure> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let totals = Totals::of(&self.skus, &self.deltas)?;
        let movements = tx.prepare_cached(MOVEMENTS).await?;
        let adjust = tx.prepare_cached(ADJUST).await?;
        let (moved, adjusted) = join(
            tx.execute(
                &movements,
                &[
                    &self.keys,
                    &self.skus,
                    &self.deltas,
                    &self.topics,
                    &self.partitions,
                    &self.offsets,
                    &self.occurred_at,
                ],
            ),
            tx.execute(&adjust, &[&totals.skus, &totals.deltas, &totals.counts]),
        )
        .await;
        // The first error is the cause; a statement behind it only says that the transaction is aborted.
        moved?;
        adjusted?;
        Ok(())
    }
}

/// One row a SKU, sorted: two batches that share SKUs lock them in the same order and cannot deadlock, and ON CONFLICT DO
/// UPDATE takes no row twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Totals<'a> {
    pub(super) skus: Vec<&'a str>,
    pub(super) deltas: Vec<i64>,
    pub(super) counts: Vec<i64>,
}

impl<'a> Totals<'a> {
    pub(super) fn of(skus: &'a [String], deltas: &[i64]) -> Result<Totals<'a>, Failure> {
        let mut sorted: Vec<(&str, i64)> = skus.iter().map(String::as_str).zip(deltas.iter().copied()).collect();
        sorted.sort_unstable_by_key(|it| it.0);
        let mut totals = Totals { skus: Vec::new(), deltas: Vec::new(), counts: Vec::new() };
        for run in sorted.chunk_by(|left, right| left.0 == right.0) {
            // Wide enough for any batch, so that the order of the terms does not matter. A message that runs alone is one
            // term, and PostgreSQL says whether the quantity can take it.
            let sum: i128 = run.iter().map(|it| i128::from(it.1)).sum();
            let overflow = |_| Failure::permanent("the sum of a batch leaves 64 bits").with_code("22003");
            let sum = i64::try_from(sum).map_err(overflow)?;
            totals.skus.push(run[0].0);
            totals.deltas.push(sum);
            totals.counts.push(run.len() as i64);
        }
        Ok(totals)
    }
}
