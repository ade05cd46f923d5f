//! The poll thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use sekali_consumer::schemas::events::StockAdjusted;
use sekali_consumer::schemas::fingerprint;
use tokio::sync::mpsc::Sender;
use uuid::Uuid;

use super::{Row, Shared};

const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Poller {
    consumer: BaseConsumer,
    topic: String,
    lanes: Vec<Sender<Vec<Row>>>,
    shared: Arc<Shared>,
    batch_max: usize,
    gathered: Vec<Vec<Row>>,
    committed: BTreeMap<i32, i64>,
    commit_at: Instant,
}

impl Poller {
    pub(super) fn new(
        consumer: BaseConsumer,
        topic: &str,
        batch_max: usize,
        lanes: Vec<Sender<Vec<Row>>>,
        shared: Arc<Shared>,
    ) -> Result<Poller, anyhow::Error> {
        consumer.subscribe(&[topic]).context("cannot subscribe")?;
        Ok(Poller {
            consumer,
            topic: topic.to_owned(),
            batch_max,
            gathered: lanes.iter().map(|_| Vec::with_capacity(batch_max)).collect(),
            lanes,
            shared,
            committed: BTreeMap::new(),
            commit_at: Instant::now() + COMMIT_INTERVAL,
        })
    }

    /// Polls until it is told to stop. The lanes end when their senders are gone.
    pub(super) fn run(mut self) -> Result<Poller, anyhow::Error> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let idle = self.gathered.iter().all(Vec::is_empty);
            let wait = Duration::from_millis(if idle { 50 } else { 1 });
            let row = match self.consumer.poll(wait) {
                Some(Ok(message)) => Some(row(&message)?),
                // The coordinator of a new group is not there at once.
                Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::CoordinatorNotAvailable))) | None => None,
                Some(Err(error)) => return Err(error).context("cannot consume"),
            };
            match row {
                Some(row) => {
                    let lane = row.partition.unsigned_abs() as usize % self.lanes.len();
                    self.gathered[lane].push(row);
                    if self.gathered[lane].len() == self.batch_max {
                        self.hand_over(lane)?;
                    }
                }
                // Nothing more at this moment: a lane that waits gets what there is.
                None => {
                    for lane in 0..self.lanes.len() {
                        let waits = self.shared.unfinished[lane].load(Ordering::Acquire) == 0;
                        if waits && !self.gathered[lane].is_empty() {
                            self.hand_over(lane)?;
                        }
                    }
                }
            }
            self.commit(CommitMode::Async)?;
        }
        self.lanes.clear();
        Ok(self)
    }

    /// Commits what the lanes finished after the last commit.
    pub(super) fn commit_the_rest(mut self) -> Result<(), anyhow::Error> {
        self.commit_at = Instant::now();
        self.commit(CommitMode::Sync)
    }

    fn hand_over(&mut self, lane: usize) -> Result<(), anyhow::Error> {
        let batch = std::mem::replace(&mut self.gathered[lane], Vec::with_capacity(self.batch_max));
        self.shared.unfinished[lane].fetch_add(1, Ordering::Release);
        self.lanes[lane].blocking_send(batch).ok().context("a lane has ended")
    }

    fn commit(&mut self, mode: CommitMode) -> Result<(), anyhow::Error> {
        if Instant::now() < self.commit_at {
            return Ok(());
        }
        self.commit_at = Instant::now() + COMMIT_INTERVAL;
        let positions = self.shared.positions().clone();
        if positions == self.committed {
            return Ok(());
        }
        let mut list = TopicPartitionList::with_capacity(positions.len());
        for (partition, offset) in &positions {
            list.add_partition_offset(&self.topic, *partition, Offset::Offset(*offset))?;
        }
        self.consumer.commit(&list, mode).context("cannot commit offsets")?;
        self.committed = positions;
        Ok(())
    }
}

/// Straight from the client's buffer: nothing is copied that no statement needs.
fn row(message: &BorrowedMessage<'_>) -> Result<Row, anyhow::Error> {
    let headers = message.headers().context("a record without headers")?;
    let key = headers.iter().find(|it| it.key == "idempotency-key").and_then(|it| it.value).context("no key")?;
    let payload = message.payload().context("a record without payload")?;
    let event: StockAdjusted = serde_json::from_slice(payload)?;
    Ok(Row {
        key: Uuid::try_parse_ascii(key)?,
        fingerprint: fingerprint(Some(payload)),
        sku: event.sku,
        delta: event.delta,
        occurred_at: event.occurred_at,
        partition: message.partition(),
        offset: message.offset(),
    })
}
