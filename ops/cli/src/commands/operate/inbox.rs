use sekali_consumer::IdempotencyKey;
use sekali_consumer::operate::inbox::{self, DeadLetter, InGroup, Known};

use crate::args::{Global, InboxCommand};
use crate::exit::{Failure, Outcome};
use crate::output::{self, seconds};

pub(super) async fn run(global: &Global, command: InboxCommand) -> Result<Outcome, Failure> {
    let InboxCommand::Show { key, source, group } = command;
    let key = match source {
        Some(source) => IdempotencyKey::from_cloudevent(&source, &key),
        None => IdempotencyKey::new(key),
    };
    let key = key.map_err(|error| Failure::usage(format!("this is no idempotency key: {error}")))?;
    let pool = super::database(global).await?;
    let known = inbox::show(&pool, key.uuid(), group.as_deref()).await?;
    output::show(global.output, &known, text)?;
    Ok(Outcome::Done)
}

fn text(known: &Known) -> String {
    let mut text = format!("inbox row {}\n", known.key);
    if known.groups.is_empty() {
        text.push_str("no group of this database knows it: it was never claimed, or is forgotten (inbox.retention)\n");
    }
    for group in &known.groups {
        text.push_str(&format!("\ngroup {}: {}\n", group.group, decision(group)));
        let lines = [held(group), holds(group), lease(group)];
        lines.into_iter().flatten().for_each(|it| text.push_str(&format!("  {it}\n")));
        group.dead_letters.iter().for_each(|it| text.push_str(&dead_letter(it)));
    }
    text
}

fn decision(group: &InGroup) -> String {
    let Some(it) = &group.decision else { return "no decision; only what is listed here".to_owned() };
    let means = match it.state.as_str() {
        "processed" => format!("processed at attempt {}", it.attempt),
        "retrying" => format!("attempt {} is to run next", it.attempt),
        "held" => "waits behind a failed message of its key".to_owned(),
        "dead" => format!("a dead letter after attempt {}", it.attempt),
        "discarded" => "closed by an operator".to_owned(),
        "leased" => "its effect is in progress, or its lease ran out".to_owned(),
        other => format!("state {other}, which this version does not know"),
    };
    let result = if it.has_result { ", a result is stored" } else { "" };
    let (at, age, fingerprint) = (it.decided_at, seconds(it.age_seconds), it.fingerprint);
    format!("{means}, written {at} ({age} ago){result}, fingerprint {fingerprint}")
}

fn held(group: &InGroup) -> Option<String> {
    let it = group.held.as_ref()?;
    let head = it.head.map_or("nobody".to_owned(), |it| it.to_string());
    let (key, topic, before) = (&it.resource_key, &it.topic, it.before);
    Some(format!(
        "held since {} from {}: key \"{key}\" of topic {topic} waits behind {head}, {before} come before it",
        it.since, it.origin
    ))
}

fn holds(group: &InGroup) -> Option<String> {
    let it = group.holds.as_ref()?;
    let ready = if it.ready { "; it is decided, and they may run" } else { "" };
    let (key, topic, since, messages) = (&it.resource_key, &it.topic, it.since, it.messages);
    Some(format!("holds key \"{key}\" of topic {topic} since {since}: {messages} messages wait{ready}"))
}

fn lease(group: &InGroup) -> Option<String> {
    let it = group.lease.as_ref()?;
    let left = if it.left_seconds < 0.0 { "ran out" } else { "lasts" };
    Some(format!("lease of {} with fence {} {left} ({})", it.owner, it.fence, seconds(it.left_seconds)))
}

fn dead_letter(it: &DeadLetter) -> String {
    let (id, state, reason, attempts) = (it.id, &it.state, &it.reason, it.attempts);
    let code = if it.code.is_empty() { String::new() } else { format!(" {}", it.code) };
    format!(
        "  dead letter {id}: {state}, {reason} after {attempts} attempts, from {}, last failed {}\n    {}{code}: {}\n",
        it.origin, it.last_failed_at, it.class, it.message
    )
}
