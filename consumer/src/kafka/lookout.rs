//! Looks at the ends of quiet partitions. A client that stopped fetching one does not know that there is something: the end
//! in its statistics comes with the records.

use std::sync::Arc;
use std::time::Duration;

use sekali_producer::PolledProducer;
use sekali_producer::config::KafkaSection;

use crate::Error;
use crate::core::{Offset, Partition};
use crate::routes::Routes;

/// Longest wait for the end of one partition.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of its own, outside the group. It is a producer that sends nothing: nobody polls this client, and one of that
/// kind has a thread that does, so that its login is renewed. It sees what is committed only, as every client by default.
#[derive(Clone)]
pub(crate) struct Lookout {
    client: PolledProducer,
    routes: Arc<Routes>,
}

impl Lookout {
    /// # Errors
    /// A setting that the client refuses.
    pub(crate) fn new(section: &KafkaSection, routes: Arc<Routes>) -> Result<Lookout, Error> {
        Ok(Lookout { client: PolledProducer::create(&section.client_config()?, &section.causes())?, routes })
    }

    /// Those of the partitions that end behind what the group's client fetches next. Waits for the broker; what it does
    /// not answer counts as having nothing.
    pub(crate) fn behind(&self, fetched: &[(Partition, Offset)]) -> Vec<Partition> {
        let behind = |&(partition, next): &(Partition, Offset)| {
            let name = self.routes.name(partition.topic);
            let (start, end) = self.client.client().fetch_watermarks(name, partition.number, ANSWER_TIMEOUT).ok()?;
            // A negative offset: the client has not begun.
            let next = if next < 0 { start } else { next };
            (next < end).then_some(partition)
        };
        fetched.iter().filter_map(behind).collect()
    }
}
