//! Listeners that demand a login or a certificate.

use std::net::Ipv4Addr;

use super::{Extra, Listener, OwnBroker, SESSION_LONG_MS};
use crate::harness::authority::Authority;

/// User that a secured broker knows by password, in every mechanism that has one.
pub const USER: &str = "stock";
/// Its password.
pub const PASSWORD: &str = "correct-horse-42";
/// The broker ends connections whose token was not renewed after so long, or earlier when the token runs out.
const LOGIN_MAX_MS: u32 = 60_000;

/// Addresses of a secured broker on 127.0.0.1, for which its certificate was issued.
#[derive(Debug, Clone, Copy)]
pub struct SecuredPorts {
    /// SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, and OAUTHBEARER with unsigned tokens.
    pub login: u16,
    /// SSL, with a certificate of the client's own.
    pub mutual: u16,
}

impl SecuredPorts {
    /// Address of the listener with logins.
    pub fn login(self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.login)
    }

    /// Address of the listener with certificates.
    pub fn mutual(self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.mutual)
    }
}

impl OwnBroker {
    /// Starts a broker that has two more addresses, neither of which talks to strangers. Its own one, without any
    /// protection, is for the test alone.
    ///
    /// # Errors
    /// As [`OwnBroker::start`].
    pub async fn start_secured(authority: &Authority) -> Result<(OwnBroker, SecuredPorts), anyhow::Error> {
        let login = Listener::new("LOGIN", "SASL_SSL")?;
        let mutual = Listener::new("MUTUAL", "SSL")?;
        let ports = SecuredPorts { login: login.port, mutual: mutual.port };
        let module = "org.apache.kafka.common.security";
        let jaas = |mechanism: &str, what: String| (format!("listener.name.login.{mechanism}.sasl.jaas.config"), what);
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let server = authority.issue("broker", &["127.0.0.1"]);
        let settings = vec![
            text("listener.name.login.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
            jaas("plain", format!("{module}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";")),
            jaas("scram-sha-256", format!("{module}.scram.ScramLoginModule required;")),
            jaas("scram-sha-512", format!("{module}.scram.ScramLoginModule required;")),
            jaas("oauthbearer", format!("{module}.oauthbearer.OAuthBearerLoginModule required;")),
            text("listener.name.login.oauthbearer.connections.max.reauth.ms", &LOGIN_MAX_MS.to_string()),
            text("listener.name.mutual.ssl.client.auth", "required"),
            text("ssl.keystore.type", "PEM"),
            text("ssl.keystore.location", &server.both.display().to_string()),
            text("ssl.truststore.type", "PEM"),
            text("ssl.truststore.location", &authority.file().display().to_string()),
        ];
        let user = |mechanism: &str| format!("{mechanism}=[name={USER},password={PASSWORD}]");
        let users = vec![user("SCRAM-SHA-256"), user("SCRAM-SHA-512")];
        let extra = Extra { listeners: vec![login, mutual], settings, users };
        Ok((OwnBroker::start_with(extra, SESSION_LONG_MS).await?, ports))
    }
}
