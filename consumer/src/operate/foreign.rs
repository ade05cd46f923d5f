//! What other programs say about a record in its headers when they give it up.

use sekali_schemas::control::share_group;
use sekali_schemas::idempotency::IdempotencyKey;
use sekali_schemas::{Header, Headers, Record, fingerprint};
use uuid::{Builder, Uuid};

use super::export::{Exported, FORM, encode};
use super::import::listed;

/// Why an imported letter is dead.
pub(super) const REASON: &str = "imported";

/// A family of headers.
struct Family {
    /// Code of the letters.
    word: &'static str,
    /// How the names of its headers begin.
    prefix: &'static str,
    topic: &'static str,
    partition: &'static str,
    offset: &'static str,
    /// Names of the exception's class, the better one first.
    class: &'static [&'static str],
    message: &'static str,
}

const FAMILIES: [Family; 4] = [
    Family {
        word: "spring",
        prefix: "kafka_dlt-",
        topic: "kafka_dlt-original-topic",
        partition: "kafka_dlt-original-partition",
        offset: "kafka_dlt-original-offset",
        class: &["kafka_dlt-exception-cause-fqcn", "kafka_dlt-exception-fqcn"],
        message: "kafka_dlt-exception-message",
    },
    Family {
        word: "streams",
        prefix: "__streams.errors.",
        topic: "__streams.errors.topic",
        partition: "__streams.errors.partition",
        offset: "__streams.errors.offset",
        class: &["__streams.errors.exception"],
        message: "__streams.errors.message",
    },
    Family {
        word: "connect",
        prefix: "__connect.errors.",
        topic: "__connect.errors.topic",
        partition: "__connect.errors.partition",
        offset: "__connect.errors.offset",
        class: &["__connect.errors.exception.class.name"],
        message: "__connect.errors.exception.message",
    },
    Family {
        word: "share_group",
        prefix: "__dlq.errors.",
        topic: share_group::TOPIC,
        partition: share_group::PARTITION,
        offset: share_group::OFFSET,
        class: &[],
        message: share_group::MESSAGE,
    },
];

/// The dead letter that a record of a foreign dead-letter topic is; `None` when it does not say where it comes from. Its id
/// follows from that place, so that the same record gives the same letter whenever it is read.
pub(super) fn letter(record: &Record, consumer: &str) -> Option<Exported> {
    let headers = &record.headers;
    let family = FAMILIES.iter().find(|it| headers.get(it.topic).is_some())?;
    let topic = first(headers, family.topic).and_then(|it| std::str::from_utf8(it).ok())?;
    let partition = i32::try_from(number(first(headers, family.partition)?)?).ok()?;
    let offset = number(first(headers, family.offset)?)?;
    let timestamp_ms = first(headers, "kafka_dlt-original-timestamp").and_then(number).or(record.timestamp_ms);
    let timestamp = timestamp_ms.and_then(|it| jiff::Timestamp::from_millisecond(it).ok());
    let class = family.class.iter().find_map(|it| headers.text(it)).map(simple_name).filter(|it| !it.is_empty());
    let user: Headers = headers.iter().filter(|it| FAMILIES.iter().all(|of| !it.name.starts_with(of.prefix))).collect();
    let kept = Record { headers: user, ..record.clone() };
    let own = IdempotencyKey::of_record(&kept).ok();
    let key = own.as_ref().map_or_else(|| IdempotencyKey::from_coordinates(topic, partition, offset), Clone::clone);
    let failed_at = record.timestamp_ms.and_then(|it| jiff::Timestamp::from_millisecond(it).ok());
    let failed_at = failed_at.or(timestamp).unwrap_or_default();
    let attempts = headers.text(share_group::DELIVERY_COUNT).and_then(|it| it.parse().ok()).unwrap_or(1);
    Some(Exported {
        form: FORM,
        id: id(consumer, (topic, partition, offset), timestamp_ms.unwrap_or_default()),
        consumer: consumer.to_owned(),
        state: "open".to_owned(),
        key: key.uuid(),
        key_text: own.map(|it| it.as_str().to_owned()),
        reason: REASON.to_owned(),
        class: class.unwrap_or(REASON).to_owned(),
        code: family.word.to_owned(),
        message: headers.text(family.message).unwrap_or_default().to_owned(),
        attempts,
        replays: 0,
        topic: topic.to_owned(),
        partition,
        offset,
        timestamp,
        resource_key: record.key.as_deref().map(encode),
        payload: record.payload.as_deref().map(encode),
        headers: listed(&kept.headers),
        first_failed_at: failed_at,
        last_failed_at: failed_at,
        edited_from: None,
    })
}

/// The first value counts: a program that gives up again adds its headers behind those that are there.
fn first<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|it: &Header<'a>| it.name == name)?.value
}

