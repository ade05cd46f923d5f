//! Transactions that write what effects came to, each under the lease that it came of.

use std::collections::HashSet;

use deadpool_postgres::ClientWrapper;
use futures_util::future::join;
use sekali_schemas::control::ErrorInfo;
use sekali_schemas::inbox::State;
use serde_json::Value;
use uuid::Uuid;

use super::{Effect, Ended, Performing};
use crate::batch::{self, Fate, tally};
use crate::core::retry::Decision;
use crate::core::verdict::{Asking, Leasing};
use crate::core::{Epoch, Event, Fence, Findings, Item, Outcome, Recorded, Verdict};
use crate::executor::handling::contained;
use crate::executor::writing::store_results;
use crate::executor::{Again, Executor, Finished, Shared, answered, disconnected, seal_and_commit};
use crate::failure::FailureClass;
use crate::handler::Answer;
use crate::incoming::Incoming;
use crate::postgres::dead_letter;
use crate::postgres::decision::{self, Failed, From, Guard};
use crate::postgres::hold::{self, Head, HoldKey};
use crate::postgres::inbox::{self, Request};
use crate::postgres::lease;
use crate::{Failure, Transaction, metrics};

/// What was written, of the records whose lease still was ours.
struct Written {
    fates: Vec<Option<Fate>>,
    findings: Findings,
}

impl<E: Effect> Executor<Performing<E>> {
    /// Writes outcomes, all in one transaction.
    pub(super) async fn record(&mut self, records: Vec<Recorded<Incoming>>) -> Event<Incoming> {
        match self.transact_records(&records).await {
            Ok(Written { fates, findings }) => {
                self.report_recorded(&records, &fates);
                let fences: Vec<Fence> = records.iter().map(|it| it.leased.fence).collect();
                self.shared.handler.forget(&fences);
                let unwritten = records.into_iter().zip(fates).filter(|it| it.1.is_none()).map(|it| it.0).collect();
                Event::Recorded { lane: self.lane, outcome: Outcome::Decided, unwritten, findings }
            }
            Err(failure) => {
                let (outcome, findings) = match self.end(batch::Ended::Failed(failure)).await {
                    Again::Not(outcome, findings) => (outcome, findings),
                    Again::With(_) => (Outcome::Interrupted, Findings::default()),
                };
                // It failed alone: that is what becomes of the attempt.
                if let (Outcome::Failed(_), [one], Some(failure)) = (outcome, &records[..], self.failure.take()) {
                    let ended = Ended::Failed(failure.class(), failure.info());
                    self.shared.handler.ended().insert(one.leased.fence, ended);
                }
                Event::Recorded { lane: self.lane, outcome, unwritten: records, findings }
            }
        }
    }

    async fn transact_records(&mut self, records: &[Recorded<Incoming>]) -> Result<Written, Failure> {
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let deadline = shared.database_timeout;
        let ours = answered(deadline, begin_and_end(client, shared.consumer_id, records)).await??;
        let mut results: Vec<(Uuid, Value)> = Vec::new();
        for it in records.iter().filter(|it| ours.contains(&it.leased.fence)) {
            if it.verdict == Verdict::Done
                && let Some(result) = self.run_record(client, it).await?
            {
                results.push((it.leased.item.record.message.key(), result));
            }
        }
        let written = answered(deadline, write(client, &shared, records, &ours, &results)).await??;
        answered(deadline, seal_and_commit(client)).await??;
        Ok(written)
    }

    /// Runs the team's part of the transaction; the result that it wants to be stored.
    async fn run_record(&self, client: &ClientWrapper, record: &Recorded<Incoming>) -> Result<Option<Value>, Failure> {
        let performing = &self.shared.handler;
        let ended = performing.ended().get(&record.leased.fence).cloned();
        let (Some(Ended::Done(outcome)), Incoming::Message(message)) = (ended, &record.leased.item.record.message)
        else {
            return Err(Failure::new(FailureClass::Interrupted, "an effect has no outcome"));
        };
        let tx = Transaction::under(self.shared.contract.as_deref(), client);
        let work = performing.effect.record(message, &outcome, &tx);
        match contained(self.shared.handler_timeout, &self.shared.metrics, work).await?.0 {
            Answer::Done => Ok(None),
            Answer::Stored(result) => Ok(Some(result)),
            Answer::Rejected(failure) => Err(failure),
        }
    }

    fn report_recorded(&self, records: &[Recorded<Incoming>], fates: &[Option<Fate>]) {
        self.shared.metrics.committed(records.len());
        for (it, fate) in records.iter().zip(fates) {
            match fate {
                Some(fate) => self.report_fate(&it.leased.item, *fate),
                None => {
                    metrics::FENCED.count(&[]).increment(1);
                    tracing::warn!(
                        fence = it.leased.fence.0,
                        "an effect ended after its lease: its outcome is refused"
                    );
                }
            }
        }
    }

