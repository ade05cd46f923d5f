//! The handler of the demo's workers: the stock group, with trouble on request.

use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};
use sekali_worker::stock::Stock;

/// Header that asks for trouble.
pub(super) const BEHAVIOUR: &str = "demo-behaviour";

/// What trouble it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// The first two attempts fail.
    FailTwice,
    /// Every attempt fails.
    AlwaysFail,
}

impl Behaviour {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Behaviour::FailTwice => "fail-twice",
            Behaviour::AlwaysFail => "always-fail",
        }
    }

    fn of(message: &Message) -> Option<Behaviour> {
        let asked = message.headers().text(BEHAVIOUR)?;
        [Behaviour::FailTwice, Behaviour::AlwaysFail].into_iter().find(|it| it.as_str() == asked)
    }

    fn fails(self, attempt: u32) -> bool {
        match self {
            Behaviour::FailTwice => attempt <= 2,
            Behaviour::AlwaysFail => true,
        }
    }
}

/// The stock handler, failing where a message asks for it.
pub(super) struct Troubled(pub(super) Stock);

/// The failure that a message asks for in this attempt.
fn trouble(message: &Message) -> Option<Failure> {
    let behaviour = Behaviour::of(message).filter(|it| it.fails(message.attempt()))?;
    Some(Failure::transient("the demo asked for this failure").with_code(behaviour.as_str()))
}

impl Handler for Troubled {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        match trouble(message) {
            Some(failure) => Err(failure),
            None => self.0.handle(message, tx).await,
        }
    }

    async fn handle_batch(&self, messages: &[Message], tx: &Transaction<'_>) -> Result<Vec<Reply>, Failure> {
        let mut replies: Vec<Option<Reply>> = messages.iter().map(|it| trouble(it).map(Reply::rejected)).collect();
        // A clone of a message copies a pointer.
        let healthy: Vec<Message> =
            messages.iter().zip(&replies).filter(|(_, reply)| reply.is_none()).map(|(it, _)| it.clone()).collect();
        let mut answers = self.0.handle_batch(&healthy, tx).await?.into_iter();
        for open in replies.iter_mut().filter(|it| it.is_none()) {
            *open = answers.next();
        }
        // Too few answers of the inner handler stay too few: the consumer refuses the batch.
        Ok(replies.into_iter().flatten().collect())
    }
}
