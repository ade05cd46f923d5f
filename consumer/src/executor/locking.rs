//! Locks around the work of a batch, where its handler wants some.

use std::collections::BTreeMap;

use deadpool_postgres::ClientWrapper;
use futures_util::future::try_join_all;
use sekali_schemas::Message;

use super::{Executor, answered};
use crate::lock::{self, Guard, LockError, LockKey, Name};
use crate::{Failure, Handler, Transaction};

impl<H: Handler> Executor<H> {
    /// Takes the locks of messages, each once for all messages that want it: named locks beside the transaction, those of
    /// the transaction inside it, where they are waited for. A message whose named lock is taken is refused, by its index.
    ///
    /// # Errors
    /// The database refuses.
    pub(super) async fn lock(
        &self,
        client: &ClientWrapper,
        messages: &[Message],
    ) -> Result<(Vec<Guard>, Vec<(usize, Failure)>), Failure> {
        let (mut wanted, mut refused) = (Vec::new(), Vec::new());
        for (index, message) in messages.iter().enumerate() {
            match self.shared.handler.lock_key(message) {
                Ok(None) => {}
                Ok(Some(key)) => wanted.push((index, key)),
                Err(failure) => refused.push((index, failure)),
            }
        }
        let names = |of: fn(&LockKey) -> Option<&Name>| {
            let mut names: Vec<Name> = wanted.iter().filter_map(|it| of(&it.1)).cloned().collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let named = names(LockKey::named_name);
        let mut guards = BTreeMap::new();
        if !named.is_empty() {
            guards = self.shared.locks.try_acquire_all(&named, self.shared.lock_ttl).await?;
        }
        let taken = wanted.iter().filter(|it| it.1.named_name().is_some_and(|name| !guards.contains_key(name)));
        refused.extend(taken.map(|(index, _)| (*index, Failure::from(LockError::Contended))));
        if refused.is_empty() {
            let tx = Transaction::over(client);
            for name in names(LockKey::transaction_name) {
                answered(self.shared.database_timeout, lock::advisory(&tx, &name)).await??;
            }
        }
        Ok((guards.into_values().collect(), refused))
    }

    /// Whether every lock is still ours: from here to the end of the transaction nobody else gets one of them.
    pub(super) async fn still_locked(&self, client: &ClientWrapper) -> Result<(), Failure> {
        let tx = Transaction::over(client);
        try_join_all(self.locked.iter().map(|it| it.check(&tx))).await?;
        Ok(())
    }

    /// Lets go of the locks, once the transaction has ended.
    pub(super) async fn unlock(&mut self) {
        let guards = std::mem::take(&mut self.locked);
        if let Err(error) = self.shared.locks.release_all(guards).await {
            tracing::debug!(error = error.chain(), "locks were not released, they run out by themselves");
        }
    }
}
