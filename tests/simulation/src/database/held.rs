//! Messages that were held behind heads that are decided by now.

use std::collections::{BTreeMap, BTreeSet};

use sekali_consumer::core::hold::{self, Answered, Standing};
use sekali_consumer::core::retry::{Decision, FailureKind};
use sekali_consumer::core::{Epoch, Findings, Item, Outcome, Record};
use sekali_schemas::inbox::State;

use super::{Effects, Hold, How, Tables, key_id};
use crate::choice::{Fault, Random};
use crate::world::{Id, Logged, World, partition};

impl World {
    /// Keys that somebody would take up now, without those that others have locked.
    pub(crate) fn ready_keys(&self, max: usize, locked: &[usize]) -> Vec<usize> {
        let ready = self.tables.holds.iter().filter(|(key, it)| it.ready && !locked.contains(key));
        ready.map(|(it, _)| *it).take(max).collect()
    }

    /// Runs them in one transaction. They come back when they fail.
    pub(crate) fn run_held(
        &mut self,
        random: &mut Random,
        max: usize,
        how: How,
        locked: &[usize],
    ) -> (Outcome, Findings, Vec<Item<Logged>>) {
        if self.strikes(random, Fault::Interruption, 10) {
            return (Outcome::Interrupted, Findings::default(), Vec::new());
        }
        let keys = self.ready_keys(max, locked);
        let mut items = Vec::new();
        for key in &keys {
            let waiting = self.tables.held.get(key).map_or(&[][..], Vec::as_slice);
            items.extend(waiting.iter().take(max - items.len()).map(|it| self.held_item(it)));
        }
        let last = keys.len() < max && items.len() < max;
        let told = match self.handle_held(random, &items, how) {
            Ok(told) => told,
            Err(kind) => return (Outcome::Failed(kind), Findings::default(), items),
        };
        let dead = told.decided.iter().filter(|it| matches!(it.1, Decision::Dead(_))).count();
        if how.dead_max < dead {
            let findings = Findings { over_budget: true, ..Findings::default() };
            return (Outcome::Interrupted, findings, Vec::new());
        }
        self.write_held(&keys, &told);
        let findings = Findings { processed: told.applied.len(), dead, ready: Some(!last), ..Findings::default() };
        self.commit_effects(&told);
        (Outcome::Decided, findings, Vec::new())
    }

    /// What becomes of them, without those that keep waiting.
    fn handle_held(&mut self, random: &mut Random, items: &[Item<Logged>], how: How) -> Result<Effects, FailureKind> {
        let mut refused: BTreeMap<Id, Decision> = BTreeMap::new();
        loop {
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
                    answers.push((item.record.message, self.answer(random, item, how)?));
                }
            }
            let answered = |(logged, decision): &(Logged, Option<Decision>)| {
                let answered =
                    decision.map_or(Answered::Applied, |it| Answered::Refused { holds: self.rule.holds(it) });
                (Some(logged.key), answered)
            };
            match hold::parked_after(answers.iter().map(answered)) {
                Ok(behind) => return Ok(told(items, &refused, &answers, &behind)),
                Err(overtaken) => {
                    refused.extend(overtaken.heads.iter().filter_map(|it| Some((answers[*it].0.id, answers[*it].1?))));
                }
            }
        }
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

    pub(super) fn forget_held(&mut self, logged: &Logged) {
        let waiting = self.tables.held.remove(&logged.key).unwrap_or_default();
        if waiting.first().is_none_or(|it| it.id != logged.id) {
            self.violated(format!("message {} left the held ones of its key before its turn", logged.id));
        }
        let others: Vec<Logged> = waiting.into_iter().filter(|it| it.id != logged.id).collect();
        if !others.is_empty() {
            self.tables.held.insert(logged.key, others);
        }
    }

    pub(super) fn held_item(&self, logged: &Logged) -> Item<Logged> {
        let record = Record {
            offset: 0,
            attempt: 1,
            key: Some(key_id(logged.key)),
            due_at: None,
            first_failed_at: None,
            produced_at: None,
            message: *logged,
        };
        let place = partition(0, logged.key % self.shape.partitions);
        Item { partition: place, epoch: Epoch::HELD, maybe_held: false, record }
    }
}

/// Puts refusals and answers to the items, in their order.
fn told(
    items: &[Item<Logged>],
    refused: &BTreeMap<Id, Decision>,
    answers: &[(Logged, Option<Decision>)],
    behind: &[bool],
) -> Effects {
    let mut told = Effects::default();
    for item in items.iter().map(|it| it.record.message) {
        let answer = answers.iter().zip(behind).find(|(it, _)| it.0.id == item.id);
        match (refused.get(&item.id), answer) {
            (Some(decision), _) => told.decided.push((item, *decision)),
            (None, Some(((_, None), _))) => told.applied.push(item),
            (None, Some(((_, Some(decision)), false))) => told.decided.push((item, *decision)),
            (None, Some((_, true)) | None) => {}
        }
    }
    told
}
