//! Which of librdkafka's properties a user may set.

const OFFSETS: &str = "is set by the runtime: offsets are committed only after the database transaction";
const GROUP: &str = "is set by the runtime: the group decides whose offsets and inbox these are; use consumer.group";
const ACKS: &str = "is set by the runtime: a record counts as published only when all in-sync replicas have it, once";
const PARTITIONER: &str = "is set by the runtime (murmur2_random): another one would put a key on another partition than \
                           JVM clients do, and its order would be lost";
const SECTION: &str = "has a key of its own: use";
const CALLBACK: &str = "is a callback or pointer and cannot be set from a file";
const TOKENS: &str = "is not supported: this build of the client library cannot ask for tokens itself (it has no libcurl); \
                      use kafka.oauth_token_file, or give the section a TokenProvider";
const REPORTS: &str = "is set by the runtime: every record needs its own delivery report";

/// Key and reason of what carries the guarantee or has a place of its own.
const REFUSED: &[(&str, &str)] = &[
    ("enable.auto.commit", OFFSETS),
    ("auto.commit.enable", OFFSETS),
    ("auto.commit.interval.ms", OFFSETS),
    ("enable.auto.offset.store", OFFSETS),
    ("offset.store.method", OFFSETS),
    ("offset.store.path", OFFSETS),
    ("offset.store.sync.interval.ms", OFFSETS),
    ("auto.offset.reset", "is set by the runtime (earliest): latest would skip records that nobody has decided"),
    ("isolation.level", "is set by the runtime (read_committed): an aborted record must not be processed"),
    ("enable.partition.eof", "is set by the runtime: the fetch loop decides what the end of a partition means"),
    ("group.id", GROUP),
    ("group.protocol.type", GROUP),
    ("group.protocol", "has a key of its own: use consumer.group_protocol"),
    (
        "partition.assignment.strategy",
        "is set by the runtime (cooperative-sticky): an eager strategy would stop all partitions at every rebalance, and \
         both together cannot share a group",
    ),
    ("group.remote.assignor", "is set by the runtime: the broker's default assignor is used"),
    ("allow.auto.create.topics", "is set by the runtime (false): a topic made by accident has the wrong partitions"),
    ("enable.idempotence", ACKS),
    ("enable.gapless.guarantee", ACKS),
    ("acks", ACKS),
    ("request.required.acks", ACKS),
    ("retries", ACKS),
    ("message.send.max.retries", ACKS),
    ("message.timeout.ms", "is set by the runtime: what is in the outbox is tried until the broker answers"),
    ("delivery.timeout.ms", "is set by the runtime: what is in the outbox is tried until the broker answers"),
    ("queuing.strategy", "is set by the runtime (fifo): another one would break the order of a key"),
    ("msg_order_cmp", "is set by the runtime (fifo): another one would break the order of a key"),
    (
        "transactional.id",
        "is not supported: the outbox makes records atomic with your database, Kafka transactions cannot",
    ),
    (
        "transaction.timeout.ms",
        "is not supported: the outbox makes records atomic with your database, Kafka transactions cannot",
    ),
    ("partitioner", PARTITIONER),
    ("partitioner_cb", PARTITIONER),
    ("delivery.report.only.error", REPORTS),
    ("produce.offset.report", REPORTS),
    ("dr_cb", REPORTS),
    ("dr_msg_cb", REPORTS),
    ("plugin.library.paths", "would load foreign code into the process"),
    ("interceptors", "would load foreign code into the process"),
];

/// Keys that the section names itself.
const OWN_KEY: &[(&str, &str)] = &[
    ("bootstrap.servers", "kafka.brokers"),
    ("metadata.broker.list", "kafka.brokers"),
    ("client.id", "kafka.client_id"),
    ("security.protocol", "kafka.security_protocol"),
    ("sasl.mechanism", "kafka.sasl_mechanism"),
    ("sasl.mechanisms", "kafka.sasl_mechanism"),
    ("sasl.username", "kafka.sasl_username"),
    ("sasl.password", "kafka.sasl_password or kafka.sasl_password_file"),
    ("ssl.ca.location", "kafka.ssl_ca_file"),
    ("ssl.certificate.location", "kafka.ssl_certificate_file"),
    ("ssl.key.location", "kafka.ssl_key_file"),
    ("ssl.key.password", "kafka.ssl_key_password or kafka.ssl_key_password_file"),
    ("compression.type", "kafka.compression"),
    ("compression.codec", "kafka.compression"),
    ("linger.ms", "kafka.linger"),
    ("queue.buffering.max.ms", "kafka.linger"),
    ("message.max.bytes", "kafka.message_bytes_max"),
    ("batch.size", "kafka.batch_bytes_max"),
];

/// Second names of one property. The client is configured from an unordered map: were both names in it, chance would
/// decide between the user's value and ours.
const ALIASES: &[(&str, &str)] = &[
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
];

/// Completes "kafka.properties.KEY ..." when the property may not be set, or not to that value.
pub(super) fn refusal(key: &str, value: &str) -> Option<String> {
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == key) {
        return Some((*reason).to_owned());
    }
    if let Some((_, own)) = OWN_KEY.iter().find(|(refused, _)| *refused == key) {
        return Some(format!("{SECTION} {own}"));
    }
    if key.ends_with("_cb") || matches!(key, "opaque" | "default_topic_conf" | "ssl_key" | "ssl_certificate" | "ssl_ca")
    {
        return Some(CALLBACK.to_owned());
    }
    if key.contains("sasl.oauthbearer") {
        return Some(TOKENS.to_owned());
    }
    if key.starts_with("go.") || key.starts_with("dotnet.") {
        return Some("is a property of another language's client".to_owned());
    }
    if canonical(key) == "max.in.flight.requests.per.connection"
        && !value.parse::<u8>().is_ok_and(|it| (1..=5).contains(&it))
    {
        return Some("must be 1 to 5: with more, the idempotent producer cannot keep order and uniqueness".to_owned());
    }
    value.contains('\0').then(|| "contains a NUL character".to_owned())
}

/// The one name by which a property is set.
pub(super) fn canonical(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, canonical)| canonical)
}

/// Whether the value must not be shown.
pub(crate) fn is_secret(key: &str) -> bool {
    ["password", "secret", "passphrase", ".pem", "sasl.oauthbearer.config"].iter().any(|it| key.contains(it))
}
