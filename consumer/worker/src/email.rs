//! The email group: one mail for each type, user and period, over SMTP.
//!
//! A mail is known by `email_type:user_id:period` ([`EmailRequested::key_of`]), taken from the request itself, and its
//! `Message-ID` follows from that key. SMTP knows no idempotency: when a connection breaks after the text and before
//! the answer, nobody knows whether the mail was taken, and it is sent again. Such copies carry the same `Message-ID`,
//! by which mail servers and mailboxes tell them.
//!
//! | what the mail server does | what becomes of the message |
//! |---|---|
//! | takes the mail | `sent`, and processed |
//! | refuses it with 5xx | dead letter |
//! | refuses it with 4xx | a retry topic |
//! | breaks off, or gives no answer in time | a retry topic, under the same `Message-ID` |
//! | cannot be reached, or refuses the login | no attempt: it waits until that is over |
//!
//! Table `email_delivery` says what became of each mail. Its *sent* is written in the transaction that also decides the
//! message, and outlives the inbox: a mail that was sent is not sent again for a request that comes long after.

mod delivery;
mod run;
mod smtp;

use std::borrow::Cow;

use lettre::Address;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Mail};
use sekali_consumer::deadpool_postgres::Pool;
use sekali_consumer::schemas::events::{EmailRequested, EventType};
use sekali_consumer::schemas::idempotency::KeyError;
use sekali_consumer::tokio_postgres::{self, Client};
use sekali_consumer::{Effect, Failure, IdempotencyKey, Lease, Message, Record, Reply, Transaction};
use serde::Deserialize;

use delivery::Deliveries;
pub use run::{EmailArgs, run};
use smtp::Unsent;
pub use smtp::{Smtp, SmtpTls};

/// Creates the table `email_delivery` in schema `public` where it is missing. Two callers at once are fine.
///
/// # Errors
/// The user may not create tables, or a table of that name is something else.
pub async fn create_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(include_str!("../sql/email.sql")).await
}

/// Sends a mail for each [`EmailRequested`].
pub struct Emails {
    smtp: Smtp,
    from: Mailbox,
    deliveries: Deliveries,
}

/// What came of a mail that needs no further attempt.
#[derive(Debug)]
pub enum Delivery {
    /// A mail server has taken it now, under this `Message-ID`.
    Taken(String),
    /// It was sent long ago, for a message that the inbox has forgotten.
    Before,
}

impl Emails {
    /// Sends over a mail server, from an address; notes what it begins over connections of its own.
    pub fn new(smtp: Smtp, from: Mailbox, pool: Pool) -> Emails {
        Emails { smtp, from, deliveries: Deliveries::new(pool) }
    }

    /// The same for every attempt, and in every process.
    fn message_id(&self, key: &IdempotencyKey) -> String {
        format!("<{}@{}>", key.uuid().simple(), self.from.email.domain())
    }

    fn compose(&self, to: Address, event: EmailRequested, message_id: &str) -> Result<Mail, Failure> {
        Mail::builder()
            .message_id(Some(message_id.to_owned()))
            .from(self.from.clone())
            .to(to.into())
            .subject(event.subject)
            .header(ContentType::TEXT_PLAIN)
            .body(event.text)
            // Its text may quote an address.
            .map_err(|_| Failure::permanent("the mail cannot be composed").with_code("COMPOSE"))
    }
}

impl Effect for Emails {
    type Outcome = Delivery;

    async fn perform(&self, message: &Message, _lease: &Lease) -> Result<Delivery, Failure> {
        let event = read(message)?;
        let to = event.to.parse();
        let to =
            to.map_err(|_| Failure::permanent("the recipient has no address of a mailbox").with_code("ADDRESS"))?;
        // Before anything is noted: a server that is away begins no attempt.
        let connection = self.smtp.connection().await?;
        let key = message.idempotency_key();
        let Some(message_id) = self.deliveries.begin(key.uuid(), &event, &self.message_id(key)).await? else {
            self.smtp.park(connection);
            return Ok(Delivery::Before);
        };
        let mail = self.compose(to, event, &message_id)?;
        match self.smtp.send(connection, mail.envelope(), &mail.formatted()).await {
            Ok(()) => Ok(Delivery::Taken(message_id)),
            Err(Unsent::Unknown(failure)) => Err(failure),
            Err(Unsent::Refused(failure)) => {
                self.deliveries.refused(key.uuid()).await;
                Err(failure)
            }
        }
    }

    async fn record(&self, message: &Message, outcome: &Delivery, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let Delivery::Taken(message_id) = outcome else { return Ok(Reply::done()) };
        delivery::sent(message.idempotency_key().uuid(), &read(message)?, message_id, tx).await?;
        Ok(Reply::stored(serde_json::json!({ "message_id": message_id })))
    }

    fn idempotency_key(&self, record: &Record) -> Option<Result<IdempotencyKey, KeyError>> {
        Some(key_of(record))
    }
}

/// What of a request says which mail it asks for.
#[derive(Deserialize)]
struct Identity<'a> {
    #[serde(borrow)]
    email_type: Cow<'a, str>,
    #[serde(borrow)]
    user_id: Cow<'a, str>,
    #[serde(borrow)]
    period: Cow<'a, str>,
}

/// Never a key that the headers give: the same mail, asked for by two producers, is one mail.
fn key_of(record: &Record) -> Result<IdempotencyKey, KeyError> {
    let data = record.data().map_err(|_| KeyError::Missing)?;
    let identity: Identity<'_> = serde_json::from_slice(&data).map_err(|_| KeyError::Missing)?;
    EmailRequested::key_of(&identity.email_type, &identity.user_id, &identity.period)
}

/// Decodes a request and holds it against what the schema says beyond types.
fn read(message: &Message) -> Result<EmailRequested, Failure> {
    let event: EmailRequested = message.json()?;
    event.check()?;
    Ok(event)
}

#[cfg(test)]
mod tests;
