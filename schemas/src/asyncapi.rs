//! The contract as an AsyncAPI 3.0 document: topics, headers, and the payload of each event type.

use crate::cloudevents as ce;
use crate::control;
use crate::control::share_group as dlq;
use crate::events::{self, EventSchema};
use crate::idempotency::{IDEMPOTENCY_KEY, TEXT_BYTES_MAX};
use crate::topics::{DLQ_TEMPLATE, RETRY_TEMPLATE};
use crate::yaml::Yaml;

/// Media type of JSON Schema 2020-12 in AsyncAPI.
const SCHEMA_FORMAT: &str = "application/schema+json;version=draft-2020-12";

const ABOUT: &str = "What Sekali writes and reads on Kafka. Events are CloudEvents 1.0 in binary mode. Where a schema \
registry is configured, payloads of source, retry and dead-letter topics begin with byte 0 and the id of their schema \
(four bytes, big-endian). Retry and dead-letter records carry key, payload and headers of the event byte for byte, and \
the headers below after them.";

/// A header: name, description, whether it must be there.
type Row = (&'static str, &'static str, bool);

const EVENT_HEADERS: [Row; 10] = [
    (IDEMPOTENCY_KEY, "Identity of the business action; without it, that of the CloudEvent.", false),
    (ce::CE_SPECVERSION, "Version of CloudEvents, 1.0.", true),
    (ce::CE_ID, "Identity of the event within its source.", true),
    (ce::CE_SOURCE, "Who says it, a URI reference.", true),
    (ce::CE_TYPE, "Type of the event; it names the schema of the payload.", true),
    (ce::CE_TIME, "When it happened, RFC 3339.", false),
    (ce::CE_SUBJECT, "What it is about: the Kafka key as text.", false),
    (ce::CE_DATASCHEMA, "The schema's $id; without it, the first version of the type.", false),
    (ce::CONTENT_TYPE, "Media type of the payload.", false),
    ("traceparent", "Trace context of the W3C, carried through every hop.", false),
];

const FAILURE_HEADERS: [Row; 13] = [
    (
        control::ATTEMPT,
        "Retry topic: the attempt that the record asks for, 2 on the first. Dead letter: attempts made.",
        true,
    ),
    (control::DUE_AT, "Retry topic only: moment from which it may run, milliseconds since the Unix epoch.", false),
    (control::GROUP, "The consumer group that failed; only this one reads the record.", true),
    (control::ORIGIN_TOPIC, "Topic of the first delivery.", true),
    (control::ORIGIN_PARTITION, "Partition of the first delivery.", true),
    (control::ORIGIN_OFFSET, "Offset of the first delivery.", true),
    (control::ORIGIN_TIMESTAMP, "Kafka timestamp of the first delivery, milliseconds since the Unix epoch.", false),
    (control::FIRST_FAILED_AT, "Moment of the first failure, milliseconds since the Unix epoch.", true),
    (control::ERROR_CLASS, "Class of the last failure.", true),
    (control::ERROR_CODE, "Code of the last failure.", true),
    (control::ERROR_MESSAGE, "Text of the last failure; never a payload.", true),
    (control::REPLAY, "Retry topic only: id of the dead letter that an operator replays.", false),
    (
        control::REPLAY_KEY,
        "Of such a record, when it does not say itself under which key it was decided: that key.",
        false,
    ),
];

const DEAD_LETTER_HEADERS: [Row; 6] = [
    (dlq::TOPIC, "As the origin topic, for tools that know the headers of share groups (KIP-1191).", true),
    (dlq::PARTITION, "As the origin partition.", true),
    (dlq::OFFSET, "As the origin offset.", true),
    (dlq::GROUP, "The group that gave up.", true),
    (dlq::DELIVERY_COUNT, "Attempts made.", true),
    (dlq::MESSAGE, "Text of the last failure.", true),
];

/// The document as YAML. It refers to the schemas in directory `json` beside it.
pub fn document() -> String {
    let document = Yaml::map([
        ("asyncapi", text("3.0.0")),
        (
            "info",
            Yaml::map([
                ("title", text("Sekali")),
                ("version", text(env!("CARGO_PKG_VERSION"))),
                ("description", text(ABOUT)),
            ]),
        ),
        ("defaultContentType", text("application/json")),
        ("channels", channels()),
        ("operations", operations()),
        ("components", Yaml::map([("messages", messages()), ("schemas", schemas())])),
    ]);
    format!("# Written by `sekali schemas asyncapi`.\n{}", document.write())
}

fn channels() -> Yaml {
    let topic = ("topic", "Name of the source topic, as its producers choose it.");
    let group = ("group", "The consumer group.");
    let delay = ("delay", "Delay of this retry topic, for instance 2s or 5m.");
    Yaml::map([
        ("events", channel("{topic}", "A source topic: one or more event types, keyed by the resource.", &[topic], "")),
        (
            "retry",
            channel(
                RETRY_TEMPLATE,
                "Failed messages of one group that wait for their next attempt.",
                &[topic, group, delay],
                "Retry",
            ),
        ),
        ("deadLetters", channel(DLQ_TEMPLATE, "Messages that one group has given up.", &[topic, group], "Dead")),
    ])
}

