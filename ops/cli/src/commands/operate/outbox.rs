use sekali_consumer::operate::outbox::{self, Outbox, PENDING_MAX};

use crate::args::{Global, OutboxCommand};
use crate::exit::{Failure, Outcome};
use crate::output::{self, seconds};

/// The relay publishes within a second: what waits for so long has nobody to publish it.
const AGE_SECONDS_MAX: f64 = 60.0;

pub(super) async fn run(global: &Global, command: &OutboxCommand) -> Result<Outcome, Failure> {
    let OutboxCommand::Status = command;
    let status = outbox::status(&super::database(global).await?).await?;
    output::show(global.output, &status, text)?;
    let stuck = (status.leader.is_none() && 0 < status.pending) || AGE_SECONDS_MAX <= status.oldest_seconds;
    Ok(if stuck { Outcome::Found } else { Outcome::Done })
}

fn text(it: &Outbox) -> String {
    let capped = if it.pending == PENDING_MAX { " or more" } else { "" };
    let leader = match &it.leader {
        Some(leader) => format!(
            "{} with fence {}, since {}, lease lasts {}",
            leader.owner,
            leader.fence,
            leader.since,
            seconds(leader.left_seconds)
        ),
        None => "nobody: start a worker, or `sekali relay`".to_owned(),
    };
    let window = match &it.cursor.window_end {
        Some(end) => format!(", window up to {end} in hand, at row {}", it.cursor.window_position),
        None => String::new(),
    };
    let due = it.next_due_at.map(|it| format!(", the first at {it}")).unwrap_or_default();
    [
        ("pending", format!("{}{capped}, the oldest for {}", it.pending, seconds(it.oldest_seconds))),
        ("delayed", format!("{}{due}", it.delayed)),
        ("leader", leader),
        ("cursor", format!("published {}{window}, moved {}", it.cursor.published, it.cursor.moved_at)),
        ("horizon", format!("the oldest open transaction has lasted {}", seconds(it.horizon_seconds))),
        ("table", format!("{} KiB, {} dead rows", it.bytes / 1024, it.dead_rows)),
        ("refused", format!("{} records that Kafka takes in no case (dead letters of consumer outbox)", it.refused)),
    ]
    .map(|(name, value)| format!("{name:<9}{value}\n"))
    .concat()
}
