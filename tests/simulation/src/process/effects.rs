//! Effects of a process: leases, what is in progress, and outcomes.

use sekali_consumer::core::{Epoch, Event, Fence, Findings, Item, LaneId, Leased, Outcome, Performed, Recorded};

use sekali_schemas::inbox::State;

use super::{Process, Work};
use crate::choice::{Fault, Random};
use crate::database::Claims;
use crate::world::{Logged, World};

/// What an executor will report of a transaction about effects.
#[derive(Clone, Hash)]
pub(super) enum News {
    Claimed(LaneId, Claims),
    /// Nothing was leased; held messages have no items.
    Unclaimed(LaneId, Outcome, Vec<Item<Logged>>, Findings),
    Recorded(LaneId, Outcome, Vec<Recorded<Logged>>, Findings),
}

impl News {
    pub(super) fn lane(&self) -> LaneId {
        match self {
            News::Claimed(lane, _) | News::Unclaimed(lane, ..) | News::Recorded(lane, ..) => *lane,
        }
    }
}

impl Process {
    pub(super) fn transact_effects(&mut self, random: &mut Random, world: &mut World, lane: LaneId, work: Work) {
        let lost = |random: &mut Random, world: &mut World| world.strikes(random, Fault::LostAnswer, 12);
        let excepted = matches!(work, Work::RunHeld(_, _, true));
        let interrupted = |items| News::Unclaimed(lane, Outcome::Interrupted, items, Findings::default());
        let news = match work {
            Work::Run(items, _) => match world.claim(random, items.clone()) {
                Ok(_) if lost(random, world) => interrupted(items),
                Ok(claims) => News::Claimed(lane, claims),
                Err((outcome, findings, items)) => News::Unclaimed(lane, outcome, items, findings),
            },
            Work::RunHeld(..) if excepted => News::Claimed(lane, Claims::nothing()),
            Work::RunHeld(max, ..) => match world.claim_held(random, max) {
                Ok(_) if lost(random, world) => interrupted(Vec::new()),
                Ok(claims) => News::Claimed(lane, claims),
                Err((outcome, findings)) => News::Unclaimed(lane, outcome, Vec::new(), findings),
            },
            Work::Record(records) => {
                let written = world.write_outcomes(random, records.clone());
                if written.outcome == Outcome::Decided && lost(random, world) {
                    News::Recorded(lane, Outcome::Interrupted, records, Findings::default())
                } else {
                    News::Recorded(lane, written.outcome, written.unwritten, written.findings)
                }
            }
            Work::Decide(..) => return,
        };
        self.news.push_back(news);
    }

    pub(super) fn tell(&mut self, world: &mut World, news: News) {
        let lane = news.lane();
        let outcome = match &news {
            News::Claimed(..) => Outcome::Decided,
            News::Unclaimed(_, outcome, ..) | News::Recorded(_, outcome, ..) => *outcome,
        };
        if outcome == Outcome::Interrupted && self.changes == self.changes_at_start[lane.0] {
            self.rests_until[lane.0] = world.now.after(self.shape.limits.interrupted_delay);
        }
        let event = match news {
            News::Claimed(lane, Claims { leased, later, findings }) => {
                self.leases.extend(leased.iter().map(|it| (it.fence, it.item.record.message.id)));
                Event::Claimed { lane, leased, later, findings }
            }
            News::Unclaimed(lane, outcome, items, findings) => Event::Finished { lane, outcome, items, findings },
            News::Recorded(lane, outcome, unwritten, findings) => {
                if outcome == Outcome::Decided {
                    self.check_budget(world, &findings);
                }
                Event::Recorded { lane, outcome, unwritten, findings }
            }
        };
        if outcome == Outcome::Decided {
            self.forget_leases(world);
        }
        self.apply(world, event);
    }

    /// What is written needs no lease any more, and what somebody else took over has none of ours.
    fn forget_leases(&mut self, world: &World) {
        self.leases.retain(|fence, id| world.tables.leases.get(id).is_some_and(|it| it.fence == *fence));
    }

    pub(super) fn begin_effect(&mut self, world: &mut World, leased: Leased<Logged>) {
        let most = world.effects_max.unwrap_or_default();
        if most <= self.performing.len() {
            world.violated(format!("more than {most} effects in progress"));
        }
        let ours = leased.item.epoch == Epoch::HELD || self.fetching.contains_key(&leased.item.partition);
        if self.halted {
            world.violated("began an effect of a topic that an operator has paused".to_owned());
        }
        if self.stopping || !ours {
            world.violated("began an effect after its partition was gone, or while draining".to_owned());
        }
        self.performing.push(leased);
    }

    pub(super) fn give_back_unused(&mut self, world: &mut World, fences: &[Fence]) {
        for fence in fences {
            let row = self.leases.get(fence).and_then(|id| world.tables.inbox.get(id));
            if row.is_some_and(|it| it.state == State::Held) && !self.stopping && !self.halted {
                world.violated("gave a held message back, which belongs to no partition".to_owned());
            }
            self.give_back(world, *fence);
        }
    }

    /// Ends a lease under which nothing runs. Of every other one that gets lost on the way: it runs out.
    fn give_back(&mut self, world: &mut World, fence: Fence) {
        if self.performing.iter().any(|it| it.fence == fence) {
            world.violated("gave the lease of an effect in progress back".to_owned());
        }
        let id = self.leases.remove(&fence);
        if let Some(id) = id.filter(|_| fence.0 % 2 == 1) {
            world.give_back(id, fence);
        }
    }

    /// Leases are bounded, and nothing waits under one that could be performed.
    pub(super) fn check_leases(&self, world: &mut World) {
        let Some(most) = world.effects_max else { return };
        let ahead = self.core.performing().saturating_sub(self.performing.len());
        if world.leases_ahead_max < ahead {
            world.violated(format!("{ahead} leases were taken ahead"));
        }
        if 0 < ahead && (self.stopping || self.performing.len() < most) {
            world.violated("a lease was kept under which nothing was begun".to_owned());
        }
    }

    /// One effect ends, unless its lease turns out to be lost first.
    pub(crate) fn perform(&mut self, random: &mut Random, world: &mut World) -> bool {
        if self.performing.is_empty() {
            return false;
        }
        let leased = self.performing.remove(random.below(self.performing.len()));
        let id = leased.item.record.message.id;
        let lost = world.tables.leases.get(&id).is_none_or(|it| it.fence != leased.fence);
        let outcome = if lost && random.one_in(2) {
            Performed::Interrupted
        } else if world.strikes(random, Fault::Interruption, 40) {
            // Nothing happened, and nothing runs under the lease any more.
            self.give_back(world, leased.fence);
            Performed::Interrupted
        } else {
            match world.perform(&leased) {
                Ok(()) => Performed::Done,
                Err(kind) => Performed::Failed(kind),
            }
        };
        self.apply(world, Event::Performed { leased, outcome });
        true
    }

    pub(crate) fn performs(&self) -> bool {
        !self.performing.is_empty()
    }

    /// Fences of its leases.
    pub(crate) fn fences(&self) -> impl Iterator<Item = Fence> {
        self.leases.keys().copied()
    }

    /// Prolongs the leases of this process, in one statement.
    pub(crate) fn beat(&self, world: &mut World) {
        for (fence, id) in &self.leases {
            world.prolong(*id, *fence);
        }
    }
}
