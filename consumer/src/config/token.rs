//! A token in the configuration: shown as asterisks.

use secrecy::{ExposeSecret, SecretString};
use sekali_producer::config::secret::HIDDEN;
use serde::{Deserialize, Serialize, Serializer};

/// A secret that is never shown.
#[derive(Debug, Clone, Deserialize)]
pub struct Token(SecretString);

impl Token {
    /// The secret.
    pub fn secret(&self) -> &SecretString {
        &self.0
    }
}

/// Of two configurations, for tests; who compares what somebody sent does it in constant time.
impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}
