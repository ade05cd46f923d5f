//! When the letters of each group failed, by the hour.

use serde::Serialize;

use super::filter::{CONDITIONS, group_text};
use super::{DeadLetters, Filter, LetterState, answered};
use crate::Error;

/// Hours that a trend goes back.
pub const TREND_HOURS: usize = 24;

/// Letters of a group in each of the last hours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Trend {
    /// Group of failures, 16 hexadecimal digits.
    pub group: String,
    /// Who gave up.
    pub consumer: String,
    /// The last hour is the last one.
    pub letters: [u64; TREND_HOURS],
}

impl DeadLetters {
    /// When letters that fit a filter failed last, by group; of open letters, unless the filter says otherwise. Groups
    /// without any in the last [`TREND_HOURS`] hours are missing.
    ///
    /// # Errors
    /// The filter cannot be used, or the database refuses.
    pub async fn trends(&self, filter: &Filter) -> Result<Vec<Trend>, Error> {
        let sql = format!(
            "WITH counted AS (SELECT letter.consumer_id, letter.state, letter.group_fingerprint AS number, \
             date_bin('1 hour', letter.last_failed_at, now()) AS hour, count(*) AS letters \
             FROM sekali.dead_letter AS letter WHERE {CONDITIONS} \
             AND now() - interval '24 hours' < letter.last_failed_at GROUP BY 1, 2, 3, 4) \
             SELECT number, consumer.name, (date_part('epoch', now() - hour) / 3600)::int - 1, letters FROM counted \
             JOIN sekali.consumer ON consumer.id = consumer_id ORDER BY number, consumer.name"
        );
        let filter = Filter { state: filter.state.or(Some(LetterState::Open)), ..filter.clone() };
        let checked = filter.checked()?;
        let client = self.client().await?;
        let rows = answered("follow dead letters", client.query_typed(&sql, &checked.params())).await?;
        let mut trends: Vec<Trend> = Vec::new();
        for row in &rows {
            let (group, consumer): (String, String) = (group_text(row.get(0)), row.get(1));
            if trends.last().is_none_or(|it| it.group != group || it.consumer != consumer) {
                trends.push(Trend { group, consumer, letters: [0; TREND_HOURS] });
            }
            // What fails at this very moment is of the hour that begins now: below zero.
            let ago = usize::try_from(row.get::<_, i32>(2)).unwrap_or_default().min(TREND_HOURS - 1);
            if let Some(trend) = trends.last_mut() {
                trend.letters[TREND_HOURS - 1 - ago] += row.get::<_, i64>(3).unsigned_abs();
            }
        }
        Ok(trends)
    }
}
