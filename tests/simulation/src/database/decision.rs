//! Decisions on single messages: of an executor whose message failed alone, and of an operator.

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
            Decision::Dead(_) => (State::Dead, logged.attempt, (None, *logged)),
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

    /// An operator closes a dead letter, or sends it through the first retry topic once more: one transaction.
    pub(crate) fn operate(&mut self, id: Id, replay: bool) {
        let Some(row) = self.tables.inbox.get(&id).copied().filter(|it| it.state == State::Dead) else { return };
        let Some(logged) = self.accounts[&id].dead_record else { return };
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
