//! Points 2, 3, 5 and 10: what the database and the topics say.

use std::collections::BTreeMap;
use std::time::Duration;

use deadpool_postgres::Pool;
use sekali_producer::{Error, ErrorKind, SqlError};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::retention::outlived;
use super::super::topics::Found;
use super::Findings;
use crate::admin;
use crate::config::Config;

pub(super) async fn rows(
    pool: &Pool,
    doing: &str,
    sql: &str,
    params: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Error> {
    let client = admin::connect(pool).await?;
    let failed = |error: tokio_postgres::Error| Error::new(ErrorKind::Postgres, doing).because(SqlError::of(&error));
    client.query_typed(sql, params).await.map_err(failed)
}

/// A count for the group.
pub(super) async fn number(pool: &Pool, config: &Config, doing: &str, sql: &str) -> Result<i64, Error> {
    let found = rows(pool, doing, sql, &[(&config.consumer_name(), Type::TEXT)]).await?;
    Ok(found.first().map_or(0, |it| it.get(0)))
}

/// Point 2: decisions survive a crash of the server.
pub(super) async fn durable(pool: &Pool, findings: &mut Findings) {
    const SQL: &str = "SELECT coalesce((SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class \
           WHERE relnamespace = 'sekali'::regnamespace AND relkind IN ('r', 'p') AND relpersistence <> 'p'), ''), \
         (SELECT string_agg(name, ', ' ORDER BY name) FROM pg_settings WHERE setting = 'off' \
           AND name IN ('fsync', 'full_page_writes', 'synchronous_commit')), \
         (SELECT count(*) FROM pg_class WHERE relnamespace = 'sekali'::regnamespace AND relkind IN ('r', 'p'))";
    let found = match rows(pool, "read how durable the tables are", SQL, &[]).await {
        Ok(found) => found,
        Err(error) => return findings.error(&error),
    };
    let Some(row) = found.first() else { return };
    match row.get::<_, &str>(0) {
        "" => findings.ok(format!("all {} tables of schema sekali are logged", row.get::<_, i64>(2))),
        unlogged => findings.fail(
            format!("unlogged: {unlogged}: a crash of the server empties them"),
            "ALTER TABLE sekali.<table> SET LOGGED",
        ),
    }
    match row.get::<_, Option<&str>>(1) {
        None => findings.ok("commits are on disk before offsets are"),
        Some(off) => findings.fail(
            format!("off: {off}: after a crash decisions are lost whose offsets were committed"),
            "switch it on for the database and the role of the workers",
        ),
    }
}

/// Point 2: decisions outlive what Kafka may deliver again.
pub(super) fn retention(config: &Config, found: &BTreeMap<String, Found>, findings: &mut Findings) {
    match outlived(config, found) {
        Err(error) => findings.error(&error),
        Ok(Some(it)) => findings.fail(it.finding, it.remedy),
        Ok(None) => {
            let kept =
                config.inbox.retention.map_or("for ever".to_owned(), |it| humantime::format_duration(it).to_string());
            findings.ok(format!("decisions are kept {kept}, longer than topics and retries"));
        }
    }
}

/// Fewer failures say nothing about how they are classified.
const FAILURES_MIN: i64 = 20;

/// Point 3.
pub(super) async fn classes(config: &Config, pool: &Pool, findings: &mut Findings) {
    const SQL: &str = "SELECT class, code, count(*) FROM sekali.dead_letter JOIN sekali.consumer ON consumer.id = consumer_id \
         WHERE consumer.name = $1 AND last_failed_at > now() - interval '30 days' GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2";
    let found = match rows(pool, "count dead letters by class", SQL, &[(&config.consumer_name(), Type::TEXT)]).await {
        Ok(found) => found,
        Err(error) => return findings.error(&error),
    };
    let counts: Vec<(String, String, i64)> = found.iter().map(|it| (it.get(0), it.get(1), it.get(2))).collect();
    judge_classes(&counts, findings);
}

/// Class, code and number of dead letters. Whatever was tried until its attempts were spent, and was never called
/// permanent, was tried in vain.
pub(super) fn judge_classes(counts: &[(String, String, i64)], findings: &mut Findings) {
    let total: i64 = counts.iter().map(|it| it.2).sum();
    if total == 0 {
        return findings.ok("no dead letter in 30 days");
    }
    let (mut classes, mut codes) = (BTreeMap::<&str, i64>::new(), BTreeMap::<&str, (i64, i64)>::new());
    for (class, code, count) in counts {
        *classes.entry(class).or_default() += count;
        let (all, transient) = codes.entry(code).or_default();
        *all += count;
        *transient += if class == "transient" { *count } else { 0 };
    }
    let mut shares: Vec<_> = classes.iter().collect();
    shares.sort_by_key(|it| std::cmp::Reverse(it.1));
    let shares: Vec<String> =
        shares.iter().map(|(class, count)| format!("{class} {} %", (**count * 100 + total / 2) / total)).collect();
    findings.ok(format!("of {total} dead letters in 30 days: {}", shares.join(", ")));
    for (code, (all, _)) in codes.iter().filter(|(_, (all, transient))| FAILURES_MIN <= *all && all == transient) {
        let code = if code.is_empty() { "without a code".to_owned() } else { format!("of code {code}") };
        findings.warn(
            format!("all {all} {code} are transient, and no attempt changed anything"),
            "answer Failure::permanent for what no attempt will change, so that it is not retried in vain",
        );
    }
}

/// Point 4: retry topics keep what is not due yet, and no message got more attempts than there are.
pub(super) async fn bounded(config: &Config, pool: &Pool, found: &BTreeMap<String, Found>, findings: &mut Findings) {
    let topics = match config.group_topics() {
        Ok(topics) => topics.topics,
        Err(error) => return findings.error(&Error::new(ErrorKind::Config, "name the topics").because(error)),
    };
    let tiers = || topics.iter().flat_map(|it| &it.retry);
    let missing: Vec<&str> = tiers().map(|it| it.1.as_str()).filter(|it| !found.contains_key(*it)).collect();
    if !missing.is_empty() {
        findings.fail(format!("missing: {}", missing.join(", ")), "run `sekali topics apply`");
    }
    for (delay, name) in tiers() {
        let Some(kept) = found.get(name).and_then(Found::retention) else { continue };
        let longest = delay.mul_f64(1.0 + config.retry.jitter);
        if kept <= longest {
            let (kept, longest) = (for_people(kept.as_secs_f64()), for_people(longest.as_secs_f64()));
            findings.fail(
                format!("{name} keeps records {kept}, and they wait up to {longest}: Kafka deletes them before"),
                "raise the topic's retention.ms: `sekali topics plan`",
            );
        }
    }
    const SQL: &str = "SELECT count(*), coalesce(max(attempts), 0)::bigint FROM sekali.dead_letter \
         JOIN sekali.consumer ON consumer.id = consumer_id WHERE consumer.name = $1 AND reason = 'exhausted' \
         AND replays = 0 AND attempts > $2 AND last_failed_at > now() - interval '30 days'";
    let of = [(&config.consumer_name() as _, Type::TEXT), (&i32::from(config.max_attempts()) as _, Type::INT4)];
    match rows(pool, "look for messages with too many attempts", SQL, &of).await {
        Err(error) => findings.error(&error),
        Ok(found) => match found.first().map_or((0, 0), |it| (it.get::<_, i64>(0), it.get::<_, i64>(1))) {
            (0, _) => findings.ok("no message got more attempts in 30 days"),
            (count, most) => findings.warn(
                format!("{count} messages got up to {most} attempts in 30 days"),
                "a worker has another retry.max_attempts, or had: compare `sekali config print`",
            ),
        },
    }
}

/// Point 5: the topics are there, and keep records for longer than dead letters wait.
pub(super) async fn dead_letter_topics(
    config: &Config,
    pool: &Pool,
    found: &BTreeMap<String, Found>,
    findings: &mut Findings,
) {
    let topics = match config.group_topics() {
        Ok(topics) => topics.topics,
        Err(error) => return findings.error(&Error::new(ErrorKind::Config, "name the topics").because(error)),
    };
    const OLDEST: &str = "SELECT origin_topic, extract(epoch FROM now() - min(last_failed_at))::float8 FROM sekali.dead_letter \
         JOIN sekali.consumer ON consumer.id = consumer_id WHERE consumer.name = $1 AND state = 'open' GROUP BY 1";
    let oldest =
        match rows(pool, "read the age of dead letters", OLDEST, &[(&config.consumer_name(), Type::TEXT)]).await {
            Ok(found) => found.iter().map(|it| (it.get(0), it.get(1))).collect::<BTreeMap<String, f64>>(),
            Err(error) => return findings.error(&error),
        };
    let missing: Vec<&str> = topics.iter().map(|it| it.dlq.as_str()).filter(|it| !found.contains_key(*it)).collect();
    if missing.is_empty() {
        findings.ok(format!("{} dead-letter topics and the table are there", topics.len()));
    } else {
        findings.fail(format!("missing: {}", missing.join(", ")), "run `sekali topics apply`");
    }
    for topic in &topics {
        let kept = found.get(&topic.dlq).and_then(Found::retention).map(|it| it.as_secs_f64());
        let (Some(kept), Some(age)) = (kept, oldest.get(&topic.source)) else { continue };
        let (kept_text, age_text) = (for_people(kept), for_people(*age));
        let figure =
            format!("{} keeps records {kept_text}, and its oldest open dead letter is {age_text} old", topic.dlq);
        if kept <= *age {
            findings.fail(figure, "act on it (the table still has it), and raise topics.dlq_retention");
        } else if kept < *age * 1.25 {
            findings.warn(figure, "act on it before the topic forgets it");
        }
    }
}

fn for_people(seconds: f64) -> String {
    humantime::format_duration(Duration::from_secs(seconds.max(0.0) as u64)).to_string()
}

/// A dead letter that nobody has looked at for so long is in a graveyard.
const IGNORED_SECONDS: f64 = 7.0 * 86_400.0;

/// Point 5: somebody acts on dead letters.
pub(super) async fn acted_on(config: &Config, pool: &Pool, findings: &mut Findings) {
    const SQL: &str = "SELECT count(*) FILTER (WHERE state = 'open'), count(*) FILTER (WHERE state <> 'open'), \
         coalesce(extract(epoch FROM now() - min(last_failed_at) FILTER (WHERE state = 'open')), 0)::float8 \
         FROM sekali.dead_letter JOIN sekali.consumer ON consumer.id = consumer_id WHERE consumer.name = $1";
    let found = match rows(pool, "count the dead letters", SQL, &[(&config.consumer_name(), Type::TEXT)]).await {
        Ok(found) => found,
        Err(error) => return findings.error(&error),
    };
    let Some(row) = found.first() else { return };
    let (open, closed, age): (i64, i64, f64) = (row.get(0), row.get(1), row.get(2));
    let figure = format!("{open} open, {closed} replayed or closed");
    if IGNORED_SECONDS < age {
        findings.warn(
            format!("{figure}, the oldest open one waits for {}", for_people(age)),
            "replay or discard it; alarm on sekali_dlq_oldest_message_age_seconds",
        );
    } else if 0 < open && closed == 0 {
        findings.warn(format!("{figure}: nobody has acted on one yet"), "replay or discard one, to know that you can");
    } else {
        findings.ok(figure);
    }
}

/// A drill says something for so long.
const DRILL_DAYS: f64 = 90.0;
const RUN_ONE: &str = "run `sekali drill` on a staging deployment of the same version";

/// Point 10.
pub(super) async fn drill(config: &Config, pool: &Pool, findings: &mut Findings) {
    const SQL: &str = "SELECT outcome, events, decided, kills, finding, started_at, \
         extract(epoch FROM now() - started_at)::float8 / 86400 FROM sekali.drill \
         JOIN sekali.consumer ON consumer.id = consumer_id WHERE consumer.name = $1 ORDER BY started_at DESC LIMIT 1";
    let found = match rows(pool, "read the last drill", SQL, &[(&config.consumer_name(), Type::TEXT)]).await {
        Ok(found) => found,
        Err(error) => return findings.error(&error),
    };
    let Some(row) = found.first() else { return findings.warn("none was run", RUN_ONE) };
    let (outcome, finding): (&str, &str) = (row.get(0), row.get(4));
    let (events, decided, kills): (i32, i32, i32) = (row.get(1), row.get(2), row.get(3));
    let (at, days): (jiff::Timestamp, f64) = (row.get(5), row.get(6));
    let figure = format!("{at}: {outcome}, {decided} of {events} events decided, {kills} kills");
    match outcome {
        "passed" if days <= DRILL_DAYS => findings.ok(figure),
        "passed" => findings.warn(format!("{figure}, more than {DRILL_DAYS:.0} days ago"), RUN_ONE),
        "failed" => findings.fail(format!("{figure}: {finding}"), "find out why, and run `sekali drill` again"),
        _ => findings.warn(format!("{figure}: it has not ended"), RUN_ONE),
    }
}