    pub(super) fn report_decided(&self, decided: &[(Item<Incoming>, Fate)]) {
        decided.iter().for_each(|(item, fate)| self.report_fate(item, *fate));
    }

    fn report_fate(&self, item: &Item<Incoming>, fate: Fate) {
        let topic = self.shared.routes.source_name(item.partition.topic);
        self.shared.metrics.released(topic, &item.record.message, fate, self.shared.clock.now_ms());
        if matches!(fate, Fate::Failed(..)) {
            self.wake_relay();
        }
    }

    /// Writes the decision on a message on which no lease could be taken because of what it is.
    pub(super) async fn decide_unleased(&mut self, item: Item<Incoming>, decision: Decision) -> Finished {
        if item.epoch == Epoch::HELD || matches!(item.record.message, Incoming::Invalid { .. }) {
            return self.decide(item, decision).await;
        }
        let failure = self.failure.take().unwrap_or_else(|| Failure::transient("unknown"));
        match self.transact_unleased(&item, decision, &failure).await {
            Ok(findings) => Finished::decided(findings),
            Err(trouble) => {
                self.roll_back(trouble).await;
                self.failure = Some(failure);
                Finished { outcome: Outcome::Interrupted, items: vec![item], findings: Findings::default() }
            }
        }
    }

    async fn transact_unleased(
        &mut self,
        item: &Item<Incoming>,
        decision: Decision,
        failure: &Failure,
    ) -> Result<Findings, Failure> {
        self.connect().await?;
        let shared = self.shared.clone();
        let client = self.client.as_ref().ok_or_else(disconnected)?;
        let Incoming::Message(message) = &item.record.message else { return Ok(Findings::default()) };
        let asking =
            Asking { retry: item.partition.retry, attempt: message.attempt(), fingerprint: message.fingerprint() };
        let request = Request { key: message.idempotency_key().uuid(), asking };
        let work = async {
            let met = lease::begin_and_claim(client, shared.consumer_id, &[request]).await?;
            match met.verdicts.first() {
                Some(Leasing::Lease) => {}
                // Somebody performs it: nothing is to be decided yet.
                Some(Leasing::Wait) | None => {
                    return Err(Failure::new(FailureClass::Interrupted, "somebody else has a lease"));
                }
                Some(Leasing::Other(_)) => {
                    seal_and_commit(client).await?;
                    return Ok(Findings { held: item.record.key.into_iter().collect(), ..Findings::default() });
                }
            }
            let mut findings = Findings::default();
            let error = (failure.class(), failure.info());
            write_failed(client, &shared, &[(item, decision, error)], &mut findings).await?;
            seal_and_commit(client).await?;
            self.report_fate(item, Fate::Failed(decision, failure.class()));
            Ok(findings)
        };
        answered(shared.database_timeout, work).await?
    }
}

/// Begins the transaction, locks the rows of the messages, and ends their leases; those that still were ours.
async fn begin_and_end(
    client: &ClientWrapper,
    consumer_id: i16,
    records: &[Recorded<Incoming>],
) -> Result<HashSet<Fence>, Failure> {
    let items = || records.iter().map(|it| &it.leased.item);
    let holds: Vec<HoldKey<'_>> =
        items().filter(|it| it.epoch == Epoch::HELD).filter_map(|it| it.record.message.hold_key()).collect();
    let begin = async {
        client.batch_execute("BEGIN").await?;
        if holds.is_empty() { Ok(()) } else { hold::lock(client, consumer_id, &holds).await.map(drop) }
    };
    let mut keys: Vec<Uuid> = items().map(|it| it.record.message.key()).collect();
    keys.sort_unstable();
    keys.dedup();
    let leases: Vec<(Uuid, Fence)> =
        records.iter().map(|it| (it.leased.item.record.message.key(), it.leased.fence)).collect();
    let work = join(lease::lock(client, consumer_id, &keys), lease::end(client, consumer_id, &leases));
    // Sent together, in the order of the first poll; but rows of messages that were held only once their holds are locked.
    let (locked, ended) = if holds.is_empty() {
        let (begun, worked) = join(begin, work).await;
        begun?;
        worked
    } else {
        begin.await?;
        work.await
    };
    locked?;
    Ok(ended?)
}

