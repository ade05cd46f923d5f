//! Connections to the mail server.
//!
//! Not lettre's own pool: that one takes a connection back whose sending was given up in the middle, and the next mail
//! would get the answer of the one before it. Here a connection comes back only after its mail was taken.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lettre::address::Envelope;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use sekali_consumer::Failure;
use tokio::time::timeout;

/// How connections to the mail server are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SmtpTls {
    /// Not at all.
    None,
    /// From the first exchange on, after STARTTLS, or not at all: a server without it is not used.
    Starttls,
    /// From the first byte.
    Implicit,
}

/// A mail server, and the connections to it that have nothing to do. There are never more connections than mails in
/// progress.
pub struct Smtp {
    host: String,
    port: u16,
    tls: SmtpTls,
    parameters: Option<TlsParameters>,
    credentials: Option<Credentials>,
    hello: ClientId,
    timeout: Duration,
    idle: Mutex<Vec<Idle>>,
    /// Whether the last connection came about: losing the server is worth a line, each further try is not.
    reached: AtomicBool,
}

struct Idle {
    connection: AsyncSmtpConnection,
    since: Instant,
}

/// Why a mail counts as not sent.
pub(super) enum Unsent {
    /// The server has said so.
    Refused(Failure),
    /// The server has said nothing: it may have taken the mail.
    Unknown(Failure),
}

/// Mail servers close a connection that says nothing after a few minutes.
const IDLE_MAX: Duration = Duration::from_secs(60);

impl Smtp {
    /// A server at `host` and `port`. `hello` is the domain to introduce oneself with; `timeout` bounds making a
    /// connection, and again sending a mail. Connects to nothing yet.
    ///
    /// # Errors
    /// The certificates of the system cannot be used, or the host has no name that a certificate could have.
    pub fn new(host: &str, port: u16, tls: SmtpTls, hello: &str, timeout: Duration) -> Result<Smtp, Error> {
        let parameters = match tls {
            SmtpTls::None => None,
            SmtpTls::Starttls | SmtpTls::Implicit => Some(TlsParameters::new(host.to_owned())?),
        };
        Ok(Smtp {
            host: host.to_owned(),
            port,
            tls,
            parameters,
            credentials: None,
            hello: ClientId::Domain(hello.to_owned()),
            timeout,
            idle: Mutex::default(),
            reached: AtomicBool::new(true),
        })
    }

    /// Logs in with these.
    pub fn login(self, user: String, password: String) -> Smtp {
        Smtp { credentials: Some(Credentials::new(user, password)), ..self }
    }

    /// A connection that is ready for a mail.
    ///
    /// # Errors
    /// Interrupted: the server cannot be reached, or does not let us in. That is no mail's fault, and nothing was sent.
    pub(super) async fn connection(&self) -> Result<AsyncSmtpConnection, Failure> {
        let failed = match timeout(self.timeout, self.ready()).await {
            Ok(Ok(connection)) => {
                if !self.reached.swap(true, Ordering::Relaxed) {
                    tracing::info!("the mail server can be reached again");
                }
                return Ok(connection);
            }
            Ok(Err(error)) => said(&error),
            Err(_) => "no answer in time".to_owned(),
        };
        if self.reached.swap(false, Ordering::Relaxed) {
            tracing::warn!(error = failed, "the mail server cannot be used; mails wait until it can");
        }
        Err(Failure::interrupted(format_args!("the mail server cannot be used: {failed}")))
    }

    async fn ready(&self) -> Result<AsyncSmtpConnection, Error> {
        while let Some(mut idle) = self.take_idle() {
            if idle.since.elapsed() < IDLE_MAX && idle.connection.test_connected().await {
                return Ok(idle.connection);
            }
        }
        let from_the_start = self.parameters.clone().filter(|_| self.tls == SmtpTls::Implicit);
        let server = (self.host.as_str(), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(server, Some(self.timeout), &self.hello, from_the_start, None).await?;
        if let (SmtpTls::Starttls, Some(parameters)) = (self.tls, &self.parameters) {
            connection.starttls(parameters.clone(), &self.hello).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }

    /// Sends a mail. Dropping the future closes the connection.
    pub(super) async fn send(
        &self,
        mut connection: AsyncSmtpConnection,
        envelope: &Envelope,
        text: &[u8],
    ) -> Result<(), Unsent> {
        match timeout(self.timeout, connection.send(envelope, text)).await {
            Ok(Ok(_)) => {
                self.park(connection);
                Ok(())
            }
            Ok(Err(error)) => Err(unsent(&error)),
            Err(_) => Err(unknown("the mail server gave no answer in time")),
        }
    }

    /// Keeps a connection that has nothing to do for the next mail.
    pub(super) fn park(&self, connection: AsyncSmtpConnection) {
        let mut idle = self.idle();
        idle.retain(|it| it.since.elapsed() < IDLE_MAX);
        idle.push(Idle { connection, since: Instant::now() });
    }

    fn take_idle(&self) -> Option<Idle> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Classifies what ended the sending. The texts of mail servers quote addresses: only their code is kept.
fn unsent(error: &Error) -> Unsent {
    let Some(code) = error.status() else {
        if error.is_client() {
            let text = "the mail server does not support what the address of this mail needs";
            return Unsent::Refused(Failure::permanent(text).with_code("UNSUPPORTED"));
        }
        return unknown("the connection ended before the mail server answered");
    };
    let text = format!("the mail server refused the mail with {code}");
    let failure = if error.is_permanent() { Failure::permanent(text) } else { Failure::transient(text) };
    Unsent::Refused(failure.with_code(code.to_string()))
}

fn unknown(reason: impl Display) -> Unsent {
    Unsent::Unknown(Failure::transient(format_args!("{reason}: the mail may have been sent")).with_code("UNKNOWN"))
}

/// What is wrong with a connection, without the words of the server.
fn said(error: &Error) -> String {
    if let Some(code) = error.status() {
        return format!("it answered {code}");
    }
    if error.is_client() {
        // Texts of the library, such as that STARTTLS is not supported.
        return error.to_string();
    }
    let mut source = std::error::Error::source(error);
    while let Some(it) = source {
        if let Some(io) = it.downcast_ref::<std::io::Error>() {
            return io.to_string();
        }
        source = it.source();
    }
    "it speaks no SMTP, or ended the connection".to_owned()
}
