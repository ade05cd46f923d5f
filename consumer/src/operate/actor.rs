//! Who does something and why, and the row that remembers it.

use deadpool_postgres::ClientWrapper;
use sekali_producer::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::rows;

/// Who changes something, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// A name that others recognise.
    pub who: String,
    /// For those who read the audit later.
    pub reason: String,
}

/// One thing that was done, or refused.
pub(crate) struct Entry {
    pub(crate) action: &'static str,
    pub(crate) consumer_id: Option<i16>,
    /// Of the message, where there is one.
    pub(crate) key: Option<Uuid>,
    /// What it was done to, in words.
    pub(crate) subject: String,
    pub(crate) outcome: String,
}

/// Records what is done in the open transaction.
pub(crate) async fn audit(client: &ClientWrapper, actor: &Actor, entries: &[Entry]) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO sekali.audit (who, action, reason, selection, consumer_id, key, outcome) \
         SELECT $1, action, $2, jsonb_build_object('subject', subject), consumer_id, key, outcome \
         FROM unnest($3::text[], $4::text[], $5::smallint[], $6::uuid[], $7::text[]) \
         AS entry (action, subject, consumer_id, key, outcome)";
    let actions: Vec<&str> = entries.iter().map(|it| it.action).collect();
    // Text holds no NUL.
    let clean = |text: &str| text.replace('\0', " ");
    let subjects: Vec<String> = entries.iter().map(|it| clean(&it.subject)).collect();
    let consumers: Vec<Option<i16>> = entries.iter().map(|it| it.consumer_id).collect();
    let keys: Vec<Option<Uuid>> = entries.iter().map(|it| it.key).collect();
    let outcomes: Vec<&str> = entries.iter().map(|it| it.outcome.as_str()).collect();
    let (who, reason) = (clean(&actor.who), clean(&actor.reason));
    let params: [(&(dyn ToSql + Sync), Type); 7] = [
        (&who, Type::TEXT),
        (&reason, Type::TEXT),
        (&actions, Type::TEXT_ARRAY),
        (&subjects, Type::TEXT_ARRAY),
        (&consumers, Type::INT2_ARRAY),
        (&keys, Type::UUID_ARRAY),
        (&outcomes, Type::TEXT_ARRAY),
    ];
    rows::query(client, "record it in sekali.audit", SQL, &params).await.map(drop)
}
