//! Holding messages against their schemas, before any transaction: a registry may have to be asked.

use std::collections::BTreeMap;

use sekali_producer::Contract;
use sekali_schemas::Message;

use super::{Executor, Finished, Shared};
use crate::Failure;
use crate::core::{Findings, Item, Outcome};
use crate::failure::FailureClass;
use crate::incoming::Incoming;

impl<H> Shared<H> {
    /// What the contract refuses, by place.
    ///
    /// # Errors
    /// The registry is away: no verdict on any of them.
    pub(super) async fn against_contract(&self, items: &[Item<Incoming>]) -> Result<BTreeMap<usize, Failure>, Failure> {
        let mut refused = BTreeMap::new();
        let Some(contract) = self.reading() else { return Ok(refused) };
        for (place, item) in items.iter().enumerate() {
            if let Incoming::Message(message) = &item.record.message
                && let Err(failure) = check(contract, message).await
            {
                if failure.class() == FailureClass::Interrupted {
                    return Err(failure);
                }
                refused.insert(place, failure);
            }
        }
        Ok(refused)
    }

    /// The same for one message.
    ///
    /// # Errors
    /// The contract refuses it, or the registry is away.
    pub(crate) async fn message_against_contract(&self, message: &Message) -> Result<(), Failure> {
        match self.reading() {
            Some(contract) => check(contract, message).await,
            None => Ok(()),
        }
    }

    fn reading(&self) -> Option<&Contract> {
        self.contract.as_deref().filter(|it| it.reads())
    }
}

impl<H> Executor<H> {
    /// Ends an order that no transaction was begun for.
    pub(super) fn undecided(&self, failure: &Failure, items: Vec<Item<Incoming>>) -> Finished {
        tracing::warn!(error = %failure.info().message, "messages cannot be read, trying again");
        self.shared.metrics.batch_failed(failure.class());
        Finished { outcome: Outcome::Interrupted, items, findings: Findings::default() }
    }
}

async fn check(contract: &Contract, message: &Message) -> Result<(), Failure> {
    Ok(contract.check(message).await?)
}
