//! Sekali's own record headers: each name once, with a typed reader and writer.
//!
//! They are written by the consumer when a message goes to a retry or dead-letter topic, and replaced as a whole on
//! every hop, so that their number and size stay constant. User headers keep their bytes and order.

use uuid::Uuid;

use crate::message::Origin;
use crate::{Header, Headers, HeadersBuilder};

/// Attempt that the record asks for, decimal; 2 on the first retry topic.
pub const ATTEMPT: &str = "sekali-attempt";
/// Moment from which the record may run, milliseconds since the Unix epoch.
pub const DUE_AT: &str = "sekali-due-at";
/// Consumer group that failed, the only one that reads the retry topic.
pub const GROUP: &str = "sekali-group";
/// Topic of the first delivery.
pub const ORIGIN_TOPIC: &str = "sekali-origin-topic";
/// Partition of the first delivery.
pub const ORIGIN_PARTITION: &str = "sekali-origin-partition";
/// Offset of the first delivery.
pub const ORIGIN_OFFSET: &str = "sekali-origin-offset";
/// Kafka timestamp of the first delivery, milliseconds since the Unix epoch; absent when the record had none.
pub const ORIGIN_TIMESTAMP: &str = "sekali-origin-timestamp";
/// Moment of the first failure, milliseconds since the Unix epoch.
pub const FIRST_FAILED_AT: &str = "sekali-first-failed-at";
/// Class of the last failure.
pub const ERROR_CLASS: &str = "sekali-error-class";
/// Code of the last failure: an SQLSTATE or the handler's own.
pub const ERROR_CODE: &str = "sekali-error-code";
/// Text of the last failure, at most [`ERROR_MESSAGE_BYTES_MAX`] bytes.
pub const ERROR_MESSAGE: &str = "sekali-error-message";

/// On a retry topic, of a dead letter that is replayed: its id in `sekali.dead_letter`.
pub const REPLAY: &str = "sekali-replay";
/// Of a replay whose record does not say under which key it was decided: that key, in its 128-bit form.
pub const REPLAY_KEY: &str = "sekali-replay-key";

/// Longest error text in a header or table, in bytes.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 1024;
/// Longest error code, in bytes.
pub const ERROR_CODE_BYTES_MAX: usize = 64;
/// Largest attempt that the inbox can store.
pub const ATTEMPT_MAX: u32 = i16::MAX as u32;

const OWN: [&str; 13] = [
    ATTEMPT,
    DUE_AT,
    GROUP,
    ORIGIN_TOPIC,
    ORIGIN_PARTITION,
    ORIGIN_OFFSET,
    ORIGIN_TIMESTAMP,
    FIRST_FAILED_AT,
    ERROR_CLASS,
    ERROR_CODE,
    ERROR_MESSAGE,
    REPLAY,
    REPLAY_KEY,
];

/// The header family that share groups write (KIP-1191), so that other tools can read our dead letters.
pub mod share_group {
    /// Topic of the failed record.
    pub const TOPIC: &str = "__dlq.errors.topic";
    /// Its partition.
    pub const PARTITION: &str = "__dlq.errors.partition";
    /// Its offset.
    pub const OFFSET: &str = "__dlq.errors.offset";
    /// Group that gave up.
    pub const GROUP: &str = "__dlq.errors.group";
    /// Attempts made.
    pub const DELIVERY_COUNT: &str = "__dlq.errors.delivery.count";
    /// Text of the last failure.
    pub const MESSAGE: &str = "__dlq.errors.message";
    pub(super) const ALL: [&str; 6] = [TOPIC, PARTITION, OFFSET, GROUP, DELIVERY_COUNT, MESSAGE];
}

/// What failed last, in bounded and cleaned text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorInfo {
    /// A word of a bounded set, see the consumer's `FailureClass`.
    pub class: String,
    /// SQLSTATE or the handler's own code; may be empty.
    pub code: String,
    /// Text without payload, secrets or row data.
    pub message: String,
}