fn channel(address: &str, about: &str, parameters: &[(&str, &str)], suffix: &str) -> Yaml {
    let parameter = |(name, about): &(&str, &str)| ((*name).to_owned(), Yaml::map([("description", text(*about))]));
    let message = |it: EventSchema| {
        let name = format!("{}{suffix}", member(it));
        (name.clone(), Yaml::reference(format!("#/components/messages/{name}")))
    };
    Yaml::map([
        ("address", text(address)),
        ("description", text(about)),
        ("parameters", Yaml::Map(parameters.iter().map(parameter).collect())),
        ("messages", Yaml::Map(events::ALL.into_iter().map(message).collect())),
    ])
}

fn operations() -> Yaml {
    let operation = |action: &str, channel: &str, about: &str| {
        let channel = Yaml::reference(format!("#/channels/{channel}"));
        Yaml::map([("action", text(action)), ("channel", channel), ("summary", text(about))])
    };
    Yaml::map([
        ("publishEvent", operation("send", "events", "A producer, or the relay of an outbox, publishes an event.")),
        ("handleEvent", operation("receive", "events", "A group handles an event once.")),
        ("scheduleRetry", operation("send", "retry", "A failed attempt is to be made again.")),
        ("retry", operation("receive", "retry", "The same group makes the attempt when it is due.")),
        ("bury", operation("send", "deadLetters", "A message is given up, with the reason.")),
    ])
}

fn messages() -> Yaml {
    let mut messages = Vec::new();
    for it in events::ALL {
        for (suffix, headers, about) in [
            ("", "EventHeaders", "An event."),
            ("Retry", "RetryHeaders", "The same on a retry topic."),
            ("Dead", "DeadLetterHeaders", "The same on a dead-letter topic."),
        ] {
            let key =
                Yaml::map([("type", text("string")), ("description", text("The resource that the event is about."))]);
            let schema = Yaml::reference(format!("./json/{}.v{}.json", it.name, it.version));
            let message = Yaml::map([
                ("name", text(it.name)),
                ("title", text(format!("{} v{}", it.name, it.version))),
                ("summary", text(about)),
                ("headers", Yaml::reference(format!("#/components/schemas/{headers}"))),
                ("payload", Yaml::map([("schemaFormat", text(SCHEMA_FORMAT)), ("schema", schema)])),
                ("bindings", Yaml::map([("kafka", Yaml::map([("key", key)]))])),
            ]);
            messages.push((format!("{}{suffix}", member(it)), message));
        }
    }
    Yaml::Map(messages)
}

fn schemas() -> Yaml {
    let all = |parts: &[&str]| {
        let parts = parts.iter().map(|it| Yaml::reference(format!("#/components/schemas/{it}")));
        Yaml::map([("allOf", Yaml::List(parts.collect()))])
    };
    Yaml::map([
        ("EventHeaders", headers(&EVENT_HEADERS)),
        ("FailureHeaders", headers(&FAILURE_HEADERS)),
        ("ShareGroupHeaders", headers(&DEAD_LETTER_HEADERS)),
        ("RetryHeaders", all(&["EventHeaders", "FailureHeaders"])),
        ("DeadLetterHeaders", all(&["EventHeaders", "FailureHeaders", "ShareGroupHeaders"])),
    ])
}

fn headers(rows: &[Row]) -> Yaml {
    let property = |(name, about, _): &Row| {
        let mut members = vec![("type", text("string")), ("description", text(*about))];
        let bytes_max = match *name {
            IDEMPOTENCY_KEY => Some(TEXT_BYTES_MAX),
            control::ERROR_CODE => Some(control::ERROR_CODE_BYTES_MAX),
            control::ERROR_MESSAGE => Some(control::ERROR_MESSAGE_BYTES_MAX),
            _ => None,
        };
        members.extend(bytes_max.map(|it| ("maxLength", Yaml::Number(it as i64))));
        ((*name).to_owned(), Yaml::map(members))
    };
    let required: Vec<Yaml> = rows.iter().filter(|it| it.2).map(|it| text(it.0)).collect();
    Yaml::map([
        ("type", text("object")),
        ("required", Yaml::List(required)),
        ("properties", Yaml::Map(rows.iter().map(property).collect())),
    ])
}

/// Name of an event type as a member: `stockAdjusted`.
fn member(event: EventSchema) -> String {
    let mut parts = event.name.split('.');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at(1);
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    name
}

fn text(it: impl Into<String>) -> Yaml {
    Yaml::Text(it.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_is_what_the_code_says() {
        let committed = include_str!("../asyncapi.yaml");
        assert!(committed == document(), "write it anew: sekali schemas asyncapi > schemas/asyncapi.yaml");
    }

    #[test]
    fn every_header_that_is_written_is_described() {
        use crate::control::{Control, ErrorInfo, Replay};
        let control = Control {
            attempt: 2,
            due_at_ms: Some(1),
            group: "g".to_owned(),
            origin: crate::Origin { topic: "t".into(), partition: 0, offset: 0, timestamp_ms: Some(1) },
            first_failed_at_ms: 1,
            error: ErrorInfo::new("transient", "c", "m"),
            replay: Some(Replay { letter: uuid::Uuid::nil(), key: Some(uuid::Uuid::nil()) }),
        };
        let document = document();
        let headers = control.onto(&crate::Headers::default());
        assert_eq!(headers.len(), FAILURE_HEADERS.len());
        for header in headers.iter() {
            assert!(document.contains(&format!("        {}:\n", header.name)), "{}", header.name);
        }
    }
}
