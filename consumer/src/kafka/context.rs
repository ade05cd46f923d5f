//! Callbacks of the client. They run on the poll thread, inside `poll`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::{Offset as KafkaOffset, Statistics, TopicPartitionList};
use sekali_producer::KafkaCauses;
use tokio::sync::mpsc;

use super::{Command, Polled, Role};
use crate::core::{Offset, Partition};
use crate::metrics::{self, Metrics};
use crate::routes::Routes;

/// A callback that waits shows this often that it is alive.
const TURN: Duration = Duration::from_secs(1);

/// Shared by the poll loop and the callbacks, which run on the same thread.
pub(crate) struct Context {
    pub(crate) role: Role,
    pub(crate) causes: KafkaCauses,
    pub(crate) routes: Arc<Routes>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) polled: mpsc::Sender<Polled>,
    pub(crate) commands: Mutex<Receiver<Command>>,
    /// Longest wait for work in hand when partitions are taken away.
    pub(crate) drain_timeout: Duration,
    /// Partitions given up since the poll loop last looked: what it fetched of them is void.
    pub(crate) given_up: Mutex<Vec<Partition>>,
    /// Partitions were assigned since the poll loop last looked.
    pub(crate) given: AtomicBool,
    /// Orders that came while the callback waited, for the loop to carry out.
    pub(crate) deferred: Mutex<Vec<Command>>,
    /// The final positions are committed already.
    pub(crate) closing: AtomicBool,
}

impl Context {
    /// Tells the driver; it only keeps books, so that this wait is short. A driver that is gone needs no news.
    pub(crate) fn tell(&self, polled: Polled) {
        let _gone = self.polled.blocking_send(polled);
    }

    pub(crate) fn commands(&self) -> MutexGuard<'_, Receiver<Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn partition(&self, topic: &str, number: i32) -> Option<Partition> {
        let index = self.routes.index(topic)?;
        let retry = self.routes.subscribed()[usize::from(index)].retry;
        Some(Partition { topic: index, number, retry })
    }

    fn partitions(&self, list: &TopicPartitionList) -> Vec<Partition> {
        list.elements().iter().filter_map(|it| self.partition(it.topic(), it.partition())).collect()
    }

    pub(crate) fn to_list(&self, positions: &[(Partition, Offset)]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(positions.len());
        for (partition, offset) in positions {
            let added = list.add_partition_offset(
                self.routes.name(partition.topic),
                partition.number,
                KafkaOffset::Offset(*offset),
            );
            if let Err(error) = added {
                tracing::error!(%error, "a position was refused by the client");
            }
        }
        list
    }

    /// Commits and waits for the answer; a commit that fails only means that work is delivered again.
    pub(crate) fn commit_now(&self, consumer: &BaseConsumer<Context>, positions: &[(Partition, Offset)]) {
        if positions.is_empty() {
            return;
        }
        let committed = consumer.commit(&self.to_list(positions), CommitMode::Sync);
        let result = committed.map(|()| positions.to_vec()).map_err(|it| it.to_string());
        if let Err(error) = &result {
            tracing::warn!(error, "offset commit failed, the records will be seen as duplicates");
        }
        self.note_commit(result);
    }

    fn note_commit(&self, result: Result<Vec<(Partition, Offset)>, String>) {
        let label = if result.is_ok() { "ok" } else { "error" };
        metrics::OFFSET_COMMITS.count(&[("result", label)]).increment(1);
        self.tell(Polled::Committed(result));
    }

    /// Waits until the driver lets the partitions go, and commits what was decided. Membership goes on meanwhile: the
    /// client's own threads send the heartbeats.
    fn hand_over(&self, consumer: &BaseConsumer<Context>, partitions: Vec<Partition>) {
        self.tell(Polled::Revoked(partitions.clone()));
        let deadline = Instant::now() + self.drain_timeout;
        let commands = self.commands();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match commands.recv_timeout(left.min(TURN)) {
                Ok(Command::Release(positions)) => {
                    self.commit_now(consumer, &positions);
                    return;
                }
                Ok(Command::Close(positions)) => {
                    self.commit_now(consumer, &positions);
                    self.closing.store(true, Ordering::Relaxed);
                    return;
                }
                Ok(Command::Commit(positions)) => self.commit_later(consumer, &positions),
                Ok(command @ (Command::Pause(..) | Command::Resume(_))) => {
                    self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(command);
                }
                Err(RecvTimeoutError::Timeout) if TURN < left => {}
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("work on revoked partitions did not end in time, it will be delivered again");
                    self.tell(Polled::Lost(partitions));
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.metrics.polled(self.role);
        }
    }

    pub(crate) fn commit_later(&self, consumer: &BaseConsumer<Context>, positions: &[(Partition, Offset)]) {
        match consumer.commit(&self.to_list(positions), CommitMode::Async) {
            Ok(()) => metrics::OFFSET_COMMITS.count(&[("result", "ok")]).increment(1),
            Err(error) => self.note_commit(Err(error.to_string())),
        }
    }
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.causes.generate_oauth_token(config)
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // The only sign of an asynchronous commit that failed, for instance because it met a rebalance. A later beat
        // commits again.
        let failed = facility == "COMMITFAIL";
        if failed {
            metrics::OFFSET_COMMITS.count(&[("result", "error")]).increment(1);
        }
        let level = if failed { RDKafkaLogLevel::Debug } else { level };
        sekali_producer::client_context::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.causes.note(&error, reason);
        let fatal = if self.causes.is_fatal() { "true" } else { "false" };
        metrics::KAFKA_ERRORS.count(&[("fatal", fatal)]).increment(1);
        self.tell(Polled::Trouble);
    }

    fn stats(&self, statistics: Statistics) {
        let mut told = super::Statistics::default();
        for (name, topic) in &statistics.topics {
            for it in topic.partitions.values() {
                let Some(partition) = self.partition(name, it.partition) else { continue };
                if 0 <= it.ls_offset {
                    told.bounds.push((partition, it.lo_offset.max(0), it.ls_offset));
                }
                told.fetched.push((partition, it.next_offset));
                if 0 <= it.committed_offset {
                    told.committed.push((partition, it.committed_offset));
                }
            }
        }
        self.tell(Polled::Statistics(self.role, told));
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Context>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(list) = rebalance else { return };
        let partitions = self.partitions(list);
        if partitions.is_empty() {
            return;
        }
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner).extend(&partitions);
        if self.closing.load(Ordering::Relaxed) {
            return;
        }
        if consumer.assignment_lost() {
            tracing::warn!(partitions = partitions.len(), role = ?self.role, "assignment lost");
            metrics::REBALANCES.count(&[("event", "lost")]).increment(1);
            self.tell(Polled::Lost(partitions));
            return;
        }
        tracing::info!(partitions = partitions.len(), role = ?self.role, "partitions revoked");
        metrics::REBALANCES.count(&[("event", "revoke")]).increment(1);
        self.hand_over(consumer, partitions);
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Context>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                // A pause belongs to the assignment under which it was ordered.
                if let Err(error) = consumer.resume(list) {
                    tracing::warn!(%error, "resuming assigned partitions failed");
                }
                self.given.store(true, Ordering::Relaxed);
                let partitions = self.partitions(list);
                tracing::info!(partitions = partitions.len(), role = ?self.role, "partitions assigned");
                metrics::REBALANCES.count(&[("event", "assign")]).increment(1);
                if !partitions.is_empty() && !self.closing.load(Ordering::Relaxed) {
                    self.tell(Polled::Assigned(partitions));
                }
            }
            Rebalance::Revoke(_) => {}
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance failed"),
        }
    }
}