impl ErrorInfo {
    /// Cleans and cuts the texts: no NUL or other control character, at most the stated bytes, cut between characters.
    pub fn new(class: &str, code: &str, message: &str) -> ErrorInfo {
        ErrorInfo {
            class: clean(class, ERROR_CODE_BYTES_MAX),
            code: clean(code, ERROR_CODE_BYTES_MAX),
            message: clean(message, ERROR_MESSAGE_BYTES_MAX),
        }
    }
}

/// Text that PostgreSQL and a header can hold: control characters become spaces, the end is cut between characters.
pub fn clean(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// Everything that travels with a failed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Attempt that the record asks for (retry topic) or attempts made (dead letter). At least 1.
    pub attempt: u32,
    /// Moment from which the record may run, ms since the Unix epoch; `None` on a dead letter.
    pub due_at_ms: Option<i64>,
    /// Consumer group that failed.
    pub group: String,
    /// Where the message was first delivered.
    pub origin: Origin,
    /// First failure, ms since the Unix epoch.
    pub first_failed_at_ms: i64,
    /// Last failure.
    pub error: ErrorInfo,
    /// The dead letter that is replayed; `None` for a message that was never one.
    pub replay: Option<Replay>,
}

/// A dead letter on its way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Its id in `sekali.dead_letter`.
    pub letter: Uuid,
    /// Key of its inbox row, when the record does not give it: of an invalid record, a reused key, an edited payload.
    pub key: Option<Uuid>,
}

impl Control {
    /// The headers of a record that goes to a retry topic: the user's, then ours.
    pub fn onto(&self, user: &Headers) -> Headers {
        let mut builder = copy_user(user, false);
        self.write(&mut builder);
        if let Some(replay) = self.replay {
            push(&mut builder, REPLAY, &replay.letter.to_string());
            if let Some(key) = replay.key {
                push(&mut builder, REPLAY_KEY, &key.to_string());
            }
        }
        builder.build()
    }

    /// The headers of a record that goes to a dead-letter topic: the user's, ours, and the share-group family.
    pub fn onto_dead_letter(&self, user: &Headers) -> Headers {
        let mut builder = copy_user(user, true);
        self.write(&mut builder);
        push(&mut builder, share_group::TOPIC, &self.origin.topic);
        push(&mut builder, share_group::PARTITION, &self.origin.partition.to_string());
        push(&mut builder, share_group::OFFSET, &self.origin.offset.to_string());
        push(&mut builder, share_group::GROUP, &self.group);
        push(&mut builder, share_group::DELIVERY_COUNT, &self.attempt.to_string());
        push(&mut builder, share_group::MESSAGE, &self.error.message);
        builder.build()
    }

    fn write(&self, builder: &mut HeadersBuilder) {
        push(builder, ATTEMPT, &self.attempt.to_string());
        if let Some(due_at_ms) = self.due_at_ms {
            push(builder, DUE_AT, &due_at_ms.to_string());
        }
        push(builder, GROUP, &self.group);
        push(builder, ORIGIN_TOPIC, &self.origin.topic);
        push(builder, ORIGIN_PARTITION, &self.origin.partition.to_string());
        push(builder, ORIGIN_OFFSET, &self.origin.offset.to_string());
        if let Some(timestamp_ms) = self.origin.timestamp_ms {
            push(builder, ORIGIN_TIMESTAMP, &timestamp_ms.to_string());
        }
        push(builder, FIRST_FAILED_AT, &self.first_failed_at_ms.to_string());
        push(builder, ERROR_CLASS, &self.error.class);
        push(builder, ERROR_CODE, &self.error.code);
        push(builder, ERROR_MESSAGE, &self.error.message);
    }

