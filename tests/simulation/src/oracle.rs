//! What must hold: checked at every effect, every commit, and at the end.

use std::rc::Rc;

use sekali_consumer::core::hold::{AfterDeadLetter, Rule};
use sekali_consumer::core::operator::LetterState;
use sekali_consumer::core::retry::{Decision, FailureKind, Reason};
use sekali_consumer::core::{Offset, Partition};
use sekali_schemas::inbox::State;

use super::world::{Account, Behaviour, Id, Logged, Manner, World};

impl World {
    /// # Panics
    /// Nobody produced the message.
    pub(crate) fn account(&mut self, id: Id) -> &mut Account {
        Rc::make_mut(&mut self.accounts).get_mut(&id).expect("every message was produced by somebody")
    }

    pub(crate) fn handle(&self, logged: &Logged) -> Result<(), (FailureKind, Manner)> {
        match self.accounts[&logged.id].behaviour {
            Behaviour::Good => Ok(()),
            Behaviour::FailsTimes(times, _) if times < logged.attempt => Ok(()),
            Behaviour::FailsTimes(_, manner) => Err((FailureKind::Transient, manner)),
            Behaviour::Poison(manner) => Err((FailureKind::Permanent, manner)),
        }
    }

    /// A dead letter was written.
    pub(crate) fn note(&mut self, logged: &Logged, decision: Decision) {
        let Decision::Dead(reason) = decision else {
            self.stats.retried += 1;
            return;
        };
        self.stats.dead += 1;
        let (attempts_max, now) = (self.shape.attempts_max, self.now);
        let account = self.account(logged.id);
        account.decided_at = now;
        account.dead_letters += 1;
        account.dead_record = Some(*logged);
        let expected = match account.behaviour {
            Behaviour::Poison(_) => Reason::Permanent,
            Behaviour::FailsTimes(..) | Behaviour::Good => Reason::Exhausted,
        };
        let too_early = reason == Reason::Exhausted && logged.attempt < attempts_max;
        let too_late = attempts_max < logged.attempt && account.replays == 0;
        if reason != expected || too_early || too_late {
            self.violated(format!("message {} died of {reason:?} on attempt {}", logged.id, logged.attempt));
        }
    }

    /// A message took effect.
    pub(crate) fn apply(&mut self, logged: &Logged) {
        let now = self.now;
        let account = self.account(logged.id);
        account.decided_at = now;
        account.applied.push(logged.attempt);
        let (effects, replayed, restored) = (account.applied.len(), 0 < account.replays, account.restored);
        if 1 < effects {
            self.violated(format!("message {} took effect again", logged.id));
        }
        // Whose key was let go has lost its turn.
        let moved_on = restored || (self.rule == Rule::ByKey(AfterDeadLetter::Continue) && replayed);
        if moved_on || (self.rule == Rule::Never && (logged.attempt != 1 || self.effects_max.is_some())) {
            return;
        }
        self.check_turn(logged);
        let last = self.order.insert(logged.key, logged.sequence);
        if last.is_some_and(|it| logged.sequence <= it) {
            self.violated(format!("key {}: effect {} came after {last:?}", logged.key, logged.sequence));
        }
    }

    /// Nothing of its key that comes before may still be waiting for its turn.
    pub(crate) fn check_turn(&mut self, logged: &Logged) {
        let Rule::ByKey(after) = self.rule else { return };
        let account = &self.accounts[&logged.id];
        if account.restored || (after == AfterDeadLetter::Continue && 0 < account.replays) {
            return;
        }
        let earlier = self.by_key[&logged.key].iter().take_while(|it| **it != logged.id);
        let waiting = earlier.copied().find(|it| !self.lets_pass(*it, after));
        if let Some(id) = waiting {
            let state = self.tables.inbox.get(&id);
            self.violated(format!("message {} overtook message {id} of its key, which is {state:?}", logged.id));
        }
    }

    /// Whether later messages of its key may take effect.
    fn lets_pass(&self, id: Id, after: AfterDeadLetter) -> bool {
        let goes_on = after == AfterDeadLetter::Continue || self.accounts[&id].restored;
        match self.tables.inbox.get(&id).map(|it| it.state) {
            Some(State::Processed | State::Discarded) => true,
            Some(State::Dead) => goes_on,
            Some(State::Retrying) => goes_on && 0 < self.accounts[&id].replays,
            _ => false,
        }
    }

    /// Kafka accepts a commit; the rule that everything rests on is checked here.
    pub(crate) fn commit(&mut self, place: Partition, offset: Offset) {
        // What an earlier commit passed stays decided.
        let from = self.committed[&place].min(offset);
        for logged in self.logs[&place][from as usize..offset as usize].iter().flatten() {
            let decided = match self.tables.inbox.get(&logged.id) {
                None => false,
                Some(row) if place.retry => !(row.state == State::Retrying && row.attempt == logged.attempt),
                Some(row) if row.state == State::Leased => false,
                Some(_) => true,
            };
            if !decided {
                let row = self.tables.inbox.get(&logged.id);
                let what =
                    format!("offset {offset} of {place:?} passes undecided {logged:?}: {row:?}, {:?}", self.rule);
                self.violation.get_or_insert(what);
                return;
            }
        }
        let before = self.committed.insert(place, offset);
        if before.is_some_and(|it| offset < it) {
            self.violated(format!("the committed offset of {place:?} went back from {before:?} to {offset}"));
        }
    }

