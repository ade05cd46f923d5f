//! Logging in to Kafka with tokens that run out (SASL OAUTHBEARER).
//!
//! A client asks for a token when it is made, and again after four fifths of each token's life. librdkafka hands that
//! question to whoever polls the client, so that each kind of client needs somebody who does: producers have a thread for
//! it, a consumer's poll thread does it, and to an administration client the token is handed before each request
//! ([`KafkaCauses::admin_login`](crate::KafkaCauses::admin_login)).

mod admin;
mod file;

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::client::OAuthToken;
use secrecy::{ExposeSecret, SecretString};

pub(crate) use file::TokenFile;

/// Where a client gets its tokens. Closures are one, too.
///
/// Give it to [`KafkaSection::set_tokens`](crate::config::KafkaSection::set_tokens): every client that is made from the
/// section uses it.
pub trait TokenProvider: Send + Sync + 'static {
    /// A token that is valid now. May block for some seconds, but not without a limit: it runs on a thread that also
    /// serves the client's other events. That is never a thread of the asynchronous runtime, so that asynchronous code can
    /// be waited for with `tokio::runtime::Handle::block_on`.
    ///
    /// # Errors
    /// There is none to be had. The text is logged, so it must not have secrets in it. The client asks again after ten
    /// seconds, and what it does meanwhile waits.
    fn token(&self) -> Result<Token, Box<dyn StdError + Send + Sync>>;
}

impl<F> TokenProvider for F
where
    F: Fn() -> Result<Token, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
{
    fn token(&self) -> Result<Token, Box<dyn StdError + Send + Sync>> {
        self()
    }
}

/// What a client shows the broker.
#[derive(Clone)]
pub struct Token {
    /// The token as it is sent, usually a JWT.
    pub value: SecretString,
    /// When it runs out. The client asks for the next one after four fifths of the time until then.
    pub expires_at: SystemTime,
    /// Whom it names. For the client's own log: the broker looks into the token.
    pub principal: String,
}

impl Token {
    /// A JWT with its own expiry (`exp`) and subject (`sub`). Its signature is for the broker to check.
    ///
    /// # Errors
    /// It is no JWT, or has no expiry. The text shows nothing of it.
    pub fn from_jwt(value: SecretString) -> Result<Token, Box<dyn StdError + Send + Sync>> {
        let claims = file::claims(value.expose_secret())?;
        Ok(Token { value, expires_at: claims.expires_at, principal: claims.subject })
    }

    /// As the client library takes it.
    pub(crate) fn into_native(self) -> Result<OAuthToken, Box<dyn StdError + Send + Sync>> {
        let life = self.expires_at.duration_since(SystemTime::now()).unwrap_or_default();
        if life < LIFE_MIN {
            return Err("the token has run out: whoever provides tokens must renew them earlier".into());
        }
        let lifetime_ms = self.expires_at.duration_since(UNIX_EPOCH)?.as_millis();
        Ok(OAuthToken {
            token: self.value.expose_secret().to_owned(),
            principal_name: self.principal,
            lifetime_ms: i64::try_from(lifetime_ms)?,
        })
    }
}

/// What runs out sooner cannot reach the broker in time.
const LIFE_MIN: Duration = Duration::from_millis(100);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("expires_at", &self.expires_at)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
