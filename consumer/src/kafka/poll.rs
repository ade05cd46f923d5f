//! The poll loop.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{ClientConfig, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sekali_producer::{Error, ErrorKind, KafkaCauses, explain};
use tokio::sync::mpsc as channel;

use super::memory::Memory;
use super::read::Chunk;
use super::unread::Unread;
use super::{Command, Context, Link, Polled, Role, SharedReader};
use crate::core::{Partition, PauseReason};
use crate::metrics::{self, Metrics};

/// Most records that go to the driver at once.
const CHUNK_RECORDS_MAX: usize = 500;
/// Most bytes that share one buffer.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Wait for a record when nothing is paused; also the longest wait of a command.
const POLL_WAIT: Duration = Duration::from_millis(50);
/// The same while something is paused, so that it is resumed soon.
const POLL_WAIT_PAUSED: Duration = Duration::from_millis(10);
/// A full buffer is usually emptied within one transaction. Pausing throws away what the client has prefetched, so that
/// the loop first waits this long without fetching.
const FULL_GRACE: Duration = Duration::from_millis(20);

/// How often the driver is told how far the client has read.
const POSITIONS_INTERVAL: Duration = Duration::from_secs(1);

/// Tells the driver that a thread has ended.
struct Closed {
    role: Role,
    polled: channel::Sender<Polled>,
}

impl Drop for Closed {
    fn drop(&mut self) {
        let _gone = self.polled.blocking_send(Polled::Closed(self.role));
    }
}

/// One poll thread.
pub(crate) struct Poller {
    consumer: BaseConsumer<Context>,
    reader: SharedReader,
    /// Partitions that the core wants paused: why, and whether the client knows.
    paused: BTreeMap<Partition, (PauseReason, bool)>,
    /// Since when a full buffer has kept the loop from fetching.
    full_since: Option<Instant>,
    unread: Unread,
    memory: Memory,
    /// Bytes of it that stay because an operator has paused their topics.
    set_aside: usize,
    /// What waits in memory weighs too much, so that nothing is fetched.
    is_heavy: bool,
    /// When the driver was told last how far the client has read.
    positions_at: Instant,
}

