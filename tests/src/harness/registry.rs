//! A schema registry as Confluent's REST interface has it: schemas by id, registering, looking up. It misbehaves on demand.
//!
//! It listens on 127.0.0.1 and lives in the test's runtime.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Ids begin here, so that none of their bytes looks like a small number by chance.
const FIRST_ID: u32 = 0x0102_0300;

/// What it does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// What it is asked.
    Well,
    /// Answers this status, and does nothing.
    Refuse(u16),
    /// Answers this status to whoever writes.
    RefuseWrites(u16),
    /// Answers late.
    Slow(Duration),
}

/// A running registry. Dropping it ends it.
pub struct SchemaRegistry {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<Registered>,
    end: CancellationToken,
}

struct Registered {
    mood: Mood,
    /// What header `Authorization` must be.
    authorization: Option<String>,
    /// Type and text, by id - [`FIRST_ID`].
    schemas: Vec<(String, String)>,
    /// Ids of each subject's versions.
    subjects: BTreeMap<String, Vec<u32>>,
    /// Method and path of every request.
    requests: Vec<String>,
}

impl SchemaRegistry {
    /// Starts one that knows nothing.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start() -> io::Result<SchemaRegistry> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Mutex::new(Registered {
            mood: Mood::Well,
            authorization: None,
            schemas: Vec::new(),
            subjects: BTreeMap::new(),
            requests: Vec::new(),
        });
        let shared = Arc::new(Shared { state, end: CancellationToken::new() });
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let ended = shared.end.clone();
        tokio::spawn(async move { ended.run_until_cancelled(axum::serve(listener, app).into_future()).await });
        Ok(SchemaRegistry { address, shared })
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it does from now on.
    pub fn mood(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// From now on it wants this header `Authorization`.
    pub fn authorization(&self, expected: &str) {
        self.state().authorization = Some(expected.to_owned());
    }

    /// Registers a schema; the same text has the same id.
    pub fn register(&self, subject: &str, ty: &str, schema: &str) -> u32 {
        self.state().register(subject, ty, schema)
    }

    /// An id that no schema has.
    pub fn unknown_id(&self) -> u32 {
        FIRST_ID + 0x00FF_FFFF
    }

    /// Ids by subject.
    pub fn subjects(&self) -> BTreeMap<String, Vec<u32>> {
        self.state().subjects.clone()
    }

    /// Method and path of every request so far.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    fn state(&self) -> MutexGuard<'_, Registered> {
        self.shared.state()
    }
}

impl Drop for SchemaRegistry {
    fn drop(&mut self) {
        self.shared.end.cancel();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Registered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    fn register(&mut self, subject: &str, ty: &str, schema: &str) -> u32 {
        let given = (ty.to_owned(), schema.to_owned());
        let place = self.schemas.iter().position(|it| *it == given).unwrap_or_else(|| {
            self.schemas.push(given);
            self.schemas.len() - 1
        });
        let id = FIRST_ID + place as u32;
        let versions = self.subjects.entry(subject.to_owned()).or_default();
        if !versions.contains(&id) {
            versions.push(id);
        }
        id
    }

    fn act(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let (ty, schema) = (body["schemaType"].as_str().unwrap_or("AVRO"), body["schema"].as_str().unwrap_or_default());
        match (method, segments.as_slice()) {
            ("GET", ["schemas", "ids", id]) => self.by_id(id),
            ("POST", ["subjects", _, "versions"]) if serde_json::from_str::<Value>(schema).is_err() => {
                (422, json!({"error_code": 42201, "message": "Invalid schema"}))
            }
            ("POST", ["subjects", subject, "versions"]) => (200, json!({"id": self.register(subject, ty, schema)})),
            ("POST", ["subjects", subject]) => self.look_up(subject, ty, schema),
            _ => (404, json!({"error_code": 404, "message": "HTTP 404 Not Found"})),
        }
    }

    fn by_id(&self, id: &str) -> (u16, Value) {
        let place = id.parse::<u32>().ok().and_then(|it| it.checked_sub(FIRST_ID));
        match place.and_then(|it| self.schemas.get(it as usize)) {
            // As the real one does: Avro is the type that is not said.
            Some((ty, schema)) if ty == "AVRO" => (200, json!({"schema": schema})),
            Some((ty, schema)) => (200, json!({"schema": schema, "schemaType": ty})),
            None => (404, json!({"error_code": 40403, "message": "Schema not found"})),
        }
    }

    fn look_up(&self, subject: &str, ty: &str, schema: &str) -> (u16, Value) {
        let Some(versions) = self.subjects.get(subject) else {
            return (404, json!({"error_code": 40401, "message": "Subject not found"}));
        };
        let given = (ty.to_owned(), schema.to_owned());
        let found = versions.iter().position(|it| self.schemas[(it - FIRST_ID) as usize] == given);
        match found {
            Some(place) => (200, json!({"subject": subject, "id": versions[place], "version": place + 1})),
            None => (404, json!({"error_code": 40403, "message": "Schema not found"})),
        }
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else { return response(400, &Value::Null) };
    let (method, path) = (head.method.as_str(), head.uri.path());
    let mood = {
        let mut state = shared.state();
        state.requests.push(format!("{method} {path}"));
        let given = head.headers.get("authorization").and_then(|it| it.to_str().ok());
        if state.authorization.is_some() && state.authorization.as_deref() != given {
            return response(401, &json!({"error_code": 40101, "message": "Unauthorized"}));
        }
        state.mood
    };
    match mood {
        Mood::Refuse(status) => return response(status, &json!({"error_code": 50001, "message": "Error"})),
        Mood::RefuseWrites(status) if method == "POST" => {
            return response(status, &json!({"error_code": status, "message": "Incompatible"}));
        }
        Mood::Slow(time) => tokio::time::sleep(time).await,
        Mood::Well | Mood::RefuseWrites(_) => {}
    }
    let (status, body) = shared.state().act(method, path, &body);
    response(status, &body)
}

fn response(status: u16, body: &Value) -> Response<Body> {
    let mut answer = Response::new(body.to_string().into());
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    let media_type = HeaderValue::from_static("application/vnd.schemaregistry.v1+json");
    answer.headers_mut().insert("content-type", media_type);
    answer
}
