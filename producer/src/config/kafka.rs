use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};

use super::{duration, secret};
use crate::{KafkaCauses, TokenProvider};

mod client;
mod properties;
mod validate;

pub(crate) use properties::is_secret as is_secret_property;

/// Section `kafka`: brokers and how to log in.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSection {
    /// Addresses to start from, `host:port` separated by commas; the others are learnt from them. One alone is a single
    /// point of failure at start. No default.
    pub brokers: String,
    /// Name of this program in the broker's logs, metrics and quotas. Default `"sekali"`.
    #[serde(default = "client_id")]
    pub client_id: String,
    /// Encryption and login. Without either, anyone on the network reads along. Default `"plaintext"`.
    #[serde(default)]
    pub security_protocol: SecurityProtocol,
    /// `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`; needed with a `sasl_*` protocol. No default.
    #[serde(default)]
    pub sasl_mechanism: Option<String>,
    /// User name of the login. No default.
    #[serde(default)]
    pub sasl_username: Option<String>,
    /// Password of the login. No default.
    #[serde(default, serialize_with = "secret::hidden")]
    pub sasl_password: Option<SecretString>,
    /// File that holds the password, instead of `sasl_password`.
    #[serde(default)]
    pub sasl_password_file: Option<PathBuf>,
    /// File with a JWT for `OAUTHBEARER`, which somebody renews before it runs out, such as Kubernetes. Read again after
    /// four fifths of each token's life. Not needed with a [`TokenProvider`]. No default.
    #[serde(default)]
    pub oauth_token_file: Option<PathBuf>,
    /// PEM file of the authority that signed the brokers' certificates. Default: those the system trusts.
    #[serde(default)]
    pub ssl_ca_file: Option<PathBuf>,
    /// PEM file of the certificate to show the brokers, with those between it and the authority. No default.
    #[serde(default)]
    pub ssl_certificate_file: Option<PathBuf>,
    /// PEM file of that certificate's private key. No default.
    #[serde(default)]
    pub ssl_key_file: Option<PathBuf>,
    /// Password of the private key, if it has one. No default.
    #[serde(default, serialize_with = "secret::hidden")]
    pub ssl_key_password: Option<SecretString>,
    /// File that holds that password, instead of `ssl_key_password`.
    #[serde(default)]
    pub ssl_key_password_file: Option<PathBuf>,
    /// How records are compressed on their way to the broker, and there. Default `"lz4"`.
    #[serde(default)]
    pub compression: Compression,
    /// How long a record waits for others to share a request with. Shorter costs requests, longer delays records. Default
    /// `"5ms"`, and `"20ms"` for `sekali produce`.
    #[serde(default, with = "duration::option")]
    pub linger: Option<Duration>,
    /// Largest record that is sent, in bytes, with headers. Default 1000000, and in a consumer as much as its topics take.
    #[serde(default)]
    pub message_bytes_max: Option<NonZeroU32>,
    /// Most bytes that share a batch. A topic's `max.message.bytes` is about batches, too. Default 1000000.
    #[serde(default)]
    pub batch_bytes_max: Option<NonZeroU32>,
    /// Anything else for librdkafka, by its own names, except what carries the guarantee. They go to producers and
    /// consumers alike. Default: none.
    #[serde(default, serialize_with = "without_secrets")]
    pub properties: BTreeMap<String, String>,
    #[serde(skip)]
    tokens: Option<Arc<dyn TokenProvider>>,
}

/// How records are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    #[default]
    Lz4,
    Zstd,
}

impl Compression {
    /// Name in configuration files and in librdkafka.
    pub fn as_str(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// How connections to the brokers are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityProtocol {
    /// Neither encrypted nor logged in.
    #[default]
    Plaintext,
    /// Encrypted.
    Ssl,
    /// Logged in, not encrypted: the network sees what is said.
    SaslPlaintext,
    /// Encrypted and logged in.
    SaslSsl,
}

impl SecurityProtocol {
    /// Name in configuration files and in librdkafka.
    pub fn as_str(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "plaintext",
            SecurityProtocol::Ssl => "ssl",
            SecurityProtocol::SaslPlaintext => "sasl_plaintext",
            SecurityProtocol::SaslSsl => "sasl_ssl",
        }
    }

    /// Whether it includes a login.
    pub fn is_sasl(self) -> bool {
        matches!(self, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)
    }

    /// Whether it encrypts.
    pub fn is_ssl(self) -> bool {
        matches!(self, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl)
    }
}

impl KafkaSection {
    /// A section with everything but the addresses at its default.
    pub fn new(brokers: impl Into<String>) -> KafkaSection {
        KafkaSection {
            brokers: brokers.into(),
            client_id: client_id(),
            security_protocol: SecurityProtocol::default(),
            sasl_mechanism: None,
            sasl_username: None,
            sasl_password: None,
            sasl_password_file: None,
            oauth_token_file: None,
            ssl_ca_file: None,
            ssl_certificate_file: None,
            ssl_key_file: None,
            ssl_key_password: None,
            ssl_key_password_file: None,
            compression: Compression::default(),
            linger: None,
            message_bytes_max: None,
            batch_bytes_max: None,
            properties: BTreeMap::new(),
            tokens: None,
        }
    }

    /// Gives every client that is made from this section the tokens with which it logs in, for `OAUTHBEARER`. They go
    /// before `oauth_token_file`.
    pub fn set_tokens(&mut self, provider: impl TokenProvider) {
        self.tokens = Some(Arc::new(provider));
    }

    /// A context for a client that is made from this section.
    pub fn causes(&self) -> KafkaCauses {
        self.token_provider().map_or_else(KafkaCauses::new, KafkaCauses::with_tokens)
    }
}

/// As it is serialized: without secrets.
impl fmt::Debug for KafkaSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSection")
            .field("brokers", &self.brokers)
            .field("client_id", &self.client_id)
            .field("security_protocol", &self.security_protocol)
            .field("sasl_mechanism", &self.sasl_mechanism)
            .field("sasl_username", &self.sasl_username)
            .field("sasl_password_file", &self.sasl_password_file)
            .field("oauth_token_file", &self.oauth_token_file)
            .field("ssl_ca_file", &self.ssl_ca_file)
            .field("ssl_certificate_file", &self.ssl_certificate_file)
            .field("ssl_key_file", &self.ssl_key_file)
            .field("compression", &self.compression)
            .field("linger", &self.linger)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .field("properties", &self.properties.iter().map(shown).collect::<BTreeMap<_, _>>())
            .finish_non_exhaustive()
    }
}

fn client_id() -> String {
    "sekali".to_owned()
}

fn without_secrets<S: Serializer>(properties: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(properties.iter().map(shown))
}

fn shown<'a>((key, value): (&'a String, &'a String)) -> (&'a str, &'a str) {
    (key, if is_secret_property(key) { secret::HIDDEN } else { value })
}
