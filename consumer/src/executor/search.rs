//! Finds the messages that fail in a batch, while the others take effect: all in one transaction.
//!
//! Messages run in parts, in their order, each under a savepoint. A part that fails is undone; then its first half runs,
//! and so on, until a message has failed alone. What stands behind it is only suspected when a half before it did well
//! (Hwang 1972, "A method for detecting all defective members in a population by group testing"), so that one of `n`
//! messages costs about `log2(n)` runs of ever smaller parts.

use std::collections::BTreeSet;

use deadpool_postgres::ClientWrapper;
use futures_util::future;
use sekali_schemas::Message;

use super::handling::{Key, key};
use super::{Executor, answered};
use crate::core::hold::Rule;
use crate::failure::FailureClass;
use crate::{Failure, Handler, Reply};

/// Before the first part.
const MARK: &str = "SAVEPOINT sekali_part";
/// After one that did well, sent together with what the next one does. It fails when the handler swallowed an SQL error,
/// and then says so of the part before.
const KEEP: &str = "RELEASE SAVEPOINT sekali_part; SAVEPOINT sekali_part";
/// After one that failed: the savepoint stays for the next one.
const UNDO: &str = "ROLLBACK TO SAVEPOINT sekali_part";
const END: &str = "RELEASE SAVEPOINT sekali_part";

pub(super) struct Search<'a, H> {
    executor: &'a Executor<H>,
    client: &'a ClientWrapper,
    messages: &'a [Message],
    rule: Rule,
    replies: Vec<Option<Reply>>,
    /// Keys of which a message failed: the later ones wait.
    held: BTreeSet<Key<'a>>,
    /// The first message that is not done.
    next: usize,
    /// Between `next` and here some message fails.
    suspect: Option<usize>,
    /// A part that did well, unless keeping it shows otherwise.
    kept: Option<Kept<'a>>,
    found: usize,
}

struct Kept<'a> {
    begin: usize,
    held: Vec<Key<'a>>,
}

/// What a part came to.
enum Ran {
    Well(Vec<Reply>),
    Failed(Failure),
    /// The part before failed after all, and this one did not really run.
    NotKept(Failure),
}

