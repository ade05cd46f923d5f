//! Dead letters by their causes.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::filter::{CONDITIONS, Param, group_text};
use super::{DeadLetters, Filter, LetterState, answered};
use crate::Error;

/// Most groups that are shown.
const GROUPS_MAX: i64 = 500;

/// Letters of one consumer that failed of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// 16 hexadecimal digits, for filters.
    pub id: String,
    /// Who gave up.
    pub consumer: String,
    /// Letters in it.
    pub letters: u64,
    /// Class of the failures.
    pub class: String,
    /// Their code; may be empty.
    pub code: String,
    /// Their text without what varies.
    pub cause: String,
    /// Topic of the newest letter; the others may come from other topics.
    pub topic: String,
    /// The newest letter.
    pub newest: Uuid,
    /// When the first of them failed last.
    pub oldest_at: Timestamp,
    /// When the last of them failed.
    pub newest_at: Timestamp,
}

/// What is to be done, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// Open letters.
    pub open: u64,
    /// Letters that are on their way back.
    pub replaying: u64,
    /// When the oldest open one failed last.
    pub oldest_at: Option<Timestamp>,
    /// Open letters of each class, the largest first.
    pub classes: Vec<(String, u64)>,
}

impl DeadLetters {
    /// Groups of the letters that fit a filter, the largest first; of open letters, unless the filter says otherwise.
    ///
    /// # Errors
    /// The filter cannot be used, or the database refuses.
    pub async fn groups(&self, filter: &Filter) -> Result<Vec<Group>, Error> {
        let sql = format!(
            "WITH counted AS (SELECT letter.consumer_id, letter.state, letter.group_fingerprint AS number, \
             count(*) AS letters, min(letter.last_failed_at) AS oldest_at, max(letter.last_failed_at) AS newest_at \
             FROM sekali.dead_letter AS letter WHERE {CONDITIONS} GROUP BY 1, 2, 3 ORDER BY letters DESC LIMIT $13) \
             SELECT number, consumer.name, letters, it.class, it.code, coalesce(it.cause, it.message), it.origin_topic, \
             it.id, oldest_at, newest_at FROM counted JOIN sekali.consumer ON consumer.id = consumer_id \
             CROSS JOIN LATERAL (SELECT * FROM sekali.dead_letter AS it WHERE it.consumer_id = counted.consumer_id \
             AND it.state = counted.state AND it.group_fingerprint = number ORDER BY it.id DESC LIMIT 1) AS it \
             ORDER BY letters DESC, newest_at DESC"
        );
        let filter = Filter { state: filter.state.or(Some(LetterState::Open)), ..filter.clone() };
        let checked = filter.checked()?;
        let mut params: Vec<Param<'_>> = checked.params().into();
        params.push((&GROUPS_MAX, Type::INT8));
        let client = self.client().await?;
        let rows = answered("group dead letters", client.query_typed(&sql, &params)).await?;
        let group = |row: &tokio_postgres::Row| Group {
            id: group_text(row.get(0)),
            consumer: row.get(1),
            letters: row.get::<_, i64>(2).unsigned_abs(),
            class: row.get(3),
            code: row.get(4),
            cause: row.get(5),
            topic: row.get(6),
            newest: row.get(7),
            oldest_at: row.get(8),
            newest_at: row.get(9),
        };
        Ok(rows.iter().map(group).collect())
    }

    /// What is open, of one consumer or of all.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn overview(&self, consumer: Option<&str>) -> Result<Overview, Error> {
        let filter = Filter { consumer: consumer.map(str::to_owned), ..Filter::default() };
        let groups = self.groups(&filter).await?;
        let replaying = Filter { state: Some(LetterState::Replaying), ..filter };
        Ok(Overview::of(&groups, self.count(&replaying).await?))
    }

    /// How many letters fit a filter.
    ///
    /// # Errors
    /// The filter cannot be used, or the database refuses.
    pub async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        let sql = format!("SELECT count(*) FROM sekali.dead_letter AS letter WHERE {CONDITIONS}");
        let checked = filter.checked()?;
        let client = self.client().await?;
        let rows = answered("count dead letters", client.query_typed(&sql, &checked.params())).await?;
        Ok(rows.first().map_or(0, |it| it.get::<_, i64>(0).unsigned_abs()))
    }
}

impl Overview {
    /// The same of the groups of all open letters, and the number of those that are on their way back.
    pub fn of(groups: &[Group], replaying: u64) -> Overview {
        let mut classes: Vec<(String, u64)> = Vec::new();
        for group in groups {
            match classes.iter_mut().find(|it| it.0 == group.class) {
                Some((_, count)) => *count += group.letters,
                None => classes.push((group.class.clone(), group.letters)),
            }
        }
        classes.sort_by_key(|it| std::cmp::Reverse(it.1));
        Overview {
            open: groups.iter().map(|it| it.letters).sum(),
            replaying,
            oldest_at: groups.iter().map(|it| it.oldest_at).min(),
            classes,
        }
    }
}
