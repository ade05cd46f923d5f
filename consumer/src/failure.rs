//! How a handler fails, and how errors are classified.

use std::error::Error;

use deadpool_postgres::PoolError;
use sekali_producer::{Refusal, SqlError};
use sekali_schemas::DecodeError;
use sekali_schemas::control::ErrorInfo;
use sekali_schemas::events::Flaw;
use tokio_postgres::error::SqlState;

use crate::core::Outcome;
use crate::core::retry::FailureKind;
use crate::lock::{InvalidName, LockError, Lost, NoAnswer};

/// Why a message could not be handled.
///
/// Deliberately not an `Error`, so that `?` turns any error into one: PostgreSQL's by SQLSTATE, undecodable bytes to
/// *invalid*, values that the schema of their event type refuses to *permanent*, everything else to *transient*.
/// The text that is kept has no payload and no row data.
#[derive(Debug)]
pub struct Failure {
    class: FailureClass,
    code: String,
    message: String,
}

/// The bounded set of failure classes, for labels, tables and headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Worth another attempt.
    Transient,
    /// Never worth one.
    Permanent,
    /// Bytes that cannot be read.
    Invalid,
    /// A lock is taken: later.
    Contended,
    /// The handler panicked; worth another attempt.
    Panic,
    /// The handler took longer than `consumer.handler_timeout`; worth another attempt.
    Timeout,
    /// The handler swallowed an SQL error, so that its transaction was aborted; worth another attempt.
    AbortedTransaction,
    /// The idempotency key was decided with another payload.
    KeyReuse,
    /// A retry record whose earlier attempt nobody decided.
    Orphan,
    /// No verdict: infrastructure trouble.
    Interrupted,
}

impl FailureClass {
    /// Every class.
    pub const ALL: [FailureClass; 10] = [
        FailureClass::Transient,
        FailureClass::Permanent,
        FailureClass::Invalid,
        FailureClass::Contended,
        FailureClass::Panic,
        FailureClass::Timeout,
        FailureClass::AbortedTransaction,
        FailureClass::KeyReuse,
        FailureClass::Orphan,
        FailureClass::Interrupted,
    ];

    /// Word for labels, tables and headers.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::Transient => "transient",
            FailureClass::Permanent => "permanent",
            FailureClass::Invalid => "invalid",
            FailureClass::Contended => "contended",
            FailureClass::Panic => "panic",
            FailureClass::Timeout => "timeout",
            FailureClass::AbortedTransaction => "aborted_transaction",
            FailureClass::KeyReuse => "key_reuse",
            FailureClass::Orphan => "orphan",
            FailureClass::Interrupted => "interrupted",
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        match self {
            FailureClass::Interrupted => Outcome::Interrupted,
            FailureClass::Permanent => Outcome::Failed(FailureKind::Permanent),
            FailureClass::Invalid => Outcome::Failed(FailureKind::Invalid),
            FailureClass::Contended => Outcome::Failed(FailureKind::Contended),
            FailureClass::KeyReuse | FailureClass::Orphan => Outcome::Failed(FailureKind::Permanent),
            FailureClass::Transient
            | FailureClass::Panic
            | FailureClass::Timeout
            | FailureClass::AbortedTransaction => Outcome::Failed(FailureKind::Transient),
        }
    }
}

impl Failure {
    /// Worth another attempt: the message goes through the retry topics.
    pub fn transient(reason: impl std::fmt::Display) -> Failure {
        Failure::new(FailureClass::Transient, reason)
    }

    /// Never worth another attempt: the message goes to the dead-letter store.
    pub fn permanent(reason: impl std::fmt::Display) -> Failure {
        Failure::new(FailureClass::Permanent, reason)
    }

    /// Bytes that cannot be read as what they should be: the dead-letter store, at once.
    pub fn invalid(reason: impl std::fmt::Display) -> Failure {
        Failure::new(FailureClass::Invalid, reason)
    }

    /// Something that the message needs is locked: later, without burning an attempt.
    pub fn contended(reason: impl std::fmt::Display) -> Failure {
        Failure::new(FailureClass::Contended, reason)
    }

    /// No verdict on the message: what it needs is away, and it is certain that nothing happened. It runs again until that
    /// is back, without burning an attempt and without an end.
    pub fn interrupted(reason: impl std::fmt::Display) -> Failure {
        Failure::new(FailureClass::Interrupted, reason)
    }