impl Poller {
    /// Creates the client, subscribes to the topics of its role, and starts the thread.
    ///
    /// # Errors
    /// A setting that the client refuses, or the operating system gives no thread.
    pub(crate) fn start(
        client: &ClientConfig,
        role: Role,
        causes: KafkaCauses,
        reader: SharedReader,
        metrics: Arc<Metrics>,
        drain_timeout: Duration,
        polled: channel::Sender<Polled>,
    ) -> Result<Link, Error> {
        let (commands, commands_out) = mpsc::channel();
        let context = Context {
            role,
            causes: causes.clone(),
            routes: reader.routes.clone(),
            metrics,
            polled: polled.clone(),
            commands: Mutex::new(commands_out),
            drain_timeout,
            given_up: Mutex::default(),
            given: false.into(),
            deferred: Mutex::default(),
            closing: false.into(),
        };
        let consumer: BaseConsumer<Context> =
            client.create_with_context(context).map_err(|error| explain(&error, &causes))?;
        let topics: Vec<&str> = reader.routes.of_role(role).collect();
        consumer.subscribe(&topics).map_err(|error| explain(&error, &causes))?;
        let poller = Poller {
            consumer,
            reader,
            paused: BTreeMap::new(),
            full_since: None,
            unread: Unread::default(),
            memory: Memory::default(),
            set_aside: 0,
            is_heavy: false,
            positions_at: Instant::now(),
        };
        let name = format!("sekali-poll{}", role.suffix());
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            // Also told when the thread panics.
            let _closed = Closed { role, polled };
            poller.run();
        });
        let thread = spawned.map_err(|error| Error::new(ErrorKind::System, "start the poll thread").because(error))?;
        Ok(Link { role, commands, thread })
    }

    fn run(mut self) {
        loop {
            self.consumer.context().metrics.polled(self.consumer.context().role);
            if !self.take_commands() {
                break;
            }
            if self.wait_for_room() {
                continue;
            }
            self.weigh();
            self.fetch();
            self.unread.look(&self.consumer);
            if self.consumer.context().closing.load(Ordering::Relaxed) {
                break;
            }
        }
        self.consumer.context().closing.store(true, Ordering::Relaxed);
        // Leaves the group: the client sends the leave request before it is gone.
        drop(self.consumer);
    }

    /// Carries out what the driver ordered; false when the loop must end.
    fn take_commands(&mut self) -> bool {
        let deferred =
            std::mem::take(&mut *self.consumer.context().deferred.lock().unwrap_or_else(PoisonError::into_inner));
        for command in deferred {
            self.obey(command);
        }
        loop {
            let command = self.consumer.context().commands().try_recv();
            match command {
                Ok(command) => {
                    if !self.obey(command) {
                        return false;
                    }
                }
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Commit(positions) => self.consumer.context().commit_later(&self.consumer, &positions),
            Command::Pause(partition, reason) => self.pause_for(partition, reason),
            Command::Resume(partition) => {
                if let Some((_, true)) = self.paused.remove(&partition)
                    && !self.is_heavy
                {
                    self.resume(partition);
                }
                if !self.paused.values().any(|(_, told)| !told) {
                    self.full_since = None;
                }
            }
            // The callback that asked has given up waiting.
            Command::Release(_) => {}
            Command::Close(positions) => {
                self.consumer.context().commit_now(&self.consumer, &positions);
                return false;
            }
        }
        true
    }

    /// A full buffer is not taken seriously at once, and what the client knows already it is not told again.
    fn pause_for(&mut self, partition: Partition, reason: PauseReason) {
        let told = self.paused.get(&partition).is_some_and(|it| it.1);
        let waits = reason == PauseReason::Full && !told;
        self.paused.insert(partition, (reason, !waits));
        if waits {
            self.full_since.get_or_insert_with(Instant::now);
        } else if !told {
            self.pause(&[partition]);
        }
        if reason == PauseReason::Operator {
            self.set_aside = self.memory.bytes();
        }
    }

    /// What is buffered of topics that an operator has paused stays for as long as he wants, and must not keep all others
    /// from being fetched: nothing more than what was there when he paused them last, and has not gone since.
    fn bytes_that_go(&mut self) -> usize {
        let bytes = self.memory.bytes();
        let is_operated = self.paused.values().any(|it| it.0 == PauseReason::Operator);
        self.set_aside = if is_operated { self.set_aside.min(bytes) } else { 0 };
        bytes - self.set_aside
    }

    /// Waits a little for a full buffer instead of fetching; true when there is something else to do first. When the
    /// buffer stays full, its partitions are paused for real, and polling goes on.
    fn wait_for_room(&mut self) -> bool {
        let Some(since) = self.full_since else { return false };
        let left = FULL_GRACE.saturating_sub(since.elapsed());
        if left.is_zero() {
            let full: Vec<Partition> =
                self.paused.iter().filter(|(_, (_, told))| !told).map(|(&partition, _)| partition).collect();
            for partition in &full {
                self.paused.insert(*partition, (PauseReason::Full, true));
            }
            self.pause(&full);
            self.full_since = None;
            return false;
        }
        let command = self.consumer.context().commands().recv_timeout(left);
        match command {
            Ok(command) => {
                if !self.obey(command) {
                    self.consumer.context().closing.store(true, Ordering::Relaxed);
                    return false;
                }
                true
            }
            Err(mpsc::RecvTimeoutError::Timeout) => true,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.consumer.context().closing.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Stops fetching while too many bytes wait in memory, and goes on at half of them: pausing throws away what the
    /// client has prefetched.
    fn weigh(&mut self) {
        let (bytes, max) = (self.bytes_that_go(), self.reader.buffer_bytes_max);
        let given = self.consumer.context().given.swap(false, Ordering::Relaxed);
        let was_heavy = self.is_heavy;
        self.is_heavy = if was_heavy { max / 2 < bytes } else { max <= bytes };
        if self.is_heavy && (!was_heavy || given) {
            self.pause(&self.assigned());
        } else if was_heavy && !self.is_heavy {
            for partition in self.assigned().iter().filter(|it| !matches!(self.paused.get(it), Some((_, true)))) {
                self.resume(*partition);
            }
        }
    }

    fn assigned(&self) -> Vec<Partition> {
        let Ok(list) = self.consumer.assignment() else { return Vec::new() };
        let context = self.consumer.context();
        list.elements().iter().filter_map(|it| context.partition(it.topic(), it.partition())).collect()
    }

    /// Takes what is there, up to a chunk, and hands it over.
    fn fetch(&mut self) {
        if self.consumer.context().closing.load(Ordering::Relaxed) {
            return;
        }
        let mut chunk = Chunk::default();
        let mut wait = if self.paused.is_empty() && !self.is_heavy { POLL_WAIT } else { POLL_WAIT_PAUSED };
        while chunk.len() < CHUNK_RECORDS_MAX && chunk.len_bytes() < CHUNK_BYTES_MAX {
            let polled = self.consumer.poll(wait);
            // Before what the same call brought: of a partition that went and came back in it, that is new.
            forget_given_up(self.consumer.context(), &mut self.paused, &mut chunk);
            match polled {
                None => break,
                Some(Ok(message)) => {
                    if let Some(partition) = self.consumer.context().partition(message.topic(), message.partition()) {
                        chunk.add(partition, &message);
                    }
                }
                Some(Err(error)) => {
                    self.failed(&error);
                    break;
                }
            }
            wait = Duration::ZERO;
        }
        if !self.paused.values().any(|(_, told)| !told) {
            self.full_since = None;
        }
        if 0 < chunk.len() {
            let held = self.memory.hold(chunk.len_bytes());
            let runs = self.reader.read(chunk, held);
            self.consumer.context().tell(Polled::Records(runs));
        }
        if POSITIONS_INTERVAL < self.positions_at.elapsed() {
            self.positions_at = Instant::now();
            let client = if self.consumer.context().role == Role::Source { "source" } else { "retry" };
            metrics::BUFFERED_BYTES.level(&[("client", client)]).set(self.memory.bytes() as f64);
            self.report_positions();
        }
    }

    /// The client passes over transaction markers and aborted records in silence. Its position is behind whatever this
    /// thread has taken from it, so that everything below was handed over by now.
    fn report_positions(&self) {
        let Ok(list) = self.consumer.position() else { return };
        let context = self.consumer.context();
        let position = |it: &TopicPartitionListElem<'_>| match it.offset() {
            Offset::Offset(offset) => Some((context.partition(it.topic(), it.partition())?, offset)),
            _ => None,
        };
        let reached: Vec<_> = list.elements().iter().filter_map(position).collect();
        if !reached.is_empty() {
            context.tell(Polled::Reached(reached));
        }
    }

    fn failed(&mut self, error: &KafkaError) {
        let context = self.consumer.context();
        if matches!(error, KafkaError::MessageConsumptionFatal(_)) || context.causes.is_fatal() {
            context.tell(Polled::Fatal(explain(error, &context.causes)));
            // The driver ends the loop; until then there is nothing to poll.
            std::thread::sleep(POLL_WAIT);
            return;
        }
        tracing::warn!(%error, "kafka consumer error");
        self.unread.suspect();
        context.tell(Polled::Trouble);
    }

    fn pause(&self, partitions: &[Partition]) {
        if partitions.is_empty() {
            return;
        }
        if let Err(error) = self.consumer.pause(&self.list(partitions)) {
            tracing::warn!(%error, "pausing failed");
        }
    }

    fn resume(&self, partition: Partition) {
        if let Err(error) = self.consumer.resume(&self.list(&[partition])) {
            tracing::warn!(%error, "resuming failed");
        }
    }

    fn list(&self, partitions: &[Partition]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for it in partitions {
            list.add_partition(self.reader.routes.name(it.topic), it.number);
        }
        list
    }
}

/// Pauses end with the assignment, and what was fetched under it is for whoever has the partition next.
fn forget_given_up(context: &Context, paused: &mut BTreeMap<Partition, (PauseReason, bool)>, chunk: &mut Chunk) {
    let given_up = std::mem::take(&mut *context.given_up.lock().unwrap_or_else(PoisonError::into_inner));
    if !given_up.is_empty() {
        paused.retain(|it, _| !given_up.contains(it));
        chunk.drop_of(&given_up);
    }
}
