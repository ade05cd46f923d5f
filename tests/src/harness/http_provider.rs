//! A provider behind HTTP that keeps what it is asked, and misbehaves by rule.
//!
//! It listens on 127.0.0.1, so that workers in processes of their own reach it, and lives in the test's runtime. A repeated
//! idempotency key gets the reference of the first time, as good providers do; [`HttpProvider::calls`] tells how often it was
//! asked.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A request.
#[derive(Debug, Clone)]
pub struct Call {
    /// Counts the requests of this provider from 1. A share of 5 % is `number % 20 == 0`.
    pub number: usize,
    /// Such as `POST`.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Header `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Its body.
    pub body: Bytes,
    /// When it came.
    pub at: Instant,
    /// What the rule said.
    pub fault: Option<CallFault>,
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// This status, and nothing done.
    Refuse(u16),
    /// Status 429 with `Retry-After` in whole seconds, and nothing done.
    TooMany(Duration),
    /// Nothing done, and no answer.
    Stall,
    /// Done, and no answer.
    ActAndStall,
    /// Done, and answered as usual after this time.
    Slow(Duration),
    /// Done, and this status: a proxy in between gave up.
    ActAndRefuse(u16),
}

impl Call {
    /// Whether the provider did what it was asked for, or had done so before under the same key.
    pub fn is_acted_on(&self) -> bool {
        !matches!(self.fault, Some(CallFault::Refuse(_) | CallFault::TooMany(_) | CallFault::Stall))
    }
}

type Rule = dyn Fn(&Call) -> Option<CallFault> + Send + Sync;

/// A running provider. Dropping it ends it.
pub struct HttpProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    rule: Mutex<Arc<Rule>>,
    calls: Mutex<Vec<Call>>,
    /// By idempotency key.
    references: Mutex<HashMap<String, usize>>,
    end: CancellationToken,
    /// Ends the requests that stall now; then a new one takes its place.
    stalled: Mutex<CancellationToken>,
}

impl HttpProvider {
    /// Starts one that does everything, and answers `200` with `{"reference":"R-1"}`.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start() -> io::Result<HttpProvider> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            rule: Mutex::new(Arc::new(|_: &Call| None)),
            calls: Mutex::default(),
            references: Mutex::default(),
            stalled: Mutex::new(end.child_token()),
            end,
        });
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let ended = shared.end.clone();
        tokio::spawn(async move { ended.run_until_cancelled(axum::serve(listener, app).into_future()).await });
        Ok(HttpProvider { address, shared })
    }

    /// URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Decides on each request from now on.
    pub fn on_call(&self, rule: impl Fn(&Call) -> Option<CallFault> + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// Does everything from now on, and answers what stalls with status 504.
    pub fn heal(&self) {
        self.on_call(|_| None);
        let next = self.shared.end.child_token();
        std::mem::replace(&mut *lock(&self.shared.stalled), next).cancel();
    }

    /// Every request so far, in the order in which they came.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.shared.calls).clone()
    }
}

impl Drop for HttpProvider {
    fn drop(&mut self) {
        self.shared.end.cancel();
    }
}

impl Shared {
    /// Numbers a request, asks the rule and keeps it.
    fn judge(&self, mut call: Call) -> Call {
        let rule = lock(&self.rule).clone();
        let mut calls = lock(&self.calls);
        call.number = calls.len() + 1;
        call.fault = rule(&call);
        calls.push(call.clone());
        call
    }

