//! Every metric of the consumer: defined once, described and registered at start.
//!
//! Label `topic` is always the source topic, also for what came through a retry topic. No label ever holds a key, an id
//! or an error text.

mod handles;

use sekali_producer::metrics::Metric;

pub(crate) use handles::{Metrics, distribution, level, unix_ms};

use crate::failure::FailureClass;

/// Duration of work, seconds.
const WORK: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// From first publishing to the final decision, seconds.
const DELIVERY: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0,
    86400.0,
];
/// Time that something is kept, seconds.
const HOLD: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0];
/// Messages in a batch.
const BATCH: &[f64] = &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
/// Calls of other systems.
const EFFECT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Attempts of a message.
const ATTEMPTS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0];

/// What a delivery of a message ended as.
pub(crate) const OUTCOMES: [&str; 6] = ["ok", "duplicate", "retried", "dead_lettered", "skipped", "held"];

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident = $definition:expr;)*) => {
        $($(#[$doc])* pub const $name: Metric = $definition;)*
        /// Every metric of this crate, for documentation, dashboards and tests.
        pub const ALL: &[Metric] = &[$($name),*];
    };
}

metrics! {
    /// Constant 1.
    BUILD_INFO = Metric::gauge("sekali_build_info", "Always 1; the version is in the label.").with(&[("version", &[])]);
    /// End of the partition minus position.
    LAG_MESSAGES = Metric::gauge("sekali_consumer_lag_messages", "Records between the position and the end of the partition; absent while unknown.").with(&[("topic", &[]), ("partition", &[])]);
    /// Age of the oldest undecided record.
    LAG_SECONDS = Metric::gauge("sekali_consumer_lag_seconds", "Age of the oldest record that is not decided; 0 when there is none.").with(&[("topic", &[]), ("partition", &[])]);
    /// Partitions of the source topics.
    TOPIC_PARTITIONS = Metric::gauge("sekali_topic_partitions", "Partitions of the source topic.").with(&[("topic", &[])]);
    /// How long the source topics keep their records.
    TOPIC_RETENTION = Metric::gauge("sekali_topic_retention_seconds", "How long the source topic keeps records, as the broker said at start; -1 for ever, absent where it does not say and with inbox.retention = \"forever\".").with(&[("topic", &[])]);
    /// Owned source partitions.
    ASSIGNED = Metric::gauge("sekali_assigned_partitions", "Partitions of the source topic that this process owns.").with(&[("topic", &[])]);
    /// Paused source and retry partitions.
    PAUSED = Metric::gauge("sekali_paused_partitions", "Owned partitions that are not fetched now, because their buffer is full, nothing is due, or an operator has paused their topic.").with(&[("topic", &[])]);
    /// An operator's pauses.
    TOPIC_PAUSED = Metric::gauge("sekali_topic_paused", "1 while an operator has paused the source topic, with its retry topics. The same in every process: aggregate with max.").with(&[("topic", &[])]);
    /// Deliveries.
    RECEIVED = Metric::counter("sekali_messages_received_total", "Records received, from source and retry topics.").with(&[("topic", &[])]);
    /// Deliveries by outcome.
    PROCESSED = Metric::counter("sekali_messages_processed_total", "Deliveries decided, by outcome.").with(&[("topic", &[]), ("outcome", &OUTCOMES)]);
    /// Time of a batch.
    PROCESSING_DURATION = Metric::histogram("sekali_processing_duration_seconds", "Time of one transaction: claim, handler, commit.", WORK).with(&[("topic", &[])]);
    /// First publishing to final decision.
    DELIVERY_LATENCY = Metric::histogram("sekali_delivery_latency_seconds", "Time from the first publishing to the final decision, across retries.", DELIVERY).with(&[("topic", &[]), ("outcome", &["ok", "dead_lettered"])]);
    /// Attempts at the final decision.
    ATTEMPTS_PER_MESSAGE = Metric::histogram("sekali_attempts_per_message", "Attempts that a message needed until its final decision, for those that needed more than one.", ATTEMPTS).with(&[("topic", &[]), ("outcome", &["ok", "dead_lettered"])]);
    /// Buffered and in hand.
    INFLIGHT = Metric::gauge("sekali_inflight_messages", "Messages received and not yet decided.");
    /// Bytes in memory.
    BUFFERED_BYTES = Metric::gauge("sekali_buffered_bytes", "Bytes of records received and not yet decided, of the client of the source topics and that of the retry topics.").with(&[("client", &["source", "retry"])]);
    /// Messages in a transaction.
    BATCH_SIZE = Metric::histogram("sekali_batch_size_messages", "Messages of one transaction.", BATCH);
    /// Offset commits by result.
    OFFSET_COMMITS = Metric::counter("sekali_offset_commits_total", "Offset commits: ok when the client took it, error when the broker refused it afterwards or at once.").with(&[("result", &["ok", "error"])]);
    /// Last offset commit.
    LAST_COMMIT = Metric::gauge("sekali_last_commit_timestamp_seconds", "Moment of the last successful offset commit, Unix time.");
    /// Last turn of the poll loop.
    LAST_POLL = Metric::gauge("sekali_last_poll_timestamp_seconds", "Moment of the last turn of the poll loop, Unix time.");
    /// Limit of the above.
    MAX_POLL_INTERVAL = Metric::gauge("sekali_max_poll_interval_seconds", "Time without a poll after which the process leaves the group.");
    /// Rebalances.
    REBALANCES = Metric::counter("sekali_rebalances_total", "Changes of the assignment.").with(&[("event", &["assign", "revoke", "lost"])]);
    /// Client errors.
    KAFKA_ERRORS = Metric::counter("sekali_kafka_errors_total", "Errors that the Kafka client reported.").with(&[("fatal", &["false", "true"])]);
    /// Clients made anew.
    CLIENTS_RENEWED = Metric::counter("sekali_kafka_clients_renewed_total", "Kafka clients made anew because a partition with a backlog got nothing.");
    /// Retries.
    RETRIES = Metric::counter("sekali_retries_scheduled_total", "Failed messages sent to a retry topic.").with(&[("topic", &[]), ("tier", &[]), ("error_class", &[])]);
    /// How late due retries are.
    RETRY_OVERDUE = Metric::gauge("sekali_retry_overdue_seconds", "How long the most overdue retry has been due; 0 when none is.").with(&[("topic", &[])]);
    /// Dead letters.
    DEAD_LETTERS = Metric::counter("sekali_dead_letters_total", "Messages that became dead letters.").with(&[("topic", &[]), ("reason", &[]), ("error_class", &[])]);
    /// Keys that wait.
    HELD_KEYS = Metric::gauge("sekali_held_keys", "Keys that wait behind a failed message. The same in every process: aggregate with max.").with(&[("topic", &[])]);
    /// Messages that wait.
    HELD_MESSAGES = Metric::gauge("sekali_held_messages", "Messages that wait behind a failed one of their key. Aggregate with max.").with(&[("topic", &[])]);
    /// Age of the oldest hold.
    HOLD_OLDEST = Metric::gauge("sekali_hold_oldest_age_seconds", "How long the key has waited that has waited longest; 0 when none does. Aggregate with max.").with(&[("topic", &[])]);
    /// Budget of dead letters.
    BUDGET_SPENT = Metric::gauge("sekali_dead_letter_budget_spent", "1 while a message waits that would become a dead letter, because almost nothing succeeds any more.");
    /// Open dead letters.
    DLQ_MESSAGES = Metric::gauge("sekali_dlq_messages", "Open dead letters of this consumer. The same in every process: aggregate with max.").with(&[("topic", &[])]);
    /// Age of the oldest.
    DLQ_OLDEST = Metric::gauge("sekali_dlq_oldest_message_age_seconds", "Age of the oldest open dead letter; 0 when there is none. Aggregate with max.").with(&[("topic", &[])]);
    /// Keys with two payloads.
    KEY_REUSE = Metric::counter("sekali_key_reuse_total", "Messages whose idempotency key was decided with another payload.").with(&[("topic", &[])]);
    /// Rows of the inbox.
    INBOX_ROWS = Metric::gauge("sekali_inbox_rows", "Rows of the inbox over all consumers, as estimated by PostgreSQL. Aggregate with max.");
    /// Rows purged.
    INBOX_PURGED = Metric::counter("sekali_inbox_purged_total", "Decisions older than inbox.retention that this process forgot.");
    /// The group's own clock.
    RETENTION_CLOCK = Metric::gauge("sekali_inbox_clock_timestamp_seconds", "The group's own clock, Unix time: everything older is committed on every partition, and the purge counts inbox.retention from here. 0 while a partition was never caught up, NaN with inbox.retention = forever. The same in every process: aggregate with min.");
    /// Batches rolled back.
    BATCH_FAILURES = Metric::counter("sekali_batch_failures_total", "Transactions rolled back, by class of the failure.").with(&[("error_class", &[])]);
    /// Panics.
    PANICS = Metric::counter("sekali_worker_panics_total", "Handlers that panicked.");
    /// Shutdowns.
    SHUTDOWNS = Metric::counter("sekali_shutdowns_total", "Ends of the consumer; forced when the drain timeout passed.").with(&[("mode", &["graceful", "forced"])]);
    /// Effects.
    EFFECT_DURATION = Metric::histogram("sekali_effect_duration_seconds", "Time that an effect outside the database took: ok, failed, interrupted (no verdict), or lost (its lease ran out).", EFFECT).with(&[("topic", &[]), ("result", &["ok", "failed", "interrupted", "lost"])]);
    /// Leases.
    LEASES_HELD = Metric::gauge("sekali_leases_held", "Leases of this process on messages whose effect is in progress or not yet recorded.");
    /// Heartbeats of leases.
    LEASE_RENEWALS = Metric::counter("sekali_lease_renewals_total", "Leases prolonged, leases lost, and heartbeats that failed.").with(&[("result", &["ok", "lost", "error"])]);
    /// Leases that ran out.
    LEASE_EXPIRATIONS = Metric::counter("sekali_lease_expirations_total", "Leases that ran out and that this process took over: the effect is performed again.");
    /// Late finishers.
    FENCED = Metric::counter("sekali_fenced_total", "Outcomes refused because somebody else had taken the lease over.");
    /// Database reachable.
    DB_UP = Metric::gauge("sekali_db_up", "1 while the database answers.");
    /// Pool limit.
    POOL_MAX = Metric::gauge("sekali_db_pool_max_connections", "Most connections of the pool.");
    /// Pool queue.
    POOL_WAITING = Metric::gauge("sekali_db_pool_waiting", "Requests that wait for a connection.");
    /// Pool use.
    POOL_CONNECTIONS = Metric::gauge("sekali_db_pool_connections", "Connections of the pool.").with(&[("state", &["idle", "in_use"])]);
    /// Locks asked for.
    LOCK_ACQUISITIONS = Metric::counter("sekali_lock_acquisitions_total", "Named locks asked for, by result; contended is one that was still taken after the wait.").with(&[("result", &["acquired", "contended", "error"])]);
    /// Asking to having.
    LOCK_WAIT = Metric::histogram("sekali_lock_wait_seconds", "Time from asking for a named lock to having it.", WORK);
    /// Having to giving back.
    LOCK_HOLD = Metric::histogram("sekali_lock_hold_seconds", "Time from having a named lock to giving it back or losing it.", HOLD);
    /// Locks of this process.
    LOCKS_HELD = Metric::gauge("sekali_locks_held", "Named locks that this process has.");
    /// Locks renewed.
    LOCK_RENEWALS = Metric::counter("sekali_lock_renewals_total", "Named locks in heartbeats, by result: ok, busy (its row was locked; tried again), lost, error (the database did not answer; tried again).").with(&[("result", &["ok", "busy", "lost", "error"])]);
    /// Locks lost.
    LOCK_LOSSES = Metric::counter("sekali_lock_losses_total", "Named locks that this process lost: not renewed in time, or their row was taken or deleted.").with(&[("reason", &["expired", "taken"])]);
    /// Locks taken over.
    LOCK_EXPIRATIONS = Metric::counter("sekali_lock_expirations_total", "Named locks that this process took over because their owner had let them run out.");
    /// Owners refused.
    LOCK_FENCED = Metric::counter("sekali_lock_fenced_total", "Transactions refused because their named lock was not theirs any more.");
    /// Transactions.
    TRANSACTIONS = Metric::counter("sekali_db_transactions_total", "Transactions of the executors.").with(&[("result", &["commit", "rollback"])]);
}

/// The bounded words of label `error_class`.
pub(crate) fn error_classes() -> impl Iterator<Item = &'static str> {
    FailureClass::ALL.into_iter().map(FailureClass::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sekali_producer::metrics::Kind;

    use super::*;

    #[test]
    fn names_are_unique_and_follow_prometheus() {
        let mut seen = BTreeSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} is defined twice", metric.name);
            assert!(metric.name.starts_with("sekali_"), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }
}
