//! Calling the handler, with everything that it may do wrong contained.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use deadpool_postgres::ClientWrapper;
use futures_util::{FutureExt, future};
use sekali_schemas::Message;
use tokio::time::timeout;

use super::{Executor, How, answered};
use crate::core::Care;
use crate::core::hold::{Answered, Rule, parked_after};
use crate::failure::FailureClass;
use crate::handler::Answer;
use crate::incoming::Incoming;
use crate::{Failure, Handler, Reply, Transaction};

/// Before each part of a batch.
const MARK: &str = "SAVEPOINT sekali_part";
/// After one that did well. It fails when the handler swallowed an SQL error, and then says so of this very part.
const KEEP: &str = "RELEASE SAVEPOINT sekali_part";
/// After one that failed.
const UNDO: &str = "ROLLBACK TO SAVEPOINT sekali_part; RELEASE SAVEPOINT sekali_part";
/// Where many messages fail, a search begins with parts of so many.
const FIRST_PART: usize = 8;

impl<H: Handler> Executor<H> {
    /// One reply for each message. `rule` says which failures hold their keys.
    pub(super) async fn replies(
        &self,
        client: &ClientWrapper,
        messages: &[Message],
        how: How,
        rule: Rule,
    ) -> Result<Vec<Reply>, Failure> {
        match how.care {
            Care::None => self.handle(client, messages).await,
            Care::Search => self.search(client, messages, messages.len(), rule).await,
            Care::Always => self.search(client, messages, FIRST_PART, rule).await,
        }
    }

    /// Runs messages in parts, each under a savepoint; one that fails is undone and run in halves, in the end alone. A
    /// message that fails alone becomes a rejection, and the others of its key wait behind it.
    async fn search(
        &self,
        client: &ClientWrapper,
        messages: &[Message],
        first_part: usize,
        rule: Rule,
    ) -> Result<Vec<Reply>, Failure> {
        let mut replies: Vec<Option<Reply>> = messages.iter().map(|_| None).collect();
        let mut held: BTreeSet<Key<'_>> = BTreeSet::new();
        // The next part is on top.
        let mut parts: Vec<std::ops::Range<usize>> = Vec::new();
        for begin in (0..messages.len()).step_by(first_part.max(1)) {
            parts.push(begin..messages.len().min(begin + first_part));
        }
        parts.reverse();
        while let Some(part) = parts.pop() {
            let waits = |it: &usize| key(&messages[*it]).is_some_and(|it| held.contains(&it));
            let (behind, runs): (Vec<usize>, Vec<usize>) = part.partition(waits);
            for place in behind {
                let failure = Failure::transient("it waits behind a failed message of its key");
                replies[place] = Some(Reply::rejected(failure));
            }
            let chosen: Vec<Message> = runs.iter().map(|it| messages[*it].clone()).collect();
            match self.under_savepoint(client, &chosen, rule).await? {
                Ok(part) => {
                    for (place, reply) in runs.into_iter().zip(part) {
                        if self.holds(&messages[place], &reply, rule)? {
                            held.extend(key(&messages[place]));
                        }
                        replies[place] = Some(reply);
                    }
                }
                Err(_) if 1 < runs.len() => {
                    let (first, last) = (runs[0], runs[runs.len() - 1]);
                    let middle = runs[runs.len() / 2];
                    parts.extend([middle..last + 1, first..middle]);
                }
                Err(failure) => {
                    // Only one is left.
                    let reply = Reply::rejected(failure);
                    if let Some(&place) = runs.first() {
                        if self.holds(&messages[place], &reply, rule)? {
                            held.extend(key(&messages[place]));
                        }
                        replies[place] = Some(reply);
                    }
                }
            }
        }
        Ok(replies.into_iter().map(|it| it.unwrap_or_else(Reply::done)).collect())
    }

    fn holds(&self, message: &Message, reply: &Reply, rule: Rule) -> Result<bool, Failure> {
        match &reply.0 {
            Answer::Rejected(failure) => {
                Ok(rule.holds(self.shared.decision_on(&Incoming::Message(message.clone()), failure)?))
            }
            Answer::Done | Answer::Stored(_) => Ok(false),
        }
    }

    /// The replies to a part, or why it failed and was undone. A failure that is no verdict ends it all.
    async fn under_savepoint(
        &self,
        client: &ClientWrapper,
        messages: &[Message],
        rule: Rule,
    ) -> Result<Result<Vec<Reply>, Failure>, Failure> {
        if messages.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let deadline = self.shared.database_timeout;
        // Sent together, in the order of the first poll.
        let (marked, handled) = future::join(client.batch_execute(MARK), self.handle(client, messages)).await;
        marked?;
        let failure = match handled {
            Ok(replies) => match self.overtaken(messages, &replies, rule)? {
                true => Failure::transient("a message overtook a refused one of its key"),
                false => match answered(deadline, client.batch_execute(KEEP)).await? {
                    Ok(()) => return Ok(Ok(replies)),
                    Err(error) => Failure::from(error),
                },
            },
            Err(failure) => failure,
        };
        match failure.class() {
            // No verdict; and a statement that hangs would hold up the others.
            FailureClass::Interrupted | FailureClass::Timeout => Err(failure),
            _ => {
                answered(deadline, client.batch_execute(UNDO)).await??;
                Ok(Err(failure))
            }
        }
    }

    fn overtaken(&self, messages: &[Message], replies: &[Reply], rule: Rule) -> Result<bool, Failure> {
        let mut answers = Vec::with_capacity(messages.len());
        for (message, reply) in messages.iter().zip(replies) {
            let refused = matches!(reply.0, Answer::Rejected(_));
            let holds = self.holds(message, reply, rule)?;
            answers.push((key(message), if refused { Answered::Refused { holds } } else { Answered::Applied }));
        }
        Ok(parked_after(answers).is_err())
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

/// Source topic and record key.
type Key<'a> = (&'a str, &'a [u8]);

fn key(message: &Message) -> Option<Key<'_>> {
    Some((&message.origin().topic, message.record().key.as_deref()?))
}
