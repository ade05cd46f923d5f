//! What people write first: one transaction an event, with what the client libraries offer.

use futures_util::{StreamExt, future};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{Headers, Message, OwnedMessage};
use sekali_consumer::deadpool_postgres::Pool;
use sekali_consumer::schemas::events::StockAdjusted;
use sekali_consumer::schemas::fingerprint;
use sekali_consumer::shutdown_signal;
use uuid::Uuid;

use anyhow::Context;

use crate::child::Child;
use crate::hand::{consumer_config, consumer_id};
use crate::write::{ADJUST, MOVEMENT};

const CLAIM: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) VALUES ($1, $2, $3, 1, 1) \
     ON CONFLICT DO NOTHING";

/// Drains the topic until SIGTERM, with at most so many events in progress.
pub(crate) fn run(child: &Child, in_progress_max: usize) -> Result<(), anyhow::Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = child.config()?;
        let pool = config.postgres.pool(child.program.name())?;
        let id = consumer_id(&**pool.get().await?, child).await?;
        let mut settings = consumer_config(&config.kafka, child)?;
        // Offsets are stored once their transaction is committed; the client sends them every second.
        settings.set("enable.auto.commit", "true").set("auto.commit.interval.ms", "1000");
        let consumer: StreamConsumer = settings.create().context("cannot create the consumer")?;
        consumer.subscribe(&[&child.topic]).context("cannot subscribe")?;
        tokio::select! {
            result = drain(&consumer, &pool, id, in_progress_max) => result,
            () = shutdown_signal() => Ok(()),
        }
    })
}

async fn drain(consumer: &StreamConsumer, pool: &Pool, id: i16, in_progress_max: usize) -> Result<(), anyhow::Error> {
    if in_progress_max == 1 {
        loop {
            let message = consumer.recv().await?.detach();
            apply(pool, id, &message).await?;
            store(consumer, &message)?;
        }
    }
    let begun = consumer.stream().map(|message| match message {
        Ok(message) => {
            let (pool, message) = (pool.clone(), message.detach());
            let applied = tokio::spawn(async move { apply(&pool, id, &message).await.map(|()| message) });
            future::Either::Left(async { applied.await? })
        }
        Err(error) => future::Either::Right(future::ready(Err(error.into()))),
    });
    // In the order of the topic, so that an offset is stored only when all before it are decided.
    let mut ended = std::pin::pin!(begun.buffered(in_progress_max));
    while let Some(message) = ended.next().await {
        store(consumer, &message?)?;
    }
    Ok(())
}

fn store(consumer: &StreamConsumer, message: &OwnedMessage) -> Result<(), anyhow::Error> {
    consumer.store_offset(message.topic(), message.partition(), message.offset()).context("cannot store an offset")
}

async fn apply(pool: &Pool, id: i16, message: &OwnedMessage) -> Result<(), anyhow::Error> {
    let headers = message.headers().context("a record without headers")?;
    let key = headers.iter().find(|it| it.key == "idempotency-key").and_then(|it| it.value).context("no key")?;
    let key = Uuid::try_parse_ascii(key)?;
    let payload = message.payload().context("a record without payload")?;
    let event: StockAdjusted = serde_json::from_slice(payload)?;

    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    let claim = tx.prepare_cached(CLAIM).await?;
    if tx.execute(&claim, &[&key, &fingerprint(Some(payload)), &id]).await? == 1 {
        let movement = tx.prepare_cached(MOVEMENT).await?;
        let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
        tx.execute(&movement, &[&key, &event.sku, &event.delta, &topic, &partition, &offset, &event.occurred_at])
            .await?;
        let adjust = tx.prepare_cached(ADJUST).await?;
        tx.execute(&adjust, &[&event.sku, &event.delta]).await?;
    }
    Ok(tx.commit().await?)
}
