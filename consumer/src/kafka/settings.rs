//! The consumer's client settings: the user's first, those that carry the guarantee last.

use rdkafka::ClientConfig;

use super::Role;
use crate::Error;
use crate::config::{Config, GroupProtocol};

/// Settings of one of the group's clients.
///
/// # Errors
/// A password file cannot be read.
pub(crate) fn consumer_config(config: &Config, role: Role) -> Result<ClientConfig, Error> {
    let mut client = config.kafka.client_config()?;
    // Tuning that a user may change: set only where the user said nothing.
    for (key, value) in [
        // After the prefetch threshold a partition sleeps this long; the default of one second halves a drain.
        ("fetch.queue.backoff.ms", "10"),
        ("fetch.wait.max.ms", "100"),
        // One queue for all partitions: a bound of the whole prefetch. It counts payloads; a small record takes several
        // times as much with its headers and what the client keeps for it.
        ("queued.max.messages.kbytes", "4096"),
        ("queued.min.messages", "4000"),
        // What is on its way comes on top, compressed and unpacked: with the defaults, a megabyte of each partition, that is
        // most of the memory of a process that catches up.
        ("max.partition.fetch.bytes", "262144"),
        ("statistics.interval.ms", "5000"),
        ("reconnect.backoff.max.ms", "2000"),
        ("topic.metadata.refresh.interval.ms", "30000"),
        ("socket.keepalive.enable", "true"),
    ] {
        if client.get(key).is_none() {
            client.set(key, value);
        }
    }
    if let Some(id) = client.get("client.id").map(str::to_owned) {
        client.set("client.id", format!("{id}{}", role.suffix()));
    }
    let section = &config.consumer;
    client
        .set("group.id", &section.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "false")
        .set("allow.auto.create.topics", "false")
        .set("max.poll.interval.ms", section.max_poll_interval.as_millis().to_string());
    if let Some(instance) = &section.group_instance_id {
        client.set("group.instance.id", format!("{instance}{}", role.suffix()));
    }
    match section.group_protocol {
        GroupProtocol::Consumer => client.set("group.protocol", "consumer"),
        // KIP-848 leaves both of these to the broker.
        _ => client
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", section.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", (section.session_timeout.as_millis() / 10).clamp(100, 3000).to_string()),
    };
    Ok(client)
}
