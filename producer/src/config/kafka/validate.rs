//! What cannot work, found before a client is made.

use std::time::Duration;

use super::{KafkaSection, properties};
use crate::config::secret;

/// The client library's own limits, which it would only name by its own words.
const LINGER_MAX: Duration = Duration::from_secs(900);
const MESSAGE_BYTES: std::ops::RangeInclusive<u32> = 1_000..=1_000_000_000;
const BATCH_BYTES: std::ops::RangeInclusive<u32> = 1..=i32::MAX.cast_unsigned();

impl KafkaSection {
    /// Appends what cannot work, each with its key and the remedy. Where tokens come from is not looked at: the program
    /// may give a provider later, and each client looks when it is made.
    pub fn validate(&self, problems: &mut Vec<String>) {
        if self.brokers.trim().is_empty() {
            problems.push("kafka.brokers is empty: give host:port, several separated by commas".to_owned());
        }
        let (password, file) = (self.sasl_password.as_ref(), self.sasl_password_file.as_deref());
        secret::validate_one_of("kafka.sasl_password", password, file, problems);
        let has_password = password.is_some() || file.is_some();
        if self.security_protocol.is_sasl() {
            self.validate_login(has_password, problems);
        } else if self.sasl_username.is_some() || has_password || self.sasl_mechanism.is_some() {
            problems.push(
                "kafka.sasl_* is set but kafka.security_protocol is not sasl_plaintext or sasl_ssl: there would be no login"
                    .to_owned(),
            );
        }
        if self.oauth_token_file.is_some() && !self.uses_tokens() {
            problems.push(
                "kafka.oauth_token_file is set but not used: it needs kafka.sasl_mechanism = \"OAUTHBEARER\" and a \
                 kafka.security_protocol of sasl_ssl"
                    .to_owned(),
            );
        }
        self.validate_certificates(problems);
        self.validate_sizes(problems);
        for (key, value) in &self.properties {
            if let Some(reason) = properties::refusal(key, value) {
                problems.push(format!("kafka.properties.\"{key}\" {reason}"));
            }
        }
    }

    fn validate_login(&self, has_password: bool, problems: &mut Vec<String>) {
        let Some(mechanism) = self.sasl_mechanism.as_deref() else {
            problems.push(
                "kafka.sasl_mechanism is not set: give PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER".to_owned(),
            );
            return;
        };
        if self.uses_tokens() {
            if self.sasl_username.is_some() || has_password {
                problems.push(
                    "kafka.sasl_username or kafka.sasl_password is set, but OAUTHBEARER logs in with a token: remove them"
                        .to_owned(),
                );
            }
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
        if !has_password {
            problems.push("kafka.sasl_password is not set: give it or kafka.sasl_password_file".to_owned());
        }
    }

    fn validate_certificates(&self, problems: &mut Vec<String>) {
        let (password, file) = (self.ssl_key_password.as_ref(), self.ssl_key_password_file.as_deref());
        secret::validate_one_of("kafka.ssl_key_password", password, file, problems);
        let has_password = password.is_some() || file.is_some();
        let (certificate, key) = (self.ssl_certificate_file.is_some(), self.ssl_key_file.is_some());
        if certificate != key {
            problems
                .push("kafka.ssl_certificate_file and kafka.ssl_key_file belong together: set both or none".to_owned());
        }
        if has_password && !key {
            problems.push("kafka.ssl_key_password is set but kafka.ssl_key_file is not".to_owned());
        }
        if (certificate || key) && !self.security_protocol.is_ssl() {
            problems.push(
                "kafka.ssl_certificate_file is set but kafka.security_protocol is not ssl or sasl_ssl: nobody would ask \
                 for it"
                    .to_owned(),
            );
        }
    }

    fn validate_sizes(&self, problems: &mut Vec<String>) {
        if self.linger.is_some_and(|it| LINGER_MAX < it || it.subsec_nanos() % 1_000_000 != 0) {
            problems.push("kafka.linger must be a whole number of milliseconds, at most 900s".to_owned());
        }
        for (key, given, range) in [
            ("message_bytes_max", self.message_bytes_max, MESSAGE_BYTES),
            ("batch_bytes_max", self.batch_bytes_max, BATCH_BYTES),
        ] {
            if given.is_some_and(|it| !range.contains(&it.get())) {
                problems.push(format!("kafka.{key} must be from {} to {}", range.start(), range.end()));
            }
        }
    }
}