    /// A short code of the handler's own, for grouping and filters; at most 64 bytes are kept.
    pub fn with_code(mut self, code: impl Into<String>) -> Failure {
        self.code = code.into();
        self
    }

    pub(crate) fn new(class: FailureClass, reason: impl std::fmt::Display) -> Failure {
        Failure { class, code: String::new(), message: reason.to_string() }
    }

    /// What kind of failure it is.
    pub fn class(&self) -> FailureClass {
        self.class
    }

    /// Cleaned and bounded text for headers and tables.
    pub(crate) fn info(&self) -> ErrorInfo {
        ErrorInfo::new(self.class.as_str(), &self.code, &self.message)
    }

    /// Classifies a PostgreSQL error.
    pub(crate) fn of_sql(error: &SqlError) -> Failure {
        let class = match error.state() {
            Some(state) => class_of(state),
            None if error.is_connection() => FailureClass::Interrupted,
            None => FailureClass::Transient,
        };
        let code = error.state().map(|it| it.code().to_owned()).unwrap_or_default();
        Failure { class, code, message: error.to_string() }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let layers = layers(&error);
        // What is known to quote payloads or row data speaks for the whole chain: whoever wraps it may repeat its text.
        if let Some(known) = layers.iter().find_map(|it| known(*it)) {
            return known;
        }
        let texts: Vec<String> = layers.iter().map(ToString::to_string).collect();
        Failure::transient(texts.join(": "))
    }
}

type Layer<'a> = &'a (dyn Error + 'static);

/// An error and its causes. An I/O error hides the one that it was made of, and passes over it as a source.
fn layers<'a>(error: Layer<'a>) -> Vec<Layer<'a>> {
    let mut found: Vec<Layer<'a>> = Vec::new();
    let mut next = Some(error);
    while let Some(it) = next {
        found.push(it);
        let inner = it.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as Layer<'a>),
            None => it.source(),
        };
    }
    found
}

fn known(layer: Layer<'_>) -> Option<Failure> {
    if let Some(sql) = layer.downcast_ref::<tokio_postgres::Error>() {
        return Some(Failure::of_sql(&SqlError::of(sql)));
    }
    if let Some(sql) = layer.downcast_ref::<SqlError>() {
        return Some(Failure::of_sql(sql));
    }
    if let Some(pool) = layer.downcast_ref::<PoolError>()
        && !matches!(pool, PoolError::Backend(_))
    {
        return Some(Failure::new(FailureClass::Interrupted, "no database connection to be had from the pool"));
    }
    if matches!(layer.downcast_ref(), Some(LockError::Contended | LockError::Lost(_))) || layer.is::<Lost>() {
        return Some(Failure::contended(layer));
    }
    if layer.is::<InvalidName>() {
        return Some(Failure::permanent(layer));
    }
    if layer.is::<NoAnswer>() {
        return Some(Failure::new(FailureClass::Interrupted, layer));
    }
    if let Some(refusal) = layer.downcast_ref::<Refusal>() {
        return Some(of_refusal(refusal));
    }
    if let Some(decode) = layer.downcast_ref::<DecodeError>() {
        return Some(Failure::invalid(decode));
    }
    if let Some(flaw) = layer.downcast_ref::<Flaw>() {
        return Some(Failure::permanent(flaw).with_code("SCHEMA"));
    }
    let json = layer.downcast_ref::<serde_json::Error>()?;
    Some(Failure::transient(DecodeError::from_json(json)))
}

/// What a contract says of a message. A registry that does not help is nobody's verdict.
fn of_refusal(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::Registry(_) => Failure::interrupted(refusal),
        Refusal::UnknownId(_) => Failure::invalid(refusal).with_code("SCHEMA_ID"),
        Refusal::Undecodable(_) => Failure::invalid(refusal),
        _ => Failure::permanent(refusal).with_code("SCHEMA"),
    }
}

/// The table of DESIGN: what an SQLSTATE says about the message.
fn class_of(state: &SqlState) -> FailureClass {
    // 28: the login was refused, for instance because its password was changed a moment ago.
    const INTERRUPTED_CLASSES: [&str; 3] = ["08", "28", "53"];
    let code = state.code();
    let class = &code[..2.min(code.len())];
    match code {
        "40001" | "40P01" | "55P03" | "25006" => FailureClass::Interrupted,
        // A pooler that forgets prepared statements: every message would fail.
        "26000" | "42P05" => FailureClass::Interrupted,
        _ if INTERRUPTED_CLASSES.contains(&class) || code.starts_with("57P0") => FailureClass::Interrupted,
        "25P02" => FailureClass::AbortedTransaction,
        "57014" => FailureClass::Timeout,
        "23502" | "23514" => FailureClass::Permanent,
        _ if class == "22" => FailureClass::Permanent,
        _ => FailureClass::Transient,
    }
}