    /// Does what is asked for, once for each key.
    fn act(&self, call: &Call) -> usize {
        let Some(key) = &call.idempotency_key else { return call.number };
        *lock(&self.references).entry(key.clone()).or_insert(call.number)
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    // A body that breaks off is no request.
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else { return status(400) };
    let key = head.headers.get("idempotency-key").map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
    let call = shared.judge(Call {
        number: 0,
        method: head.method.to_string(),
        path: head.uri.to_string(),
        idempotency_key: key,
        body,
        at: Instant::now(),
        fault: None,
    });
    let reference = call.is_acted_on().then(|| shared.act(&call));
    match call.fault {
        Some(CallFault::Refuse(code) | CallFault::ActAndRefuse(code)) => status(code),
        Some(CallFault::TooMany(after)) => {
            let mut answer = status(429);
            answer.headers_mut().insert("retry-after", after.as_secs().into());
            answer
        }
        Some(CallFault::Stall | CallFault::ActAndStall) => {
            let stalled = lock(&shared.stalled).clone();
            stalled.cancelled().await;
            status(504)
        }
        None => done(&call, reference),
        Some(CallFault::Slow(time)) => {
            tokio::time::sleep(time).await;
            done(&call, reference)
        }
    }
}

fn done(call: &Call, reference: Option<usize>) -> Response<Body> {
    let body = format!("{{\"reference\":\"R-{}\"}}", reference.unwrap_or(call.number));
    let mut answer = Response::new(body.into());
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    answer
}

fn status(code: u16) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::from_u16(code).expect("rules give codes between 100 and 999");
    answer
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, header `Retry-After` and body; `None` without an answer in time.
    async fn post(provider: &HttpProvider, key: &str) -> Option<(u16, Option<String>, String)> {
        let (url, key) = (format!("{}/v1/pay?x=1", provider.url()), key.to_owned());
        let asked = tokio::task::spawn_blocking(move || {
            let config = ureq::Agent::config_builder().http_status_as_error(false);
            let agent: ureq::Agent = config.timeout_global(Some(Duration::from_millis(500))).build().into();
            let mut answer = agent.post(&url).header("Idempotency-Key", &key).send("{}").ok()?;
            let after = answer.headers().get("retry-after").map(|it| it.to_str().unwrap().to_owned());
            Some((answer.status().as_u16(), after, answer.body_mut().read_to_string().ok()?))
        });
        asked.await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_repeated_key_gets_the_same_reference_and_every_call_is_kept() {
        let provider = HttpProvider::start().await.unwrap();
        let mut bodies = Vec::new();
        for key in ["a", "b", "a"] {
            bodies.push(post(&provider, key).await.unwrap().2);
        }
        assert_eq!(bodies, [r#"{"reference":"R-1"}"#, r#"{"reference":"R-2"}"#, r#"{"reference":"R-1"}"#]);
        let calls = provider.calls();
        let keys: Vec<_> = calls.iter().filter_map(|it| it.idempotency_key.as_deref()).collect();
        assert_eq!(keys, ["a", "b", "a"]);
        let first = (calls[0].method.as_str(), calls[0].path.as_str(), &calls[0].body[..]);
        assert_eq!(first, ("POST", "/v1/pay?x=1", &b"{}"[..]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rules_say_what_goes_wrong() {
        let provider = HttpProvider::start().await.unwrap();
        provider.on_call(|it| match it.number {
            1 => Some(CallFault::Refuse(503)),
            2 => Some(CallFault::TooMany(Duration::from_secs(7))),
            3 => Some(CallFault::ActAndStall),
            4 => Some(CallFault::Stall),
            5 => Some(CallFault::ActAndRefuse(502)),
            6 => Some(CallFault::Slow(Duration::from_millis(100))),
            _ => None,
        });
        assert_eq!(post(&provider, "a").await.unwrap().0, 503);
        assert_eq!(post(&provider, "a").await.unwrap(), (429, Some("7".to_owned()), String::new()));
        assert_eq!(post(&provider, "a").await, None);
        assert_eq!(post(&provider, "b").await, None);
        assert_eq!(post(&provider, "c").await.unwrap().0, 502);
        let begun = Instant::now();
        assert_eq!(post(&provider, "d").await.unwrap().2, r#"{"reference":"R-6"}"#);
        assert!(Duration::from_millis(100) <= begun.elapsed());
        provider.heal();
        assert_eq!(post(&provider, "a").await.unwrap().2, r#"{"reference":"R-3"}"#, "it had been done");
        let acted: Vec<usize> = provider.calls().iter().filter(|it| it.is_acted_on()).map(|it| it.number).collect();
        assert_eq!(acted, [3, 5, 6, 7]);
    }
}
