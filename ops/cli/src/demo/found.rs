//! What the database and the dead-letter topic hold: the evidence.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sekali_consumer::admin;
use sekali_schemas::control;
use tokio_postgres::Client;
use uuid::Uuid;

use super::stage::{Stage, failed};
use super::{DLQ_NAME, PARTITIONS};
use crate::exit::Failure;

const READ_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// Partition and offset on the source topic.
pub(super) type Place = (i32, i64);

/// A dead-letter record that does not say where it came from.
const NOWHERE: Place = (-1, -1);

/// The state of the world after the demo.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Rows of the ledger, by idempotency key.
    pub(super) ledger: HashMap<Uuid, usize>,
    /// Quantity of each SKU.
    pub(super) stock: BTreeMap<String, i64>,
    /// Open dead letters: the key, and where the record came from.
    pub(super) dead: Vec<(Uuid, Place)>,
    /// Records of the dead-letter topic, by the place that their headers name.
    pub(super) dlq: Vec<Place>,
    /// Messages that needed more than one attempt.
    pub(super) retried: usize,
}

/// Numbers to follow while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    /// Rows of the ledger.
    pub(super) counted: usize,
    /// Messages that wait for another attempt.
    pub(super) retrying: usize,
    /// Open dead letters.
    pub(super) dead: usize,
}

impl Tally {
    pub(super) async fn read(client: &Client) -> Result<Tally, Failure> {
        const SQL: &str = "SELECT (SELECT count(*) FROM public.stock_movement), \
             (SELECT count(*) FROM sekali.inbox WHERE state = 2), \
             (SELECT count(*) FROM sekali.dead_letter WHERE state = 'open')";
        let row = client.query_one(SQL, &[]).await.map_err(failed)?;
        Ok(Tally { counted: count(row.get(0)), retrying: count(row.get(1)), dead: count(row.get(2)) })
    }
}

/// Whether every record is read and decided, and nothing waits for another attempt or to be published.
pub(super) async fn is_settled(stage: &Stage) -> Result<bool, Failure> {
    let lag = admin::lag(&stage.config).await?;
    if lag.iter().any(|it| it.lag != 0) {
        return Ok(false);
    }
    // Read after the lag: nothing can begin to wait any more.
    let tally = Tally::read(&stage.client).await?;
    Ok(tally.retrying == 0 && tally.dead <= read_dlq(stage).await?.len())
}

/// Committed offset of each source partition, which is the next record to read there.
pub(super) async fn committed(stage: &Stage) -> Result<BTreeMap<i32, i64>, Failure> {
    let lag = admin::lag(&stage.config).await?;
    let sources = lag.iter().filter(|it| !it.delayed);
    Ok(sources.map(|it| (it.partition, it.committed.unwrap_or_default())).collect())
}

/// Rows of the ledger whose records are at or behind these offsets: they will be read again by whoever starts there.
pub(super) async fn counted_from(client: &Client, offsets: &BTreeMap<i32, i64>) -> Result<usize, Failure> {
    const SQL: &str = "SELECT count(*) FROM public.stock_movement AS row \
         JOIN unnest($1::int[], $2::bigint[]) AS next (number, position) \
         ON row.\"partition\" = next.number AND next.position <= row.\"offset\"";
    let (numbers, positions): (Vec<i32>, Vec<i64>) = offsets.iter().unzip();
    Ok(count(client.query_one(SQL, &[&numbers, &positions]).await.map_err(failed)?.get(0)))
}

impl Found {
    pub(super) async fn read(stage: &Stage) -> Result<Found, Failure> {
        let client = &stage.client;
        let mut found = Found { dlq: read_dlq(stage).await?, ..Found::default() };
        for row in client.query("SELECT key FROM public.stock_movement", &[]).await.map_err(failed)? {
            *found.ledger.entry(row.get(0)).or_default() += 1;
        }
        let stock = client.query("SELECT sku, quantity FROM public.stock", &[]).await.map_err(failed)?;
        found.stock = stock.iter().map(|it| (it.get(0), it.get(1))).collect();
        const DEAD: &str = "SELECT key, origin_partition, origin_offset FROM sekali.dead_letter WHERE state = 'open'";
        let dead = client.query(DEAD, &[]).await.map_err(failed)?;
        found.dead = dead.iter().map(|it| (it.get(0), (it.get(1), it.get(2)))).collect();
        const RETRIED: &str = "SELECT count(*) FROM sekali.inbox WHERE 1 < attempt";
        found.retried = count(client.query_one(RETRIED, &[]).await.map_err(failed)?.get(0));
        Ok(found)
    }
}

fn count(rows: i64) -> usize {
    usize::try_from(rows).unwrap_or_default()
}

/// Where the records of the dead-letter topic came from.
async fn read_dlq(stage: &Stage) -> Result<Vec<Place>, Failure> {
    let mut config = stage.config.kafka.client_config()?;
    config.set("group.id", "demo-reader").set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    let read = tokio::task::spawn_blocking(move || read_to_the_ends(&config.create()?));
    read.await
        .map_err(|error| Failure::error(format!("cannot read {DLQ_NAME}: {error}")))?
        .map_err(|error| Failure::error(format!("cannot read {DLQ_NAME}: {error}")))
}

fn read_to_the_ends(consumer: &BaseConsumer) -> Result<Vec<Place>, KafkaError> {
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        all.add_partition_offset(DLQ_NAME, partition, Offset::Beginning)?;
    }
    consumer.assign(&all)?;
    let deadline = Instant::now() + READ_TIMEOUT;
    let (mut places, mut ended) = (Vec::new(), 0);
    while ended < PARTITIONS && Instant::now() < deadline {
        match consumer.poll(POLL) {
            Some(Ok(message)) => places.push(origin(&message).unwrap_or(NOWHERE)),
            Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    if ended < PARTITIONS {
        return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut));
    }
    Ok(places)
}

fn origin(message: &BorrowedMessage<'_>) -> Option<Place> {
    let number = |name: &str| {
        let header = message.headers()?.iter().find(|it| it.key == name)?;
        std::str::from_utf8(header.value?).ok()?.parse::<i64>().ok()
    };
    Some((i32::try_from(number(control::ORIGIN_PARTITION)?).ok()?, number(control::ORIGIN_OFFSET)?))
}
