//! The messages of one transaction: what they meet in the inbox, who of them waits, and what is written for them.

use std::collections::{BTreeMap, BTreeSet};

use sekali_schemas::Message;
use sekali_schemas::control::ErrorInfo;
use serde_json::Value;
use uuid::Uuid;

use crate::config::OnKeyReuse;
use crate::core::hold::{self, Answered, Rule, Standing};
use crate::core::retry::{Decision, Reason};
use crate::core::verdict::{Arrival, Asking};
use crate::core::{Findings, Item, Offset, Partition};
use crate::executor::Shared;
use crate::failure::{Failure, FailureClass};
use crate::handler::{Answer, Reply};
use crate::incoming::Incoming;
use crate::postgres::decision::{Failed, Guard, reuse_key};
use crate::postgres::hold::HoldKey;
use crate::postgres::inbox::Request;
use crate::routes::Routes;

/// Items of one transaction, all from source topics or all from retry topics.
pub(crate) struct Batch<'a> {
    items: &'a [Item<Incoming>],
    /// One for each item that is a message, in order.
    requests: Vec<Request>,
    pub(crate) source_topic: std::sync::Arc<str>,
    pub(crate) retry: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Processed,
    Duplicate,
    KeyReuseIgnored,
    /// Parked behind the head of its key.
    Held,
    Failed(Decision, FailureClass),
}

/// Why a transaction ended without a result. Nothing of it is kept.
pub(crate) enum Ended {
    Failed(Failure),
    /// A message took effect behind one of its key that the handler refused: these were refused, by their place in the
    /// batch.
    Overtaken(BTreeMap<usize, Failure>),
    /// Messages must be held and there is no room: the first ones of their partitions.
    Full(Vec<(Partition, Offset)>),
    /// More dead letters than allowed.
    OverBudget,
}

impl<E: Into<Failure>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Failed(error.into())
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn of(items: &'a [Item<Incoming>], routes: &Routes) -> Batch<'a> {
        let retry = items.first().is_some_and(|it| it.partition.retry);
        let request = |item: &Item<Incoming>| match &item.record.message {
            Incoming::Message(message) => Some(Request {
                key: message.idempotency_key().uuid(),
                asking: Asking { retry, attempt: message.attempt(), fingerprint: message.fingerprint() },
            }),
            Incoming::Invalid { .. } => None,
        };
        let requests = items.iter().filter_map(request).collect();
        let source_topic = items.first().map_or_else(|| "".into(), |it| routes.source_name(it.partition.topic).clone());
        Batch { items, requests, source_topic, retry }
    }

    pub(crate) fn items(&self) -> &'a [Item<Incoming>] {
        self.items
    }

    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Sorts the items by what they met: to handle, to pass over, to bury at once. `refused` are those that the handler
    /// has refused before, by their place.
    pub(crate) fn settle<H>(
        &self,
        arrivals: &[Arrival],
        refused: &BTreeMap<usize, Failure>,
        shared: &Shared<H>,
    ) -> Result<Settled<'a>, Failure> {
        let mut plans = Vec::with_capacity(self.items.len());
        let mut pending = BTreeSet::new();
        let mut arrivals = arrivals.iter();
        for (place, item) in self.items.iter().enumerate() {
            let incoming = &item.record.message;
            let plan = match incoming {
                Incoming::Invalid { reason, .. } => {
                    Plan::bury(Reason::Invalid, FailureClass::Invalid, reason.to_string(), incoming.key())
                }
                Incoming::Message(message) => match arrivals.next() {
                    Some(Arrival::Handle) => match refused.get(&place) {
                        None => Plan::Handle,
                        Some(failure) => refuse(item, failure, shared)?,
                    },
                    Some(Arrival::KeyReuse) => key_reuse(message, shared.on_key_reuse),
                    Some(Arrival::Orphan) => {
                        let text = "nobody decided the attempt before this one".to_owned();
                        Plan::bury(Reason::Orphan, FailureClass::Orphan, text, incoming.key())
                    }
                    Some(Arrival::Pending) => {
                        pending.extend(incoming.hold_key());
                        Plan::Duplicate
                    }
                    Some(Arrival::Duplicate) | None => Plan::Duplicate,
                },
            };
            plans.push(plan);
        }
        Ok(Settled { items: self.items, plans, pending, asked: BTreeSet::new(), held: BTreeSet::new() })
    }
}

