//! Calling the handler, with everything that it may do wrong contained.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt;
use sekali_schemas::Message;
use tokio::time::timeout;

use super::{Executor, How, answered};
use crate::core::hold::Rule;
use crate::failure::FailureClass;
use crate::handler::Answer;
use crate::incoming::Incoming;
use crate::{Failure, Handler, Reply, Transaction};

/// Before each message that runs by itself.
const MARK: &str = "SAVEPOINT sekali_message";
/// After one that did well. It fails when the handler swallowed an SQL error, and then says so of this very message.
const KEEP: &str = "RELEASE SAVEPOINT sekali_message";
/// After one that failed.
const UNDO: &str = "ROLLBACK TO SAVEPOINT sekali_message; RELEASE SAVEPOINT sekali_message";

impl<H: Handler> Executor<H> {
    /// One reply for each message. `rule` says which failures hold their keys.
    pub(super) async fn replies(
        &self,
        client: &ClientWrapper,
        messages: &[Message],
        how: How,
        rule: Rule,
    ) -> Result<Vec<Reply>, Failure> {
        if how.careful && 1 < messages.len() {
            return self.one_by_one(client, messages, rule).await;
        }
        self.handle(client, messages).await
    }

    /// Each message under a savepoint of its own: one that fails is undone and becomes a rejection, and the others of its
    /// key wait behind it.
    async fn one_by_one(
        &self,
        client: &ClientWrapper,
        messages: &[Message],
        rule: Rule,
    ) -> Result<Vec<Reply>, Failure> {
        let mut replies = Vec::with_capacity(messages.len());
        let mut held: BTreeSet<(&str, &[u8])> = BTreeSet::new();
        for message in messages {
            let key = message.record().key.as_deref().map(|it| (&*message.origin().topic, it));
            if key.is_some_and(|it| held.contains(&it)) {
                replies.push(Reply::rejected(Failure::transient("it waits behind a failed message of its key")));
                continue;
            }
            let reply = self.under_savepoint(client, message).await?;
            if let Answer::Rejected(failure) = &reply.0
                && rule.holds(self.shared.decision_on(&Incoming::Message(message.clone()), failure)?)
            {
                held.extend(key);
            }
            replies.push(reply);
        }
        Ok(replies)
    }

    async fn under_savepoint(&self, client: &ClientWrapper, message: &Message) -> Result<Reply, Failure> {
        let deadline = self.shared.database_timeout;
        answered(deadline, client.batch_execute(MARK)).await??;
        let failure = match self.handle(client, std::slice::from_ref(message)).await {
            Ok(mut replies) => match answered(deadline, client.batch_execute(KEEP)).await? {
                Ok(()) => return Ok(replies.pop().unwrap_or_else(Reply::done)),
                Err(error) => Failure::from(error),
            },
            Err(failure) => failure,
        };
        match failure.class() {
            // No verdict; and a statement that hangs would hold up the others.
            FailureClass::Interrupted | FailureClass::Timeout => Err(failure),
            _ => {
                answered(deadline, client.batch_execute(UNDO)).await??;
                Ok(Reply::rejected(failure))
            }
        }
    }

    async fn handle(&self, client: &ClientWrapper, messages: &[Message]) -> Result<Vec<Reply>, Failure> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let tx = Transaction::over(client);
        let work = AssertUnwindSafe(self.shared.handler.handle_batch(messages, &tx)).catch_unwind();
        let limit = self.shared.handler_timeout;
        let replies = match timeout(limit, work).await {
            Ok(Ok(replies)) => replies?,
            // The panic's own message may quote the payload; it is in the log of the panic hook.
            Ok(Err(_panic)) => {
                self.shared.metrics.panicked();
                return Err(Failure::new(FailureClass::Panic, "the handler panicked"));
            }
            Err(_elapsed) => {
                let text = format!("the handler took longer than {} ms", limit.as_millis());
                return Err(Failure::new(FailureClass::Timeout, text));
            }
        };
        if replies.len() != messages.len() {
            let text = format!("the handler gave {} replies for {} messages", replies.len(), messages.len());
            return Err(Failure::transient(text));
        }
        Ok(replies)
    }
}
