//! What changes something.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sekali_consumer::operate::{self, Act, Filter, Operation};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Json;
use crate::console::answer::{Answer, Refusal};
use crate::console::body::JsonChange;
use crate::console::{Shared, running};

/// What somebody asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::console) struct Ask {
    /// replay, discard or restore.
    pub(in crate::console) act: String,
    /// Which letters.
    pub(in crate::console) filter: Filter,
    /// Why.
    pub(in crate::console) reason: String,
    /// How many there are, as the preview says.
    pub(in crate::console) count: u64,
    /// Letters a second.
    #[serde(default)]
    pub(in crate::console) rate: Option<u32>,
    /// Beyond the bounds.
    #[serde(default)]
    pub(in crate::console) force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// In base64.
    payload: String,
    reason: String,
}

pub(super) fn letter_id(id: &str) -> Answer<Uuid> {
    id.parse().map_err(|_| Refusal::new(StatusCode::NOT_FOUND, "that is no id of a dead letter"))
}

pub(super) fn operation_id(id: &str) -> Answer<i64> {
    id.parse().map_err(|_| Refusal::new(StatusCode::NOT_FOUND, "that is no number of an operation"))
}

/// Pins the letters, and begins to carry the operation out.
pub(in crate::console) async fn begin(console: &Shared, ask: Ask, who: String) -> Answer<Operation> {
    let act = Act::ALL.into_iter().find(|it| it.as_str() == ask.act);
    let act = act.ok_or_else(|| Refusal::bad("act must be replay, discard or restore"))?;
    let Ask { filter, reason, count, rate, force, .. } = ask;
    let ask = operate::Ask { filter, who, reason, rate, force, expected: Some(count) };
    let operation = console.letters.begin(act, &ask).await?;
    running::start(console, operation.id);
    Ok(operation)
}

/// Stops an operation that runs here.
pub(in crate::console) fn stop(console: &Shared, id: i64) -> Answer<()> {
    if console.running.stop(id) {
        return Ok(());
    }
    let text = format!("operation {id} is not carried out by this console: stop the process that does, or cancel it");
    Err(Refusal::new(StatusCode::CONFLICT, text))
}

pub(super) async fn post(State(console): State<Shared>, change: JsonChange<Ask>) -> Answer<(StatusCode, Json<Value>)> {
    let operation = begin(&console, change.value, change.who).await?;
    Ok((StatusCode::CREATED, Json(json!({"operation": operation}))))
}

pub(super) async fn stop_json(
    State(console): State<Shared>,
    Path(id): Path<String>,
    _change: JsonChange<Nothing>,
) -> Answer<(StatusCode, Json<Value>)> {
    let id = operation_id(&id)?;
    stop(&console, id)?;
    Ok((StatusCode::ACCEPTED, Json(json!({"operation": console.letters.operation(id).await?}))))
}

pub(super) async fn resume(
    State(console): State<Shared>,
    Path(id): Path<String>,
    _change: JsonChange<Nothing>,
) -> Answer<(StatusCode, Json<Value>)> {
    let operation = console.letters.operation(operation_id(&id)?).await.map_err(Refusal::missing)?;
    running::start(&console, operation.id);
    Ok((StatusCode::ACCEPTED, Json(json!({"operation": operation}))))
}

pub(super) async fn cancel(
    State(console): State<Shared>,
    Path(id): Path<String>,
    change: JsonChange<Reason>,
) -> Answer<Json<Value>> {
    let id = operation_id(&id)?;
    Ok(Json(json!({"operation": console.letters.cancel(id, &change.who, &change.value.reason).await?})))
}

pub(super) async fn edit(
    State(console): State<Shared>,
    Path(id): Path<String>,
    change: JsonChange<Edit>,
) -> Answer<(StatusCode, Json<Value>)> {
    let id = letter_id(&id)?;
    let payload = STANDARD.decode(&change.value.payload).map_err(|_| Refusal::bad("payload is no base64"))?;
    let (copy, operation) = console.letters.edit(id, &payload, &change.who, &change.value.reason).await?;
    Ok((StatusCode::CREATED, Json(json!({"dead_letter": copy, "operation": operation}))))
}
