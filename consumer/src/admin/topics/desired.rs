//! What each topic should be like.

use std::collections::BTreeMap;
use std::time::Duration;

use sekali_producer::{Error, ErrorKind};

use super::{Action, Found, Role, Setting, TopicPlan};
use crate::config::{Config, HEADER_ALLOWANCE_BYTES};

/// Partitions of a source topic that does not exist yet, unless configured.
const PARTITIONS: i32 = 12;
/// From this many copies on, a write needs two of them.
const COPIES_FOR_MIN_INSYNC: i32 = 3;

pub(super) const RETENTION: &str = "retention.ms";
pub(super) const SIZE: &str = "max.message.bytes";
const CLEANUP: &str = "cleanup.policy";
const MIN_INSYNC: &str = "min.insync.replicas";

pub(super) struct Desired {
    name: String,
    role: Role,
    partitions: i32,
    replication_factor: i32,
    retention: Duration,
    bytes_max: i64,
}

/// Every topic of the group. Retry and dead-letter topics follow what their source really is.
pub(super) fn desired(config: &Config, found: &BTreeMap<String, Found>) -> Result<Vec<Desired>, Error> {
    let topics = &config.topics;
    let replication_factor = i32::from(topics.replication_factor.get());
    let configured = i64::from(topics.message_bytes_max.get());
    let all = config.group_topics().map_err(|error| Error::new(ErrorKind::Config, "name the topics").because(error))?;
    let mut desired = Vec::new();
    for group in all.topics {
        let source = found.get(&group.source);
        let wanted = topics.partitions.map(|it| i32::from(it.get()));
        let partitions = wanted.or(source.map(|it| it.partitions)).unwrap_or(PARTITIONS);
        let of_source = source.map_or(partitions, |it| it.partitions);
        let source_bytes = source.and_then(|it| it.number(SIZE)).unwrap_or_default().max(configured);
        let topic = |name, role, partitions, retention, bytes_max| Desired {
            name,
            role,
            partitions,
            replication_factor,
            retention,
            bytes_max,
        };
        let with_headers = source_bytes.saturating_add(i64::from(HEADER_ALLOWANCE_BYTES));
        desired.push(topic(group.source, Role::Source, partitions, topics.source_retention, configured));
        for (_, name) in group.retry {
            desired.push(topic(name, Role::Retry, of_source, topics.retry_retention, with_headers));
        }
        desired.push(topic(group.dlq, Role::DeadLetter, of_source, topics.dlq_retention, with_headers));
    }
    Ok(desired)
}

impl Found {
    /// An effective setting as a number.
    pub(in crate::admin) fn number(&self, name: &str) -> Option<i64> {
        self.settings.get(name)?.parse().ok()
    }

    /// How long it keeps records; `None` for ever, which is also what compaction alone does.
    pub(in crate::admin) fn retention(&self) -> Option<Duration> {
        let deletes = self.settings.get(CLEANUP).is_none_or(|it| it.contains("delete"));
        self.number(RETENTION).filter(|_| deletes).and_then(|it| u64::try_from(it).ok()).map(Duration::from_millis)
    }

    /// Its largest record.
    pub(in crate::admin) fn bytes_max(&self) -> Option<i64> {
        self.number(SIZE)
    }
}

impl Desired {
    pub(super) fn against(self, found: &BTreeMap<String, Found>) -> TopicPlan {
        match found.get(&self.name) {
            Some(found) => self.adjusted(found),
            None => self.created(),
        }
    }

    fn created(self) -> TopicPlan {
        let new = |name, wanted| Setting { name, now: None, wanted };
        let mut settings = vec![new(RETENTION, self.retention_ms().to_string()), new(SIZE, self.bytes_max.to_string())];
        settings.push(new(CLEANUP, "delete".to_owned()));
        if COPIES_FOR_MIN_INSYNC <= self.replication_factor {
            settings.push(new(MIN_INSYNC, "2".to_owned()));
        }
        TopicPlan {
            name: self.name,
            role: self.role,
            action: Action::Create,
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            settings,
            problems: Vec::new(),
        }
    }

    fn adjusted(self, found: &Found) -> TopicPlan {
        let mut settings = Vec::new();
        let mut problems = Vec::new();
        self.compare_retention(found, &mut settings, &mut problems);
        self.compare_size(found, &mut settings);
        self.compare_cleanup(found, &mut settings, &mut problems);
        if found.partitions < self.partitions {
            problems.push(format!(
                "has {} partitions, {} are wanted: adding some moves keys to other partitions and breaks their order; \
                 drain the topic first and add them with Kafka's own tools, or set topics.partitions to {}",
                found.partitions, self.partitions, found.partitions
            ));
        }
        if found.replication_factor < self.replication_factor {
            problems.push(format!(
                "has {} copies of each partition, {} are wanted: reassign them with Kafka's own tools",
                found.replication_factor, self.replication_factor
            ));
        }
        TopicPlan {
            name: self.name,
            role: self.role,
            action: if settings.is_empty() { Action::Keep } else { Action::Alter },
            partitions: found.partitions,
            replication_factor: found.replication_factor,
            settings,
            problems,
        }
    }

    /// Only ever longer: a shorter one deletes records.
    fn compare_retention(&self, found: &Found, settings: &mut Vec<Setting>, problems: &mut Vec<String>) {
        let wanted = self.retention_ms();
        let Some(now) = found.number(RETENTION) else { return };
        if 0 <= now && now < wanted {
            settings.push(Setting { name: RETENTION, now: Some(now.to_string()), wanted: wanted.to_string() });
            return;
        }
        // Dead letters may stay as long as somebody likes: nothing counts on their end.
        let key = match self.role {
            Role::Source => "topics.source_retention",
            Role::Retry => "topics.retry_retention",
            Role::DeadLetter => return,
        };
        if now < 0 || wanted < now {
            let kept = if now < 0 { "for ever".to_owned() } else { format!("for {now} ms") };
            problems.push(format!(
                "keeps records {kept}, {wanted} ms are wanted: shortening it deletes records; do it with Kafka's own \
                 tools, or raise {key}"
            ));
        }
    }

    /// Only ever larger: a smaller one refuses records that producers send today.
    fn compare_size(&self, found: &Found, settings: &mut Vec<Setting>) {
        if let Some(now) = found.bytes_max()
            && now < self.bytes_max
        {
            settings.push(Setting { name: SIZE, now: Some(now.to_string()), wanted: self.bytes_max.to_string() });
        }
    }

    /// Compaction keeps one record a key and would swallow messages.
    fn compare_cleanup(&self, found: &Found, settings: &mut Vec<Setting>, problems: &mut Vec<String>) {
        let Some(now) = found.settings.get(CLEANUP).filter(|it| it.contains("compact")) else { return };
        if self.role == Role::Source {
            problems.push(format!(
                "has cleanup.policy={now}: compaction drops messages that the group has not read yet; set it to delete"
            ));
        } else {
            settings.push(Setting { name: CLEANUP, now: Some(now.clone()), wanted: "delete".to_owned() });
        }
    }

    fn retention_ms(&self) -> i64 {
        i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX)
    }
}
