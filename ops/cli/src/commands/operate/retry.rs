use sekali_consumer::IdempotencyKey;
use sekali_consumer::config::{Config, Needs};
use sekali_consumer::deadpool_postgres::Pool;
use sekali_consumer::operate::retries::{self, Filter, Retries};
use sekali_consumer::operate::{self, key_bytes};

use crate::args::{Global, RetryCommand, RetryFilter, Signed};
use crate::exit::{Failure, Outcome};
use crate::output::{self, and_more, seconds};

pub(super) async fn run(global: &Global, command: RetryCommand) -> Result<Outcome, Failure> {
    let config = super::super::load(global, Needs::Everything)?;
    let pool = operate::open(&config).await?;
    match command {
        RetryCommand::List { filter, missing, limit } => {
            let filter = Filter { missing, ..of(filter, limit)? };
            let found = retries::list(&config, &pool, &filter).await?;
            output::show(global.output, &found, text)?;
            let lost = found.missing.as_ref().is_some_and(|it| !it.is_empty());
            Ok(if lost { Outcome::Found } else { Outcome::Done })
        }
        RetryCommand::RunNow { filter, yes, limit, signed } => {
            let chosen = (filter.key.is_some(), yes);
            run_now(global, &config, &pool, &of(filter, limit)?, chosen, signed).await
        }
    }
}

async fn run_now(
    global: &Global,
    config: &Config,
    pool: &Pool,
    filter: &Filter,
    (is_one, yes): (bool, bool),
    signed: Signed,
) -> Result<Outcome, Failure> {
    let found = retries::list(config, pool, filter).await?;
    if !yes && !is_one {
        output::show(global.output, &found, text)?;
        super::dry_run("make them due now");
        return Ok(Outcome::Done);
    }
    let (done, wait) = retries::run_now(config, pool, &found.rows, &super::actor(&signed)).await?;
    output::show(global.output, &done, |done| {
        if done.is_empty() {
            return "no such message waits for an attempt\n".to_owned();
        }
        let rows = done.iter().map(|it| [it.outcome.to_owned(), it.key.clone(), it.attempt.to_string()]);
        let wait = humantime::format_duration(wait);
        output::table(["OUTCOME", "KEY", "ATTEMPT"], rows) + &format!("\nwhat is due runs within about {wait}\n")
    })?;
    let missed = done.is_empty() || 0 < found.more || done.iter().any(|it| it.outcome == "foreign");
    Ok(if missed { Outcome::Found } else { Outcome::Done })
}

fn of(filter: RetryFilter, limit: u32) -> Result<Filter, Failure> {
    let row = filter.key.map(IdempotencyKey::new).transpose();
    let row = row.map_err(|error| Failure::usage(format!("--key is no idempotency key: {error}")))?;
    Ok(Filter {
        topic: filter.topic,
        row: row.map(|it| it.uuid()),
        resource_key: filter.resource_key.as_deref().map(key_bytes),
        class: filter.class,
        limit: limit as usize,
        missing: false,
    })
}

fn text(found: &Retries) -> String {
    let rows = found.rows.iter().map(|it| {
        let due = if it.due_in_seconds < 0.0 {
            format!("{} ago", seconds(-it.due_in_seconds))
        } else {
            format!("in {}", seconds(it.due_in_seconds))
        };
        let code = if it.code.is_empty() { String::new() } else { format!(" {}", it.code) };
        [
            due,
            it.attempt.to_string(),
            it.topic.clone(),
            it.key.clone(),
            it.resource_key.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{}{code}", it.class),
            it.place.clone(),
        ]
    });
    let mut text = output::table(["DUE", "ATTEMPT", "TOPIC", "KEY", "RESOURCE KEY", "FAILED AS", "RECORD"], rows);
    text.push_str(&and_more(found.more));
    if 0 < found.stale {
        text.push_str(&format!("{} stale copies, which will be duplicates\n", found.stale));
    }
    if 0 < found.unreadable {
        text.push_str(&format!("{} records cannot be read, and will be dead letters\n", found.unreadable));
    }
    for it in found.missing.iter().flatten() {
        let (row, attempt, at) = (it.row, it.attempt, it.decided_at);
        text.push_str(&format!(
            "missing: row {row} waits for attempt {attempt} since {at}, and its record is nowhere\n"
        ));
    }
    text
}
