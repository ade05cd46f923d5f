//! The transactions of an executor. On an error the connection is still in one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use deadpool_postgres::ClientWrapper;

use super::writing::{write, write_held};
use super::{Executor, HeldOrder, How, answered, disconnected, seal_and_commit};
use crate::batch::{Batch, Ended, Fate, Settled, tally};
use crate::core::hold::Rule;
use crate::core::retry::Decision;
use crate::core::verdict::Arrival;
use crate::core::{Epoch, Findings, Item, Offset, Partition};
use crate::held::{HeldBatch, Refusals};
use crate::incoming::Incoming;
use crate::postgres::claim;
use crate::postgres::decision::{self, Failed, From, Guard};
use crate::postgres::hold::{self, Head, HoldKey};
use crate::{Failure, Handler};

/// Most keys whose held messages share a transaction.
const HELD_KEYS_MAX: usize = 200;

impl<H: Handler> Executor<H> {
    /// The whole transaction of a batch.
    pub(super) async fn transact(
        &mut self,
        batch: &Batch<'_>,
        refused: &BTreeMap<usize, Failure>,
        how: How,
    ) -> Result<(Vec<Fate>, Findings), Ended> {
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let deadline = shared.database_timeout;
        let claim = claim::begin_and_claim(client, shared.consumer_id, batch.requests(), &mut self.expectation);
        let arrivals = answered(deadline, claim).await??;
        let (mut settled, rule) = self.settle(client, batch, &arrivals, refused).await?;
        let parked = settled.parked();
        let messages = settled.messages();
        let (locked, taken) = self.lock(client, &messages).await?;
        self.locked = locked;
        if !taken.is_empty() {
            let places = settled.places();
            return Err(Ended::Overtaken(taken.into_iter().map(|(index, it)| (places[index], it)).collect()));
        }
        let (replies, found) = self.replies(client, &messages, how, rule).await?;
        let mut written = settled.answered(replies, &shared)?;
        if parked.len() < written.parked.len() {
            answered(deadline, self.find_room(client, &written.parked)).await??;
        }
        if how.dead_max < tally(&written.fates).dead {
            return Err(Ended::OverBudget);
        }
        let ready = answered(deadline, write(client, &shared, batch, &mut written)).await??;
        self.still_locked(client).await?;
        answered(deadline, seal_and_commit(client)).await??;
        shared.held.fetch_add(written.parked.len() as u64, Ordering::Relaxed);
        let findings = Findings { found, ..settled.findings(&written.fates, rule, ready) };
        Ok((written.fates, findings))
    }

    /// Takes up messages that were held; what was taken up is in `items`, also when it ends badly.
    pub(super) async fn transact_held(
        &mut self,
        order: &HeldOrder,
        how: How,
        refused: &mut Refusals,
        items: &mut Vec<Item<Incoming>>,
    ) -> Result<(Vec<Option<Fate>>, Findings), Ended> {
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let deadline = shared.database_timeout;
        let (messages_max, except) = (order.messages_max, order.except());
        let keys_max = messages_max.min(HELD_KEYS_MAX) as i64;
        let take = async {
            client.batch_execute("BEGIN").await?;
            hold::take(client, shared.consumer_id, &except, keys_max, messages_max as i64).await
        };
        let taken = answered(deadline, take).await??;
        let last = taken.keys.len() < keys_max as usize && taken.messages.len() < messages_max;
        let batch = HeldBatch::of(taken, last, &shared)?;
        items.clone_from(&batch.items);
        let messages = batch.messages(refused, &shared)?;
        let (locked, locked_out) = self.lock(client, &messages).await?;
        self.locked = locked;
        if !locked_out.is_empty() {
            refused.extend(locked_out.into_iter().map(|(index, it)| (messages[index].idempotency_key().uuid(), it)));
            return Err(Ended::Overtaken(BTreeMap::new()));
        }
        let (replies, found) = self.replies(client, &messages, how, shared.rule).await?;
        let outcome = batch.answered(replies, refused, &shared)?;
        let fates: Vec<Fate> = outcome.fates.iter().copied().flatten().collect();
        let findings = Findings { ready: Some(!batch.last), found, ..tally(&fates) };
        if how.dead_max < findings.dead {
            return Err(Ended::OverBudget);
        }
        answered(deadline, write_held(client, &shared, &batch, &outcome)).await??;
        self.still_locked(client).await?;
        answered(deadline, seal_and_commit(client)).await??;
        Ok((outcome.fates, findings))
    }
}

