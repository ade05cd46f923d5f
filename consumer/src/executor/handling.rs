//! Calling the handler, with everything that it may do wrong contained.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt;
use sekali_schemas::Message;
use tokio::time::timeout;

use super::search::Search;
use super::{Executor, How};
use crate::core::Care;
use crate::core::hold::{Answered, Rule, parked_after};
use crate::failure::FailureClass;
use crate::handler::Answer;
use crate::incoming::Incoming;
use crate::metrics::Metrics;
use crate::{Failure, Handler, Reply, Transaction};

impl<H: Handler> Executor<H> {
    /// One reply for each message, and how many failed alone. `rule` says which failures hold their keys.
    pub(super) async fn replies(
        &self,
        client: &ClientWrapper,
        messages: &[Message],
        how: How,
        rule: Rule,
    ) -> Result<(Vec<Reply>, usize), Failure> {
        match how.care {
            Care::None => Ok((self.handle(client, messages).await?, 0)),
            Care::Parts(part) => Search::over(self, client, messages, rule).run(part).await,
        }
    }

    pub(super) fn holds(&self, message: &Message, reply: &Reply, rule: Rule) -> Result<bool, Failure> {
        match &reply.0 {
            Answer::Rejected(failure) => {
                Ok(rule.holds(self.shared.decision_on(&Incoming::Message(message.clone()), failure)?))
            }
            Answer::Done | Answer::Stored(_) => Ok(false),
        }
    }

    /// Whether a message took effect behind a refused one that holds their key.
    pub(super) fn overtaken(&self, messages: &[Message], replies: &[Reply], rule: Rule) -> Result<bool, Failure> {
        let mut answers = Vec::with_capacity(messages.len());
        for (message, reply) in messages.iter().zip(replies) {
            let refused = matches!(reply.0, Answer::Rejected(_));
            let holds = self.holds(message, reply, rule)?;
            answers.push((key(message), if refused { Answered::Refused { holds } } else { Answered::Applied }));
        }
        Ok(parked_after(answers).is_err())
    }

    pub(super) async fn handle(&self, client: &ClientWrapper, messages: &[Message]) -> Result<Vec<Reply>, Failure> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let tx = Transaction::under(self.shared.contract.as_deref(), client);
        let work = self.shared.handler.handle_batch(messages, &tx);
        let replies = contained(self.shared.handler_timeout, &self.shared.metrics, work).await?;
        if replies.len() != messages.len() {
            let text = format!("the handler gave {} replies for {} messages", replies.len(), messages.len());
            return Err(Failure::transient(text));
        }
        Ok(replies)
    }
}

/// Runs a team's own code: it may panic, and it may hang.
pub(crate) async fn contained<T>(
    limit: Duration,
    metrics: &Metrics,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(result)) => result,
        // The panic's own message may quote the payload; it is in the log of the panic hook.
        Ok(Err(_panic)) => {
            metrics.panicked();
            Err(Failure::new(FailureClass::Panic, "the handler panicked"))
        }
        Err(_elapsed) => {
            let text = format!("the handler took longer than {} ms", limit.as_millis());
            Err(Failure::new(FailureClass::Timeout, text))
        }
    }
}

/// Source topic and record key.
pub(super) type Key<'a> = (&'a str, &'a [u8]);

pub(super) fn key(message: &Message) -> Option<Key<'_>> {
    Some((&message.origin().topic, message.record().key.as_deref()?))
}
