//! The database of the simulated world: inbox, holds, what waits behind them, and the transactions over them. Each call
//! is one transaction: all of it or nothing.

use std::collections::{BTreeMap, BTreeSet};

use sekali_consumer::core::hold::{self, Answered, Standing};
use sekali_consumer::core::retry::{Decision, FailureKind, failing_for};
use sekali_consumer::core::verdict::{Arrival, Asking, Row, arrival};
use sekali_consumer::core::{Epoch, Findings, Item, KeyId, Outcome, Record};
use sekali_schemas::inbox::State;

use super::Random;
use super::world::{Id, Logged, World, partition};

/// A key that waits behind its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) head: Id,
    pub(crate) ready: bool,
}

/// The tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    pub(crate) inbox: BTreeMap<Id, Row>,
    pub(crate) holds: BTreeMap<usize, Hold>,
    /// By key, in the order of parking.
    pub(crate) held: BTreeMap<usize, Vec<Logged>>,
    /// Retry tier or dead-letter topic, and the record.
    pub(crate) outbox: Vec<(Option<usize>, Logged)>,
}

/// What a transaction did, for the oracle; told only when it is committed.
#[derive(Default)]
struct Effects {
    applied: Vec<Logged>,
    decided: Vec<(Logged, Decision)>,
}

pub(crate) fn key_id(key: usize) -> KeyId {
    // Two keys share a hash, so that one of them is looked up for nothing.
    KeyId { topic: 0, hash: (key / 2 * 2) as i64 + (key % 2 * usize::from(key > 1)) as i64 }
}

impl World {
    /// A transaction over records of source or retry topics.
    pub(crate) fn transact(
        &mut self,
        random: &mut Random,
        items: &[Item<Logged>],
        dead_max: usize,
    ) -> (Outcome, Findings) {
        if self.interrupts(random, 10) {
            return (Outcome::Interrupted, Findings::default());
        }
        let saved = self.tables.clone();
        let mut refused = BTreeMap::new();
        loop {
            match self.try_batch(random, items, &mut refused, dead_max) {
                Ok((effects, findings)) => {
                    self.commit_effects(&effects);
                    return (Outcome::Decided, findings);
                }
                Err(None) => self.tables = saved.clone(),
                Err(Some(ended)) => {
                    self.tables = saved;
                    return ended;
                }
            }
        }
    }

    fn interrupts(&mut self, random: &mut Random, one_in: usize) -> bool {
        let interrupted = self.faulty && random.one_in(one_in);
        self.stats.faults += u64::from(interrupted);
        interrupted
    }

