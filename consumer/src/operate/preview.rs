//! What an operation would come to, before anything is changed.

use serde::Serialize;
use tokio_postgres::types::Type;

use super::filter::{CONDITIONS, Param};
use super::{Act, DeadLetter, DeadLetters, Filter, answered};
use crate::Error;

/// Letters and keys that are shown.
const SHOWN_MAX: u32 = 10;

/// What an operation would come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Preview {
    /// Letters that are selected.
    pub letters: u64,
    /// The newest of them.
    pub sample: Vec<DeadLetter>,
    /// Keys whose order is at risk: of such a key later messages may have taken effect since.
    pub keys_at_risk: u64,
    /// Some of them: topic and key.
    pub at_risk: Vec<(String, String)>,
    /// Letters that were replayed as often as allowed already, and take force.
    pub over_cap: u64,
    /// Letters of groups that read no retry topic, or have not been started since this was introduced.
    pub without_route: u64,
}

/// A key has moved on when its messages do not wait behind this letter, and the group has read past it.
const MOVED_ON: &str = "letter.resource_key IS NOT NULL AND coalesce(route.ordered, true) AND NOT EXISTS \
     (SELECT FROM sekali.held_key AS hold WHERE hold.consumer_id = letter.consumer_id AND hold.topic = letter.origin_topic \
     AND hold.resource_key = letter.resource_key AND hold.head = letter.key) AND NOT EXISTS \
     (SELECT FROM sekali.progress AS it WHERE it.consumer_id = letter.consumer_id AND it.topic = letter.origin_topic \
     AND it.\"partition\" = letter.origin_partition AND it.position <= letter.origin_offset + 1)";

/// The route of a letter.
pub(super) const ROUTE: &str = "LEFT JOIN LATERAL (SELECT * FROM sekali.route AS it \
     WHERE it.consumer_id = letter.consumer_id AND (it.topic = letter.origin_topic \
     OR letter.origin_topic = ANY(it.retry_topics)) LIMIT 1) AS route ON true";

impl DeadLetters {
    /// What an operation on the letters of a filter would come to. Without a state in the filter, those that such an
    /// operation usually starts from.
    ///
    /// # Errors
    /// The filter cannot be used, or the database refuses.
    pub async fn preview(&self, act: Act, filter: &Filter) -> Result<Preview, Error> {
        let filter = selected(act, filter);
        let sample = self.list(&filter, None, SHOWN_MAX).await?.letters;
        let mut preview = Preview {
            letters: self.count(&filter).await?,
            sample,
            keys_at_risk: 0,
            at_risk: Vec::new(),
            over_cap: 0,
            without_route: 0,
        };
        if act != Act::Replay {
            return Ok(preview);
        }
        let checked = filter.checked()?;
        let cap = i64::from(self.bounds.replays_max.get());
        let mut params: Vec<Param<'_>> = checked.params().into();
        params.push((&cap, Type::INT8));
        let client = self.client().await?;
        let bounds = format!(
            "SELECT count(*) FILTER (WHERE $13::bigint <= letter.replays), count(*) FILTER (WHERE \
             letter.reason <> 'unpublishable' AND coalesce(cardinality(route.retry_topics), 0) = 0) \
             FROM sekali.dead_letter AS letter {ROUTE} WHERE {CONDITIONS}"
        );
        let rows = answered("look at the selection", client.query_typed(&bounds, &params)).await?;
        if let Some(row) = rows.first() {
            let count = |at: usize| row.get::<_, i64>(at).unsigned_abs();
            (preview.over_cap, preview.without_route) = (count(0), count(1));
        }
        let keys = format!(
            "WITH keys AS (SELECT DISTINCT letter.origin_topic, letter.resource_key FROM sekali.dead_letter AS letter \
             {ROUTE} WHERE {CONDITIONS} AND {MOVED_ON}) \
             SELECT origin_topic, resource_key, (SELECT count(*) FROM keys) FROM keys ORDER BY 1, 2 LIMIT $13"
        );
        let shown = i64::from(SHOWN_MAX);
        let mut params: Vec<Param<'_>> = checked.params().into();
        params.push((&shown, Type::INT8));
        let rows = answered("look for keys that have moved on", client.query_typed(&keys, &params)).await?;
        preview.keys_at_risk = rows.first().map_or(0, |it| it.get::<_, i64>(2).unsigned_abs());
        let key =
            |row: &tokio_postgres::Row| (row.get(0), String::from_utf8_lossy(row.get::<_, &[u8]>(1)).into_owned());
        preview.at_risk = rows.iter().map(key).collect();
        Ok(preview)
    }
}

/// The filter with the state that an act starts from; letters that are named by id are taken as they are.
pub(super) fn selected(act: Act, filter: &Filter) -> Filter {
    let usual = filter.ids.is_empty().then(|| act.from());
    Filter { state: filter.state.or(usual), ..filter.clone() }
}
