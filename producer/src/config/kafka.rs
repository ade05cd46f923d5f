use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, Serializer};

use super::secret;
use crate::Error;

mod properties;

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
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`; needed with a `sasl_*` protocol. No default.
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
    /// PEM file of the authority that signed the brokers' certificates. Default: those the system trusts.
    #[serde(default)]
    pub ssl_ca_file: Option<PathBuf>,
    /// Anything else for librdkafka, by its own names, except what carries the guarantee. They go to producers and
    /// consumers alike. Default: none.
    #[serde(default, serialize_with = "without_secrets")]
    pub properties: BTreeMap<String, String>,
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
            ssl_ca_file: None,
            properties: BTreeMap::new(),
        }
    }

    /// Appends what cannot work, each with its key and the remedy.
    pub fn validate(&self, problems: &mut Vec<String>) {
        if self.brokers.trim().is_empty() {
            problems.push("kafka.brokers is empty: give host:port, several separated by commas".to_owned());
        }
        let (value, file) = (self.sasl_password.as_ref(), self.sasl_password_file.as_deref());
        secret::validate_one_of("kafka.sasl_password", value, file, problems);
        if self.security_protocol.is_sasl() {
            self.validate_login(problems);
        } else if self.sasl_username.is_some() || value.is_some() || file.is_some() || self.sasl_mechanism.is_some() {
            problems.push(
                "kafka.sasl_* is set but kafka.security_protocol is not sasl_plaintext or sasl_ssl: there would be no login"
                    .to_owned(),
            );
        }
        for (key, value) in &self.properties {
            if let Some(reason) = properties::refusal(key, value) {
                problems.push(format!("kafka.properties.\"{key}\" {reason}"));
            }
        }
    }

    fn validate_login(&self, problems: &mut Vec<String>) {
        let Some(mechanism) = self.sasl_mechanism.as_deref() else {
            problems.push("kafka.sasl_mechanism is not set: give PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512".to_owned());
            return;
        };
        if mechanism.starts_with("OAUTHBEARER") {
            return;
        }
        if !matches!(mechanism, "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512") {
            problems.push(format!(
                "kafka.sasl_mechanism \"{mechanism}\" is not supported: give PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
            ));
        }
        if self.sasl_username.is_none() {
            problems.push("kafka.sasl_username is not set".to_owned());
        }
        if self.sasl_password.is_none() && self.sasl_password_file.is_none() {
            problems.push("kafka.sasl_password is not set: give it or kafka.sasl_password_file".to_owned());
        }
    }

    /// What every client shares: the user's properties, then ours. Reads the password file.
    ///
    /// # Errors
    /// The password file cannot be read.
    pub fn client_config(&self) -> Result<ClientConfig, Error> {
        let mut config = ClientConfig::new();
        // The client's log level would follow the `log` crate, which nobody sets up here.
        config.set_log_level(RDKafkaLogLevel::Notice);
        for (key, value) in &self.properties {
            config.set(properties::canonical(key), value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", &self.client_id)
            .set("security.protocol", self.security_protocol.as_str());
        if let Some(mechanism) = &self.sasl_mechanism {
            config.set("sasl.mechanism", mechanism);
        }
        if let Some(username) = &self.sasl_username {
            config.set("sasl.username", username);
        }
        let (value, file) = (self.sasl_password.as_ref(), self.sasl_password_file.as_deref());
        if let Some(password) = secret::resolve("kafka.sasl_password", value, file)? {
            config.set("sasl.password", password.expose_secret());
        }
        if let Some(path) = &self.ssl_ca_file {
            config.set("ssl.ca.location", path.to_string_lossy());
        }
        Ok(config)
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
            .field("ssl_ca_file", &self.ssl_ca_file)
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
