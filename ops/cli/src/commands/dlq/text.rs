//! Results for people.

use sekali_consumer::operate::{Act, AuditRow, DeadLetter, Group, Operation, Page, Preview, Shown};

use crate::output::table;

/// Bytes of a payload that are shown.
const PAYLOAD_SHOWN_MAX: usize = 64 * 1024;
const DUMP_WIDTH: usize = 16;
/// Letters of a text in a column.
const COLUMN_MAX: usize = 72;

pub(super) fn groups(groups: &[Group]) -> String {
    let row = |it: &Group| {
        let failure = if it.code.is_empty() { it.class.clone() } else { format!("{} {}", it.class, it.code) };
        [
            it.id.clone(),
            it.letters.to_string(),
            it.consumer.clone(),
            failure,
            seconds(it.oldest_at),
            seconds(it.newest_at),
            short(&it.cause),
        ]
    };
    let text = table(["GROUP", "LETTERS", "CONSUMER", "FAILURE", "OLDEST", "NEWEST", "CAUSE"], groups.iter().map(row));
    let total: u64 = groups.iter().map(|it| it.letters).sum();
    format!("{text}\n{total} dead letters of {} causes\n", groups.len())
}

pub(super) fn page(page: &Page) -> String {
    let mut text = letters(&page.letters);
    if let Some(next) = page.next {
        text.push_str(&format!("\nmore: --before {next}\n"));
    }
    text
}

fn letters(letters: &[DeadLetter]) -> String {
    let row = |it: &DeadLetter| {
        [
            it.id.to_string(),
            it.state.clone(),
            seconds(it.last_failed_at),
            place(it),
            it.resource_key.as_deref().map_or_else(|| "-".to_owned(), short),
            it.attempts.to_string(),
            it.replays.to_string(),
            it.class.clone(),
            short(&it.message),
        ]
    };
    let headings = ["ID", "STATE", "FAILED", "PLACE", "KEY", "ATTEMPTS", "REPLAYS", "CLASS", "MESSAGE"];
    table(headings, letters.iter().map(row))
}

pub(super) fn shown(shown: &Shown) -> String {
    let it = &shown.letter;
    let or = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), clean);
    let mut lines = vec![
        ("id", it.id.to_string()),
        ("state", it.state.clone()),
        ("consumer", it.consumer.clone()),
        ("group", format!("{}  {}", it.group, clean(&shown.cause))),
        ("reason", it.reason.clone()),
        ("failure", format!("{} {} {}", it.class, clean(&it.code), clean(&it.message))),
        ("attempts", format!("{}, replayed {} times", it.attempts, it.replays)),
        ("failed", format!("{} to {}", seconds(it.first_failed_at), seconds(it.last_failed_at))),
        ("place", place(it)),
        ("record key", or(&it.resource_key)),
        ("identity", format!("{}  {}", or(&it.key_text), it.key)),
    ];
    lines.push(match &shown.inbox {
        Some(row) => ("inbox", format!("{}, attempt {}, {}", row.state, row.attempt, seconds(row.decided_at))),
        None => ("inbox", "nothing is remembered".to_owned()),
    });
    if let Some(held) = &shown.holds {
        lines.push(("holds", format!("{} messages wait behind it since {}", held.messages, seconds(held.since))));
    }
    lines.extend(it.edited_from.map(|it| ("edited from", it.to_string())));
    lines.extend(shown.edits.iter().map(|it| ("edited as", it.to_string())));
    let mut text: String = lines.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect();
    text.push_str("\nheaders\n");
    for header in &shown.headers {
        let value =
            header.value.as_deref().map_or_else(|| "(null)".to_owned(), |it| clean(&String::from_utf8_lossy(it)));
        text.push_str(&format!("  {}: {value}\n", clean(&header.name)));
    }
    text.push_str("\npayload\n");
    text.push_str(&shown.payload.as_deref().map_or_else(|| "  (null)\n".to_owned(), payload));
    text.push_str("\nattempts\n");
    let row = |it: &sekali_consumer::operate::Attempt| {
        [
            format!("  {}", it.attempt),
            seconds(it.at),
            it.class.clone(),
            clean(&it.code),
            it.worker.clone(),
            short(&it.cause),
        ]
    };
    text.push_str(&table(["  NR", "AT", "CLASS", "CODE", "WORKER", "CAUSE"], shown.timeline.iter().map(row)));
    text.push_str("\naudit\n");
    text.push_str(&audit(&shown.audit));
    text
}

