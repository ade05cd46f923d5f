//! What a Kafka client says outside its results: the true cause of a failure arrives only in its error callback.

use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::config::is_secret_property;
use crate::{Error, ErrorKind, Token, TokenProvider};

/// Collects what one client's error callback reports, and logs it without flooding.
///
/// A wrong password, for instance, reads as a broken connection in results; only the callback names it. Clones share
/// what they collect. Use it as the context of a client, or call [`KafkaCauses::note`] from a context of your own.
#[derive(Clone, Default)]
pub struct KafkaCauses {
    shared: Arc<Shared>,
    tokens: Option<Arc<dyn TokenProvider>>,
}

#[derive(Debug, Default)]
struct Shared {
    fatal: AtomicBool,
    last: Mutex<Option<Cause>>,
}

#[derive(Debug, Clone)]
struct Cause {
    code: RDKafkaErrorCode,
    reason: String,
    warned_at: Instant,
}

impl Cause {
    /// A broker that misses our certificate only says so when the client takes the connection for made.
    fn is_about_encryption(&self) -> bool {
        self.code == RDKafkaErrorCode::SSL || self.reason.contains("SSL routines")
    }
}

/// The same cause is logged as a warning once in this time: a client repeats it several times a second.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

impl KafkaCauses {
    /// Nothing collected yet.
    pub fn new() -> KafkaCauses {
        KafkaCauses::default()
    }

    /// The same for a client that logs in with tokens.
    pub(crate) fn with_tokens(provider: Arc<dyn TokenProvider>) -> KafkaCauses {
        KafkaCauses { tokens: Some(provider), ..KafkaCauses::default() }
    }

    /// A token for the client to log in with; `None` when it logs in otherwise. For contexts of your own: call it from
    /// `generate_oauth_token`, and set `ENABLE_REFRESH_OAUTH_TOKEN`. Blocks for as long as the provider does.
    pub fn token(&self) -> Option<Result<OAuthToken, Box<dyn StdError + Send + Sync>>> {
        let provider = self.tokens.as_ref()?;
        // A panic would end the thread that polls, and then nothing is delivered any more.
        let token = catch_unwind(AssertUnwindSafe(|| provider.token()));
        Some(token.unwrap_or_else(|_| Err("the token provider panicked".into())).and_then(Token::into_native))
    }

    /// Takes in what an error callback got.
    pub fn note(&self, error: &KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        if code == RDKafkaErrorCode::Fatal {
            self.shared.fatal.store(true, Ordering::Relaxed);
        }
        let mut last = self.shared.last.lock().unwrap_or_else(PoisonError::into_inner);
        // "All brokers are down" follows every other cause and would hide it.
        if code == RDKafkaErrorCode::AllBrokersDown && last.is_some() {
            return;
        }
        let now = Instant::now();
        let repeated = last.as_ref().filter(|it| it.code == code && now < it.warned_at + WARN_INTERVAL);
        let warned_at = repeated.map_or(now, |it| it.warned_at);
        if repeated.is_some() {
            tracing::debug!(?code, reason, "kafka client error");
        } else {
            tracing::warn!(?code, reason, "kafka client error");
        }
        *last = Some(Cause { code, reason: reason.to_owned(), warned_at });
    }

    /// The last cause in the client's words, with the address of the broker. `None` when nothing went wrong.
    pub fn last_cause(&self) -> Option<String> {
        self.last().map(|it| it.reason)
    }

    /// Whether the client said that it cannot go on: drop it and make a new one.
    pub fn is_fatal(&self) -> bool {
        self.shared.fatal.load(Ordering::Relaxed)
    }

    /// Whether the last cause is a refused login.
    pub fn is_login_refused(&self) -> bool {
        self.last().is_some_and(|it| is_login(it.code))
    }

    /// Forgets what was collected, for instance after a success. A fatal error stays.
    pub fn clear(&self) {
        *self.shared.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn last(&self) -> Option<Cause> {
        self.shared.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for KafkaCauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaCauses").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl ClientContext for KafkaCauses {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.note(&error, reason);
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn StdError>> {
        match self.token() {
            Some(token) => token.map_err(|it| it as Box<dyn StdError>),
            None => Err("nobody provides tokens".into()),
        }
    }
}

impl ConsumerContext for KafkaCauses {}

/// Passes a line of the client's log on to `tracing`, target `librdkafka`. For contexts of your own.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::warn!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
    }
}

