//! A schema registry, as Confluent's REST interface has it. Schemas of ids never change, so that they are asked for once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::config::RegistrySection;
use crate::contract::Refusal;
use crate::schemas::{KnownSchema, Validator};
use crate::{Error, ErrorKind};

/// Most schemas that are remembered; beyond that all are asked for again.
const REMEMBERED_MAX: usize = 1_000;
/// How long an id is taken for unknown without asking again.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;
const MEDIA_TYPE: &str = "application/vnd.schemaregistry.v1+json";
/// What the registry calls "there is no such schema", beside status 404: another 404 is a wrong address.
const SCHEMA_NOT_FOUND: i64 = 40_403;

/// A client. Clones share what is remembered.
#[derive(Clone)]
pub(crate) struct Registry(Arc<Inner>);

struct Inner {
    agent: ureq::Agent,
    url: String,
    authorization: Option<String>,
    register: bool,
    subject: String,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    schemas: HashMap<u32, Arc<Entry>>,
    unknown: HashMap<u32, Instant>,
    /// Ids by subject and version of the type.
    ids: HashMap<(String, u32), u32>,
}

/// A schema of the registry.
pub(crate) enum Entry {
    Json(Validator),
    /// Of another kind, or with references: why it cannot be used.
    Unusable(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaAnswer {
    schema: String,
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<Value>,
}

#[derive(Deserialize)]
struct IdAnswer {
    id: u32,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error_code: i64,
}

impl Registry {
    /// A client for what is configured; `None` without an address. Asks nothing yet.
    ///
    /// # Errors
    /// An unreadable password file or certificate.
    pub(crate) fn new(section: &RegistrySection) -> Result<Option<Registry>, Error> {
        let Some(url) = &section.url else { return Ok(None) };
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(section.timeout))
            .user_agent("sekali");
        if let Some(pem) = section.ca()? {
            config = config.tls_config(TlsConfig::builder().root_certs(roots(&pem)?).build());
        }
        let authorization = section.login()?.map(|(user, password)| {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{}", password.expose_secret())))
        });
        Ok(Some(Registry(Arc::new(Inner {
            agent: config.build().into(),
            url: url.trim_end_matches('/').to_owned(),
            authorization,
            register: section.register,
            subject: section.subject.clone(),
            remembered: Mutex::default(),
        }))))
    }

    /// The schema of an id.
    ///
    /// # Errors
    /// No answer, or an id that the registry does not know.
    pub(crate) async fn schema(&self, id: u32) -> Result<Arc<Entry>, Refusal> {
        {
            let remembered = self.remembered();
            if let Some(entry) = remembered.schemas.get(&id) {
                return Ok(entry.clone());
            }
            if remembered.unknown.get(&id).is_some_and(|it| it.elapsed() < UNKNOWN_FOR) {
                return Err(Refusal::UnknownId(id));
            }
        }
        let answer = self.ask(move |it| it.get(&format!("/schemas/ids/{id}"))).await?;
        let entry = match answer {
            (200, body) => Arc::new(entry(id, &body)?),
            (404, body) if error_code(&body) == Some(SCHEMA_NOT_FOUND) => {
                let mut remembered = self.remembered();
                make_room(&mut remembered.unknown);
                remembered.unknown.insert(id, Instant::now());
                return Err(Refusal::UnknownId(id));
            }
            (status, _) => return Err(Refusal::status(status, "asked for a schema")),
        };
        let mut remembered = self.remembered();
        make_room(&mut remembered.schemas);
        remembered.schemas.insert(id, entry.clone());
        Ok(entry)
    }

    /// The id under which a schema is written to a topic: registered if need be.
    ///
    /// # Errors
    /// No answer, or the registry does not have the schema and does not take it.
    pub(crate) async fn id_of(&self, topic: &str, schema: &KnownSchema) -> Result<u32, Refusal> {
        // The topic last: it is the only part that comes from outside and could look like a placeholder.
        let subject = self.0.subject.replace("{type}", &schema.name).replace("{topic}", topic);
        let place = (format!("{subject}\u{1f}{}", schema.name), schema.version);
        if let Some(id) = self.remembered().ids.get(&place) {
            return Ok(*id);
        }
        let path = format!("/subjects/{}{}", escaped(&subject), if self.0.register { "/versions" } else { "" });
        let body = json!({"schemaType": "JSON", "schema": schema.text}).to_string();
        let doing = if self.0.register { "asked to register a schema" } else { "asked for a schema's id" };
        let id = match self.ask(move |it| it.post(&path, &body)).await? {
            (200, body) => serde_json::from_slice::<IdAnswer>(&body).map_err(|_| Refusal::unreadable())?.id,
            (404, body) if error_code(&body).is_some() => {
                let what = format!(
                    "schema {} v{} is not registered under {subject}: register it, or set registry.register = true",
                    schema.name, schema.version
                );
                return Err(Refusal::Registry(what));
            }
            (409 | 422, _) => {
                let what = format!(
                    "it does not take schema {} v{} under {subject}: register a compatible one, or name a new version",
                    schema.name, schema.version
                );
                return Err(Refusal::Registry(what));
            }
            (status, _) => return Err(Refusal::status(status, doing)),
        };
        let mut remembered = self.remembered();
        make_room(&mut remembered.ids);
        remembered.ids.insert(place, id);
        Ok(id)
    }

    /// Asks on a thread that may wait.
    async fn ask(
        &self,
        request: impl FnOnce(&Inner) -> Result<(u16, Vec<u8>), Refusal> + Send + 'static,
    ) -> Result<(u16, Vec<u8>), Refusal> {
        let inner = self.0.clone();
        let asked = tokio::task::spawn_blocking(move || request(&inner)).await;
        asked.unwrap_or_else(|_| Err(Refusal::Registry("the request ended early".to_owned())))
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.0.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn get(&self, path: &str) -> Result<(u16, Vec<u8>), Refusal> {
        let mut request = self.agent.get(format!("{}{path}", self.url)).header("accept", MEDIA_TYPE);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        answer(request.call())
    }

    fn post(&self, path: &str, body: &str) -> Result<(u16, Vec<u8>), Refusal> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.post(url).header("accept", MEDIA_TYPE).header("content-type", MEDIA_TYPE);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        answer(request.send(body))
    }
}

/// Status and body. Errors say what went wrong, not where: what the client writes of them may hold the address.
fn answer(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<(u16, Vec<u8>), Refusal> {
    let mut answer = answer.map_err(|error| Refusal::Registry(kind(&error)))?;
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    Ok((answer.status().as_u16(), body.map_err(|error| Refusal::Registry(kind(&error)))?))
}

fn kind(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "it did not answer within registry.timeout".to_owned(),
        ureq::Error::Io(error) => format!("the connection failed: {error}"),
        ureq::Error::HostNotFound => "its host name is not known".to_owned(),
        ureq::Error::ConnectionFailed => "the connection failed".to_owned(),
        ureq::Error::Rustls(_) => "its certificate or its tls is refused: see registry.ca_file".to_owned(),
        _ => "the exchange with it failed".to_owned(),
    }
}

fn entry(id: u32, body: &[u8]) -> Result<Entry, Refusal> {
    let answer: SchemaAnswer = serde_json::from_slice(body).map_err(|_| Refusal::unreadable())?;
    // The registry leaves the type out when it is Avro.
    let ty = answer.schema_type.as_deref().unwrap_or("AVRO");
    if ty != "JSON" {
        return Ok(Entry::Unusable("it is no JSON Schema".to_owned()));
    }
    if !answer.references.is_empty() {
        return Ok(Entry::Unusable("it has references to other schemas, which are not followed".to_owned()));
    }
    let schema: Value = match serde_json::from_str(&answer.schema) {
        Ok(schema) => schema,
        Err(_) => return Ok(Entry::Unusable("it is not JSON".to_owned())),
    };
    Ok(match Validator::compile(&format!("{id} of the registry"), &schema) {
        Ok(validator) => Entry::Json(validator),
        Err(problem) => Entry::Unusable(problem),
    })
}

fn error_code(body: &[u8]) -> Option<i64> {
    serde_json::from_slice::<ErrorAnswer>(body).ok().map(|it| it.error_code)
}

fn make_room<K, V>(remembered: &mut HashMap<K, V>) {
    if REMEMBERED_MAX <= remembered.len() {
        remembered.clear();
    }
}

/// A subject as a segment of a path: names of topics and types are mostly plain.
fn escaped(subject: &str) -> String {
    let escape = |it: u8| match it {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => char::from(it).to_string(),
        other => format!("%{other:02X}"),
    };
    subject.bytes().map(escape).collect()
}

fn roots(pem: &[u8]) -> Result<RootCerts, Error> {
    let failed = || Error::new(ErrorKind::Config, "read registry.ca_file: expected certificates in PEM form");
    let mut certificates = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|_| failed())? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() { Err(failed()) } else { Ok(RootCerts::new_with_certs(&certificates)) }
}