fn key_reuse(message: &Message, on_key_reuse: OnKeyReuse) -> Plan {
    let key = message.idempotency_key().uuid();
    tracing::warn!(key = %key, origin = ?message.origin(), "idempotency key was used before with another payload");
    match on_key_reuse {
        OnKeyReuse::Ignore => Plan::KeyReuseIgnored,
        OnKeyReuse::DeadLetter => {
            let text = "the idempotency key was decided with another payload".to_owned();
            Plan::bury(Reason::KeyReuse, FailureClass::KeyReuse, text, reuse_key(key, message.fingerprint()))
        }
    }
}

fn refuse<H>(item: &Item<Incoming>, failure: &Failure, shared: &Shared<H>) -> Result<Plan, Failure> {
    let decision = shared.decision_on(&item.record.message, failure)?;
    Ok(Plan::Decide { decision, class: failure.class(), error: failure.info(), guard: Guard::Claimed })
}

enum Plan {
    Handle,
    /// It waits behind its key's head.
    Park,
    Duplicate,
    KeyReuseIgnored,
    /// Decided without the handler.
    Decide {
        decision: Decision,
        class: FailureClass,
        error: ErrorInfo,
        guard: Guard,
    },
}

impl Plan {
    fn bury(reason: Reason, class: FailureClass, text: String, row: Uuid) -> Plan {
        let error = ErrorInfo::new(class.as_str(), "", &text);
        Plan::Decide { decision: Decision::Dead(reason), class, error, guard: Guard::NoRow(row) }
    }
}

/// A batch after its claim.
pub(crate) struct Settled<'a> {
    items: &'a [Item<Incoming>],
    plans: Vec<Plan>,
    /// Keys of duplicates that are not done.
    pending: BTreeSet<HoldKey<'a>>,
    /// Keys that were looked up among the holds, and those that were there.
    asked: BTreeSet<HoldKey<'a>>,
    held: BTreeSet<HoldKey<'a>>,
}

/// What is to be written for a batch whose handler has answered.
pub(crate) struct Outcome<'a> {
    pub(crate) fates: Vec<Fate>,
    pub(crate) parked: Vec<&'a Item<Incoming>>,
    pub(crate) results: Vec<(Uuid, Value)>,
    pub(crate) failed: Vec<Failed<'a>>,
}