/// JSON indented, other text as it is, anything else as hexadecimal digits.
fn payload(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(PAYLOAD_SHOWN_MAX)];
    let pretty = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let mut text = match (pretty, std::str::from_utf8(cut)) {
        (Some(json), _) if cut.len() == bytes.len() => format!("{json:#}"),
        (_, Ok(text)) if !text.contains(|it: char| it.is_control() && !it.is_whitespace()) => text.to_owned(),
        _ => dump(cut),
    };
    if cut.len() < bytes.len() {
        text.push_str(&format!("\n... {} bytes more: `-o json` has all of them", bytes.len() - cut.len()));
    }
    text + "\n"
}

fn dump(bytes: &[u8]) -> String {
    let line = |(nr, part): (usize, &[u8])| {
        let digits: Vec<String> = part.iter().map(|it| format!("{it:02x}")).collect();
        let letters: String =
            part.iter().map(|it| if it.is_ascii_graphic() || *it == b' ' { char::from(*it) } else { '.' }).collect();
        format!("{:08x}  {:<47}  {letters}", nr * DUMP_WIDTH, digits.join(" "))
    };
    let lines: Vec<String> = bytes.chunks(DUMP_WIDTH).enumerate().map(line).collect();
    lines.join("\n")
}

pub(super) fn preview(act: Act, preview: &Preview) -> String {
    let mut text = letters(&preview.sample);
    let act = act.as_str();
    text.push_str(&format!(
        "\n{} dead letters would be subject to {act}; above, the newest of them\n",
        preview.letters
    ));
    if 0 < preview.keys_at_risk {
        let some: Vec<String> = preview.at_risk.iter().map(|it| format!("{} {}", it.0, short(&it.1))).collect();
        text.push_str(&format!(
            "order at risk: of {} keys later messages may have taken effect since ({})\n",
            preview.keys_at_risk,
            some.join(", ")
        ));
    }
    if 0 < preview.over_cap {
        text.push_str(&format!("{} were replayed as often as allowed and take --force\n", preview.over_cap));
    }
    if 0 < preview.without_route {
        text.push_str(&format!("{} have no retry topic to go to\n", preview.without_route));
    }
    text.push_str(&format!("nothing was changed: add --yes --count {}\n", preview.letters));
    text
}

pub(super) fn operation(operation: &Operation) -> String {
    let mut text = operations(std::slice::from_ref(operation));
    let outcomes = operation.outcomes.iter().map(|it| [it.0.clone(), it.1.to_string()]);
    text.push('\n');
    text.push_str(&table(["OUTCOME", "LETTERS"], outcomes));
    text
}

pub(super) fn operations(operations: &[Operation]) -> String {
    let row = |it: &Operation| {
        [
            it.id.to_string(),
            it.kind.clone(),
            it.state.clone(),
            format!("{} of {}", it.done, it.letters),
            seconds(it.begun_at),
            it.ended_at.map_or_else(|| "-".to_owned(), seconds),
            it.who.clone(),
            short(&it.reason),
        ]
    };
    let headings = ["OPERATION", "KIND", "STATE", "DONE", "BEGUN", "ENDED", "WHO", "REASON"];
    table(headings, operations.iter().map(row))
}

pub(super) fn audit(rows: &[AuditRow]) -> String {
    let or = |it: Option<String>| it.unwrap_or_else(|| "-".to_owned());
    let row = |it: &AuditRow| {
        [
            seconds(it.at),
            clean(&it.who),
            it.action.clone(),
            it.outcome.clone(),
            or(it.dead_letter.map(|it| it.to_string())),
            or(it.operation.map(|it| it.to_string())),
            short(&it.reason),
        ]
    };
    table(["AT", "WHO", "ACTION", "OUTCOME", "DEAD LETTER", "OPERATION", "REASON"], rows.iter().map(row))
}

fn place(it: &DeadLetter) -> String {
    format!("{}/{}/{}", it.topic, it.partition, it.offset)
}

fn seconds(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Text of a message does not move the cursor of a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

fn short(text: &str) -> String {
    let cut: String = clean(text).chars().take(COLUMN_MAX).collect();
    if text.chars().nth(COLUMN_MAX).is_some() { cut + "..." } else { cut }
}
