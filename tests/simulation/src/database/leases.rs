//! Transactions of messages with effects outside the database: taking leases, and writing what came of them.

use std::collections::BTreeSet;

use sekali_consumer::core::hold::Rule;
use sekali_consumer::core::retry::{Decision, FailureKind};
use sekali_consumer::core::verdict::{Arrival, Asking, Leasing, leasing};
use sekali_consumer::core::{
    Epoch, Fence, Findings, Item, Leased, Offset, Outcome, Partition, Recorded, Timestamp, Verdict,
};
use sekali_schemas::inbox::State;

use super::{Effects, Hold, Lease, key_id};
use crate::choice::{Fault, Faults, Random};
use crate::world::{Id, Logged, Manner, World};

/// What a transaction that takes leases came to.
#[derive(Clone, Hash)]
pub(crate) struct Claims {
    pub(crate) leased: Vec<Leased<Logged>>,
    pub(crate) later: Vec<(Item<Logged>, Timestamp)>,
    pub(crate) findings: Findings,
}

impl Claims {
    /// There was nothing to lease.
    pub(crate) fn nothing() -> Claims {
        let findings = Findings { ready: Some(false), ..Findings::default() };
        Claims { leased: Vec::new(), later: Vec::new(), findings }
    }
}

/// What a transaction that writes outcomes came to.
pub(crate) struct Written {
    pub(crate) outcome: Outcome,
    pub(crate) unwritten: Vec<Recorded<Logged>>,
    pub(crate) findings: Findings,
}

/// More leases than one message ever has.
const FENCES_MAX: i64 = 100_000;

impl World {
    fn lease_lasts(&mut self, random: &mut Random, id: Id) -> bool {
        let lasts = self.tables.leases.get(&id).is_some_and(|it| self.now < it.until);
        // Where time stands still, a lease ends when fate has it.
        lasts && !(self.faults != Faults::Chance && self.strikes(random, Fault::LeaseEnds, 1))
    }

    /// Leases of nobody who is alive, which end some time. `alive` are the fences of the others.
    pub(crate) fn orphaned(&self, alive: &BTreeSet<Fence>) -> Option<Id> {
        let orphaned = |it: &&Lease| self.now < it.until && !alive.contains(&it.fence);
        self.tables.leases.iter().find(|it| orphaned(&it.1)).map(|it| *it.0)
    }

    pub(crate) fn end_lease(&mut self, id: Id) {
        if let Some(lease) = self.tables.leases.get_mut(&id) {
            lease.until = self.now;
        }
    }

    /// Ends a lease, unless somebody else has taken it over.
    pub(crate) fn give_back(&mut self, id: Id, fence: Fence) {
        if self.tables.leases.get(&id).is_some_and(|it| it.fence == fence) {
            self.tables.leases.remove(&id);
        }
    }

    fn lease(&mut self, item: Item<Logged>) -> Leased<Logged> {
        let id = item.record.message.id;
        // Of each message they rise; different messages never share one.
        let count = self.tables.fences.entry(id).or_default();
        *count += 1;
        let fence = Fence(id as i64 * FENCES_MAX + *count);
        let until = self.now.after(self.shape.lease_ttl);
        if self.tables.leases.insert(id, Lease { fence, until }).is_some() {
            self.account(id).unknown += 1;
        }
        Leased { item, fence }
    }