    /// `Err(None)` runs again with what is known then.
    fn try_batch(
        &mut self,
        random: &mut Random,
        items: &[Item<Logged>],
        refused: &mut BTreeMap<usize, Decision>,
        dead_max: usize,
    ) -> Result<(Effects, Findings), Option<(Outcome, Findings)>> {
        let retry = items[0].partition.retry;
        let rule = if retry { hold::Rule::Never } else { self.rule };
        let (standings, asked, pending) = self.settle(items, refused);
        let found: BTreeSet<usize> = asked.iter().copied().filter(|it| self.tables.holds.contains_key(it)).collect();
        let parked = match rule {
            hold::Rule::Never => vec![false; items.len()],
            hold::Rule::ByKey(_) => hold::parked(standings.iter().copied(), &found),
        };
        let full = self.full(items, &parked);
        if !full.is_empty() {
            return Err(Some((Outcome::Full, Findings { full, ..Findings::default() })));
        }
        let mut answers = Vec::new();
        for (place, item) in items.iter().enumerate() {
            if standings[place].1 == Standing::Runs && !parked[place] {
                answers.push((place, self.answer(random, item)?));
            }
        }
        let answered = |(place, decision): &(usize, Option<Decision>)| {
            let answered = decision.map_or(Answered::Applied, |it| Answered::Refused { holds: rule.holds(it) });
            (Some(items[*place].record.message.key), answered)
        };
        let behind = hold::parked_after(answers.iter().map(answered)).map_err(|overtaken| {
            refused.extend(overtaken.heads.iter().filter_map(|it| Some((answers[*it].0, answers[*it].1?))));
            None
        })?;
        let mut effects = Effects::default();
        let mut to_park: BTreeSet<usize> = (0..items.len()).filter(|it| parked[*it]).collect();
        for ((place, decision), behind) in answers.into_iter().zip(behind) {
            let logged = items[place].record.message;
            match decision {
                _ if behind => drop(to_park.insert(place)),
                None => effects.applied.push(logged),
                Some(decision) => effects.decided.push((logged, decision)),
            }
        }
        effects.decided.extend(refused.iter().map(|(place, decision)| (items[*place].record.message, *decision)));
        let dead = effects.decided.iter().filter(|it| matches!(it.1, Decision::Dead(_))).count();
        if dead_max < dead {
            return Err(Some((Outcome::Interrupted, Findings { over_budget: true, ..Findings::default() })));
        }
        let ready = self.write_batch(items, retry, &effects, &to_park);
        let mut findings = Findings { processed: effects.applied.len(), dead, ready, ..Findings::default() };
        if !retry {
            for (place, item) in items.iter().enumerate() {
                let (key, id) = (item.record.message.key, item.record.message.id);
                let refused = effects.decided.iter().any(|(it, decision)| it.id == id && rule.holds(*decision));
                let holds = match asked.contains(&key) {
                    _ if to_park.contains(&place) || refused => true,
                    true => found.contains(&key),
                    false => pending.contains(&key),
                };
                if holds {
                    findings.held.push(key_id(key));
                } else if asked.contains(&key) {
                    findings.stale = true;
                }
            }
        }
        Ok((effects, findings))
    }

    /// What the items met in the inbox; the keys to look up among the holds; the keys of duplicates that are not done.
    #[allow(clippy::type_complexity)]
    fn settle(
        &mut self,
        items: &[Item<Logged>],
        refused: &BTreeMap<usize, Decision>,
    ) -> (Vec<(Option<usize>, Standing)>, BTreeSet<usize>, BTreeSet<usize>) {
        let (mut standings, mut pending, mut seen) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (place, item) in items.iter().enumerate() {
            let logged = item.record.message;
            if logged.due_at.is_some_and(|it| self.now < it) {
                self.violated(format!("message {} ran before it was due", logged.id));
            }
            let asking =
                Asking { retry: item.partition.retry, attempt: logged.attempt, fingerprint: logged.fingerprint };
            // A second copy in the same batch meets what the first one will have decided.
            let verdict = match arrival(asking, self.tables.inbox.get(&logged.id).copied()) {
                Arrival::Handle if !seen.insert(logged.id) => Arrival::Duplicate,
                verdict => verdict,
            };
            let standing = match verdict {
                Arrival::Handle => match refused.get(&place) {
                    None => Standing::Runs,
                    Some(decision) if self.rule.holds(*decision) => Standing::Holds,
                    Some(_) => Standing::Passes,
                },
                Arrival::Pending | Arrival::Duplicate => {
                    self.stats.duplicates += 1;
                    if verdict == Arrival::Pending {
                        pending.insert(logged.key);
                    }
                    Standing::Passes
                }
                Arrival::Orphan => {
                    self.violated(format!("retry record of message {} is an orphan", logged.id));
                    Standing::Passes
                }
                Arrival::KeyReuse => {
                    self.violated(format!("message {} met another payload", logged.id));
                    Standing::Passes
                }
            };
            standings.push((Some(logged.key), standing));
        }
        let maybe = |(item, standing): (&Item<Logged>, &(Option<usize>, Standing))| {
            let key = item.record.message.key;
            (standing.1 == Standing::Runs && (item.maybe_held || pending.contains(&key))).then_some(key)
        };
        let asked = items.iter().zip(&standings).filter_map(maybe).collect();
        (standings, asked, pending)
    }

