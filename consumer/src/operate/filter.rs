//! Which dead letters are meant.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::core::operator::LetterState;
use crate::{Error, ErrorKind};

/// Longest text of a filter, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// Most ids of a filter.
const IDS_MAX: usize = 10_000;

/// Which dead letters are meant: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Name of the consumer that gave up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// State of the letter.
    #[serde(with = "word", skip_serializing_if = "Option::is_none")]
    pub state: Option<LetterState>,
    /// Topic of the first delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Group of failures, as [`Group::id`](super::Group::id) shows it: 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Class of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Idempotency key, as text or in its 128-bit form, or the record's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Failed last at this moment or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Failed last before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Part of the error's text or code, or of the idempotency key; upper and lower case are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Only these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<Uuid>,
}

/// What [`Filter::params`] fills. What is not given is folded away when the statement is planned, since it is planned for
/// these values.
pub(super) const CONDITIONS: &str = "($1::text IS NULL OR letter.consumer_id = \
     (SELECT id FROM sekali.consumer WHERE name = $1)) \
     AND ($2::text IS NULL OR letter.state = $2) AND ($3::text IS NULL OR letter.origin_topic = $3) \
     AND ($4::bigint IS NULL OR letter.group_fingerprint = $4) AND ($5::text IS NULL OR letter.class = $5) \
     AND ($6::text IS NULL OR letter.key_text = $6 OR letter.key = $7 OR letter.resource_key = $8) \
     AND ($9::timestamptz IS NULL OR $9 <= letter.last_failed_at) \
     AND ($10::timestamptz IS NULL OR letter.last_failed_at < $10) \
     AND ($11::text IS NULL OR strpos(lower(letter.message), lower($11)) > 0 \
     OR strpos(lower(letter.code), lower($11)) > 0 OR strpos(lower(letter.key_text), lower($11)) > 0) \
     AND ($12::uuid[] IS NULL OR letter.id = ANY($12))";

/// Number of the parameters of [`CONDITIONS`].
pub(super) const PARAMS: usize = 12;

pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A filter that was looked at, in the form that the database takes.
pub(super) struct Checked<'a> {
    filter: &'a Filter,
    state: Option<&'static str>,
    group: Option<i64>,
    key: Option<Uuid>,
    resource_key: Option<&'a [u8]>,
    ids: Option<&'a [Uuid]>,
}

impl Filter {
    /// Only these letters, whatever their state.
    pub fn of_ids(ids: impl IntoIterator<Item = Uuid>) -> Filter {
        Filter { ids: ids.into_iter().collect(), ..Filter::default() }
    }

    /// Whether it means every dead letter of some state.
    pub fn is_all(&self) -> bool {
        let Filter { consumer: _, state: _, topic, group, class, key, since, until, text, ids } = self;
        let texts = [topic, group, class, key, text];
        texts.iter().all(|it| it.is_none()) && since.is_none() && until.is_none() && ids.is_empty()
    }

    /// # Errors
    /// A text that PostgreSQL cannot hold, one that is too long, a group that is no number, too many ids.
    pub(super) fn checked(&self) -> Result<Checked<'_>, Error> {
        let texts = [
            ("consumer", &self.consumer),
            ("topic", &self.topic),
            ("group", &self.group),
            ("class", &self.class),
            ("key", &self.key),
            ("text", &self.text),
        ];
        for (name, text) in texts.iter().filter_map(|(name, text)| Some((name, text.as_deref()?))) {
            if text.contains('\0') {
                return Err(unusable(name, "it contains U+0000, which no text in the database does"));
            }
            if TEXT_BYTES_MAX < text.len() {
                return Err(unusable(name, "it is longer than 1024 bytes"));
            }
        }
        if IDS_MAX < self.ids.len() {
            return Err(unusable("ids", "there are more than 10000: select by group, topic or time"));
        }
        let group = self.group.as_deref().map(group_number).transpose()?;
        Ok(Checked {
            filter: self,
            state: self.state.map(LetterState::as_str),
            group,
            key: self.key.as_deref().and_then(|it| Uuid::try_parse(it).ok()),
            resource_key: self.key.as_deref().map(str::as_bytes),
            ids: (!self.ids.is_empty()).then_some(&self.ids),
        })
    }
}

impl Checked<'_> {
    pub(super) fn params(&self) -> [Param<'_>; PARAMS] {
        let it = self.filter;
        [
            (&it.consumer, Type::TEXT),
            (&self.state, Type::TEXT),
            (&it.topic, Type::TEXT),
            (&self.group, Type::INT8),
            (&it.class, Type::TEXT),
            (&it.key, Type::TEXT),
            (&self.key, Type::UUID),
            (&self.resource_key, Type::BYTEA),
            (&it.since, Type::TIMESTAMPTZ),
            (&it.until, Type::TIMESTAMPTZ),
            (&it.text, Type::TEXT),
            (&self.ids, Type::UUID_ARRAY),
        ]
    }
}

/// How a group is shown.
pub(super) fn group_text(number: i64) -> String {
    format!("{:016x}", number as u64)
}

fn group_number(text: &str) -> Result<i64, Error> {
    let digits = text.len() == 16 && text.bytes().all(|it| it.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| digits);
    number
        .map(|it| it as i64)
        .ok_or_else(|| unusable("group", "it is not 16 hexadecimal digits: take it from a list of groups"))
}

fn unusable(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("filter by {name}")).because(why.to_owned())
}

/// A state as its word.
mod word {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::core::operator::LetterState;

    pub(super) fn serialize<S: Serializer>(state: &Option<LetterState>, serializer: S) -> Result<S::Ok, S::Error> {
        match state {
            Some(state) => serializer.serialize_str(state.as_str()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LetterState>, D::Error> {
        let word = Option::<String>::deserialize(deserializer)?;
        let state = |it: String| LetterState::named(&it).ok_or_else(|| D::Error::custom("unknown state"));
        word.map(state).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_asked_is_refused_by_name_and_without_its_value() {
        let secret = || Some("hunter2\0".to_owned());
        for (name, filter) in [
            ("topic", Filter { topic: secret(), ..Filter::default() }),
            ("text", Filter { text: secret(), ..Filter::default() }),
            ("key", Filter { key: Some("k".repeat(1025)), ..Filter::default() }),
            ("group", Filter { group: Some("hunter2".to_owned()), ..Filter::default() }),
            ("group", Filter { group: Some("+123456789abcdef".to_owned()), ..Filter::default() }),
            ("ids", Filter::of_ids((0..10_001).map(Uuid::from_u128))),
        ] {
            let error = filter.checked().err().map(|it| it.chain()).unwrap_or_default();
            assert!(error.contains(&format!("filter by {name}")) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_group_is_read_back_and_filters_survive_the_table() {
        for number in [0, -1, i64::MIN, i64::MAX, 77] {
            assert_eq!(group_number(&group_text(number)).unwrap(), number);
        }
        let filter =
            Filter { state: Some(LetterState::Discarded), text: Some("'; --".to_owned()), ..Filter::default() };
        let json = serde_json::to_value(&filter).unwrap();
        assert_eq!(json, serde_json::json!({"state": "discarded", "text": "'; --"}));
        assert_eq!(serde_json::from_value::<Filter>(json).unwrap(), filter);
        assert!(Filter { state: Some(LetterState::Open), ..Filter::default() }.is_all() && !filter.is_all());
    }
}