    /// Leases on records of source or retry topics. The items come back when there are none.
    pub(crate) fn claim(
        &mut self,
        random: &mut Random,
        items: Vec<Item<Logged>>,
    ) -> Result<Claims, (Outcome, Findings, Vec<Item<Logged>>)> {
        if self.strikes(random, Fault::Interruption, 10) {
            return Err((Outcome::Interrupted, Findings::default(), items));
        }
        let retry = items[0].partition.retry;
        let verdicts: Vec<Leasing> = items.iter().map(|it| self.leasing(random, it)).collect();
        let mut pending = BTreeSet::new();
        for (item, verdict) in items.iter().zip(&verdicts) {
            match verdict {
                Leasing::Other(Arrival::Pending) => drop(pending.insert(item.record.message.key)),
                Leasing::Other(Arrival::Orphan | Arrival::KeyReuse) => {
                    self.violated(format!("message {} met {verdict:?}", item.record.message.id));
                }
                _ => {}
            }
        }
        let ordered = !retry && self.rule != Rule::Never;
        let is_asked = |it: &Item<Logged>| ordered && (it.maybe_held || pending.contains(&it.record.message.key));
        let parks = |world: &World, it: &Item<Logged>, verdict: Leasing| {
            verdict == Leasing::Lease && is_asked(it) && world.tables.holds.contains_key(&it.record.message.key)
        };
        let full = self.no_room(items.iter().zip(&verdicts).filter(|it| parks(self, it.0, *it.1)).map(|it| it.0));
        if !full.is_empty() {
            return Err((Outcome::Full, Findings { full, ..Findings::default() }, items));
        }
        let mut claims = Claims { leased: Vec::new(), later: Vec::new(), findings: Findings::default() };
        let mut seen = BTreeSet::new();
        for (item, verdict) in items.into_iter().zip(verdicts) {
            let logged = item.record.message;
            let (asked, held) = (is_asked(&item), self.tables.holds.contains_key(&logged.key));
            if asked && !held {
                claims.findings.stale = true;
            }
            if !retry && ((asked && held) || pending.contains(&logged.key)) {
                claims.findings.held.push(key_id(logged.key));
            }
            match verdict {
                // A second copy looks again once the first one is on its way.
                Leasing::Lease if !seen.insert(logged.id) => claims.later.push((item, self.now)),
                Leasing::Lease if parks(self, &item, verdict) => {
                    self.stats.held += 1;
                    self.tables.leases.remove(&logged.id);
                    self.set_row(&logged, State::Held, 1);
                    self.tables.held.entry(logged.key).or_default().push(logged);
                }
                Leasing::Lease => {
                    if !retry {
                        self.set_row(&logged, State::Leased, 1);
                    }
                    claims.leased.push(self.lease(item));
                }
                Leasing::Wait => {
                    let until = self.tables.leases[&logged.id].until;
                    claims.later.push((item, until.min(self.now.after(self.shape.lease_look))));
                }
                Leasing::Other(_) => self.stats.duplicates += 1,
            }
        }
        Ok(claims)
    }

    fn leasing(&mut self, random: &mut Random, item: &Item<Logged>) -> Leasing {
        let logged = item.record.message;
        if logged.due_at.is_some_and(|it| self.now < it) {
            self.violated(format!("message {} was leased before it was due", logged.id));
        }
        let asking = Asking { retry: item.partition.retry, attempt: logged.attempt, fingerprint: logged.fingerprint };
        let lasts = self.lease_lasts(random, logged.id);
        leasing(asking, self.tables.inbox.get(&logged.id).copied(), lasts)
    }