    /// An operator sent a dead letter through the retry topics once more, perhaps after the cause was removed.
    pub(crate) fn replayed(&mut self, id: Id) {
        self.stats.replays += 1;
        let account = self.account(id);
        account.replays += 1;
        if id.is_multiple_of(2) {
            account.behaviour = Behaviour::Good;
        }
    }

    pub(crate) fn discarded(&mut self, id: Id) {
        self.stats.discarded += 1;
        let now = self.now;
        let account = self.account(id);
        account.decided_at = now;
        account.closed = true;
    }

    /// An operator took a discarding back.
    pub(crate) fn restored(&mut self, id: Id) {
        let account = self.account(id);
        account.closed = false;
        account.restored = true;
    }

    /// Nothing waits for an operator any more: no key is held.
    pub(crate) fn flows(&self) -> bool {
        self.tables.holds.is_empty()
    }

    /// A dead letter that an operator may take up: in the end only those that hold a key.
    pub(crate) fn to_operate(&self, number: usize) -> Option<Id> {
        let dead: Vec<Id> = self
            .tables
            .inbox
            .iter()
            .filter(|(id, row)| {
                let heads = self.tables.holds.values().any(|it| it.head == **id);
                row.state == State::Dead && (self.faulty || heads)
            })
            .map(|(id, _)| *id)
            .collect();
        dead.get(number % dead.len().max(1)).copied()
    }

    pub(crate) fn may_replay(&self, id: Id) -> bool {
        self.accounts[&id].replays == 0
    }

    /// A letter in this state.
    pub(crate) fn letter(&self, state: LetterState, number: usize) -> Option<Id> {
        let letters: Vec<Id> = self.tables.letters.iter().filter(|it| it.1.state == state).map(|it| *it.0).collect();
        letters.get(number % letters.len().max(1)).copied()
    }

    /// Nothing of it is ever seen again.
    pub(crate) fn drop_account(&mut self, id: Id) {
        self.tables.inbox.remove(&id);
        self.tables.fences.remove(&id);
        self.tables.letters.remove(&id);
        let account = Rc::make_mut(&mut self.accounts).remove(&id);
        if let Some(ids) = account.and_then(|it| Rc::make_mut(&mut self.by_key).get_mut(&it.key)) {
            ids.retain(|it| *it != id);
        }
    }

    /// The promises, once nothing is left to do.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        if let Some((id, lease)) = self.tables.leases.first_key_value() {
            return Err(format!("message {id} has {lease:?} for ever"));
        }
        if let Some((key, held)) = self.tables.held.first_key_value() {
            return Err(format!("{} messages of key {key} wait behind nothing", held.len()));
        }
        self.accounts.iter().try_for_each(|(id, account)| self.check_message(*id, account))
    }

    /// The promises to one message, once nothing of it is on its way.
    pub(crate) fn check_message(&self, id: Id, account: &Account) -> Result<(), String> {
        let Account { behaviour, ref applied, dead_letters: dead, published, replays, .. } = *account;
        let state = self.tables.inbox.get(&id).map(|it| it.state);
        let what = format!("message {id} ({behaviour:?}, {state:?}, replayed {replays} times)");
        let processed = state == Some(State::Processed);
        let deaths = replays + u32::from(!processed);
        if applied.len() != usize::from(processed) {
            return Err(format!("{what} took effect on attempts {applied:?}"));
        }
        if self.effects_max.is_some() && processed && !account.performed.contains(&applied[0]) {
            return Err(format!("{what} was not performed on attempt {applied:?}"));
        }
        let letter = self.tables.letters.get(&id).map(|it| it.state);
        let told = match state {
            Some(State::Dead) => Some(LetterState::Open),
            Some(State::Discarded) => Some(LetterState::Discarded),
            _ if 0 < dead => Some(LetterState::Resolved),
            _ => None,
        };
        if letter != told {
            return Err(format!("{what}: its letter is {letter:?}"));
        }
        let closed = if account.closed { State::Discarded } else { State::Dead };
        if !processed && state != Some(closed) {
            return Err(format!("{what} is not decided"));
        }
        if dead != deaths || published < deaths {
            return Err(format!("{what}: {dead} dead letters, {published} on the DLQ topic"));
        }
        if replays == 0 {
            let expected = match behaviour {
                Behaviour::Good => Some(1),
                Behaviour::FailsTimes(times, _) if times < self.shape.attempts_max => Some(times + 1),
                Behaviour::FailsTimes(..) | Behaviour::Poison(_) => None,
            };
            if applied.first().copied() != expected {
                return Err(format!("{what} took effect on attempts {applied:?}, not {expected:?}"));
            }
        }
        Ok(())
    }
}