impl<'a, H: Handler> Search<'a, H> {
    pub(super) fn over(
        executor: &'a Executor<H>,
        client: &'a ClientWrapper,
        messages: &'a [Message],
        rule: Rule,
    ) -> Search<'a, H> {
        let replies = messages.iter().map(|_| None).collect();
        Search {
            executor,
            client,
            messages,
            rule,
            replies,
            held: BTreeSet::new(),
            next: 0,
            suspect: None,
            kept: None,
            found: 0,
        }
    }

    /// One reply for each message, and how many failed alone.
    ///
    /// # Errors
    /// A failure that is no verdict on a message, or that holds up the others.
    pub(super) async fn run(mut self, part: usize) -> Result<(Vec<Reply>, usize), Failure> {
        let mut control = MARK;
        loop {
            while self.next < self.messages.len() {
                let end = match self.suspect {
                    Some(end) => self.next + (end - self.next).div_ceil(2).min(end - self.next - 1).max(1),
                    None => self.messages.len().min(self.next + part.max(1)),
                };
                let places = self.park(end);
                if places.is_empty() {
                    self.done_to(end);
                    continue;
                }
                control = match self.try_part(control, &places).await? {
                    Ran::Well(replies) => {
                        self.keep(end, &places, replies)?;
                        KEEP
                    }
                    Ran::Failed(failure) => {
                        self.kept = None;
                        self.blame(end, &places, failure)?;
                        UNDO
                    }
                    Ran::NotKept(failure) => {
                        self.not_kept(failure)?;
                        UNDO
                    }
                };
            }
            match self.end(control).await? {
                None => break,
                Some(failure) => {
                    self.not_kept(failure)?;
                    control = UNDO;
                }
            }
        }
        let replies = self.replies.into_iter().map(|it| it.unwrap_or_else(Reply::done)).collect();
        Ok((replies, self.found))
    }

    /// Places of a part that run; the others wait behind a failed message of their key.
    fn park(&mut self, end: usize) -> Vec<usize> {
        let mut places = Vec::with_capacity(end - self.next);
        for place in self.next..end {
            if key(&self.messages[place]).is_some_and(|it| self.held.contains(&it)) {
                let failure = Failure::transient("it waits behind a failed message of its key");
                self.replies[place] = Some(Reply::rejected(failure));
            } else {
                places.push(place);
            }
        }
        places
    }

    fn done_to(&mut self, end: usize) {
        self.next = end;
        self.suspect = self.suspect.filter(|it| end < *it);
    }

    fn keep(&mut self, end: usize, places: &[usize], replies: Vec<Reply>) -> Result<(), Failure> {
        let mut held = Vec::new();
        for (&place, reply) in places.iter().zip(replies) {
            if self.executor.holds(&self.messages[place], &reply, self.rule)? {
                held.extend(key(&self.messages[place]).filter(|it| self.held.insert(*it)));
            }
            self.replies[place] = Some(reply);
        }
        self.kept = Some(Kept { begin: self.next, held });
        self.done_to(end);
        Ok(())
    }

    fn blame(&mut self, end: usize, places: &[usize], failure: Failure) -> Result<(), Failure> {
        let [place] = places else {
            self.suspect = Some(end);
            return Ok(());
        };
        let (message, reply) = (&self.messages[*place], Reply::rejected(failure));
        if self.executor.holds(message, &reply, self.rule)? {
            self.held.extend(key(message));
        }
        self.replies[*place] = Some(reply);
        self.found += 1;
        self.suspect = None;
        self.next = end;
        Ok(())
    }

    /// Goes back to a part that did well and could not be kept.
    fn not_kept(&mut self, failure: Failure) -> Result<(), Failure> {
        // Only after a part that did well something is kept.
        let Some(Kept { begin, held }) = self.kept.take() else { return Err(failure) };
        let end = self.next;
        self.next = begin;
        for it in held {
            self.held.remove(&it);
        }
        let places = self.park(end);
        self.blame(end, &places, failure)
    }

    /// Runs a part. A failure that is no verdict ends it all.
    async fn try_part(&self, control: &str, places: &[usize]) -> Result<Ran, Failure> {
        let chosen: Vec<Message> = places.iter().map(|it| self.messages[*it].clone()).collect();
        // Sent together, in the order of the first poll.
        let before = answered(self.executor.shared.database_timeout, self.client.batch_execute(control));
        let (before, handled) = future::join(before, self.executor.handle(self.client, &chosen)).await;
        if let Err(error) = before? {
            return verdict(Failure::from(error)).map(Ran::NotKept);
        }
        match handled {
            Ok(replies) if self.executor.overtaken(&chosen, &replies, self.rule)? => {
                Ok(Ran::Failed(Failure::transient("a message overtook a refused one of its key")))
            }
            Ok(replies) => Ok(Ran::Well(replies)),
            Err(failure) => verdict(failure).map(Ran::Failed),
        }
    }

    /// Why the last part cannot be kept, if so.
    async fn end(&self, control: &str) -> Result<Option<Failure>, Failure> {
        let deadline = self.executor.shared.database_timeout;
        if control == UNDO {
            answered(deadline, self.client.batch_execute(UNDO)).await??;
        }
        // When nothing failed, the end of the transaction shows as well whether the last part can be kept.
        if control == MARK || self.found == 0 {
            return Ok(None);
        }
        match answered(deadline, self.client.batch_execute(END)).await? {
            Ok(()) => Ok(None),
            Err(error) => verdict(Failure::from(error)).map(Some),
        }
    }
}

/// Without a verdict nothing can be searched; and a statement that hangs would hold up the others.
fn verdict(failure: Failure) -> Result<Failure, Failure> {
    match failure.class() {
        FailureClass::Interrupted | FailureClass::Timeout => Err(failure),
        _ => Ok(failure),
    }
}
