//! A mail server that keeps what it gets, and misbehaves by rule.
//!
//! It listens on 127.0.0.1, so that workers in processes of their own reach it, and lives in the test's runtime. It speaks as
//! much of SMTP (RFC 5321) as clients need to hand over a message: no TLS, no authentication.

mod session;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A message that reached the server as a whole.
#[derive(Debug, Clone)]
pub struct Mail {
    /// Counts the messages of this server from 1, refused ones too. A share of 5 % is `number % 20 == 0`.
    pub number: usize,
    /// Header `Message-ID`, with its angle brackets.
    pub message_id: Option<String>,
    /// Sender of the envelope.
    pub sender: String,
    /// Recipients of the envelope that were not refused.
    pub recipients: Vec<String>,
    /// Headers and body, as sent.
    pub text: String,
    /// When its last line came.
    pub at: Instant,
    /// What the rule said.
    pub fault: Option<MailFault>,
}

/// What goes wrong with a recipient, before there is a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecipientFault {
    /// `RCPT` is answered with this code: 4xx is worth another try, 5xx is not.
    Refuse(u16),
    /// No answer comes.
    Stall,
}

/// What goes wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailFault {
    /// The end of `DATA` is answered with this code, and the message forgotten.
    Refuse(u16),
    /// The connection ends, and the message is forgotten.
    Drop,
    /// The message is delivered, and the connection ends before the answer.
    DeliverAndDrop,
    /// The message is delivered, and no answer comes.
    DeliverAndStall,
}

impl MailFault {
    fn delivers(self) -> bool {
        matches!(self, MailFault::DeliverAndDrop | MailFault::DeliverAndStall)
    }
}

impl Mail {
    /// Whether the server has taken responsibility for it, whatever the client knows.
    pub fn is_delivered(&self) -> bool {
        self.fault.is_none_or(MailFault::delivers)
    }
}

type RecipientRule = dyn Fn(&str) -> Option<RecipientFault> + Send + Sync;
type MailRule = dyn Fn(&Mail) -> Option<MailFault> + Send + Sync;

/// A running mail server. Dropping it ends it.
pub struct MailServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    recipient_rule: Mutex<Arc<RecipientRule>>,
    mail_rule: Mutex<Arc<MailRule>>,
    mails: Mutex<Vec<Mail>>,
    connections: AtomicUsize,
    end: CancellationToken,
    /// Ends the connections that stall now; then a new one takes its place.
    stalled: Mutex<CancellationToken>,
}

impl MailServer {
    /// Starts one that takes everything.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start() -> io::Result<MailServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            recipient_rule: Mutex::new(Arc::new(|_: &str| None)),
            mail_rule: Mutex::new(Arc::new(|_: &Mail| None)),
            mails: Mutex::default(),
            connections: AtomicUsize::new(0),
            stalled: Mutex::new(end.child_token()),
            end,
        });
        let server = MailServer { address: listener.local_addr()?, shared: shared.clone() };
        tokio::spawn(async move {
            shared.end.run_until_cancelled(accept(listener, &shared)).await;
        });
        Ok(server)
    }

    /// Address to connect to, without TLS.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Decides on each recipient from now on.
    pub fn on_recipient(&self, rule: impl Fn(&str) -> Option<RecipientFault> + Send + Sync + 'static) {
        *lock(&self.shared.recipient_rule) = Arc::new(rule);
    }

    /// Decides on each message from now on, once it has come as a whole.
    pub fn on_mail(&self, rule: impl Fn(&Mail) -> Option<MailFault> + Send + Sync + 'static) {
        *lock(&self.shared.mail_rule) = Arc::new(rule);
    }

    /// Takes everything from now on, and closes the connections that stall.
    pub fn heal(&self) {
        self.on_recipient(|_| None);
        self.on_mail(|_| None);
        let next = self.shared.end.child_token();
        std::mem::replace(&mut *lock(&self.shared.stalled), next).cancel();
    }

    /// Every message so far, in the order in which they came, with what became of each.
    pub fn mails(&self) -> Vec<Mail> {
        lock(&self.shared.mails).clone()
    }

    /// Those that were delivered.
    pub fn delivered(&self) -> Vec<Mail> {
        self.mails().into_iter().filter(Mail::is_delivered).collect()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.shared.end.cancel();
    }
}

impl Shared {
    fn judge_recipient(&self, recipient: &str) -> Option<RecipientFault> {
        let rule = lock(&self.recipient_rule).clone();
        rule(recipient)
    }

    /// Numbers a message, asks the rule and keeps it.
    fn judge(&self, mut mail: Mail) -> Option<MailFault> {
        let rule = lock(&self.mail_rule).clone();
        let mut mails = lock(&self.mails);
        mail.number = mails.len() + 1;
        // The rule may look at what came before, but not through the server: that is locked.
        mail.fault = rule(&mail);
        let fault = mail.fault;
        mails.push(mail);
        fault
    }

    fn stalled(&self) -> CancellationToken {
        lock(&self.stalled).clone()
    }
}

async fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = shared.clone();
        tokio::spawn(async move {
            // A client that goes away, and one that talks nonsense, have nobody to tell.
            let _ = shared.end.clone().run_until_cancelled(session::serve(stream, &shared)).await;
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