    /// Reads the headers of a record from a retry topic.
    ///
    /// # Errors
    /// Names the header that is absent, unreadable, out of range, or there twice with different values. Nothing
    /// defaults: a counter that cannot be read must not start again at zero.
    pub fn read(headers: &Headers) -> Result<Control, ControlError> {
        let attempt = number::<u32>(headers, ATTEMPT)?;
        if !(1..=ATTEMPT_MAX).contains(&attempt) {
            return Err(ControlError { header: ATTEMPT, problem: "out of range" });
        }
        let origin = Origin {
            topic: required(headers, ORIGIN_TOPIC)?.into(),
            partition: number(headers, ORIGIN_PARTITION)?,
            offset: number(headers, ORIGIN_OFFSET)?,
            timestamp_ms: optional(headers, ORIGIN_TIMESTAMP)?.map(|it| parse(it, ORIGIN_TIMESTAMP)).transpose()?,
        };
        Ok(Control {
            attempt,
            due_at_ms: optional(headers, DUE_AT)?.map(|it| parse(it, DUE_AT)).transpose()?,
            group: required(headers, GROUP)?.to_owned(),
            origin,
            first_failed_at_ms: number(headers, FIRST_FAILED_AT)?,
            error: ErrorInfo::new(
                headers.text(ERROR_CLASS).unwrap_or_default(),
                headers.text(ERROR_CODE).unwrap_or_default(),
                headers.text(ERROR_MESSAGE).unwrap_or_default(),
            ),
            replay: replay(headers)?,
        })
    }
}

fn replay(headers: &Headers) -> Result<Option<Replay>, ControlError> {
    let uuid = |name| {
        let read = |it: &str| Uuid::try_parse(it).map_err(|_| ControlError { header: name, problem: "not a UUID" });
        optional(headers, name)?.map(read).transpose()
    };
    let key = uuid(REPLAY_KEY)?;
    Ok(uuid(REPLAY)?.map(|letter| Replay { letter, key }))
}

/// The user's headers: all but those that Sekali writes.
pub fn user_headers(headers: &Headers) -> Headers {
    copy_user(headers, false).build()
}

fn copy_user(headers: &Headers, without_share_group: bool) -> HeadersBuilder {
    let mut builder = Headers::builder();
    for Header { name, value } in headers.iter() {
        let own = OWN.contains(&name) || (without_share_group && share_group::ALL.contains(&name));
        if !own {
            builder.push(name, value);
        }
    }
    builder
}

fn push(builder: &mut HeadersBuilder, name: &str, value: &str) {
    builder.push(name, Some(value.as_bytes()));
}

/// An own header that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("header {header} is {problem}")]
pub struct ControlError {
    /// Its name.
    pub header: &'static str,
    /// What is wrong with it; never its value.
    pub problem: &'static str,
}

fn optional<'a>(headers: &'a Headers, name: &'static str) -> Result<Option<&'a str>, ControlError> {
    let mut found: Option<&[u8]> = None;
    for value in headers.values(name) {
        let value = value.ok_or(ControlError { header: name, problem: "null" })?;
        if found.is_some_and(|it| it != value) {
            return Err(ControlError { header: name, problem: "given twice with different values" });
        }
        found = Some(value);
    }
    let text = found.map(|it| std::str::from_utf8(it).map_err(|_| ControlError { header: name, problem: "not UTF-8" }));
    text.transpose()
}

fn required<'a>(headers: &'a Headers, name: &'static str) -> Result<&'a str, ControlError> {
    optional(headers, name)?.ok_or(ControlError { header: name, problem: "absent" })
}

fn number<T: std::str::FromStr>(headers: &Headers, name: &'static str) -> Result<T, ControlError> {
    parse(required(headers, name)?, name)
}

fn parse<T: std::str::FromStr>(text: &str, name: &'static str) -> Result<T, ControlError> {
    text.parse().map_err(|_| ControlError { header: name, problem: "not a number in range" })
}

#[cfg(test)]
mod tests;
