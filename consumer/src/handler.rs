//! What a team writes: a handler, and what it answers.

use std::future::Future;

use sekali_schemas::idempotency::KeyError;
use sekali_schemas::{IdempotencyKey, Message, Record};
use serde_json::Value;

use crate::lock::LockKey;
use crate::{Failure, Transaction};

/// The business change that a message asks for, written through the transaction that also holds the inbox row.
///
/// Implement [`handle`](Handler::handle); override [`handle_batch`](Handler::handle_batch) when the change can be
/// written for many messages with few statements, which is twenty times as fast.
///
/// A handler changes PostgreSQL only, and only through `tx`: everything else would happen again when the transaction is
/// rolled back. Messages of one key come one after another.
pub trait Handler: Send + Sync + 'static {
    /// Applies one message.
    ///
    /// # Errors
    /// Any error given to `?` becomes a [`Failure`] by its SQLSTATE, otherwise a transient one. The transaction is
    /// rolled back.
    fn handle(&self, message: &Message, tx: &Transaction<'_>) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// Applies messages that share a transaction, in order, and answers for each of them. All or nothing: on an error
    /// the transaction is rolled back and the messages run again in halves, in the end alone, and only a message that
    /// failed alone is blamed. A message that is refused before anything was written for it is answered with
    /// [`Reply::rejected`] instead, which costs its neighbours nothing.
    ///
    /// # Errors
    /// As [`handle`](Handler::handle).
    fn handle_batch(
        &self,
        messages: &[Message],
        tx: &Transaction<'_>,
    ) -> impl Future<Output = Result<Vec<Reply>, Failure>> + Send {
        async move {
            let mut replies = Vec::with_capacity(messages.len());
            for message in messages {
                replies.push(self.handle(message, tx).await?);
            }
            Ok(replies)
        }
    }

    /// Identity of the business action, where the headers do not carry one. `None`, the default, asks the headers:
    /// `idempotency-key`, then `ce_source` and `ce_id`, then `id`. Must give the same key for every copy of a message.
    fn idempotency_key(&self, record: &Record) -> Option<Result<IdempotencyKey, KeyError>> {
        let _ = record;
        None
    }

    /// A lock around the work on a message, where the order of its key is not enough: it is taken before the handler runs
    /// and released after the transaction. `None`, the default, takes none.
    ///
    /// # Errors
    /// The message says nothing that could be locked: it is refused.
    fn lock_key(&self, message: &Message) -> Result<Option<LockKey>, Failure> {
        let _ = message;
        Ok(None)
    }
}

/// A handler's answer for one message.
#[derive(Debug)]
pub struct Reply(pub(crate) Answer);

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Stored(Value),
    Rejected(Failure),
}

impl Reply {
    /// The change is written.
    pub fn done() -> Reply {
        Reply(Answer::Done)
    }

    /// The change is written; the result is stored in the inbox row, for whoever asks again under the same key.
    pub fn stored(result: Value) -> Reply {
        Reply(Answer::Stored(result))
    }

    /// This message failed, and nothing was written for it: the others of its batch go on.
    pub fn rejected(failure: impl Into<Failure>) -> Reply {
        Reply(Answer::Rejected(failure.into()))
    }
}