impl<'a> Settled<'a> {
    /// Keys that may be held and have messages that want to run.
    pub(crate) fn keys_to_look_up(&mut self) -> Vec<HoldKey<'a>> {
        let maybe = |(item, plan): (&'a Item<Incoming>, &Plan)| {
            let key = item.record.message.hold_key().filter(|_| matches!(plan, Plan::Handle))?;
            (item.maybe_held || self.pending.contains(&key)).then_some(key)
        };
        self.asked = self.items.iter().zip(&self.plans).filter_map(maybe).collect();
        self.asked.iter().copied().collect()
    }

    /// Parks what stands behind a held key, and behind an item of this batch that holds its key.
    pub(crate) fn park(&mut self, held: &[(String, Vec<u8>)], rule: Rule) {
        let found = |it: &HoldKey<'a>| held.iter().any(|(topic, key)| topic == it.0 && key == it.1);
        self.held = self.asked.iter().copied().filter(found).collect();
        if rule == Rule::Never {
            return;
        }
        let standing = |(item, plan): (&'a Item<Incoming>, &Plan)| {
            let standing = match plan {
                Plan::Handle => Standing::Runs,
                Plan::Decide { decision, .. } if rule.holds(*decision) => Standing::Holds,
                _ => Standing::Passes,
            };
            (item.record.message.hold_key(), standing)
        };
        let parked = hold::parked(self.items.iter().zip(&self.plans).map(standing), &self.held);
        for (plan, _) in self.plans.iter_mut().zip(parked).filter(|(_, parked)| *parked) {
            *plan = Plan::Park;
        }
    }

    /// Items to be parked as far as known before the handler runs, in order.
    pub(crate) fn parked(&self) -> Vec<&'a Item<Incoming>> {
        let parked = self.items.iter().zip(&self.plans).filter(|(_, plan)| matches!(plan, Plan::Park));
        parked.map(|(item, _)| item).collect()
    }

    /// Messages to handle, in order.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let message = |(item, plan): (&Item<Incoming>, &Plan)| match (&item.record.message, plan) {
            (Incoming::Message(message), Plan::Handle) => Some(message.clone()),
            _ => None,
        };
        self.items.iter().zip(&self.plans).filter_map(message).collect()
    }

    /// Their places in the batch.
    pub(crate) fn places(&self) -> Vec<usize> {
        let handled = |place: &usize| {
            matches!((&self.items[*place].record.message, &self.plans[*place]), (Incoming::Message(_), Plan::Handle))
        };
        (0..self.items.len()).filter(handled).collect()
    }

    /// Puts the handler's answers to the rest. `replies` has one for each of [`messages`](Settled::messages).
    ///
    /// # Errors
    /// A message took effect behind one of its key that was refused.
    pub(crate) fn answered<H>(&mut self, replies: Vec<Reply>, shared: &Shared<H>) -> Result<Outcome<'a>, Ended> {
        let mut replies = replies.into_iter();
        let mut given: Vec<(usize, Answer, Option<Decision>)> = Vec::new();
        for (place, (item, plan)) in self.items.iter().zip(&self.plans).enumerate() {
            if matches!(plan, Plan::Handle) {
                let answer = replies.next().map_or(Answer::Done, |it| it.0);
                let decision = match &answer {
                    Answer::Rejected(failure) => Some(shared.decision_on(&item.record.message, failure)?),
                    Answer::Done | Answer::Stored(_) => None,
                };
                given.push((place, answer, decision));
            }
        }
        let answered = |(place, _, decision): &(usize, Answer, Option<Decision>)| {
            let answered = match decision {
                None => Answered::Applied,
                Some(decision) => Answered::Refused { holds: shared.rule.holds(*decision) },
            };
            (self.items[*place].record.message.hold_key(), answered)
        };
        let parked = match hold::parked_after(given.iter().map(answered)) {
            Ok(parked) => parked,
            Err(overtaken) => return Err(Ended::Overtaken(refusals(given, &overtaken.heads))),
        };
        let mut outcome = Outcome {
            fates: vec![Fate::Duplicate; self.items.len()],
            parked: Vec::new(),
            results: Vec::new(),
            failed: Vec::new(),
        };
        for ((place, answer, decision), parked) in given.into_iter().zip(parked) {
            let incoming = &self.items[place].record.message;
            self.plans[place] = match (answer, decision) {
                _ if parked => Plan::Park,
                (Answer::Rejected(failure), Some(decision)) => {
                    Plan::Decide { decision, class: failure.class(), error: failure.info(), guard: Guard::Claimed }
                }
                (Answer::Stored(result), _) => {
                    outcome.results.push((incoming.key(), result));
                    Plan::Handle
                }
                _ => Plan::Handle,
            };
        }
        self.conclude(&mut outcome);
        Ok(outcome)
    }

    fn conclude(&mut self, outcome: &mut Outcome<'a>) {
        for (place, plan) in std::mem::take(&mut self.plans).into_iter().enumerate() {
            let incoming = &self.items[place].record.message;
            outcome.fates[place] = match plan {
                Plan::Handle => Fate::Processed,
                Plan::Duplicate => Fate::Duplicate,
                Plan::KeyReuseIgnored => Fate::KeyReuseIgnored,
                Plan::Park => {
                    outcome.parked.push(&self.items[place]);
                    Fate::Held
                }
                Plan::Decide { decision, class, error, guard } => {
                    outcome.failed.push(Failed { incoming, guard, decision, error });
                    Fate::Failed(decision, class)
                }
            };
        }
    }

    /// What a committed transaction tells the core. `fates` are those that were written.
    pub(crate) fn findings(&self, fates: &[Fate], rule: Rule, ready: bool) -> Findings {
        let mut findings = Findings { ready: ready.then_some(true), ..tally(fates) };
        for (item, fate) in self.items.iter().zip(fates).filter(|(it, _)| !it.partition.retry) {
            let (Some(key), Some(hold_key)) = (item.record.key, item.record.message.hold_key()) else { continue };
            let asked = self.asked.contains(&hold_key);
            let holds = match fate {
                Fate::Held => true,
                Fate::Failed(decision, _) if rule.holds(*decision) => true,
                _ if asked => self.held.contains(&hold_key),
                _ => self.pending.contains(&hold_key),
            };
            if holds {
                findings.held.push(key);
            } else if asked {
                findings.stale = true;
            }
        }
        findings
    }
}

/// Counts what the core keeps account of.
pub(crate) fn tally(fates: &[Fate]) -> Findings {
    let count = |wanted: fn(&Fate) -> bool| fates.iter().filter(|it| wanted(it)).count();
    Findings {
        processed: count(|it| *it == Fate::Processed),
        dead: count(|it| matches!(it, Fate::Failed(Decision::Dead(_), _))),
        ..Findings::default()
    }
}

/// The refusals that hold their keys, for another run in which they are known from the beginning.
fn refusals(given: Vec<(usize, Answer, Option<Decision>)>, heads: &[usize]) -> BTreeMap<usize, Failure> {
    let refusal = |(index, (place, answer, _)): (usize, (usize, Answer, Option<Decision>))| match answer {
        Answer::Rejected(failure) if heads.contains(&index) => Some((place, failure)),
        _ => None,
    };
    given.into_iter().enumerate().filter_map(refusal).collect()
}