/// Turns a client's error into one that names the true cause and the remedy.
pub fn explain(error: &KafkaError, causes: &KafkaCauses) -> Error {
    let kafka = |doing: &str, why: String| Error::new(ErrorKind::Kafka, doing).because(why);
    match error {
        KafkaError::ClientConfig(_, description, key, _) => {
            let why = if is_secret_property(key) { "its value is refused" } else { description };
            return Error::new(ErrorKind::Config, format!("set kafka property \"{key}\"")).because(why);
        }
        KafkaError::ClientCreation(description) => {
            let doing = if description.starts_with("ssl.") {
                "create the kafka client: check kafka.ssl_ca_file, kafka.ssl_certificate_file, kafka.ssl_key_file and \
                 kafka.ssl_key_password"
            } else {
                "create the kafka client"
            };
            return Error::new(ErrorKind::Config, doing).because(description.as_str());
        }
        _ => {}
    }
    let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
    let last = causes.last();
    // A result that only says "no connection" is explained by the cause behind it.
    let code = match &last {
        Some(cause) if is_connection(code) && is_login(cause.code) => cause.code,
        Some(cause) if is_connection(code) && cause.is_about_encryption() => RDKafkaErrorCode::SSL,
        _ => code,
    };
    let said = last.map(|it| format!(" ({})", it.reason)).unwrap_or_default();
    match code {
        code if is_login(code) && causes.tokens.is_some() => kafka(
            "log in to kafka",
            format!(
                "there is no token, or the broker refused it: check kafka.oauth_token_file or the program's TokenProvider, \
                 and kafka.security_protocol{said}"
            ),
        ),
        code if is_login(code) => kafka(
            "log in to kafka",
            format!(
                "the broker refused the login: check kafka.sasl_username, kafka.sasl_password, kafka.sasl_mechanism and \
                 kafka.security_protocol{said}"
            ),
        ),
        RDKafkaErrorCode::SSL => kafka(
            "encrypt the connection to kafka",
            format!(
                "check kafka.security_protocol, kafka.ssl_ca_file, the names in kafka.brokers, and kafka.ssl_certificate_file \
                 if the broker asks for a certificate{said}"
            ),
        ),
        code if is_connection(code) => {
            kafka("reach kafka", format!("no broker answers: check kafka.brokers and the network{said}"))
        }
        _ => match remedy(code) {
            Some((doing, why)) => kafka(doing, why.to_owned()),
            None => Error::new(ErrorKind::Kafka, "talk to kafka").because(Cloned(error.clone())),
        },
    }
}

fn remedy(code: RDKafkaErrorCode) -> Option<(&'static str, &'static str)> {
    use RDKafkaErrorCode as Code;
    Some(match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => (
            "find the topic",
            "it does not exist, and topics are never made by accident: create it with `sekali topics apply`",
        ),
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => (
            "send the record",
            "it is larger than kafka takes: raise max.message.bytes of the topic and \
             kafka.message_bytes_max, or send a reference to the data",
        ),
        Code::TopicAuthorizationFailed => {
            ("use the topic", "the login may not: grant it read, write and describe on the topic")
        }
        Code::GroupAuthorizationFailed => ("use the consumer group", "the login may not: grant it read on the group"),
        Code::ClusterAuthorizationFailed => {
            ("write idempotently", "the login may not: grant it idempotent write on the cluster")
        }
        Code::QueueFull => ("queue the record", "the producer's queue is full: the broker takes less than is sent"),
        _ => return None,
    })
}

fn is_login(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism)
}

fn is_connection(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::MessageTimedOut
            | Code::NodeUpdate
    )
}

/// `KafkaError` is an error without a cause; its text holds no data of records.
#[derive(Debug)]
struct Cloned(KafkaError);

impl std::fmt::Display for Cloned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Cloned {}

#[cfg(test)]
mod tests;
