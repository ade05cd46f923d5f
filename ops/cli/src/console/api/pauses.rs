//! Topics that stand still because an operator wants it.

use axum::extract::State;
use sekali_consumer::operate::Actor;
use sekali_consumer::operate::pauses::{self, Changed};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Json;
use crate::console::Shared;
use crate::console::answer::{Answer, Refusal};
use crate::console::body::JsonChange;

/// Longest reason, in characters.
const REASON_MAX: usize = 1_024;

/// What somebody wants to stand still, or to go on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::console) struct PauseAsk {
    /// Consumer group.
    pub(in crate::console) group: String,
    /// Source topic; none for all topics of the group.
    #[serde(default)]
    pub(in crate::console) topic: Option<String>,
    /// Why.
    pub(in crate::console) reason: String,
}

pub(super) async fn list(State(console): State<Shared>) -> Answer<Json<Value>> {
    let pool = console.letters.pool();
    let (paused, topics) = tokio::try_join!(pauses::list(pool, None), pauses::topics(pool))?;
    Ok(Json(json!({"pauses": paused, "topics": topics})))
}

pub(super) async fn pause(State(console): State<Shared>, asked: JsonChange<PauseAsk>) -> Answer<Json<Changed>> {
    Ok(Json(change(&console, asked.value, asked.who, true).await?))
}

pub(super) async fn resume(State(console): State<Shared>, asked: JsonChange<PauseAsk>) -> Answer<Json<Changed>> {
    Ok(Json(change(&console, asked.value, asked.who, false).await?))
}

/// Pauses or resumes, and records who did it and why.
pub(in crate::console) async fn change(
    console: &Shared,
    asked: PauseAsk,
    who: String,
    pauses_it: bool,
) -> Answer<Changed> {
    let reason = asked.reason.trim();
    if reason.is_empty() || REASON_MAX < reason.chars().count() {
        return Err(Refusal::bad(format!("a reason is needed, of at most {REASON_MAX} characters")));
    }
    let (pool, topic) = (console.letters.pool(), asked.topic.as_deref());
    let actor = Actor { who, reason: reason.to_owned() };
    if pauses_it {
        let known = pauses::topics(pool).await?;
        let is_read = |topic: &str| known.iter().any(|it| it.group == asked.group && it.topic == topic);
        if topic.is_some_and(|it| !is_read(it)) {
            return Err(Refusal::bad("the group does not read that topic; retry topics go with theirs"));
        }
        return Ok(pauses::pause(pool, &asked.group, topic, &actor).await?);
    }
    Ok(pauses::resume(pool, &asked.group, topic, &actor).await?)
}
