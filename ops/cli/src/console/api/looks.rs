//! What is read.

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sekali_consumer::operate::{AuditQuery, Filter, Overview, Waiting};
use serde::Serialize;
use serde_json::{Value, json};

use super::Json;
use crate::commands::moment;
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::answer::{Answer, Refusal};
use crate::console::lag::Known;
use crate::console::selection::Pairs;
use crate::console::view::Payload;

const PAGE: u32 = 50;
const OPERATIONS: u32 = 20;
const AUDIT: u32 = 100;

/// What is to be done, and what waits.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    lag: Known,
    dead_letters: Overview,
    waiting: Waiting,
}

fn given(query: Option<String>) -> Pairs {
    Pairs::parse(query.unwrap_or_default().as_bytes())
}

pub(super) async fn session(State(console): State<Shared>, Extension(operator): Extension<Operator>) -> Json<Value> {
    Json(json!({
        "name": operator.name,
        "read_only": console.section.read_only,
        "csrf_token": console.access.csrf(&operator),
    }))
}

pub(super) async fn overview(State(console): State<Shared>) -> Answer<Json<Figures>> {
    let letters = &console.letters;
    let (dead_letters, waiting) = tokio::try_join!(letters.overview(None), letters.waiting(console.retry_path))?;
    Ok(Json(Figures { lag: console.lag.known(), dead_letters, waiting }))
}

pub(super) async fn groups(State(console): State<Shared>, RawQuery(query): RawQuery) -> Answer<Json<Value>> {
    let filter = given(query).filter(&[])?;
    let (groups, trends) = tokio::try_join!(console.letters.groups(&filter), console.letters.trends(&filter))?;
    Ok(Json(json!({"groups": groups, "trends": trends})))
}

pub(super) async fn messages(State(console): State<Shared>, RawQuery(query): RawQuery) -> Answer<Json<Value>> {
    let given = given(query);
    let filter: Filter = given.filter(&["before", "first"])?;
    let first = given.number("first")?.unwrap_or(PAGE);
    let page = console.letters.list(&filter, given.id("before")?, first).await?;
    Ok(Json(json!({"letters": page.letters, "next": page.next})))
}

pub(super) async fn message(State(console): State<Shared>, Path(id): Path<String>) -> Answer<Json<Value>> {
    let id = super::acts::letter_id(&id)?;
    let mut shown = console.letters.show(id).await.map_err(Refusal::missing)?;
    let payload = console.masks.apply(shown.payload.take().as_deref());
    let mut json = serde_json::to_value(&shown).map_err(|_| {
        Refusal::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the dead letter cannot be written as JSON")
    })?;
    json["payload_withheld"] = matches!(payload, Payload::Withheld).into();
    json["payload_values_masked"] = 0.into();
    if let Payload::Bytes(bytes, masked) = payload {
        json["payload"] = STANDARD.encode(bytes).into();
        json["payload_values_masked"] = masked.into();
    }
    Ok(Json(json))
}

pub(super) async fn preview(State(console): State<Shared>, RawQuery(query): RawQuery) -> Answer<Json<Value>> {
    let given = given(query);
    let (act, filter) = (given.act()?, given.filter(&["act"])?);
    let preview = console.letters.preview(act, &filter).await?;
    Ok(Json(json!({"act": act.as_str(), "selection": filter, "preview": preview})))
}

pub(super) async fn operations(State(console): State<Shared>, RawQuery(query): RawQuery) -> Answer<Json<Value>> {
    let first = given(query).number("first")?.unwrap_or(OPERATIONS);
    Ok(Json(json!({"operations": console.letters.operations(first).await?})))
}

pub(super) async fn operation(State(console): State<Shared>, Path(id): Path<String>) -> Answer<Json<Value>> {
    let id = super::acts::operation_id(&id)?;
    let operation = console.letters.operation(id).await.map_err(Refusal::missing)?;
    let (here, error) = (console.running.is_here(id), console.running.error(id));
    Ok(Json(json!({"operation": operation, "runs_here": here, "error": error})))
}

pub(super) async fn audit(State(console): State<Shared>, RawQuery(query): RawQuery) -> Answer<Json<Value>> {
    let given = given(query);
    let first = given.number("first")?.unwrap_or(AUDIT);
    Ok(Json(json!({"audit": console.letters.audit(&audit_query(&given)?, first).await?})))
}

/// The rows of the audit that a query asks for.
pub(in crate::console) fn audit_query(given: &Pairs) -> Answer<AuditQuery> {
    let since = given.get("since").map(moment).transpose();
    Ok(AuditQuery {
        dead_letter: given.id("dead_letter")?,
        operation: given.number("operation")?,
        who: given.get("who").filter(|it| !it.contains('\0')).map(str::to_owned),
        since: since.map_err(|why| Refusal::bad(format!("since is no time: {why}")))?,
        before: given.number("before")?,
    })
}