async fn write<E: Effect>(
    client: &ClientWrapper,
    shared: &Shared<Performing<E>>,
    records: &[Recorded<Incoming>],
    ours: &HashSet<Fence>,
    results: &[(Uuid, Value)],
) -> Result<Written, Failure> {
    let consumer_id = shared.consumer_id;
    let (mut fates, mut findings) = (Vec::with_capacity(records.len()), Findings::default());
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    {
        let ended = shared.handler.ended();
        for it in records {
            let item = &it.leased.item;
            fates.push(match it.verdict {
                _ if !ours.contains(&it.leased.fence) => None,
                Verdict::Done => {
                    done.push(item);
                    Some(Fate::Processed)
                }
                Verdict::Decide(decision) => {
                    let error = match ended.get(&it.leased.fence) {
                        Some(Ended::Failed(class, info)) => (*class, info.clone()),
                        _ => (FailureClass::Transient, Failure::transient("unknown").info()),
                    };
                    let class = error.0;
                    failed.push((item, decision, error));
                    Some(Fate::Failed(decision, class))
                }
            });
        }
    }
    // Rows of first attempts and of retries; those of held messages come below.
    for (state, retry) in [(State::Leased, false), (State::Retrying, true)] {
        let of = |it: &&&Item<Incoming>| it.epoch != Epoch::HELD && it.partition.retry == retry;
        let mut keys: Vec<Uuid> = done.iter().filter(of).map(|it| it.record.message.key()).collect();
        keys.sort_unstable();
        if !keys.is_empty() {
            inbox::finish(client, consumer_id, &keys, state).await?;
        }
    }
    let replayed: Vec<Uuid> = done.iter().filter_map(|it| Some(it.record.message.replay()?.letter)).collect();
    dead_letter::resolve(client, &replayed, &shared.worker).await?;
    let held: Vec<&Item<Incoming>> = done.iter().copied().filter(|it| it.epoch == Epoch::HELD).collect();
    release(client, consumer_id, &held, true, &mut findings).await?;
    let heads: Vec<Head<'_>> = done.iter().filter(|it| it.partition.retry).filter_map(|it| head(it)).collect();
    if !heads.is_empty() && hold::heads_decided(client, consumer_id, &heads).await? {
        findings.ready = Some(true);
    }
    store_results(client, consumer_id, results).await?;
    write_failed(client, shared, &failed, &mut findings).await?;
    let written: Vec<Fate> = fates.iter().copied().flatten().collect();
    let tallied = tally(&written);
    (findings.processed, findings.dead) = (tallied.processed, tallied.dead);
    Ok(Written { fates, findings })
}

fn head(item: &Item<Incoming>) -> Option<Head<'_>> {
    Some((item.record.message.hold_key()?, item.record.message.key()))
}

/// Messages that were held are decided: the next ones of their keys may be taken up.
async fn release(
    client: &ClientWrapper,
    consumer_id: i16,
    items: &[&Item<Incoming>],
    processed: bool,
    findings: &mut Findings,
) -> Result<(), Failure> {
    if items.is_empty() {
        return Ok(());
    }
    let heads: Vec<Head<'_>> = items.iter().filter_map(|it| head(it)).collect();
    let keys: Vec<Uuid> = items.iter().map(|it| it.record.message.key()).filter(|_| processed).collect();
    hold::remove(client, consumer_id, &heads, &keys).await?;
    let freed = hold::delete_empty(client, consumer_id, heads.iter().map(|it| it.0)).await?;
    if freed < heads.len() as u64 {
        findings.ready = Some(true);
    }
    Ok(())
}

type FailedItem<'a> = (&'a Item<Incoming>, Decision, (FailureClass, ErrorInfo));

/// Writes decisions on messages whose rows are locked and whose leases are ended.
async fn write_failed<E: Effect>(
    client: &ClientWrapper,
    shared: &Shared<Performing<E>>,
    failed: &[FailedItem<'_>],
    findings: &mut Findings,
) -> Result<(), Failure> {
    for from in [From::Source, From::Retry, From::Held] {
        let of = |item: &Item<Incoming>| match item.epoch {
            Epoch::HELD => From::Held,
            _ if item.partition.retry => From::Retry,
            _ => From::Source,
        };
        let chosen: Vec<&FailedItem<'_>> = failed.iter().filter(|it| of(it.0) == from).collect();
        if chosen.is_empty() {
            continue;
        }
        let decisions: Vec<Failed<'_>> = chosen
            .iter()
            .map(|(item, decision, (_, info))| Failed {
                incoming: &item.record.message,
                guard: Guard::Claimed,
                decision: *decision,
                error: info.clone(),
            })
            .collect();
        decision::write(&shared.desk(client), from, &decisions).await?;
        let holding = |it: &&&FailedItem<'_>| shared.rule.holds(it.1);
        match from {
            From::Source => findings.held.extend(chosen.iter().filter(holding).filter_map(|it| it.0.record.key)),
            From::Retry => {
                let ended: Vec<Head<'_>> =
                    chosen.iter().filter(|it| !holding(it)).filter_map(|it| head(it.0)).collect();
                if !ended.is_empty() && hold::heads_decided(client, shared.consumer_id, &ended).await? {
                    findings.ready = Some(true);
                }
            }
            From::Held => {
                let items: Vec<&Item<Incoming>> = chosen.iter().map(|it| it.0).collect();
                release(client, shared.consumer_id, &items, false, findings).await?;
            }
        }
    }
    Ok(())
}
