use serde::{Deserialize, Serialize};

use super::flaw::{form, text};
use super::{EventType, Flaw};
use crate::IdempotencyKey;
use crate::idempotency::KeyError;

/// A mail is to be sent. The Kafka key is the user's id.
///
/// Its idempotency key is `email_type:user_id:period`: one mail of a type for a user in a period, however often it is
/// asked for. The first two have no colon, so that no two triples share a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EmailRequested {
    /// What kind of mail it is, for instance `invoice-reminder`.
    #[schemars(length(min = 1, max = 50), regex(pattern = "^[^:]+$"))]
    pub email_type: String,
    /// Whom it is for.
    #[schemars(length(min = 1, max = 100), regex(pattern = "^[^:]+$"))]
    pub user_id: String,
    /// The period in which it is to be sent once, for instance `2026-11` or the id of an order.
    #[schemars(length(min = 1, max = 50))]
    pub period: String,
    /// Address of the recipient, without a name.
    #[schemars(length(max = 254), regex(pattern = ADDRESS))]
    pub to: String,
    /// Subject, one line.
    #[schemars(length(min = 1, max = 200), regex(pattern = ONE_LINE))]
    pub subject: String,
    /// Body as plain text.
    #[schemars(length(min = 1, max = 100_000))]
    pub text: String,
}

/// What matters to a consumer: two parts, and no character that could begin another header.
const ADDRESS: &str = r"^[^@\s\u0000-\u001f\u007f]+@[^@\s\u0000-\u001f\u007f]+$";
const ONE_LINE: &str = r"^[^\u0000-\u001f\u007f]*$";

impl EmailRequested {
    /// `email_type:user_id:period`.
    ///
    /// # Errors
    /// As [`EmailRequested::key_of`]; an event that passes [`check`](EventType::check) has a key.
    pub fn idempotency_key(&self) -> Result<IdempotencyKey, KeyError> {
        EmailRequested::key_of(&self.email_type, &self.user_id, &self.period)
    }

    /// The key of a request that is known by its parts only.
    ///
    /// # Errors
    /// A part is empty, one of the first two has a colon (so that the key could be that of another request), or all
    /// together are longer than a key may be.
    pub fn key_of(email_type: &str, user_id: &str, period: &str) -> Result<IdempotencyKey, KeyError> {
        if [email_type, user_id, period].contains(&"") {
            return Err(KeyError::Empty);
        }
        if email_type.contains(':') || user_id.contains(':') {
            return Err(KeyError::Unreadable);
        }
        IdempotencyKey::new(format!("{email_type}:{user_id}:{period}"))
    }
}

impl EventType for EmailRequested {
    const NAME: &'static str = "email.requested";
    const VERSION: u32 = 1;
    const SCHEMA: &'static str = include_str!("../../json/email.requested.v1.json");

    fn check(&self) -> Result<(), Flaw> {
        text("email_type", &self.email_type, 50)?;
        form("email_type", "free of colons", !self.email_type.contains(':'))?;
        text("user_id", &self.user_id, 100)?;
        form("user_id", "free of colons", !self.user_id.contains(':'))?;
        text("period", &self.period, 50)?;
        text("to", &self.to, 254)?;
        form("to", "an address", is_address(&self.to))?;
        text("subject", &self.subject, 200)?;
        form("subject", "one line", !self.subject.contains(|it: char| it.is_ascii_control()))?;
        text("text", &self.text, 100_000)
    }
}

fn is_address(text: &str) -> bool {
    let fits =
        |it: &str| !it.is_empty() && !it.contains(|it: char| it == '@' || it.is_whitespace() || it.is_ascii_control());
    text.split_once('@').is_some_and(|(user, host)| fits(user) && fits(host))
}
