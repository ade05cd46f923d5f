//! What is wrong with a configuration, all of it.

use std::{error, fmt};

use sekali_producer::{Error, ErrorKind};

/// One thing to put right. Says where and what, never a secret value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `section.key`, or what else it concerns.
    pub key: String,
    /// File or environment variable that the value came from; `None` when nobody gave one.
    pub from: Option<String>,
    /// What is wrong, and the remedy.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Some(from) => write!(f, "{} ({from}): {}", self.key, self.what),
            None => write!(f, "{}: {}", self.key, self.what),
        }
    }
}

/// Every problem of a configuration, the cause of the error that [`super::Config::load`] returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    /// In the order in which they were found.
    pub list: Vec<Problem>,
}

impl Problems {
    pub(super) fn push(&mut self, key: impl Into<String>, from: Option<String>, what: impl Into<String>) {
        self.list.push(Problem { key: key.into(), from, what: what.into() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn into_error(self) -> Error {
        Error::new(ErrorKind::Config, "use the configuration").because(self)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.list.as_slice() {
            return only.fmt(f);
        }
        write!(f, "{} problems", self.list.len())?;
        for problem in &self.list {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl error::Error for Problems {}
