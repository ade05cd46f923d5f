use sekali_consumer::core::hold::Release;
use sekali_consumer::operate::held::{self, Filter, Held, Released};
use sekali_consumer::operate::{Listed, key_bytes};

use crate::args::{Global, HeldCommand, HeldFilter};
use crate::exit::{Failure, Outcome};
use crate::output::{self, and_more, seconds};

pub(super) async fn run(global: &Global, command: HeldCommand) -> Result<Outcome, Failure> {
    match command {
        HeldCommand::List { filter, limit } => {
            let pool = super::database(global).await?;
            let listed = held::list(&pool, &of(filter), limit.into()).await?;
            output::show(global.output, &listed, text)?;
            Ok(Outcome::Done)
        }
        HeldCommand::Release { filter, break_order, yes, limit, signed } => {
            let names_key = filter.key.is_some();
            if !names_key && filter.topic.is_none() && filter.group.is_none() && filter.older_than.is_none() {
                return Err(Failure::usage("name what to release: --key, --topic, --group or --older-than"));
            }
            let pool = super::database(global).await?;
            let listed = held::list(&pool, &of(filter), limit.into()).await?;
            let is_one = names_key && listed.rows.len() <= 1;
            if !yes && !is_one {
                output::show(global.output, &listed, |it| text(it) + &plan(&it.rows, break_order))?;
                super::dry_run("release them");
                return Ok(Outcome::Done);
            }
            let released = held::release(&pool, &listed.rows, break_order, &super::actor(&signed)).await?;
            output::show(global.output, &released, |it| outcomes(it))?;
            let refused = released.iter().any(|it| it.outcome == "refused");
            Ok(if refused || released.is_empty() || 0 < listed.more { Outcome::Found } else { Outcome::Done })
        }
    }
}

fn of(filter: HeldFilter) -> Filter {
    Filter {
        group: filter.group,
        topic: filter.topic,
        key: filter.key.as_deref().map(key_bytes),
        age_seconds_min: filter.older_than.map(|it| it.as_secs_f64()),
    }
}

fn text(listed: &Listed<Held>) -> String {
    let rows = listed.rows.iter().map(|it| {
        let head = match (it.head_state, it.head_attempt) {
            (Some(state @ "retrying"), Some(attempt)) => format!("{state} ({attempt})"),
            (Some("dead"), _) if !it.dead_letter_open => "dead, closed".to_owned(),
            (Some(state), _) => state.to_owned(),
            (None, _) => "-".to_owned(),
        };
        [
            it.group.clone(),
            it.topic.clone(),
            it.key.clone(),
            it.messages.to_string(),
            seconds(it.age_seconds),
            head,
            if it.ready { "ready".to_owned() } else { String::new() },
            it.head.to_string(),
        ]
    });
    output::table(["GROUP", "TOPIC", "KEY", "WAITING", "AGE", "HEAD", "", "ROW OF THE HEAD"], rows)
        + &and_more(listed.more)
}

/// What a release would do.
fn plan(rows: &[Held], break_order: bool) -> String {
    let overtaking = rows.iter().filter(|it| matches!(it.verdict(), Release::Overtakes(_))).count();
    let (released, messages) = (rows.len() - overtaking, rows.iter().map(|it| it.messages).sum::<i64>());
    match (overtaking, break_order) {
        (0, _) => format!("\n{released} keys with {messages} messages would be released\n"),
        (_, true) => format!(
            "\n{} keys with {messages} messages would be released, {overtaking} of them before their heads\n",
            rows.len()
        ),
        (_, false) => format!(
            "\n{released} keys would be released, {overtaking} refused: their heads could still come (--break-order)\n"
        ),
    }
}

fn outcomes(released: &[Released]) -> String {
    if released.is_empty() {
        return "no such key is held\n".to_owned();
    }
    let line = |it: &Released| {
        let Released { group, topic, key, outcome, because, .. } = it;
        format!("{outcome}: key \"{key}\" of topic {topic} in group {group}: {because}\n")
    };
    released.iter().map(line).collect()
}
