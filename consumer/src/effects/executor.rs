//! Transactions that take leases.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Effect, Performing};
use crate::batch::{Batch, Ended, Fate, tally};
use crate::core::verdict::{Arrival, Leasing};
use crate::core::{Event, Findings, Item, Leased, Outcome, Timestamp};
use crate::executor::writing::write;
use crate::executor::{Again, Executor, Finished, HeldOrder, How, Work, answered, disconnected, seal_and_commit};
use crate::held::HeldBatch;
use crate::incoming::Incoming;
use crate::postgres::{hold, lease};
use crate::{Failure, Reply, metrics};

/// What a transaction that takes leases came to.
pub(super) struct Claims {
    leased: Vec<Leased<Incoming>>,
    later: Vec<(Item<Incoming>, Timestamp)>,
    findings: Findings,
}

/// How often to look again at a message on which somebody else has a lease: it may be decided long before that runs out.
const LOOK: std::time::Duration = std::time::Duration::from_secs(1);

impl<E: Effect> Executor<Performing<E>> {
    /// Works until the sender of orders is gone.
    pub(crate) async fn run_effects(
        mut self,
        mut orders: mpsc::Receiver<Work>,
        results: mpsc::UnboundedSender<Event<Incoming>>,
    ) {
        while let Some(work) = orders.recv().await {
            let event = match work {
                Work::Run(items, how) => self.lease_batch(items, how).await,
                Work::RunHeld(order, _) => self.lease_held(&order).await,
                Work::Decide(item, decision) => {
                    let finished = self.decide_unleased(item, decision).await;
                    self.finished(finished)
                }
                Work::Record(records) => self.record(records).await,
            };
            if results.send(event).is_err() {
                return;
            }
        }
    }

    fn finished(&self, finished: Finished) -> Event<Incoming> {
        let Finished { outcome, items, findings } = finished;
        Event::Finished { lane: self.lane, outcome, items, findings }
    }

    fn claimed(&self, claims: Claims) -> Event<Incoming> {
        let Claims { leased, later, findings } = claims;
        Event::Claimed { lane: self.lane, leased, later, findings }
    }

    async fn lease_batch(&mut self, items: Vec<Item<Incoming>>, how: How) -> Event<Incoming> {
        match self.transact_leases(&items, how).await {
            Ok(claims) => {
                self.shared.metrics.committed(items.len());
                self.claimed(claims)
            }
            Err(ended) => {
                let finished = self.unclaimed(ended, items).await;
                self.finished(finished)
            }
        }
    }

    async fn lease_held(&mut self, order: &HeldOrder) -> Event<Incoming> {
        match self.transact_held_leases(order).await {
            Ok(claims) => {
                self.shared.metrics.committed(claims.leased.len());
                self.claimed(claims)
            }
            Err(failure) => {
                let finished = self.unclaimed(Ended::Failed(failure), Vec::new()).await;
                self.finished(finished)
            }
        }
    }

    async fn unclaimed(&mut self, ended: Ended, items: Vec<Item<Incoming>>) -> Finished {
        match self.end(ended).await {
            Again::Not(outcome, findings) => Finished { outcome, items, findings },
            // Nothing is refused before it is performed.
            Again::With(_) => Finished { outcome: Outcome::Interrupted, items, findings: Findings::default() },
        }
    }

