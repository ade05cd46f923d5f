//! Messages that were held, and what they become once the head before them is decided.

use std::collections::{BTreeMap, BTreeSet};

use sekali_schemas::Message;
use uuid::Uuid;

use crate::batch::{Ended, Fate};
use crate::core::hold::{self, Answered, Standing};
use crate::core::{Epoch, Item, Partition, Record};
use crate::executor::Shared;
use crate::failure::Failure;
use crate::handler::{Answer, Reply};
use crate::incoming::Incoming;
use crate::kafka::key_id;
use crate::postgres::decision::{Failed, Guard};
use crate::postgres::hold::{Head, Taken};

/// Messages of some keys, key by key, in the order in which they were parked.
pub(crate) struct HeldBatch {
    keys: Vec<(String, Vec<u8>)>,
    pub(crate) items: Vec<Item<Incoming>>,
    /// All that was ready and not taken up by others was taken up.
    pub(crate) last: bool,
}

/// What is to be written.
pub(crate) struct Outcome<'a> {
    /// One for each item; `None` for those that keep waiting.
    pub(crate) fates: Vec<Option<Fate>>,
    pub(crate) results: Vec<(Uuid, serde_json::Value)>,
    pub(crate) failed: Vec<Failed<'a>>,
}

/// Refusals that are known from an earlier run of the same messages, by the key of the inbox row.
pub(crate) type Refusals = BTreeMap<Uuid, Failure>;

impl HeldBatch {
    pub(crate) fn of<H>(taken: Taken, last: bool, shared: &Shared<H>) -> Result<HeldBatch, Failure> {
        let Taken { keys, messages } = taken;
        let mut items = Vec::with_capacity(messages.len());
        for held in messages {
            let topic = shared.routes.index(&held.record.topic).unwrap_or_default();
            let partition = Partition { topic, number: held.record.partition, retry: false };
            let (offset, key) = (held.record.offset, held.record.key.clone());
            let read = shared.reader.held(held.record, held.key, &held.key_text);
            let message =
                read.map_err(|reason| Failure::transient(format!("a held message cannot be read: {reason}")))?;
            let record = Record {
                offset,
                attempt: 1,
                key: key.as_deref().map(|it| key_id(topic, it)),
                due_at: None,
                first_failed_at: None,
                produced_at: None,
                message: Incoming::Message(message),
            };
            items.push(Item { partition, epoch: Epoch::HELD, maybe_held: false, record });
        }
        Ok(HeldBatch { keys, items, last })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.keys.iter().map(|it| (it.0.as_str(), it.1.as_slice()))
    }

    /// Which items run: not those that were refused, and not those behind one that holds their key.
    fn running<H>(&self, refused: &Refusals, shared: &Shared<H>) -> Result<Vec<bool>, Failure> {
        let mut standings = Vec::with_capacity(self.items.len());
        for item in &self.items {
            let standing = match refused.get(&item.record.message.key()) {
                None => Standing::Runs,
                Some(failure) if shared.rule.holds(shared.decision_on(&item.record.message, failure)?) => {
                    Standing::Holds
                }
                Some(_) => Standing::Passes,
            };
            standings.push((item.record.message.hold_key(), standing));
        }
        let runs: Vec<bool> = standings.iter().map(|it| it.1 == Standing::Runs).collect();
        let parked = hold::parked(standings, &BTreeSet::new());
        Ok(runs.iter().zip(parked).map(|(runs, parked)| *runs && !parked).collect())
    }

    /// Messages to handle, in order.
    pub(crate) fn messages<H>(&self, refused: &Refusals, shared: &Shared<H>) -> Result<Vec<Message>, Failure> {
        let running = self.running(refused, shared)?;
        let message = |(item, runs): (&Item<Incoming>, bool)| match &item.record.message {
            Incoming::Message(message) if runs => Some(message.clone()),
            _ => None,
        };
        Ok(self.items.iter().zip(running).filter_map(message).collect())
    }

    /// Puts the handler's answers to what is known.
    ///
    /// # Errors
    /// A message took effect behind one of its key that was refused; the refusals so far are in `refused` then.
    pub(crate) fn answered<H>(
        &self,
        replies: Vec<Reply>,
        refused: &mut Refusals,
        shared: &Shared<H>,
    ) -> Result<Outcome<'_>, Ended> {
        let running = self.running(refused, shared)?;
        let mut replies = replies.into_iter();
        let mut given = Vec::new();
        for (place, item) in self.items.iter().enumerate() {
            if running[place] {
                match replies.next().map_or(Answer::Done, |it| it.0) {
                    Answer::Rejected(failure) => {
                        let decision = shared.decision_on(&item.record.message, &failure)?;
                        given.push((place, None, Some((decision, failure))));
                    }
                    Answer::Stored(result) => given.push((place, Some(result), None)),
                    Answer::Done => given.push((place, None, None)),
                }
            }
        }
        let answered = |(place, _, refusal): &(usize, _, Option<(_, Failure)>)| {
            let answered = match refusal {
                None => Answered::Applied,
                Some((decision, _)) => Answered::Refused { holds: shared.rule.holds(*decision) },
            };
            (self.items[*place].record.message.hold_key(), answered)
        };
        let parked = match hold::parked_after(given.iter().map(answered)) {
            Ok(parked) => parked,
            Err(overtaken) => {
                let known = given.into_iter().enumerate().filter_map(|(index, (place, _, refusal))| {
                    let (_, failure) = refusal.filter(|_| overtaken.heads.contains(&index))?;
                    Some((self.items[place].record.message.key(), failure))
                });
                refused.extend(known);
                return Err(Ended::Overtaken(BTreeMap::new()));
            }
        };
        let mut outcome = Outcome { fates: vec![None; self.items.len()], results: Vec::new(), failed: Vec::new() };
        for item in self.items.iter().enumerate() {
            if let Some(failure) = refused.get(&item.1.record.message.key()) {
                outcome.refuse(item, shared.decision_on(&item.1.record.message, failure)?, failure);
            }
        }
        for ((place, result, refusal), parked) in given.into_iter().zip(parked) {
            match refusal {
                _ if parked => {}
                Some((decision, failure)) => outcome.refuse((place, &self.items[place]), decision, &failure),
                None => {
                    outcome.fates[place] = Some(Fate::Processed);
                    outcome.results.extend(result.map(|it| (self.items[place].record.message.key(), it)));
                }
            }
        }
        Ok(outcome)
    }

    /// Heads of the rows to be removed: everything that has a fate.
    pub(crate) fn decided(&self, fates: &[Option<Fate>]) -> Vec<Head<'_>> {
        let decided = self.items.iter().zip(fates).filter(|(_, fate)| fate.is_some());
        decided.filter_map(|(it, _)| Some((it.record.message.hold_key()?, it.record.message.key()))).collect()
    }
}

impl<'a> Outcome<'a> {
    fn refuse(
        &mut self,
        (place, item): (usize, &'a Item<Incoming>),
        decision: crate::core::retry::Decision,
        failure: &Failure,
    ) {
        let incoming = &item.record.message;
        self.failed.push(Failed { incoming, guard: Guard::Held, decision, error: failure.info() });
        self.fates[place] = Some(Fate::Failed(decision, failure.class()));
    }
}
