//! Decisions on single messages: of an executor whose message failed alone, and of an operator.

use sekali_consumer::core::operator::{self, Act, Bounds, Letter, LetterState, Told};
use sekali_consumer::core::retry::Decision;
use sekali_consumer::core::{Epoch, Findings, Item, Outcome};
use sekali_schemas::inbox::State;

use super::{Effects, Hold, key_id};
use crate::choice::{Fault, Random};
use crate::world::{Id, Logged, World};

impl World {
    /// The decision on a message that failed alone, guarded by the inbox as the adapter guards it.
    pub(crate) fn decide(
        &mut self,
        random: &mut Random,
        item: &Item<Logged>,
        decision: Decision,
    ) -> (Outcome, Findings) {
        if self.strikes(random, Fault::Interruption, 8) {
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

    pub(super) fn write_decision(&mut self, logged: &Logged, decision: Decision) {
        let first_failed_at = Some(logged.first_failed_at.unwrap_or(self.now));
        let (state, attempt, record) = match decision {
            Decision::Retry { attempt, tier, delay } => {
                let record = Logged { attempt, due_at: Some(self.now.after(delay)), first_failed_at, ..*logged };
                (State::Retrying, attempt, (Some(tier), record))
            }
            Decision::Dead(_) => {
                let fresh =
                    Letter { state: LetterState::Open, replays: 0, attempts: logged.attempt, unpublished: false };
                self.tables.letters.entry(logged.id).or_insert(fresh).attempts = logged.attempt;
                (State::Dead, logged.attempt, (None, *logged))
            }
        };
        self.set_row(logged, state, attempt);
        self.tables.outbox.push(record);
    }

    /// Whether something waits behind it.
    pub(super) fn head_decided(&mut self, logged: &Logged) -> bool {
        let Some(hold) = self.tables.holds.get_mut(&logged.key).filter(|it| it.head == logged.id) else { return false };
        hold.ready = true;
        !self.delete_empty(logged.key)
    }

    pub(super) fn delete_empty(&mut self, key: usize) -> bool {
        let empty = self.tables.held.get(&key).is_none_or(Vec::is_empty);
        let gone = empty && self.tables.holds.get(&key).is_some_and(|it| it.ready);
        if gone {
            self.tables.holds.remove(&key);
        }
        gone
    }

    /// An operator does something about a dead letter, in one transaction; others wanted something of it as well.
    pub(crate) fn operate(&mut self, id: Id, act: Act, force: bool) {
        let bounds = Bounds { replays_max: REPLAYS_MAX, force };
        let (Some(logged), Some(letter)) = (self.accounts[&id].dead_record, self.tables.letters.get(&id).copied())
        else {
            return;
        };
        let row = self.tables.inbox.get(&id).copied();
        let Ok(change) = operator::decide(act, letter, row, bounds) else { return };
        let replays = letter.replays + u32::from(change.publish);
        self.tables.letters.insert(id, Letter { state: change.letter, replays, ..letter });
        if let Some((state, attempt)) = change.row {
            self.set_row(&logged, state, attempt);
            if change.publish {
                let record = Logged { attempt, due_at: Some(self.now), ..logged };
                self.tables.outbox.push((Some(0), record));
            }
        }
        match change.told {
            Told::Replaying if letter.state == LetterState::Open => self.replayed(id),
            Told::Discarded => self.discarded(id),
            Told::Restored => self.restored(id),
            _ => {}
        }
        if change.release {
            self.head_decided(&logged);
        }
        self.check_letter(id, act);
    }

    /// Whoever comes second with what somebody else did is told so, and a letter and its message agree.
    fn check_letter(&mut self, id: Id, did: Act) {
        let (letter, row) = (self.tables.letters[&id], self.tables.inbox.get(&id).copied());
        let bounds = Bounds { replays_max: u32::MAX, force: false };
        for act in Act::ALL.into_iter().filter(|it| *it == did || (did != Act::Restore && *it != Act::Restore)) {
            if operator::decide(act, letter, row, bounds).is_ok() {
                self.violated(format!("after a {did:?} of message {id} somebody else's {act:?} was done as well"));
            }
        }
        let agree = match letter.state {
            LetterState::Open => row.is_some_and(|it| it.state == State::Dead),
            LetterState::Replaying => row.is_some_and(|it| it.state == State::Retrying),
            LetterState::Resolved => row.is_some_and(|it| it.state == State::Processed),
            LetterState::Discarded => row.is_some_and(|it| it.state == State::Discarded),
        };
        if !agree {
            self.violated(format!("the letter of message {id} is {:?}, its message {row:?}", letter.state));
        }
    }
}

/// More than an operator of these worlds ever wants.
const REPLAYS_MAX: u32 = 3;