#[cfg(test)]
mod tests {
    use sekali_producer::schemas::Violation;

    use super::*;

    #[test]
    fn sqlstates_are_classified_as_designed() {
        let cases = [
            ("08006", FailureClass::Interrupted),
            ("57P01", FailureClass::Interrupted),
            ("28P01", FailureClass::Interrupted),
            ("28000", FailureClass::Interrupted),
            ("57P03", FailureClass::Interrupted),
            ("53300", FailureClass::Interrupted),
            ("40001", FailureClass::Interrupted),
            ("40P01", FailureClass::Interrupted),
            ("55P03", FailureClass::Interrupted),
            ("25006", FailureClass::Interrupted),
            ("26000", FailureClass::Interrupted),
            ("42P05", FailureClass::Interrupted),
            ("57014", FailureClass::Timeout),
            ("23503", FailureClass::Transient),
            ("23505", FailureClass::Transient),
            ("42P01", FailureClass::Transient),
            ("P0001", FailureClass::Transient),
            ("22P02", FailureClass::Permanent),
            ("22021", FailureClass::Permanent),
            ("23502", FailureClass::Permanent),
            ("23514", FailureClass::Permanent),
            ("25P02", FailureClass::AbortedTransaction),
        ];
        for (code, expected) in cases {
            assert_eq!(class_of(&SqlState::from_code(code)), expected, "{code}");
        }
    }

    #[test]
    fn a_lock_that_is_taken_or_lost_is_contended_and_one_that_failed_is_what_failed() {
        let cases = [
            (LockError::Contended, FailureClass::Contended),
            (LockError::Lost(Lost), FailureClass::Contended),
            (
                LockError::Failed(crate::Error::new(crate::ErrorKind::Postgres, "x").because(NoAnswer)),
                FailureClass::Interrupted,
            ),
            (LockError::Failed(crate::Error::new(crate::ErrorKind::Config, "x")), FailureClass::Transient),
        ];
        for (error, expected) in cases {
            assert_eq!(Failure::from(error).class(), expected);
        }
        assert_eq!(Failure::from(Lost).class(), FailureClass::Contended);
        assert_eq!(Failure::from(std::io::Error::other(Lost)).class(), FailureClass::Contended, "wrapped");
    }

    #[test]
    fn a_registry_that_is_away_is_no_verdict_and_what_a_schema_refuses_is_permanent() {
        let violation =
            Violation { schema: "order.placed v1".to_owned(), pointer: "/lines/0".to_owned(), rule: "type".to_owned() };
        let cases = [
            (Refusal::Registry("it is away".to_owned()), FailureClass::Interrupted, ""),
            (Refusal::UnknownId(7), FailureClass::Invalid, "SCHEMA_ID"),
            (Refusal::Violated(violation), FailureClass::Permanent, "SCHEMA"),
            (Refusal::NoSchema("consume"), FailureClass::Permanent, "SCHEMA"),
        ];
        for (refusal, class, code) in cases {
            let wrapped = crate::Error::new(crate::ErrorKind::Schema, "write an event").because(refusal.clone());
            for failure in [Failure::from(refusal), Failure::from(wrapped)] {
                assert_eq!((failure.class(), failure.info().code.as_str()), (class, code));
            }
        }
    }

    #[test]
    fn question_mark_keeps_the_chain_and_hides_payloads() {
        let json = serde_json::from_str::<i64>("\"secret\"").unwrap_err();
        let failure = Failure::from(std::io::Error::other(json));
        assert_eq!(failure.class(), FailureClass::Transient);
        assert!(!failure.info().message.contains("secret"), "{}", failure.info().message);
        let failure = Failure::from(std::io::Error::other(std::io::Error::other("the disk is full")));
        assert_eq!(failure.info().message, "the disk is full: the disk is full: the disk is full");
        let failure = Failure::from(Flaw::Empty("sku"));
        let info = failure.info();
        assert_eq!((&*info.class, &*info.code, &*info.message), ("permanent", "SCHEMA", "sku is empty"));
        let failure = Failure::permanent("no such account").with_code("ACCOUNT");
        assert_eq!((failure.info().code.as_str(), failure.info().class.as_str()), ("ACCOUNT", "permanent"));
    }
}
