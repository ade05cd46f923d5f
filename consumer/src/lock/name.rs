//! What a lock is called.

use std::fmt;

/// Longest name, so that its index entry stays small.
const BYTES_MAX: usize = 200;
/// The relay's leadership is a row of the same table.
const RELAY: &str = "relay";

/// The name of a locked resource, such as `invoice:2025-17`; all processes of one database share the names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Why a text is no name of a lock. Does not repeat the text. As a [`Failure`](crate::Failure) it is *permanent*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// No text.
    #[error("the name of a lock is empty")]
    Empty,
    /// More than 200 bytes.
    #[error("the name of a lock has more than {BYTES_MAX} bytes")]
    TooLong,
    /// PostgreSQL cannot store U+0000.
    #[error("the name of a lock contains U+0000")]
    Nul,
    /// `relay`.
    #[error("the lock `{RELAY}` belongs to the outbox's relay")]
    Reserved,
}

impl Name {
    /// A name of 1 to 200 bytes.
    ///
    /// # Errors
    /// Empty, too long, with U+0000, or `relay`.
    pub fn new(name: impl Into<String>) -> Result<Name, InvalidName> {
        let name = name.into();
        match name.as_str() {
            "" => Err(InvalidName::Empty),
            RELAY => Err(InvalidName::Reserved),
            text if BYTES_MAX < text.len() => Err(InvalidName::TooLong),
            text if text.contains('\0') => Err(InvalidName::Nul),
            _ => Ok(Name(name)),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_postgres_cannot_store_or_the_relay_needs_is_refused() {
        let cases = [
            (String::new(), Err(InvalidName::Empty)),
            ("relay".to_owned(), Err(InvalidName::Reserved)),
            ("relay:1".to_owned(), Ok(())),
            ("a\0b".to_owned(), Err(InvalidName::Nul)),
            ("x".repeat(200), Ok(())),
            ("x".repeat(201), Err(InvalidName::TooLong)),
            ("é".repeat(101), Err(InvalidName::TooLong)),
        ];
        for (text, expected) in cases {
            assert_eq!(Name::new(text.clone()).map(drop), expected, "{text:?}");
        }
    }
}