/// A number as text, or as four or eight bytes, the highest first.
fn number(bytes: &[u8]) -> Option<i64> {
    if let Some(number) = std::str::from_utf8(bytes).ok().and_then(|it| it.parse().ok()) {
        return Some(number);
    }
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(i32::from_be_bytes(bytes).into());
    }
    <[u8; 8]>::try_from(bytes).ok().map(i64::from_be_bytes)
}

fn simple_name(class: &str) -> &str {
    class.rsplit(['.', '$']).next().unwrap_or(class)
}

/// In the order of time, as other ids are.
fn id(consumer: &str, (topic, partition, offset): (&str, i32, i64), at_ms: i64) -> Uuid {
    let place = format!("{consumer}\u{1f}{topic}\u{1f}{partition}\u{1f}{offset}");
    let (one, two) = (fingerprint(Some(place.as_bytes())), fingerprint(Some(format!("{place}\u{1f}").as_bytes())));
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&at_ms.to_be_bytes()[2..]);
    bytes[6..14].copy_from_slice(&one.to_be_bytes());
    bytes[14..].copy_from_slice(&two.to_be_bytes()[..2]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(headers: &[(&str, &[u8])]) -> Record {
        Record {
            topic: "orders-dlt".into(),
            partition: 0,
            offset: 9,
            timestamp_ms: Some(1_700_000_000_000),
            key: Some("k".into()),
            payload: Some("{}".into()),
            headers: headers.iter().map(|(name, value)| Header { name, value: Some(value) }).collect(),
        }
    }

    /// Family, class and message to be found in those headers.
    type Case<'a> = (&'a str, &'a str, &'a str, Vec<(&'a str, &'a [u8])>);

    #[test]
    fn each_family_says_where_it_comes_from_and_why() {
        let cases: [Case<'_>; 4] = [
            (
                "spring",
                "TimeoutException",
                "late",
                vec![
                    ("kafka_dlt-original-topic", b"orders"),
                    ("kafka_dlt-original-partition", &[0, 0, 0, 2]),
                    ("kafka_dlt-original-offset", &[0, 0, 0, 0, 0, 0, 1, 0]),
                    (
                        "kafka_dlt-exception-fqcn",
                        b"org.springframework.kafka.listener.ListenerExecutionFailedException",
                    ),
                    ("kafka_dlt-exception-cause-fqcn", b"java.util.concurrent.TimeoutException"),
                    ("kafka_dlt-exception-message", b"late"),
                    ("kafka_dlt-original-topic", b"orders-retry"),
                ],
            ),
            (
                "streams",
                "DeserializationException",
                "no",
                vec![
                    ("__streams.errors.topic", b"orders"),
                    ("__streams.errors.partition", b"2"),
                    ("__streams.errors.offset", b"256"),
                    ("__streams.errors.exception", b"org.apache.kafka.DeserializationException"),
                    ("__streams.errors.message", b"no"),
                ],
            ),
            (
                "connect",
                "DataException",
                "bad",
                vec![
                    ("__connect.errors.topic", b"orders"),
                    ("__connect.errors.partition", b"2"),
                    ("__connect.errors.offset", b"256"),
                    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
                    ("__connect.errors.exception.message", b"bad"),
                ],
            ),
            (
                "share_group",
                "imported",
                "gone",
                vec![
                    ("__dlq.errors.topic", b"orders"),
                    ("__dlq.errors.partition", b"2"),
                    ("__dlq.errors.offset", b"256"),
                    ("__dlq.errors.message", b"gone"),
                ],
            ),
        ];
        for (family, class, message, mut headers) in cases {
            headers.push(("trace", b"t"));
            let of = letter(&record(&headers), "g").unwrap_or_else(|| panic!("{family}"));
            assert_eq!((of.topic.as_str(), of.partition, of.offset), ("orders", 2, 256), "{family}");
            assert_eq!((of.code.as_str(), of.class.as_str(), of.message.as_str()), (family, class, message));
            assert_eq!(of.headers, [("trace".to_owned(), Some(encode(b"t")))], "{family}");
            assert_eq!((of.key_text, of.key), (None, IdempotencyKey::from_coordinates("orders", 2, 256).uuid()));
            assert_eq!(letter(&record(&headers), "g").map(|it| it.id), Some(of.id), "the same letter");
            assert_ne!(letter(&record(&headers), "h").map(|it| it.id), Some(of.id), "of another consumer");
            headers.push(("idempotency-key", b"i1"));
            assert_eq!(letter(&record(&headers), "g").and_then(|it| it.key_text).as_deref(), Some("i1"));
        }
        assert_eq!(letter(&record(&[("trace", b"t")]), "g"), None);
        assert_eq!(letter(&record(&[("__dlq.errors.topic", b"orders")]), "g"), None);
    }
}
