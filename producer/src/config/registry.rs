use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{duration, secret};
use crate::{Error, ErrorKind};

/// Section `registry`: the schema registry whose ids stand before payloads.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistrySection {
    /// Address, `https://host:8081`, without a login in it. Without one, payloads have no prefix and none is read. No
    /// default.
    pub url: Option<String>,
    /// User of the login. No default.
    pub user: Option<String>,
    /// Password of the login. No default.
    #[serde(serialize_with = "secret::hidden")]
    pub password: Option<SecretString>,
    /// File that holds the password, instead of `password`.
    pub password_file: Option<PathBuf>,
    /// PEM file of the authority that signed the registry's certificate. Default: Mozilla's list.
    pub ca_file: Option<PathBuf>,
    /// Longest wait for one answer. Too short: a slow registry is taken for one that is away, and consumption pauses; too
    /// long: the pause begins late. Default `"5s"`.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Whether a schema that is written is registered. Off: it must be there, and publishing fails until it is. Default
    /// `true`.
    pub register: bool,
    /// Subject under which a schema is registered, with `{topic}` and, where a topic carries several types, `{type}`.
    /// Default `"{topic}-value"`.
    pub subject: String,
}

impl Default for RegistrySection {
    fn default() -> RegistrySection {
        RegistrySection {
            url: None,
            user: None,
            password: None,
            password_file: None,
            ca_file: None,
            timeout: Duration::from_secs(5),
            register: true,
            subject: "{topic}-value".to_owned(),
        }
    }
}

impl RegistrySection {
    /// Appends what cannot work, each with its key and the remedy.
    pub fn validate(&self, problems: &mut Vec<String>) {
        if let Some(url) = &self.url {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            let host = rest.map(|it| it.split('/').next().unwrap_or_default());
            match host {
                None | Some("") => {
                    problems.push("registry.url must be http://host:port or https://host:port".to_owned())
                }
                Some(host) if host.contains('@') => problems.push(
                    "registry.url must not hold a login: use registry.user and registry.password_file".to_owned(),
                ),
                Some(_) => {}
            }
        }
        secret::validate_one_of("registry.password", self.password.as_ref(), self.password_file.as_deref(), problems);
        let has_password = self.password.is_some() || self.password_file.is_some();
        if self.user.is_some() != has_password {
            problems.push("registry.user and registry.password belong together: give both or none".to_owned());
        }
        if self.timeout < Duration::from_millis(1) {
            problems.push("registry.timeout must be at least 1ms".to_owned());
        }
        let rest = self.subject.replace("{topic}", "").replace("{type}", "");
        if !self.subject.contains("{topic}") && !self.subject.contains("{type}") || rest.contains(['{', '}']) {
            problems.push("registry.subject must contain {topic}, {type} or both, and no other placeholder".to_owned());
        }
    }

    /// The login, if there is one.
    ///
    /// # Errors
    /// The file cannot be read or is empty.
    pub(crate) fn login(&self) -> Result<Option<(String, SecretString)>, Error> {
        let password = secret::resolve("registry.password", self.password.as_ref(), self.password_file.as_deref())?;
        Ok(self.user.clone().zip(password))
    }

    /// The authority's certificate, if one is named.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn ca(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(path) = &self.ca_file else { return Ok(None) };
        std::fs::read(path).map(Some).map_err(|error| {
            Error::new(ErrorKind::Config, format!("read registry.ca_file {}", path.display())).because(error)
        })
    }
}
