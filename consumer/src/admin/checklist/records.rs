//! Points 1, 7 and 8: what the records of the source topics show.

use std::collections::{BTreeMap, BTreeSet};

use deadpool_postgres::Pool;
use sekali_producer::{Error, partition_for};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::sample::{Sample, Sampled, Source};
use super::{Findings, Measured, database, measured};
use crate::config::{Config, KeyFrom, Order};
use crate::kafka::{Role, consumer_config};

const NOTHING_SAMPLED: &str = "no record to look at";
const COME_BACK: &str = "look again when the topics have records";

/// Point 1.
pub(super) async fn keys(config: &Config, pool: &Pool, sample: &Sample, findings: &mut Findings) {
    let mut shares: BTreeMap<Source, usize> = BTreeMap::new();
    sample.all().for_each(|it| *shares.entry(it.source).or_default() += 1);
    let total: usize = shares.values().sum();
    if total == 0 {
        findings.warn(NOTHING_SAMPLED, COME_BACK);
    } else {
        let share = |(source, count): (&Source, &usize)| format!("{} {} %", source.as_str(), percent(*count, total));
        let shares: Vec<String> = shares.iter().map(share).collect();
        findings.ok(format!("of {total} records: {}", shares.join(", ")));
    }
    let none = shares.get(&Source::Nothing).copied().unwrap_or_default();
    if 0 < none {
        findings.fail(
            format!("{none} records have no idempotency key and become dead letters, unless the handler makes its own"),
            "have producers send header idempotency-key, or CloudEvents",
        );
    }
    if config.consumer.key_from == KeyFrom::Coordinates {
        findings.warn(
            "consumer.key_from = \"coordinates\": what is published twice is processed twice",
            "have producers send header idempotency-key",
        );
    }
    const REUSED: &str = "SELECT count(*) FROM sekali.dead_letter JOIN sekali.consumer ON consumer.id = consumer_id \
         WHERE consumer.name = $1 AND reason = 'key_reuse' AND last_failed_at > now() - interval '30 days'";
    match database::number(pool, config, "count reused keys", REUSED).await {
        Ok(0) => findings.ok("no key was used for two payloads in 30 days"),
        Ok(reused) => findings.warn(
            format!("{reused} keys were used for two payloads in 30 days"),
            "look at the dead letters with reason key_reuse: these keys are chosen badly",
        ),
        Err(error) => findings.error(&error),
    }
}

/// Point 7.
pub(super) fn serialised(config: &Config, sample: &Sample, measured: &Measured, findings: &mut Findings) {
    let locks = measured.worker_metrics().map_or(0.0, |it| measured::sum(it, "sekali_lock_acquisitions_total"));
    if 0.0 < locks {
        findings.ok(format!("{locks} named locks were asked for"));
    }
    if config.consumer.order == Order::None {
        findings.warn(
            "consumer.order = \"none\": a failed message is overtaken by later ones of its key",
            "set consumer.order = \"key\", unless messages of one key may change places",
        );
    } else {
        findings.ok("order by key");
    }
    let total = sample.all().count();
    if total == 0 {
        return findings.warn(NOTHING_SAMPLED, COME_BACK);
    }
    let keyless = sample.all().filter(|it| it.key.is_none()).count();
    if 0 < keyless && 0.0 < locks {
        findings.ok(format!("{} % of {total} records have no key, and locks are used", percent(keyless, total)));
    } else if 0 < keyless {
        findings.warn(
            format!(
                "{} % of {total} records have no key: nothing keeps those of one resource apart",
                percent(keyless, total)
            ),
            "have producers use the resource's id as Kafka key; or lock it (lock_key)",
        );
    } else {
        findings.ok(format!("all of {total} records have a key"));
    }
    let mut places: BTreeMap<(&str, &[u8]), BTreeSet<i32>> = BTreeMap::new();
    let mut elsewhere = 0;
    for it in sample.all() {
        let Some(key) = &it.key else { continue };
        places.entry((&it.topic, key)).or_default().insert(it.partition);
        let count = sample.partitions.get(&it.topic).copied().unwrap_or_default();
        elsewhere += usize::from(0 < count && partition_for(key, count) != it.partition);
    }
    let split = places.values().filter(|it| 1 < it.len()).count();
    if 0 < split {
        findings.fail(
            format!("{split} keys are on two partitions: their messages overtake each other"),
            "give all producers of the topic the same partitioner (murmur2), and do not add partitions",
        );
    } else if 0 < elsewhere {
        findings.warn(
            format!("{elsewhere} records are not where JVM clients and Sekali put their key"),
            "set partitioner = murmur2_random for producers that use librdkafka",
        );
    }
}

/// Point 8.
pub(super) async fn offsets(config: &Config, pool: &Pool, sample: &Sample, findings: &mut Findings) {
    client_settings(config, findings);
    let remembered = config.inbox.retention.map(|it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
    let now_ms = i64::try_from(crate::metrics::unix_ms()).unwrap_or(i64::MAX);
    let is_remembered = |it: &&Sampled| match (it.timestamp_ms, remembered) {
        (Some(at), Some(retention)) => now_ms < at.saturating_add(retention),
        _ => true,
    };
    let rows: BTreeSet<Uuid> = sample.passed.iter().filter(is_remembered).map(|it| it.row).collect();
    if rows.is_empty() {
        return findings.warn("no committed offset with a record behind it to look at", COME_BACK);
    }
    match decided(config, pool, &rows).await {
        Err(error) => findings.error(&error),
        Ok(decided) if decided == rows.len() => {
            findings.ok(format!("all of {decided} records behind committed offsets are decided"));
        }
        Ok(0) => findings.warn(
            format!(
                "none of {} records behind committed offsets has a decision under the key of its headers",
                rows.len()
            ),
            "right where the handler computes keys itself; otherwise the database lost its decisions",
        ),
        Ok(decided) => findings.fail(
            format!("{} of {} records behind committed offsets are not decided", rows.len() - decided, rows.len()),
            "find who else commits offsets of this group; reset the group's offsets to before the oldest of them",
        ),
    }
}

/// What the workers' clients are made with, after everything that a configuration can say.
const CLIENT_SETTINGS: [(&str, &str); 3] =
    [("enable.auto.commit", "false"), ("enable.auto.offset.store", "false"), ("isolation.level", "read_committed")];

fn client_settings(config: &Config, findings: &mut Findings) {
    let client = match consumer_config(config, Role::Source) {
        Ok(client) => client,
        Err(error) => return findings.error(&error),
    };
    for (key, wanted) in CLIENT_SETTINGS {
        match client.get(key).unwrap_or("unset") {
            value if value == wanted => findings.ok(format!("{key} = {value}")),
            value => findings.fail(format!("{key} = {value}"), format!("take {key} out of kafka.properties")),
        }
    }
}

async fn decided(config: &Config, pool: &Pool, rows: &BTreeSet<Uuid>) -> Result<usize, Error> {
    const SQL: &str = "SELECT count(*) FROM sekali.inbox JOIN sekali.consumer ON consumer.id = consumer_id \
         WHERE consumer.name = $1 AND key = ANY ($2)";
    let rows: Vec<Uuid> = rows.iter().copied().collect();
    let of = [(&config.consumer_name() as _, Type::TEXT), (&rows as _, Type::UUID_ARRAY)];
    let found = database::rows(pool, "look for the decisions of records", SQL, &of).await?;
    Ok(found.first().map_or(0, |it| usize::try_from(it.get::<_, i64>(0)).unwrap_or_default()))
}

fn percent(part: usize, of: usize) -> usize {
    (part * 100).div_ceil(of.max(1))
}
