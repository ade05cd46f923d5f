//! Events that are made to fail.

use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};

/// How an event fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The handler refuses it before it writes anything, for good.
    Reject,
    /// A statement of the handler fails, and with it its transaction, for good.
    Sql,
    /// The handler refuses its first attempt.
    Once,
}

/// Header that tells the handler how to fail.
pub(crate) const HEADER: &str = "fault";

impl Fault {
    const ALL: [Fault; 3] = [Fault::Reject, Fault::Sql, Fault::Once];

    /// Its name in headers and results.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Reject => "reject",
            Fault::Sql => "sql",
            Fault::Once => "once",
        }
    }

    /// Whether the event ends as a dead letter.
    pub fn is_final(self) -> bool {
        self != Fault::Once
    }

    fn of(message: &Message) -> Option<Fault> {
        let name = message.headers().text(HEADER)?;
        Fault::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// A handler, for events some of which are made to fail.
pub(crate) struct Faulty<H>(pub(crate) H);

impl<H: Handler> Handler for Faulty<H> {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let mut replies = self.handle_batch(std::slice::from_ref(message), tx).await?;
        Ok(replies.pop().unwrap_or_else(Reply::done))
    }

    async fn handle_batch(&self, messages: &[Message], tx: &Transaction<'_>) -> Result<Vec<Reply>, Failure> {
        let faults: Vec<Option<Fault>> = messages.iter().map(fault_now).collect();
        if faults.iter().all(Option::is_none) {
            return self.0.handle_batch(messages, tx).await;
        }
        if faults.contains(&Some(Fault::Sql)) {
            tx.batch_execute("SELECT 1 / 0").await?;
        }
        let good = messages.iter().zip(&faults).filter(|it| it.1.is_none()).map(|it| it.0.clone());
        let good: Vec<Message> = good.collect();
        let mut replies = if good.is_empty() { Vec::new() } else { self.0.handle_batch(&good, tx).await? }.into_iter();
        let reply = |it: &Option<Fault>| match it {
            None => replies.next().unwrap_or_else(Reply::done),
            Some(Fault::Once) => Reply::rejected(Failure::transient("made to fail once")),
            Some(_) => Reply::rejected(Failure::permanent("made to fail")),
        };
        Ok(faults.iter().map(reply).collect())
    }
}

/// How this attempt fails.
fn fault_now(message: &Message) -> Option<Fault> {
    Fault::of(message).filter(|it| it.is_final() || message.attempt() == 1)
}
