//! Who comes in: by a session, by the token itself, or as a trusted proxy says.

mod attempts;
mod origin;
mod sessions;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use secrecy::{ExposeSecret, SecretString};
use sekali_consumer::config::ConsoleSection;
use sekali_producer::config::secret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::Shared;
use super::answer::{Answer, Refusal};
use super::selection::address;
use crate::exit::Failure;

use attempts::Attempts;
use sessions::Sessions;

/// Where programs that come with the token say for whom.
pub(super) const ACTOR: &str = "sekali-actor";
const COOKIE_NAME: &str = "sekali_session";
const TOKEN_BYTES_MIN: usize = 16;
const NAME_BYTES_MAX: usize = 200;

/// What is known of the ways in.
pub(super) struct Access {
    token: Option<[u8; 32]>,
    /// Nobody outside this process knows it.
    secret: [u8; 32],
    sessions: Sessions,
    attempts: Attempts,
    section: ConsoleSection,
}

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Operator {
    /// None where no login is configured.
    pub(super) name: Option<String>,
    way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// Logged in with a form; the digest of the session's id.
    Session([u8; 32]),
    /// With the token in the request: nothing that a browser adds by itself.
    Bearer,
    Proxy,
    /// No login is configured, or none has happened.
    Nobody,
}

impl Operator {
    const NOBODY: Operator = Operator { name: None, way: Way::Nobody };

    /// Whether the request proves by itself that no other page made it.
    pub(super) fn is_bearer(&self) -> bool {
        self.way == Way::Bearer
    }

    pub(super) fn has_session(&self) -> bool {
        matches!(self.way, Way::Session(_))
    }
}

impl Access {
    pub(super) fn new(section: &ConsoleSection) -> Result<Access, Failure> {
        let value = section.token.as_ref().map(|it| it.secret().clone());
        let token = secret::resolve("console.token", value.as_ref(), section.token_file.as_deref())?;
        let is_short = |it: &SecretString| it.expose_secret().len() < TOKEN_BYTES_MIN;
        if token.as_ref().is_some_and(is_short) {
            let text = format!("console.token must have at least {TOKEN_BYTES_MIN} bytes: openssl rand -hex 32");
            return Err(Failure::usage(text));
        }
        Ok(Access {
            token: token.map(|it| digest(&[it.expose_secret().as_bytes()])),
            secret: digest(&[Uuid::new_v4().as_bytes(), Uuid::new_v4().as_bytes(), Uuid::new_v4().as_bytes()]),
            sessions: Sessions::default(),
            attempts: Attempts::default(),
            section: section.clone(),
        })
    }