    fn no_room<'a>(&self, parked: impl Iterator<Item = &'a Item<Logged>>) -> Vec<(Partition, Offset)> {
        let waiting = |it: &&Item<Logged>| self.tables.held.get(&it.record.message.key).map_or(0, Vec::len);
        parked.filter(|it| self.held_per_key_max <= waiting(it)).map(|it| (it.partition, it.record.offset)).collect()
    }

    /// Leases on the first message behind each head that is decided.
    pub(crate) fn claim_held(&mut self, random: &mut Random, max: usize) -> Result<Claims, (Outcome, Findings)> {
        if self.strikes(random, Fault::Interruption, 10) {
            return Err((Outcome::Interrupted, Findings::default()));
        }
        let first = |key: &usize| self.tables.held.get(key).and_then(|it| it.first()).copied();
        let ready: Vec<Logged> =
            self.tables.holds.iter().filter(|it| it.1.ready).filter_map(|it| first(it.0)).collect();
        let free: Vec<Logged> = ready.into_iter().filter(|it| !self.lease_lasts(random, it.id)).collect();
        let more = max < free.len();
        let leased = free.into_iter().take(max).map(|it| self.lease(self.held_item(&it))).collect();
        Ok(Claims { leased, later: Vec::new(), findings: Findings { ready: Some(more), ..Findings::default() } })
    }

    /// Prolongs a lease, unless somebody else has taken it over.
    pub(crate) fn prolong(&mut self, id: Id, fence: Fence) {
        let until = self.now.after(self.shape.lease_ttl);
        if let Some(lease) = self.tables.leases.get_mut(&id).filter(|it| it.fence == fence) {
            lease.until = until;
        }
    }

    /// Performs an effect outside the database.
    pub(crate) fn perform(&mut self, leased: &Leased<Logged>) -> Result<(), FailureKind> {
        let logged = leased.item.record.message;
        let current = self.tables.leases.get(&logged.id).is_some_and(|it| it.fence == leased.fence);
        if current {
            self.check_turn(&logged);
        }
        let account = self.account(logged.id);
        account.performed.push(logged.attempt);
        let times = account.performed.iter().filter(|it| **it == logged.attempt).count();
        if account.unknown + 1 < times {
            self.violated(format!("attempt {} of message {} was performed {times} times", logged.attempt, logged.id));
        }
        match self.handle(&logged) {
            Ok(()) | Err((_, Manner::FailsLate)) => Ok(()),
            Err((kind, _)) => Err(kind),
        }
    }

    /// Writes outcomes, each only under the lease that it came of.
    pub(crate) fn write_outcomes(&mut self, random: &mut Random, records: Vec<Recorded<Logged>>) -> Written {
        if self.strikes(random, Fault::Interruption, 10) {
            return Written { outcome: Outcome::Interrupted, unwritten: records, findings: Findings::default() };
        }
        let fenced = |it: &Recorded<Logged>| {
            self.tables.leases.get(&it.leased.item.record.message.id).is_none_or(|lease| lease.fence != it.leased.fence)
        };
        let fails = |it: &Recorded<Logged>| match self.handle(&it.leased.item.record.message) {
            Err((kind, Manner::FailsLate)) if it.verdict == Verdict::Done => Some(kind),
            _ => None,
        };
        if let Some(kind) = records.iter().filter(|it| !fenced(it)).find_map(fails) {
            return Written { outcome: Outcome::Failed(kind), unwritten: records, findings: Findings::default() };
        }
        let (unwritten, written): (Vec<_>, Vec<_>) = records.into_iter().partition(fenced);
        let mut findings = Findings::default();
        let mut effects = Effects::default();
        for Recorded { leased, verdict } in written {
            self.tables.leases.remove(&leased.item.record.message.id);
            self.write_outcome(&leased.item, verdict, &mut findings);
            match verdict {
                Verdict::Done => effects.applied.push(leased.item.record.message),
                Verdict::Decide(decision) => effects.decided.push((leased.item.record.message, decision)),
            }
        }
        self.commit_effects(&effects);
        Written { outcome: Outcome::Decided, unwritten, findings }
    }

    fn write_outcome(&mut self, item: &Item<Logged>, verdict: Verdict, findings: &mut Findings) {
        let logged = item.record.message;
        let holds = match verdict {
            Verdict::Done => {
                self.set_row(&logged, State::Processed, logged.attempt);
                findings.processed += 1;
                false
            }
            Verdict::Decide(decision) => {
                self.write_decision(&logged, decision);
                findings.dead += usize::from(matches!(decision, Decision::Dead(_)));
                self.rule.holds(decision)
            }
        };
        if item.epoch == Epoch::HELD {
            self.forget_held(&logged);
            if holds {
                self.tables.holds.insert(logged.key, Hold { head: logged.id, ready: false });
            } else if !self.delete_empty(logged.key) {
                findings.ready = Some(true);
            }
        } else if item.partition.retry {
            if !holds && self.head_decided(&logged) {
                findings.ready = Some(true);
            }
        } else if holds {
            self.tables.holds.entry(logged.key).or_insert(Hold { head: logged.id, ready: false });
            findings.held.push(key_id(logged.key));
        }
    }
}