    /// Takes leases on what is undecided; decides what needs no effect.
    async fn transact_leases(&mut self, items: &[Item<Incoming>], how: How) -> Result<Claims, Ended> {
        let asked_at = Instant::now();
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let deadline = shared.database_timeout;
        let all = Batch::of(items, &shared.routes);
        let met = answered(deadline, lease::begin_and_claim(client, shared.consumer_id, all.requests())).await??;
        let (later, rest, arrivals) = self.sort(items, &met);
        let batch = Batch::of(&rest, &shared.routes);
        let (mut settled, rule) = self.settle(client, &batch, &arrivals, &BTreeMap::new()).await?;
        let parked_keys: Vec<Uuid> = settled.parked().iter().map(|it| it.record.message.key()).collect();
        let replies = settled.messages().iter().map(|_| Reply::done()).collect();
        let mut written = settled.answered(replies, &shared)?;
        if how.dead_max < tally(&written.fates).dead {
            return Err(Ended::OverBudget);
        }
        let wanted: Vec<usize> = (0..rest.len()).filter(|it| written.fates[*it] == Fate::Processed).collect();
        let mut wanted_keys: Vec<Uuid> = wanted.iter().map(|it| rest[*it].record.message.key()).collect();
        wanted_keys.sort_unstable();
        // What is only leased is not decided: for the rest of the transaction it is as good as not there.
        wanted.iter().for_each(|it| written.fates[*it] = Fate::Duplicate);
        let ready = answered(deadline, write(client, &shared, &batch, &mut written)).await??;
        if !parked_keys.is_empty() {
            answered(deadline, lease::remove(client, shared.consumer_id, &parked_keys)).await??;
        }
        let owner = shared.handler.leases.owner;
        let mut taken = answered(deadline, lease::take(client, owner, &wanted_keys)).await??;
        answered(deadline, seal_and_commit(client)).await??;
        shared.held.fetch_add(written.parked.len() as u64, Ordering::Relaxed);
        let findings = settled.findings(&written.fates, rule, ready);
        let mut claims = Claims { leased: Vec::new(), later, findings };
        let fates = written.fates;
        let mut decided = Vec::new();
        for (place, item) in rest.into_iter().enumerate() {
            if !wanted.contains(&place) {
                decided.push((item, fates[place]));
            } else if let Some(taken) = taken.remove(&item.record.message.key()) {
                self.note(taken, &item, asked_at);
                claims.leased.push(Leased { item, fence: taken.fence });
            } else {
                claims.later.push((item, shared.clock.now().after(LOOK)));
            }
        }
        self.report_decided(&decided);
        Ok(claims)
    }

    /// What waits for somebody else's lease, and the rest with what it met.
    #[allow(clippy::type_complexity)]
    fn sort(
        &self,
        items: &[Item<Incoming>],
        met: &lease::Met,
    ) -> (Vec<(Item<Incoming>, Timestamp)>, Vec<Item<Incoming>>, Vec<Arrival>) {
        let soon = self.shared.clock.now().after(LOOK);
        let (mut later, mut rest, mut arrivals) = (Vec::new(), Vec::new(), Vec::new());
        let mut verdicts = met.verdicts.iter();
        for item in items {
            let verdict = match &item.record.message {
                Incoming::Message(_) => verdicts.next().copied().unwrap_or(Leasing::Wait),
                Incoming::Invalid { .. } => {
                    rest.push(item.clone());
                    continue;
                }
            };
            match lease::other(verdict) {
                Some(arrival) => {
                    rest.push(item.clone());
                    arrivals.push(arrival);
                }
                None => {
                    let until = met.until.get(&item.record.message.key()).copied().unwrap_or(soon);
                    later.push((item.clone(), until.min(soon)));
                }
            }
        }
        (later, rest, arrivals)
    }

    fn note(&self, taken: lease::Taken, item: &Item<Incoming>, asked_at: Instant) {
        if taken.taken_over {
            metrics::LEASE_EXPIRATIONS.count(&[]).increment(1);
            let origin = item.record.message.origin();
            tracing::warn!(
                topic = &*origin.topic,
                partition = origin.partition,
                offset = origin.offset,
                "an effect is performed again: the lease of whoever began it ran out"
            );
        }
        self.shared.handler.leases.note(taken.fence, item.record.message.key(), asked_at);
    }

    /// Takes leases on the first message behind each head that is decided.
    async fn transact_held_leases(&mut self, order: &HeldOrder) -> Result<Claims, Failure> {
        let asked_at = Instant::now();
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let (max, except) = (i64::try_from(order.messages_max).unwrap_or(i64::MAX), order.except());
        let owner = shared.handler.leases.owner;
        let work = async {
            client.batch_execute("BEGIN").await?;
            let keys = lease::ready_keys(client, shared.consumer_id, &except, max).await?;
            let more = max <= keys.len() as i64;
            let batch = HeldBatch::of(hold::first_of(client, shared.consumer_id, keys).await?, !more, &shared)?;
            let mut message_keys: Vec<Uuid> = batch.items.iter().map(|it| it.record.message.key()).collect();
            message_keys.sort_unstable();
            let taken = lease::take(client, owner, &message_keys).await?;
            seal_and_commit(client).await?;
            Ok::<_, Failure>((batch, taken))
        };
        let (batch, mut taken) = answered(shared.database_timeout, work).await??;
        let findings = Findings { ready: Some(!batch.last), ..Findings::default() };
        let mut claims = Claims { leased: Vec::new(), later: Vec::new(), findings };
        for item in batch.items {
            if let Some(taken) = taken.remove(&item.record.message.key()) {
                self.note(taken, &item, asked_at);
                claims.leased.push(Leased { item, fence: taken.fence });
            }
        }
        Ok(claims)
    }
}
