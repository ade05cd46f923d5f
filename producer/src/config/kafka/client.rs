//! From the section to the settings of a client.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use secrecy::ExposeSecret;

use super::{KafkaSection, properties};
use crate::config::secret;
use crate::oauth::{TokenFile, TokenProvider};
use crate::{Error, ErrorKind};

/// Of a producer whose user said nothing.
const LINGER: Duration = Duration::from_millis(5);

impl KafkaSection {
    /// What every client shares: the user's properties, then ours. Reads the password files.
    ///
    /// # Errors
    /// A password file cannot be read, or it is not known where tokens come from.
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
        if let Some(bytes) = self.message_bytes_max {
            config.set("message.max.bytes", bytes.to_string());
        }
        self.set_login(&mut config)?;
        self.set_certificates(&mut config)?;
        Ok(config)
    }

    /// The same for producers: with what carries the guarantee.
    ///
    /// # Errors
    /// As [`KafkaSection::client_config`].
    pub fn producer_config(&self) -> Result<ClientConfig, Error> {
        let mut config = self.client_config()?;
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("allow.auto.create.topics", "false")
            .set("partitioner", "murmur2_random")
            .set("compression.type", self.compression.as_str())
            .set("linger.ms", self.linger.unwrap_or(LINGER).as_millis().to_string());
        if let Some(bytes) = self.batch_bytes_max {
            config.set("batch.size", bytes.to_string());
        }
        Ok(config)
    }

    /// Where tokens come from, when the mechanism wants some.
    pub(super) fn token_provider(&self) -> Option<Arc<dyn TokenProvider>> {
        if !self.uses_tokens() {
            return None;
        }
        let file = || self.oauth_token_file.clone().map(|it| Arc::new(TokenFile(it)) as Arc<dyn TokenProvider>);
        self.tokens.clone().or_else(file)
    }

    pub(super) fn uses_tokens(&self) -> bool {
        self.security_protocol.is_sasl() && self.sasl_mechanism.as_deref() == Some("OAUTHBEARER")
    }

    fn set_login(&self, config: &mut ClientConfig) -> Result<(), Error> {
        if self.uses_tokens() && self.token_provider().is_none() {
            let doing = "find a token for kafka: kafka.sasl_mechanism is OAUTHBEARER; set kafka.oauth_token_file, or give \
                         the section a TokenProvider";
            return Err(Error::new(ErrorKind::Config, doing));
        }
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
        Ok(())
    }

    fn set_certificates(&self, config: &mut ClientConfig) -> Result<(), Error> {
        for (property, path) in [
            ("ssl.ca.location", &self.ssl_ca_file),
            ("ssl.certificate.location", &self.ssl_certificate_file),
            ("ssl.key.location", &self.ssl_key_file),
        ] {
            if let Some(path) = path {
                config.set(property, path.to_string_lossy());
            }
        }
        let (value, file) = (self.ssl_key_password.as_ref(), self.ssl_key_password_file.as_deref());
        if let Some(password) = secret::resolve("kafka.ssl_key_password", value, file)? {
            config.set("ssl.key.password", password.expose_secret());
        }
        Ok(())
    }
}
