//! One connection with its share of the partitions.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use futures_util::future::{join, join3};
use tokio::sync::mpsc::Receiver;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{Claim, Row, Shape, Shared, Writing, consumer_id};
use crate::child::Child;
use crate::write::{self, ADJUST as ADJUST_ONE, MOVEMENT, Movement};

const CLAIM: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, 1, 1 FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fingerprint) \
     ON CONFLICT DO NOTHING";

/// Without speculative insertion: less to do for PostgreSQL, less WAL. `OFFSET 0` makes it look each key up in the index,
/// whatever the statistics say.
const PLAIN_CLAIM: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, 1, 1 FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fingerprint) \
     WHERE NOT EXISTS (SELECT FROM sekali.inbox AS it WHERE it.consumer_id = $1 AND it.key = asked.key OFFSET 0)";

const MOVEMENTS: &str = "INSERT INTO public.stock_movement (key, sku, delta, \"partition\", \"offset\", occurred_at, topic) \
     SELECT *, $7::text FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::int[], $5::bigint[], $6::timestamptz[])";

const ADJUST: &str = "INSERT INTO public.stock AS row (sku, quantity, version) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) \
     ON CONFLICT (sku) DO UPDATE SET quantity = row.quantity + excluded.quantity, version = row.version + excluded.version";

pub(super) struct Lane {
    index: usize,
    shape: Shape,
    client: Client,
    consumer_id: i16,
    topic: String,
    claim: Statement,
    claim_plain: Statement,
    claim_returning: Statement,
    movements: Statement,
    adjust: Statement,
    movement: Statement,
    adjust_one: Statement,
    shared: Arc<Shared>,
}

impl Lane {
    pub(super) async fn prepare(
        index: usize,
        shape: Shape,
        client: Client,
        child: &Child,
        shared: Arc<Shared>,
    ) -> Result<Lane, anyhow::Error> {
        Ok(Lane {
            index,
            shape,
            consumer_id: consumer_id(&client, child).await?,
            topic: child.topic.clone(),
            claim: client.prepare(CLAIM).await?,
            claim_plain: client.prepare(PLAIN_CLAIM).await?,
            claim_returning: client.prepare(&format!("{CLAIM} RETURNING key")).await?,
            movements: client.prepare(MOVEMENTS).await?,
            adjust: client.prepare(ADJUST).await?,
            movement: client.prepare(MOVEMENT).await?,
            adjust_one: client.prepare(ADJUST_ONE).await?,
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
        let is_plain = self.shape.claim == Claim::Plain;
        let statement = if is_plain { &self.claim_plain } else { &self.claim };
        let values: &[&(dyn ToSql + Sync)] = &[&self.consumer_id, &keys, &fingerprints];
        let (begun, claimed) = join(self.client.batch_execute("BEGIN"), self.client.execute(statement, values)).await;
        begun?;
        let claimed = match claimed {
            // The same key twice in the batch, or in somebody else's at this moment.
            Err(error) if is_plain && error.code() == Some(&SqlState::UNIQUE_VIOLATION) => 0,
            other => other?,
        };
        if claimed < batch.len() as u64 {
            // Rare: some were delivered before. Ask again, this time for their names.
            self.client.batch_execute("ROLLBACK; BEGIN").await?;
            let fresh = self.client.query(&self.claim_returning, values).await?;
            let mut fresh: HashSet<Uuid> = fresh.iter().map(|it| it.get(0)).collect();
            batch.retain(|it| fresh.remove(&it.key));
        }
        match self.shape.writing {
            Writing::Sets => self.write_and_commit(&batch).await,
            Writing::Pipelined | Writing::Awaited => self.write_each_and_commit(&batch).await,
        }
    }

    async fn write_each_and_commit(&self, batch: &[Row]) -> Result<(), anyhow::Error> {
        let movement = |it| {
            let Row { key, sku, delta, partition, offset, occurred_at, .. }: &Row = it;
            let (key, delta, partition, offset) = (*key, *delta, *partition, *offset);
            Movement { key, sku, delta, topic: &self.topic, partition, offset, occurred_at: *occurred_at }
        };
        let mut movements: Vec<Movement<'_>> = batch.iter().map(movement).collect();
        write::sort(&mut movements);
        let Lane { client, movement, adjust_one, .. } = self;
        let written = match self.shape.writing {
            Writing::Awaited => write::awaited(client, movement, adjust_one, &movements).await,
            _ => write::pipelined(client, movement, adjust_one, &movements).await,
        };
        written.context("events")?;
        client.batch_execute("COMMIT").await.context("commit")
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
