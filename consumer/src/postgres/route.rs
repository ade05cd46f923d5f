//! Where a group reads retries, for operators who do not have its configuration.

use tokio_postgres::{Client, Error};

use crate::routes::Routes;

/// Written only when something is new.
const REGISTER: &str = "INSERT INTO sekali.route AS route (consumer_id, topic, group_name, retry_topics, dlq_topic, ordered) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (consumer_id, topic) DO UPDATE SET group_name = excluded.group_name, \
     retry_topics = excluded.retry_topics, dlq_topic = excluded.dlq_topic, ordered = excluded.ordered, registered_at = now() \
     WHERE (route.group_name, route.retry_topics, route.dlq_topic, route.ordered) \
     IS DISTINCT FROM (excluded.group_name, excluded.retry_topics, excluded.dlq_topic, excluded.ordered)";

/// Says where the group's failures go. `ordered`: whether messages of a key wait for each other.
pub(crate) async fn register(client: &Client, consumer_id: i16, routes: &Routes, ordered: bool) -> Result<(), Error> {
    for (topic, retry_topics, dlq) in routes.registered() {
        client.execute(REGISTER, &[&consumer_id, &topic, &routes.group(), &retry_topics, &dlq, &ordered]).await?;
    }
    Ok(())
}
