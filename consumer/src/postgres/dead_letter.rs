//! Rows of the dead-letter store.

use deadpool_postgres::ClientWrapper;
use sekali_schemas::control::ErrorInfo;
use sekali_schemas::{Headers, Origin, array_literal};
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::core::retry::Reason;
use crate::incoming::Incoming;

const INSERT: &str = "INSERT INTO sekali.dead_letter (id, consumer_id, key, key_text, reason, class, code, message, \
     attempts, origin_topic, origin_partition, origin_offset, origin_timestamp, resource_key, payload, header_names, \
     header_values, group_fingerprint, first_failed_at) \
     SELECT id, $1, key, key_text, reason, class, code, message, attempts, topic, part, off, \
     to_timestamp(timestamp_ms / 1000.0), resource_key, payload, names::text[], vals::bytea[], fingerprint, \
     to_timestamp(first_failed_ms / 1000.0) \
     FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::smallint[], \
     $10::text[], $11::int[], $12::bigint[], $13::bigint[], $14::bytea[], $15::bytea[], $16::text[], $17::text[], \
     $18::bigint[], $19::bigint[]) AS dead (id, key, key_text, reason, class, code, message, attempts, topic, part, off, \
     timestamp_ms, resource_key, payload, names, vals, fingerprint, first_failed_ms)";

/// One dead letter.
pub(crate) struct DeadLetter<'a> {
    pub(crate) incoming: &'a Incoming,
    pub(crate) reason: Reason,
    pub(crate) error: &'a ErrorInfo,
    pub(crate) first_failed_at_ms: i64,
}

/// Inserts dead letters; their inbox rows were decided in the same transaction.
pub(crate) async fn insert_all(client: &ClientWrapper, consumer_id: i16, dead: &[DeadLetter<'_>]) -> Result<(), Error> {
    let ids: Vec<Uuid> = dead.iter().map(|_| Uuid::now_v7()).collect();
    let keys: Vec<Uuid> = dead.iter().map(|it| it.incoming.key()).collect();
    let texts: Vec<Option<String>> =
        dead.iter().map(|it| it.incoming.key_text().map(|it| it.replace('\0', " "))).collect();
    let reasons: Vec<&str> = dead.iter().map(|it| it.reason.as_str()).collect();
    let classes: Vec<&str> = dead.iter().map(|it| it.error.class.as_str()).collect();
    let codes: Vec<&str> = dead.iter().map(|it| it.error.code.as_str()).collect();
    let messages: Vec<&str> = dead.iter().map(|it| it.error.message.as_str()).collect();
    let attempts: Vec<i16> = dead.iter().map(|it| i16::try_from(it.incoming.attempt()).unwrap_or(i16::MAX)).collect();
    let origins: Vec<Origin> = dead.iter().map(|it| it.incoming.origin()).collect();
    let topics: Vec<&str> = origins.iter().map(|it| &*it.topic).collect();
    let partitions: Vec<i32> = origins.iter().map(|it| it.partition).collect();
    let offsets: Vec<i64> = origins.iter().map(|it| it.offset).collect();
    let timestamps: Vec<Option<i64>> = origins.iter().map(|it| it.timestamp_ms).collect();
    let resource_keys: Vec<Option<&[u8]>> = dead.iter().map(|it| it.incoming.record().key.as_deref()).collect();
    let payloads: Vec<Option<&[u8]>> = dead.iter().map(|it| it.incoming.record().payload.as_deref()).collect();
    let headers: Vec<Headers> = dead.iter().map(|it| it.incoming.headers_to_keep()).collect();
    let names: Vec<String> = headers.iter().map(array_literal::names).collect();
    let values: Vec<String> = headers.iter().map(array_literal::values).collect();
    let groups: Vec<i64> =
        dead.iter().zip(&origins).map(|(it, origin)| group_fingerprint(&origin.topic, it.error)).collect();
    let first_failed: Vec<i64> = dead.iter().map(|it| it.first_failed_at_ms).collect();
    let statement = client.prepare_cached(INSERT).await?;
    let params: [&(dyn ToSql + Sync); 19] = [
        &consumer_id,
        &ids,
        &keys,
        &texts,
        &reasons,
        &classes,
        &codes,
        &messages,
        &attempts,
        &topics,
        &partitions,
        &offsets,
        &timestamps,
        &resource_keys,
        &payloads,
        &names,
        &values,
        &groups,
        &first_failed,
    ];
    client.execute(&statement, &params).await?;
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
