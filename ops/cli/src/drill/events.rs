//! The marked events.

use std::time::Duration;

use bytes::Bytes;
use sekali_consumer::config::Config;
use sekali_consumer::operate::drill::Drill;
use sekali_consumer::schemas::{Headers, IdempotencyKey, cloudevents, idempotency};
use sekali_producer::{OutboundRecord, Producer};
use uuid::Uuid;

use super::DrillArgs;
use crate::exit::Failure;

/// Header that marks an event of a drill, with the drill's id.
const MARK: &str = "sekali-drill";
/// Resources that the events are about: so that some of them follow each other.
const RESOURCES: i32 = 20;
const SOURCE: &str = "sekali-drill";
const PAYLOAD: &str = "{\"drill\": \"{drill}\", \"n\": {n}}";

pub(super) struct Events {
    producer: Producer,
    records: Vec<OutboundRecord>,
    /// Keys of their inbox rows.
    pub(super) keys: Vec<Uuid>,
}

impl Events {
    pub(super) async fn new(config: &Config, drill: &Drill, topic: &str, args: &DrillArgs) -> Result<Events, Failure> {
        let template = match &args.payload {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| Failure::error(format!("cannot read {}: {error}", path.display())))?,
            None => PAYLOAD.to_owned(),
        };
        let (mut records, mut keys) = (Vec::new(), Vec::new());
        for n in 0..args.events {
            let text = format!("drill:{}:{n}", drill.id);
            let key = IdempotencyKey::new(text.clone()).map_err(|error| Failure::error(error.to_string()))?;
            keys.push(key.uuid());
            let headers = Headers::builder()
                .text(idempotency::IDEMPOTENCY_KEY, &text)
                .text(cloudevents::CE_ID, &text)
                .text(cloudevents::CE_SOURCE, SOURCE)
                .text(cloudevents::CE_TYPE, &args.event_type)
                .text(cloudevents::CE_SPECVERSION, "1.0")
                .text(MARK, &drill.id.to_string())
                .build();
            let payload = template.replace("{drill}", &drill.id.to_string()).replace("{n}", &n.to_string());
            records.push(OutboundRecord {
                topic: topic.to_owned(),
                key: Some(Bytes::from(format!("drill-{}", n % RESOURCES))),
                payload: Some(Bytes::from(payload)),
                headers,
            });
        }
        Ok(Events { producer: Producer::connect(&config.kafka).await?, records, keys })
    }

    /// Sends them one after the other, so that some are on their way whenever a worker dies.
    pub(super) async fn produce(&self, pace: Duration) -> Result<(), Failure> {
        for record in &self.records {
            self.producer.send_record(record.clone()).await?;
            tokio::time::sleep(pace).await;
        }
        Ok(())
    }
}
