//! Rows of the dead-letter store.

use deadpool_postgres::ClientWrapper;
use sekali_schemas::control::ErrorInfo;
use tokio_postgres::Error;
use uuid::Uuid;

use crate::core::retry::Reason;
use crate::incoming::Incoming;

const INSERT: &str = "INSERT INTO sekali.dead_letter (id, consumer_id, key, key_text, reason, class, code, message, \
     attempts, origin_topic, origin_partition, origin_offset, origin_timestamp, resource_key, payload, header_names, \
     header_values, group_fingerprint, first_failed_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, to_timestamp($13::bigint / 1000.0), $14, $15, $16, $17, \
     $18, to_timestamp($19::bigint / 1000.0))";

/// One dead letter.
pub(crate) struct DeadLetter<'a> {
    pub(crate) incoming: &'a Incoming,
    pub(crate) reason: Reason,
    pub(crate) error: &'a ErrorInfo,
    pub(crate) first_failed_at_ms: i64,
}

/// Inserts a dead letter; its inbox row was decided in the same transaction.
pub(crate) async fn insert(client: &ClientWrapper, consumer_id: i16, dead: &DeadLetter<'_>) -> Result<(), Error> {
    let incoming = dead.incoming;
    let origin = incoming.origin();
    let headers = incoming.headers_to_keep();
    // Kafka header names are C strings in the client library, so that they hold no NUL.
    let names: Vec<&str> = headers.iter().map(|it| it.name).collect();
    let values: Vec<Option<&[u8]>> = headers.iter().map(|it| it.value).collect();
    let attempts = i16::try_from(incoming.attempt()).unwrap_or(i16::MAX);
    let key_text = incoming.key_text().map(|it| it.replace('\0', " "));
    let error = dead.error;
    let statement = client.prepare_cached(INSERT).await?;
    client
        .execute(
            &statement,
            &[
                &Uuid::now_v7(),
                &consumer_id,
                &incoming.key(),
                &key_text,
                &dead.reason.as_str(),
                &error.class,
                &error.code,
                &error.message,
                &attempts,
                &&*origin.topic,
                &origin.partition,
                &origin.offset,
                &origin.timestamp_ms,
                &incoming.record().key.as_deref(),
                &incoming.record().payload.as_deref(),
                &names,
                &values,
                &group_fingerprint(&origin.topic, error),
                &dead.first_failed_at_ms,
            ],
        )
        .await?;
    Ok(())
}

/// Dead letters with the same cause share it: topic, class, code, and the message without what varies.
fn group_fingerprint(topic: &str, error: &ErrorInfo) -> i64 {
    let text = [topic, &error.class, &error.code, &normalise(&error.message)].join("\u{1f}");
    sekali_schemas::fingerprint(Some(text.as_bytes()))
}

/// Replaces words with a digit and quoted text by a mark.
fn normalise(message: &str) -> String {
    let mut normal = String::with_capacity(message.len());
    for (index, part) in message.split(['"', '\'', '`']).enumerate() {
        if index % 2 == 1 {
            normal.push('?');
            continue;
        }
        for word in part.split_inclusive(|it: char| !it.is_alphanumeric() && it != '-') {
            if word.contains(|it: char| it.is_ascii_digit()) {
                normal.push('#');
                normal.extend(word.chars().last().filter(|it| !it.is_alphanumeric() && *it != '-'));
            } else {
                normal.push_str(word);
            }
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn what_varies_does_not_split_groups() {
        assert_eq!(normalise("order 17 of \"jane\" not found"), "order # of ? not found");
        assert_eq!(normalise("order 0189-ab of 'joe' not found"), "order # of ? not found");
        assert_eq!(normalise("timeout after 30s"), "timeout after #");
    }
}
