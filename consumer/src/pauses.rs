//! Tells the core what an operator has paused.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use deadpool_postgres::ClientWrapper;
use tokio::sync::mpsc::UnboundedSender;

use crate::core::Event;
use crate::incoming::Incoming;
use crate::metrics;
use crate::routes::Routes;

/// In the place of a topic: all topics of the group.
pub(crate) const ALL_TOPICS: &str = "*";

const READ: &str = "SELECT topic FROM sekali.paused_topic WHERE consumer_id = $1";

/// One for each process.
pub(crate) struct Pauses {
    consumer_id: i16,
    routes: Arc<Routes>,
    events: UnboundedSender<Event<Incoming>>,
    /// What the core was told last.
    told: Mutex<Vec<u16>>,
}

/// The paused topics of a consumer, by name.
pub(crate) async fn read(client: &ClientWrapper, consumer_id: i16) -> Result<BTreeSet<String>, tokio_postgres::Error> {
    let statement = client.prepare_cached(READ).await?;
    let rows = client.query(&statement, &[&consumer_id]).await?;
    Ok(rows.iter().map(|it| it.get(0)).collect())
}

impl Pauses {
    /// `at_start` is what was paused when the group was looked up: nothing of it may run before somebody looks again.
    pub(crate) fn new(
        consumer_id: i16,
        routes: Arc<Routes>,
        events: UnboundedSender<Event<Incoming>>,
        at_start: &BTreeSet<String>,
    ) -> Pauses {
        let pauses = Pauses { consumer_id, routes, events, told: Mutex::default() };
        pauses.tell(at_start);
        pauses
    }

    /// Looks again, with the rest of what is looked at regularly.
    pub(crate) async fn look(&self, client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
        let paused = read(client, self.consumer_id).await?;
        self.tell(&paused);
        Ok(())
    }

    fn tell(&self, paused: &BTreeSet<String>) {
        let is_paused = |topic: &str| paused.contains(topic) || paused.contains(ALL_TOPICS);
        for topic in self.routes.source_names() {
            metrics::level(&metrics::TOPIC_PAUSED, &[("topic", topic)]).set(f64::from(u8::from(is_paused(topic))));
        }
        let topics = self.routes.subscribed_of(is_paused);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == topics {
            return;
        }
        tracing::info!(
            topics = self.routes.source_names().filter(|it| is_paused(it)).count(),
            "an operator's pauses changed"
        );
        told.clone_from(&topics);
        let _ended = self.events.send(Event::Paused(topics));
    }
}
