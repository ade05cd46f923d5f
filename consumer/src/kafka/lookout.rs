//! Looks at the ends of quiet partitions. A client that stopped fetching one does not know that there is something: the end
//! in its statistics comes with the records.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::core::{Offset, Partition};
use crate::routes::Routes;
use crate::{Error, ErrorKind};

/// Longest wait for the end of one partition.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of its own, outside the group.
#[derive(Clone)]
pub(crate) struct Lookout {
    client: Arc<BaseConsumer>,
    routes: Arc<Routes>,
}

impl Lookout {
    /// # Errors
    /// A setting that the client refuses.
    pub(crate) fn new(settings: &ClientConfig, routes: Arc<Routes>) -> Result<Lookout, Error> {
        let client = settings.create().map_err(|error| {
            Error::new(ErrorKind::Kafka, "create the client that looks at the ends of partitions").because(error)
        })?;
        Ok(Lookout { client: Arc::new(client), routes })
    }

    /// Those of the partitions that end behind what the group's client fetches next. Waits for the broker; what it does
    /// not answer counts as having nothing.
    pub(crate) fn behind(&self, fetched: &[(Partition, Offset)]) -> Vec<Partition> {
        let behind = |&(partition, next): &(Partition, Offset)| {
            let name = self.routes.name(partition.topic);
            let (start, end) = self.client.fetch_watermarks(name, partition.number, ANSWER_TIMEOUT).ok()?;
            // A negative offset: the client has not begun.
            let next = if next < 0 { start } else { next };
            (next < end).then_some(partition)
        };
        fetched.iter().filter_map(behind).collect()
    }
}