    fn full(&self, items: &[Item<Logged>], parked: &[bool]) -> Vec<(sekali_consumer::core::Partition, i64)> {
        let mut waiting: BTreeMap<usize, usize> = BTreeMap::new();
        let mut full: Vec<(sekali_consumer::core::Partition, i64)> = Vec::new();
        for (item, _) in items.iter().zip(parked).filter(|(_, parked)| **parked) {
            let key = item.record.message.key;
            let count = waiting.entry(key).or_insert_with(|| self.tables.held.get(&key).map_or(0, Vec::len));
            if self.held_per_key_max <= *count {
                if !full.iter().any(|it| it.0 == item.partition) {
                    full.push((item.partition, item.record.offset));
                }
                continue;
            }
            *count += 1;
        }
        full
    }

    /// The handler's answer: applied, refused inside the batch, or a failure of the whole batch.
    #[allow(clippy::type_complexity)]
    fn answer(
        &mut self,
        random: &mut Random,
        item: &Item<Logged>,
    ) -> Result<Option<Decision>, Option<(Outcome, Findings)>> {
        let logged = item.record.message;
        match self.handle(&logged) {
            Ok(()) => Ok(None),
            Err((kind, true)) => Ok(Some(self.decision_on(random, &logged, kind))),
            Err((kind, false)) => Err(Some((Outcome::Failed(kind), Findings::default()))),
        }
    }

    fn decision_on(&self, random: &mut Random, logged: &Logged, kind: FailureKind) -> Decision {
        let age = failing_for(self.now, logged.first_failed_at);
        self.policy.decide(logged.attempt, kind, age, random.next())
    }

    fn write_batch(
        &mut self,
        items: &[Item<Logged>],
        retry: bool,
        effects: &Effects,
        to_park: &BTreeSet<usize>,
    ) -> Option<bool> {
        for logged in &effects.applied {
            self.set_row(logged, State::Processed, logged.attempt);
        }
        for (logged, decision) in &effects.decided {
            self.write_decision(logged, *decision);
            if !retry && self.rule.holds(*decision) {
                self.tables.holds.entry(logged.key).or_insert(Hold { head: logged.id, ready: false });
            }
        }
        for place in to_park {
            let logged = items[*place].record.message;
            self.stats.held += 1;
            self.set_row(&logged, State::Held, 1);
            self.tables.held.entry(logged.key).or_default().push(logged);
        }
        if !retry {
            return None;
        }
        let refused = effects.decided.iter().filter(|it| !self.rule.holds(it.1)).map(|it| it.0);
        let heads: Vec<Logged> = effects.applied.iter().copied().chain(refused).collect();
        let waits = heads.iter().fold(false, |waits, it| self.head_decided(it) || waits);
        waits.then_some(true)
    }

    /// Whether something waits behind it.
    fn head_decided(&mut self, logged: &Logged) -> bool {
        let Some(hold) = self.tables.holds.get_mut(&logged.key).filter(|it| it.head == logged.id) else { return false };
        hold.ready = true;
        !self.delete_empty(logged.key)
    }

    fn delete_empty(&mut self, key: usize) -> bool {
        let empty = self.tables.held.get(&key).is_none_or(Vec::is_empty);
        let gone = empty && self.tables.holds.get(&key).is_some_and(|it| it.ready);
        if gone {
            self.tables.holds.remove(&key);
        }
        gone
    }

    fn set_row(&mut self, logged: &Logged, state: State, attempt: u32) {
        self.tables.inbox.insert(logged.id, Row { state, attempt, fingerprint: logged.fingerprint });
    }

