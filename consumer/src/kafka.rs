//! The Kafka side: threads that poll, serve rebalances and commit, and never wait for work.
//!
//! A process has two clients in its group: one reads the source topics, one the retry topics. With a single one, the
//! assignors balance the sum of both, so that one member may get all source partitions and another idle retry
//! partitions only.

mod context;
mod lookout;
mod memory;
mod poll;
mod read;
mod settings;
mod unread;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use sekali_producer::config::KafkaSection;
use sekali_producer::{Error, ErrorKind};
use tokio::sync::mpsc as channel;

use crate::core::{Offset, Partition, PauseReason, Record};
use crate::incoming::Incoming;
use crate::metrics::Metrics;

pub(crate) use context::Context;
pub(crate) use lookout::Lookout;
pub(crate) use poll::Poller;
pub(crate) use read::{Reader, key_id};
pub(crate) use settings::consumer_config;

/// What the poll thread tells the driver. A closed set.
pub(crate) enum Polled {
    Assigned(Vec<Partition>),
    /// The thread waits for [`Command::Release`] inside the rebalance callback.
    Revoked(Vec<Partition>),
    Lost(Vec<Partition>),
    Records(Vec<(Partition, Vec<Record<Incoming>>)>),
    /// Everything below these offsets was handed over; what had no record was a transaction marker or an aborted record.
    Reached(Vec<(Partition, Offset)>),
    /// A commit that was waited for.
    Committed(Result<Vec<(Partition, Offset)>, String>),
    /// What the client's statistics say.
    Statistics(Role, Statistics),
    /// A client error that passes, for counting.
    Trouble,
    /// The client is dead: the process must end or start anew.
    Fatal(Error),
    /// The thread of a client has left the group and ended.
    Closed(Role),
}

/// What the client knows about its partitions, every few seconds. It is also how asynchronous commits are confirmed: the
/// client library has no other answer for them.
#[derive(Default)]
pub(crate) struct Statistics {
    /// Start and end of partitions, as far as a read_committed consumer can read.
    pub(crate) bounds: Vec<(Partition, Offset, Offset)>,
    /// Committed positions.
    pub(crate) committed: Vec<(Partition, Offset)>,
    /// Next offset that the client fetches.
    pub(crate) fetched: Vec<(Partition, Offset)>,
}

/// What the driver tells the poll thread.
#[derive(Debug)]
pub(crate) enum Command {
    Commit(Vec<(Partition, Offset)>),
    Pause(Partition, PauseReason),
    Resume(Partition),
    /// Answers [`Polled::Revoked`]: commit these, then let go.
    Release(Vec<(Partition, Offset)>),
    /// Commit these, leave the group, end.
    Close(Vec<(Partition, Offset)>),
}

/// Which topics a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    Source,
    Retry,
}

impl Role {
    pub(crate) const ALL: [Role; 2] = [Role::Source, Role::Retry];

    pub(crate) fn of(partition: Partition) -> Role {
        if partition.retry { Role::Retry } else { Role::Source }
    }

    /// What its names have in common with those of the other client, and what not.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Role::Source => "",
            Role::Retry => "-retry",
        }
    }
}

/// What starts the clients, at first and again.
pub(crate) struct Clients {
    pub(crate) settings: Vec<(Role, rdkafka::ClientConfig)>,
    /// Makes contexts for the clients.
    pub(crate) kafka: KafkaSection,
    pub(crate) reader: Arc<Reader>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) drain_timeout: Duration,
    pub(crate) polled: channel::Sender<Polled>,
}

impl Clients {
    /// Starts one client.
    ///
    /// # Errors
    /// A setting that the client refuses, or the operating system gives no thread.
    pub(crate) fn start(&self, role: Role) -> Result<Link, Error> {
        let settings = self.settings.iter().find(|it| it.0 == role);
        let (_, settings) = settings.ok_or_else(|| Error::new(ErrorKind::Kafka, "find the client's settings"))?;
        let (reader, metrics) = (self.reader.clone(), self.metrics.clone());
        let causes = self.kafka.causes();
        Poller::start(settings, role, causes, reader, metrics, self.drain_timeout, self.polled.clone())
    }
}

/// The driver's end of the connection to one client's thread.
pub(crate) struct Link {
    pub(crate) role: Role,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) thread: std::thread::JoinHandle<()>,
}

/// Chunks of records on their way to the driver; a full channel only makes the poll thread wait for bookkeeping.
pub(crate) const CHUNKS_MAX: usize = 4;

pub(crate) type SharedReader = Arc<Reader>;
