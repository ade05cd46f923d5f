//! The database of the simulated world: inbox, holds, what waits behind them, and the transactions over them. Each call
//! is one transaction: all of it or nothing.

mod decision;
mod held;
mod leases;

pub(crate) use leases::Claims;

use std::collections::{BTreeMap, BTreeSet};

use sekali_consumer::core::hold::{self, Answered, Standing};
use sekali_consumer::core::operator::{self, Letter, LetterState};
use sekali_consumer::core::retry::{Decision, FailureKind, failing_for};
use sekali_consumer::core::verdict::{Arrival, Asking, Row, arrival};
use sekali_consumer::core::{Fence, Findings, Item, KeyId, Offset, Outcome, Partition, Timestamp};
use sekali_schemas::inbox::State;

use super::choice::{Fault, Random};
use super::world::{Id, Logged, Manner, World};

/// How messages are to be run.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct How {
    pub(crate) careful: bool,
    pub(crate) dead_max: usize,
}

/// A key that waits behind its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) head: Id,
    pub(crate) ready: bool,
}

/// Who may perform an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) fence: Fence,
    pub(crate) until: Timestamp,
}

/// The tables.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Tables {
    pub(crate) inbox: BTreeMap<Id, Row>,
    pub(crate) holds: BTreeMap<usize, Hold>,
    /// By key, in the order of parking.
    pub(crate) held: BTreeMap<usize, Vec<Logged>>,
    /// Effects in progress.
    pub(crate) leases: BTreeMap<Id, Lease>,
    /// The dead-letter store.
    pub(crate) letters: BTreeMap<Id, Letter>,
    /// How many leases there were on each message.
    pub(crate) fences: BTreeMap<Id, i64>,
    /// Retry tier or dead-letter topic, and the record.
    pub(crate) outbox: Vec<(Option<usize>, Logged)>,
    /// An operator has paused the source topic.
    pub(crate) paused: bool,
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
    pub(crate) fn transact(&mut self, random: &mut Random, items: &[Item<Logged>], how: How) -> (Outcome, Findings) {
        if self.strikes(random, Fault::Interruption, 10) {
            return (Outcome::Interrupted, Findings::default());
        }
        let saved = self.tables.clone();
        let mut refused = BTreeMap::new();
        loop {
            match self.try_batch(random, items, &mut refused, how) {
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

    /// `Err(None)` runs again with what is known then.
    fn try_batch(
        &mut self,
        random: &mut Random,
        items: &[Item<Logged>],
        refused: &mut BTreeMap<usize, Decision>,
        how: How,
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
        for place in (0..items.len()).filter(|it| standings[*it].1 == Standing::Runs && !parked[*it]) {
            let answer = self.answer(random, &items[place], how);
            answers.push((place, answer.map_err(|it| Some((Outcome::Failed(it), Findings::default())))?));
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
        if how.dead_max < dead {
            return Err(Some((Outcome::Interrupted, Findings { over_budget: true, ..Findings::default() })));
        }
        let ready = self.write_batch(items, retry, &effects, &to_park);
        let (processed, failed_alone) = (effects.applied.len(), if how.careful { effects.decided.len() } else { 0 });
        let mut findings = Findings { processed, dead, found: failed_alone, ready, ..Findings::default() };
        for (place, item) in items.iter().enumerate().filter(|_| !retry) {
            let (key, id) = (item.record.message.key, item.record.message.id);
            let refused = effects.decided.iter().any(|(it, decision)| it.id == id && rule.holds(*decision));
            let holds = match asked.contains(&key) {
                _ if to_park.contains(&place) || refused => true,
                true => found.contains(&key),
                false => pending.contains(&key),
            };
            if holds {
                findings.held.push(key_id(key));
            }
            findings.stale |= !holds && asked.contains(&key);
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

    fn full(&self, items: &[Item<Logged>], parked: &[bool]) -> Vec<(Partition, Offset)> {
        let mut waiting: BTreeMap<usize, usize> = BTreeMap::new();
        let mut full: Vec<(Partition, Offset)> = Vec::new();
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
    fn answer(&mut self, random: &mut Random, item: &Item<Logged>, how: How) -> Result<Option<Decision>, FailureKind> {
        let logged = item.record.message;
        match self.handle(&logged) {
            Ok(()) => Ok(None),
            Err((kind, Manner::Refuses)) => Ok(Some(self.decision_on(random, &logged, kind))),
            // Under a savepoint of its own a failure is as good as a refusal.
            Err((kind, Manner::Fails)) if how.careful => Ok(Some(self.decision_on(random, &logged, kind))),
            Err((kind, _)) => Err(kind),
        }
    }

    fn decision_on(&self, random: &mut Random, logged: &Logged, kind: FailureKind) -> Decision {
        let age = failing_for(self.now, logged.first_failed_at);
        self.shape.policy().decide(logged.attempt, kind, age, random.next())
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
        let waiting = heads.iter().filter(|it| self.head_decided(it)).count();
        (0 < waiting).then_some(true)
    }

    fn set_row(&mut self, logged: &Logged, state: State, attempt: u32) {
        self.tables.inbox.insert(logged.id, Row { state, attempt, fingerprint: logged.fingerprint });
        if let Some(letter) = self.tables.letters.get_mut(&logged.id) {
            // As the adapters do: whoever ends a replay says so in the same transaction.
            letter.state = match (letter.state, state) {
                (LetterState::Replaying, State::Processed) => operator::after_replay(true),
                (LetterState::Replaying, State::Dead) => operator::after_replay(false),
                (state, _) => state,
            };
        }
    }

    fn commit_effects(&mut self, effects: &Effects) {
        for logged in &effects.applied {
            self.apply(logged);
        }
        for (logged, decision) in &effects.decided {
            self.note(logged, *decision);
        }
    }
}