    /// The decision on a message that failed alone, guarded by the inbox as the adapter guards it.
    pub(crate) fn decide(
        &mut self,
        random: &mut Random,
        item: &Item<Logged>,
        decision: Decision,
    ) -> (Outcome, Findings) {
        if self.interrupts(random, 8) {
            return (Outcome::Interrupted, Findings::default());
        }
        let logged = item.record.message;
        let row = self.tables.inbox.get(&logged.id);
        let held = item.epoch == Epoch::HELD;
        let ours = match row {
            _ if held => row.is_some_and(|it| it.state == State::Held),
            None => !item.partition.retry,
            Some(row) => item.partition.retry && row.state == State::Retrying && row.attempt == logged.attempt,
        };
        let holds = self.rule.holds(decision);
        let mut findings = Findings::default();
        if ours {
            self.write_decision(&logged, decision);
            if held {
                self.forget_held(&logged);
                if holds {
                    self.tables.holds.insert(logged.key, Hold { head: logged.id, ready: false });
                } else {
                    self.delete_empty(logged.key);
                }
            } else if item.partition.retry {
                findings.ready = (!holds && self.head_decided(&logged)).then_some(true);
            } else if holds {
                self.tables.holds.entry(logged.key).or_insert(Hold { head: logged.id, ready: false });
            }
            findings.dead = usize::from(matches!(decision, Decision::Dead(_)));
            self.commit_effects(&Effects { applied: Vec::new(), decided: vec![(logged, decision)] });
        }
        if !item.partition.retry && (!ours || holds) {
            findings.held.push(key_id(logged.key));
        }
        (Outcome::Decided, findings)
    }

    fn forget_held(&mut self, logged: &Logged) {
        let waiting = self.tables.held.entry(logged.key).or_default();
        if waiting.first().is_none_or(|it| it.id != logged.id) {
            let what = format!("message {} left the held ones of its key before its turn", logged.id);
            self.violation.get_or_insert(what);
        }
        waiting.retain(|it| it.id != logged.id);
    }

    /// Messages that were held behind heads that are decided. They come back when they fail.
    pub(crate) fn run_held(
        &mut self,
        random: &mut Random,
        max: usize,
        dead_max: usize,
    ) -> (Outcome, Findings, Vec<Item<Logged>>) {
        let mut items = Vec::new();
        if self.interrupts(random, 10) {
            return (Outcome::Interrupted, Findings::default(), items);
        }
        let keys: Vec<usize> =
            self.tables.holds.iter().filter(|(_, it)| it.ready).map(|(it, _)| *it).take(max).collect();
        for key in &keys {
            let waiting = self.tables.held.get(key).map_or(&[][..], Vec::as_slice);
            items.extend(waiting.iter().take(max - items.len()).map(held_item));
        }
        let last = keys.len() < max && items.len() < max;
        let mut refused: BTreeMap<Id, Decision> = BTreeMap::new();
        let (effects, behind_of) = loop {
            let standing = |it: &Item<Logged>| {
                let standing = match refused.get(&it.record.message.id) {
                    None => Standing::Runs,
                    Some(decision) if self.rule.holds(*decision) => Standing::Holds,
                    Some(_) => Standing::Passes,
                };
                (Some(it.record.message.key), standing)
            };
            let parked = hold::parked(items.iter().map(standing), &BTreeSet::new());
            let mut answers = Vec::new();
            for (item, parked) in items.iter().zip(parked) {
                if !parked && !refused.contains_key(&item.record.message.id) {
                    match self.answer(random, item) {
                        Ok(answer) => answers.push((item.record.message, answer)),
                        Err(Some((outcome, findings))) => return (outcome, findings, items),
                        Err(None) => {}
                    }
                }
            }
            let answered = |(logged, decision): &(Logged, Option<Decision>)| {
                let answered =
                    decision.map_or(Answered::Applied, |it| Answered::Refused { holds: self.rule.holds(it) });
                (Some(logged.key), answered)
            };
            match hold::parked_after(answers.iter().map(answered)) {
                Ok(behind) => break (answers, behind),
                Err(overtaken) => {
                    refused.extend(overtaken.heads.iter().filter_map(|it| Some((answers[*it].0.id, answers[*it].1?))));
                }
            }
        };
        let mut told = Effects::default();
        for item in items.iter().map(|it| it.record.message) {
            let answer = effects.iter().zip(&behind_of).find(|(it, _)| it.0.id == item.id);
            match (refused.get(&item.id), answer) {
                (Some(decision), _) => told.decided.push((item, *decision)),
                (None, Some(((_, None), _))) => told.applied.push(item),
                (None, Some(((_, Some(decision)), false))) => told.decided.push((item, *decision)),
                (None, Some((_, true)) | None) => {}
            }
        }
        let dead = told.decided.iter().filter(|it| matches!(it.1, Decision::Dead(_))).count();
        if dead_max < dead {
            let findings = Findings { over_budget: true, ..Findings::default() };
            return (Outcome::Interrupted, findings, Vec::new());
        }
        self.write_held(&keys, &told);
        let findings = Findings { processed: told.applied.len(), dead, ready: Some(!last), ..Findings::default() };
        self.commit_effects(&told);
        (Outcome::Decided, findings, Vec::new())
    }