    /// Whether people log in with a token.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    fn takes_login(&self) -> bool {
        self.token.is_some() || self.section.user_header.is_some()
    }

    fn is_token(&self, given: &str) -> bool {
        self.token.is_some_and(|it| it.ct_eq(&digest(&[given.as_bytes()])).into())
    }

    /// Lets a right token pass.
    ///
    /// # Errors
    /// It is wrong, as `otherwise` says; or so many from this address were that it has to wait.
    fn expect_token(&self, from: IpAddr, given: Option<&str>, otherwise: &str) -> Answer<()> {
        // What is no token at all is no guess.
        let Some(given) = given.filter(|it| !it.is_empty()) else {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, otherwise));
        };
        match self.attempts.attempt(from, Instant::now(), || self.is_token(given)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::new(StatusCode::UNAUTHORIZED, otherwise)),
            Err(wait) => Err(Refusal::later(wait, "too many wrong tokens came from this address")),
        }
    }

    /// What a form of this operator must bring along.
    pub(super) fn csrf(&self, operator: &Operator) -> String {
        let (way, id): (&[u8], &[u8]) = match &operator.way {
            Way::Session(id) => (b"session", id),
            Way::Bearer => (b"bearer", b""),
            Way::Proxy => (b"proxy", operator.name.as_deref().unwrap_or_default().as_bytes()),
            Way::Nobody => (b"nobody", b""),
        };
        hex(&digest(&[&self.secret, way, b"\0", id, &self.secret]))
    }

    pub(super) fn is_csrf(&self, operator: &Operator, given: &str) -> bool {
        self.csrf(operator).as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// Begins a session. The value for `Set-Cookie`.
    pub(super) fn log_in(&self, from: IpAddr, name: &str, token: &str) -> Answer<String> {
        self.expect_token(from, Some(token), "the token is wrong: console.token_file has the right one")?;
        let id = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        self.sessions.begin(digest(&[id.as_bytes()]), signed(name)?);
        Ok(self.cookie(&id, sessions::TTL.as_secs()))
    }

    /// Ends a session. The value for `Set-Cookie`.
    pub(super) fn log_out(&self, operator: &Operator) -> String {
        if let Way::Session(id) = &operator.way {
            self.sessions.end(id);
        }
        self.cookie("", 0)
    }

    fn cookie(&self, id: &str, seconds: u64) -> String {
        let secure =
            if self.section.url.as_deref().is_some_and(|it| it.starts_with("https:")) { "; Secure" } else { "" };
        format!("{COOKIE_NAME}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    /// Who asks.
    ///
    /// # Errors
    /// A token came, and it is wrong; or a name that is none.
    fn who(&self, peer: SocketAddr, headers: &HeaderMap) -> Answer<Option<Operator>> {
        if let Some(given) = headers.get(AUTHORIZATION) {
            let given = given.to_str().ok().and_then(|it| it.strip_prefix("Bearer "));
            self.expect_token(peer.ip(), given, "the token is wrong: send Authorization: Bearer TOKEN")?;
            let name = text(headers, ACTOR).map(signed).transpose()?;
            return Ok(Some(Operator { name, way: Way::Bearer }));
        }
        if let Some(header) = &self.section.user_header {
            let trusted = self.section.trusted_proxies.contains(&peer.ip().to_canonical());
            if let Some(name) = text(headers, header).filter(|_| trusted) {
                return Ok(Some(Operator { name: Some(signed(name)?), way: Way::Proxy }));
            }
        }
        if let Some(id) = cookie(headers).map(|it| digest(&[it.as_bytes()]))
            && let Some(name) = self.sessions.name(&id)
        {
            return Ok(Some(Operator { name: Some(name), way: Way::Session(id) }));
        }
        Ok((!self.takes_login()).then_some(Operator::NOBODY))
    }
}

/// Lets in who may come in, and refuses what another site makes a browser send.
pub(super) async fn identify(
    State(console): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let access = &console.access;
    if let Err(refusal) = origin::check(&request, access.section.url.as_deref(), access.takes_login()) {
        return refusal.into_response();
    }
    let path = request.uri().path();
    let is_open = path == "/login" || path.starts_with("/assets/");
    let operator = match access.who(peer, request.headers()) {
        Ok(Some(operator)) => operator,
        Ok(None) if is_open => Operator::NOBODY,
        Ok(None) if path.starts_with("/api/") => {
            let text = "a login is needed: send Authorization: Bearer TOKEN";
            return Refusal::new(StatusCode::UNAUTHORIZED, text).into_response();
        }
        Ok(None) if access.has_token() && request.method().is_safe() => {
            let asked = request.uri().path_and_query().map_or("/", |it| it.as_str());
            return Redirect::to(&address("/login", [("next", asked.to_owned())])).into_response();
        }
        Ok(None) => return Refusal::new(StatusCode::UNAUTHORIZED, "a login is needed").into_response(),
        Err(refusal) => return refusal.into_response(),
    };
    request.extensions_mut().insert(operator);
    next.run(request).await
}

/// The name for the audit.
fn signed(name: &str) -> Answer<String> {
    let name = name.trim();
    if name.is_empty() || NAME_BYTES_MAX < name.len() || name.chars().any(char::is_control) {
        return Err(Refusal::bad(format!("a name is needed, for the audit, of at most {NAME_BYTES_MAX} bytes")));
    }
    Ok(name.to_owned())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok());
    let mut pairs = cookies.flat_map(|it| it.split(';')).filter_map(|it| it.trim().split_once('='));
    pairs.find(|it| it.0 == COOKIE_NAME).map(|it| it.1)
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    parts.iter().fold(Sha256::new(), |sha, it| sha.chain_update(it)).finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}
