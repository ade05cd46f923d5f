//! Publishes the plan, at the pace of a busy shop rather than all at once.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::try_join_all;
use sekali_producer::{Delivery, Producer};
use tokio::time::MissedTickBehavior;

use super::plan::{Kind, Plan};
use super::stage::Stage;
use crate::exit::Failure;

/// 2,500 records a second: slow enough that a worker dies with work in hand, fast enough for a demo.
const RECORDS_PER_TICK: usize = 125;
const TICK: Duration = Duration::from_millis(50);

/// How far publishing is, for whoever watches.
#[derive(Default)]
pub(super) struct Published {
    acknowledged: Cell<usize>,
    complete: Cell<bool>,
}

impl Published {
    /// Records that the broker has acknowledged.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.get()
    }

    /// Whether nothing more will come.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.get()
    }
}

/// Publishes everything. Returns the place of each record without a key, by index of its event: that place is all the
/// identity it has.
pub(super) async fn publish(
    stage: &Stage,
    plan: &Plan,
    published: &Published,
) -> Result<Vec<(usize, Delivery)>, Failure> {
    let producer = Producer::connect(&stage.config.kafka).await?;
    let mut places = Vec::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for indexes in plan.order.chunks(RECORDS_PER_TICK) {
        ticks.tick().await;
        let send = |index: &usize| {
            let (producer, event, index) = (producer.clone(), &plan.events[*index], *index);
            async move {
                let record = event.record().map_err(sekali_producer::Error::from)?;
                Ok::<_, sekali_producer::Error>((index, producer.send_record(record).await?))
            }
        };
        let deliveries = try_join_all(indexes.iter().map(send)).await?;
        published.acknowledged.set(published.acknowledged.get() + deliveries.len());
        places.extend(deliveries.into_iter().filter(|(index, _)| plan.events[*index].kind == Kind::WithoutKey));
    }
    published.complete.set(true);
    Ok(places)
}