impl<H> Executor<H> {
    /// Sorts what was claimed, and finds out who of it waits behind a held key; with the rule that goes for the batch.
    pub(crate) async fn settle<'a>(
        &self,
        client: &ClientWrapper,
        batch: &Batch<'a>,
        arrivals: &[Arrival],
        refused: &BTreeMap<usize, Failure>,
    ) -> Result<(Settled<'a>, Rule), Ended> {
        let (shared, deadline) = (&self.shared, self.shared.database_timeout);
        let mut settled = batch.settle(arrivals, refused, shared)?;
        let keys = settled.keys_to_look_up();
        let held = if keys.is_empty() {
            Vec::new()
        } else {
            answered(deadline, hold::lock(client, shared.consumer_id, &keys)).await??
        };
        let rule = if batch.retry { Rule::Never } else { shared.rule };
        settled.park(&held, rule);
        answered(deadline, self.find_room(client, &settled.parked())).await??;
        Ok((settled, rule))
    }

    /// Whether what must be parked may be: holds have a limit for each key and one for all.
    pub(crate) async fn find_room(&self, client: &ClientWrapper, parked: &[&Item<Incoming>]) -> Result<(), Ended> {
        if parked.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        let mut waiting: HashMap<HoldKey<'_>, u64> = HashMap::new();
        let parked: Vec<_> = parked.iter().filter_map(|it| Some((*it, it.record.message.hold_key()?))).collect();
        let keys: Vec<HoldKey<'_>> = parked.iter().map(|it| it.1).collect::<BTreeSet<_>>().into_iter().collect();
        let counts = hold::count(client, shared.consumer_id, &keys).await?;
        for (topic, key, count) in &counts {
            waiting.insert((topic, key), *count);
        }
        let mut all = shared.held.load(Ordering::Relaxed);
        let mut full: Vec<(Partition, Offset)> = Vec::new();
        for (item, key) in parked {
            let count = waiting.entry(key).or_default();
            if shared.held_per_key_max <= *count || shared.held_max <= all {
                if !full.iter().any(|it| it.0 == item.partition) {
                    full.push((item.partition, item.record.offset));
                }
                continue;
            }
            *count += 1;
            all += 1;
        }
        if full.is_empty() { Ok(()) } else { Err(Ended::Full(full)) }
    }

    /// Whether the decision was ours to take, and whether something that waits behind its key may run now.
    pub(super) async fn transact_decision(
        &mut self,
        item: &Item<Incoming>,
        decision: Decision,
        failure: &Failure,
    ) -> Result<(bool, bool), Failure> {
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let incoming = &item.record.message;
        let (from, guard) = if item.epoch == Epoch::HELD {
            (From::Held, Guard::Held)
        } else if item.partition.retry {
            (From::Retry, Guard::Retrying(incoming.attempt()))
        } else {
            (From::Source, Guard::NoRow(incoming.key()))
        };
        let failed = [Failed { incoming, guard, decision, error: failure.info() }];
        let heads: Vec<Head<'_>> = incoming.hold_key().map(|it| (it, incoming.key())).into_iter().collect();
        let work = async {
            client.batch_execute("BEGIN").await?;
            if from == From::Held {
                hold::lock(client, shared.consumer_id, &[heads[0].0]).await?;
            }
            let taken = decision::write(&shared.desk(client), from, &failed).await?[0];
            let mut ready = false;
            if taken && from == From::Held {
                hold::remove(client, shared.consumer_id, &heads, &[]).await?;
                hold::delete_empty(client, shared.consumer_id, [heads[0].0]).await?;
            } else if taken && from == From::Retry && !shared.rule.holds(decision) && !heads.is_empty() {
                ready = hold::heads_decided(client, shared.consumer_id, &heads).await?;
            }
            seal_and_commit(client).await?;
            Ok::<_, Failure>((taken, ready))
        };
        answered(shared.database_timeout, work).await?
    }
}