    fn write_held(&mut self, keys: &[usize], told: &Effects) {
        // In the order of parking: the oracle sees who leaves before its turn.
        let mut leaving: Vec<Logged> = told.applied.iter().copied().chain(told.decided.iter().map(|it| it.0)).collect();
        let position = |tables: &Tables, it: &Logged| {
            tables.held.get(&it.key).and_then(|held| held.iter().position(|held| held.id == it.id))
        };
        leaving.sort_by_key(|it| position(&self.tables, it));
        leaving.iter().for_each(|it| self.forget_held(it));
        for logged in &told.applied {
            self.set_row(logged, State::Processed, 1);
        }
        for (logged, decision) in &told.decided {
            self.write_decision(logged, *decision);
            if self.rule.holds(*decision) {
                self.tables.holds.insert(logged.key, Hold { head: logged.id, ready: false });
            }
        }
        for key in keys {
            self.delete_empty(*key);
        }
    }

    fn write_decision(&mut self, logged: &Logged, decision: Decision) {
        let first_failed_at = Some(logged.first_failed_at.unwrap_or(self.now));
        let (state, attempt, record) = match decision {
            Decision::Retry { attempt, tier, delay } => {
                let record = Logged { attempt, due_at: Some(self.now.after(delay)), first_failed_at, ..*logged };
                (State::Retrying, attempt, (Some(tier), record))
            }
            Decision::Dead(_) => (State::Dead, logged.attempt, (None, *logged)),
        };
        self.set_row(logged, state, attempt);
        self.tables.outbox.push(record);
    }

    fn commit_effects(&mut self, effects: &Effects) {
        for logged in &effects.applied {
            self.apply(logged);
        }
        for (logged, decision) in &effects.decided {
            self.note(logged, *decision);
        }
    }

    /// An operator closes a dead letter, or sends it through the first retry topic once more: one transaction.
    pub(crate) fn operate(&mut self, id: Id, replay: bool) {
        let Some(row) = self.tables.inbox.get(&id).copied().filter(|it| it.state == State::Dead) else { return };
        let Some(logged) = self.dead_record(id) else { return };
        if replay {
            let attempt = row.attempt + 1;
            self.set_row(&logged, State::Retrying, attempt);
            let record = Logged { attempt, due_at: Some(self.now), ..logged };
            self.tables.outbox.push((Some(0), record));
            self.replayed(id);
        } else {
            self.set_row(&logged, State::Discarded, row.attempt);
            self.discarded(id);
            self.head_decided(&logged);
        }
    }
}

fn held_item(logged: &Logged) -> Item<Logged> {
    let record = Record {
        offset: 0,
        attempt: 1,
        key: Some(key_id(logged.key)),
        due_at: None,
        first_failed_at: None,
        produced_at: None,
        message: *logged,
    };
    Item {
        partition: partition(0, logged.key % super::world::PARTITIONS),
        epoch: Epoch::HELD,
        maybe_held: false,
        record,
    }
}
