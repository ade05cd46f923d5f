//! A task with one connection and half of the partitions.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use futures_util::future::{join, join3};
use sekali_tests::harness::connect;
use tokio::sync::mpsc::Receiver;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{Row, Shared};
use crate::child::Child;

const CLAIM: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, 1, 1 FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fingerprint) \
     ON CONFLICT DO NOTHING";

const MOVEMENTS: &str = "INSERT INTO public.stock_movement (key, sku, delta, \"partition\", \"offset\", occurred_at, topic) \
     SELECT *, $7::text FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::int[], $5::bigint[], $6::timestamptz[])";

const ADJUST: &str = "INSERT INTO public.stock AS row (sku, quantity, version) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) \
     ON CONFLICT (sku) DO UPDATE SET quantity = row.quantity + excluded.quantity, version = row.version + excluded.version";

pub(super) struct Lane {
    index: usize,
    client: Client,
    consumer_id: i16,
    topic: String,
    claim: Statement,
    claim_returning: Statement,
    movements: Statement,
    adjust: Statement,
    shared: Arc<Shared>,
}

impl Lane {
    pub(super) async fn connect(index: usize, child: &Child, shared: Arc<Shared>) -> Result<Lane, anyhow::Error> {
        let client = connect(&child.postgres).await?;
        client.execute("INSERT INTO sekali.consumer (name) VALUES ('P1x') ON CONFLICT DO NOTHING", &[]).await?;
        let row = client.query_one("SELECT id FROM sekali.consumer WHERE name = 'P1x'", &[]).await?;
        Ok(Lane {
            index,
            consumer_id: row.get(0),
            topic: child.topic.clone(),
            claim: client.prepare(CLAIM).await?,
            claim_returning: client.prepare(&format!("{CLAIM} RETURNING key")).await?,
            movements: client.prepare(MOVEMENTS).await?,
            adjust: client.prepare(ADJUST).await?,
            client,
            shared,
        })
    }

    /// Works until the sender of batches is gone.
    pub(super) async fn run(self, mut batches: Receiver<Vec<Row>>) -> Result<(), anyhow::Error> {
        while let Some(batch) = batches.recv().await {
            let next: Vec<(i32, i64)> = batch.iter().map(|it| (it.partition, it.offset + 1)).collect();
            self.transact(batch).await?;
            self.shared.positions().extend(next);
            self.shared.unfinished[self.index].fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }

    async fn transact(&self, mut batch: Vec<Row>) -> Result<(), anyhow::Error> {
        // Two batches that share keys wait for each other in the same order.
        let mut claims: Vec<(Uuid, i64)> = batch.iter().map(|it| (it.key, it.fingerprint)).collect();
        claims.sort_unstable();
        let (keys, fingerprints): (Vec<Uuid>, Vec<i64>) = claims.into_iter().unzip();
        let (begun, claimed) = join(
            self.client.batch_execute("BEGIN"),
            self.client.execute(&self.claim, &[&self.consumer_id, &keys, &fingerprints]),
        )
        .await;
        begun?;
        if claimed? < batch.len() as u64 {
            // Rare: some were delivered before. Ask again, this time for their names.
            self.client.batch_execute("ROLLBACK; BEGIN").await?;
            let values: &[&(dyn tokio_postgres::types::ToSql + Sync)] = &[&self.consumer_id, &keys, &fingerprints];
            let fresh = self.client.query(&self.claim_returning, values).await?;
            let mut fresh: HashSet<Uuid> = fresh.iter().map(|it| it.get(0)).collect();
            batch.retain(|it| fresh.remove(&it.key));
        }
        self.write_and_commit(&batch).await
    }

    async fn write_and_commit(&self, batch: &[Row]) -> Result<(), anyhow::Error> {
        let keys: Vec<Uuid> = batch.iter().map(|it| it.key).collect();
        let skus: Vec<&str> = batch.iter().map(|it| it.sku.as_str()).collect();
        let deltas: Vec<i64> = batch.iter().map(|it| it.delta).collect();
        let partitions: Vec<i32> = batch.iter().map(|it| it.partition).collect();
        let offsets: Vec<i64> = batch.iter().map(|it| it.offset).collect();
        let occurred_at: Vec<Option<jiff::Timestamp>> = batch.iter().map(|it| it.occurred_at).collect();

        let mut sorted: Vec<(&str, i64)> = skus.iter().copied().zip(deltas.iter().copied()).collect();
        sorted.sort_unstable_by_key(|it| it.0);
        let (mut total_skus, mut total_deltas, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for run in sorted.chunk_by(|left, right| left.0 == right.0) {
            total_skus.push(run[0].0);
            total_deltas.push(run.iter().map(|it| it.1).sum::<i64>());
            counts.push(run.len() as i64);
        }

        let (moved, adjusted, committed) = join3(
            self.client
                .execute(&self.movements, &[&keys, &skus, &deltas, &partitions, &offsets, &occurred_at, &self.topic]),
            self.client.execute(&self.adjust, &[&total_skus, &total_deltas, &counts]),
            self.client.batch_execute("COMMIT"),
        )
        .await;
        // A commit behind a failed statement answers as if it had worked: the first error decides.
        moved.context("ledger")?;
        adjusted.context("quantities")?;
        committed.context("commit")
    }
}
