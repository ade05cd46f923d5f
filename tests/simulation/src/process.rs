//! One consumer process: the core, its executors, and its view of the assignment.

mod checks;
mod client;
mod effects;
mod hearsay;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use sekali_consumer::core::hold::Rule;
use sekali_consumer::core::retry::Decision;
use sekali_consumer::core::{
    Action, Care, Core, Epoch, Event, Fence, Findings, Item, KeyId, LaneId, Leased, Limits, Offset, Order, Outcome,
    Partition, Recorded, Timestamp,
};

use super::choice::{Fault, Random};
use super::database::{How, key_id};
use super::shape::{LANES_MAX, Shape};
use super::world::{Id, Logged, World};
use effects::News;

#[derive(Clone, Hash)]
enum Work {
    Run(Vec<Item<Logged>>, How),
    /// At most so many, and whether those of the source topic are passed over.
    RunHeld(usize, How, bool),
    Decide(Item<Logged>, Decision),
    /// Outcomes of effects.
    Record(Vec<Recorded<Logged>>),
}

/// What a piece of work has to do with held messages.
#[derive(Debug, Clone, Copy, Hash)]
enum HeldWork {
    Batch,
    /// On one that failed alone; its key.
    Decision(usize),
}

impl Work {
    fn held(&self) -> Option<HeldWork> {
        match self {
            Work::RunHeld(..) => Some(HeldWork::Batch),
            Work::Decide(item, _) if item.epoch == Epoch::HELD => Some(HeldWork::Decision(item.record.message.key)),
            Work::Run(..) | Work::Decide(..) | Work::Record(_) => None,
        }
    }
}

/// An answer to a read of the holds: as of then, not of now.
#[derive(Clone, Hash)]
struct HoldsAnswer {
    read: u64,
    held: Vec<KeyId>,
    ready: bool,
}

/// What an executor will report; the transaction has already ended.
#[derive(Clone, Hash)]
struct Report {
    lane: LaneId,
    held: Option<HeldWork>,
    outcome: Outcome,
    items: Vec<Item<Logged>>,
    findings: Findings,
}

#[derive(Clone)]
pub(crate) struct Process {
    shape: &'static Shape,
    core: Core<Logged>,
    /// Next offset to fetch of each partition that it believes to own.
    pub(crate) fetching: BTreeMap<Partition, Offset>,
    /// Generation of each ownership.
    generations: BTreeMap<Partition, u64>,
    paused: BTreeSet<Partition>,
    /// Its clients that hand out nothing any more: of source topics, and of retry topics.
    pub(crate) stalled: [bool; 2],
    /// Clients that were made anew: of the retry topics or not, and the positions to commit.
    pub(crate) reconnected: Vec<(bool, Vec<(Partition, Offset)>)>,
    work: Vec<(LaneId, Work)>,
    reports: VecDeque<Report>,
    /// Reports of transactions about effects.
    news: VecDeque<News>,
    /// Effects in progress.
    performing: Vec<Leased<Logged>>,
    /// Leases of this process, until it has written what came of them.
    leases: BTreeMap<Fence, Id>,
    /// Reads of the holds that were asked for, and answers on their way.
    reads: VecDeque<u64>,
    answers: VecDeque<HoldsAnswer>,
    ordered: bool,
    /// Dead letters that may still come, and until when time has given some.
    credit: Option<i64>,
    refilled_at: Timestamp,
    /// Commits on their way to the broker, with the generation under which they were made.
    commits: VecDeque<Vec<(Partition, Offset, u64)>>,
    /// Positions of a hand-over that the core has agreed to.
    pub(crate) released: Option<Vec<(Partition, Offset)>>,
    /// Final positions of a graceful end.
    pub(crate) stopped: Option<Vec<(Partition, Offset)>>,
    pub(crate) stopping: bool,
    pub(crate) releasing: bool,
    /// The partition that is being handed over.
    revoked: Option<Partition>,
    /// Until when a graceful end may wait for work in hand.
    drain_until: Timestamp,
    /// From when each executor may work again after an interruption.
    rests_until: [Timestamp; LANES_MAX],
    /// From when records may be tried again that found no room, the first of each partition.
    blocked_until: BTreeMap<Partition, (Offset, Timestamp)>,
    /// It knows that an operator has paused the source topic.
    halted: bool,
    /// Changes of the assignment: so far, and when each executor's batch began. What was interrupted may not be ours any
    /// more, and then there is nothing to wait for.
    changes: u64,
    changes_at_start: [u64; LANES_MAX],
    /// Held messages were taken up and left, and not taken up again since.
    left_held: bool,
    /// Partitions of each executor's batch.
    in_batch: [Vec<Partition>; LANES_MAX],
}

/// What can differ between two states of a process in one world whose time stands still.
impl Hash for Process {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.core, &self.fetching, &self.paused).hash(hasher);
        (&self.work, &self.reports, &self.reads, &self.answers).hash(hasher);
        (&self.news, &self.performing, &self.leases).hash(hasher);
        for (place, offset, generation) in self.commits.iter().flatten() {
            (place, offset, self.generations.get(place) == Some(generation)).hash(hasher);
        }
        (self.commits.len(), &self.released, &self.stopped, self.stopping, self.releasing, self.revoked).hash(hasher);
        for lane in (0..LANES_MAX).filter(|it| self.is_busy(LaneId(*it))) {
            (&self.in_batch[lane], (self.changes - self.changes_at_start[lane]).min(2)).hash(hasher);
        }
        (&self.credit, self.left_held, self.halted).hash(hasher);
    }
}

impl Process {
    /// `seed` is that of the core.
    pub(crate) fn new(world: &World, seed: u64) -> Process {
        let limits = Limits {
            order: if world.rule == Rule::Never { Order::None } else { Order::Key },
            effects_max: world.effects_max,
            leases_ahead_max: world.leases_ahead_max,
            dead_letters_ahead_max: world.dead_letters_ahead_max,
            ..world.shape.limits.clone()
        };
        let mut core = Core::new(world.shape.policy(), limits, seed);
        // Before anything else: nothing may begin meanwhile.
        let nothing = core.apply(world.now, Event::Paused(world.paused_topics()));
        assert!(nothing.is_empty(), "there is nothing to do yet");
        Process {
            shape: world.shape,
            core,
            fetching: BTreeMap::new(),
            generations: BTreeMap::new(),
            paused: BTreeSet::new(),
            stalled: [false; 2],
            reconnected: Vec::new(),
            work: Vec::new(),
            reports: VecDeque::new(),
            news: VecDeque::new(),
            performing: Vec::new(),
            leases: BTreeMap::new(),
            reads: VecDeque::new(),
            answers: VecDeque::new(),
            ordered: world.rule != Rule::Never,
            credit: world.dead_letters_ahead_max.map(i64::from),
            refilled_at: Timestamp::default(),
            commits: VecDeque::new(),
            released: None,
            stopped: None,
            stopping: false,
            releasing: false,
            revoked: None,
            drain_until: Timestamp::default(),
            rests_until: [Timestamp::default(); LANES_MAX],
            blocked_until: BTreeMap::new(),
            halted: world.tables.paused,
            changes: 0,
            changes_at_start: [0; LANES_MAX],
            left_held: false,
            in_batch: [const { Vec::new() }; LANES_MAX],
        }
    }

    pub(crate) fn assign(&mut self, world: &mut World, place: Partition, generation: u64) {
        self.generations.insert(place, generation);
        self.changes += 1;
        self.blocked_until.remove(&place);
        self.revoked = self.revoked.filter(|it| *it != place);
        self.fetching.insert(place, world.committed[&place]);
        self.paused.remove(&place);
        self.apply(world, Event::Assigned(vec![place]));
    }

    pub(crate) fn revoke(&mut self, world: &mut World, place: Partition) {
        let from = self.fetching.remove(&place).unwrap_or_default();
        self.releasing = true;
        self.revoked = Some(place);
        self.changes += 1;
        self.apply(world, Event::Revoked(vec![place]));
        // Polled before the revocation, on its way to the driver.
        let late = world.read(place, from, 3);
        self.apply(world, Event::Received(place, late));
    }

    pub(crate) fn lose(&mut self, world: &mut World, place: Partition) {
        self.changes += 1;
        self.fetching.remove(&place);
        self.apply(world, Event::Lost(vec![place]));
    }

    pub(crate) fn shut_down(&mut self, world: &mut World) {
        self.stopping = true;
        self.drain_until = world.now.after(self.shape.drain);
        self.apply(world, Event::Shutdown { drain: self.shape.drain });
    }

    pub(crate) fn tick(&mut self, world: &mut World) {
        self.apply(world, Event::Tick);
    }

    /// Ends one transaction of an executor; its report comes later.
    pub(crate) fn execute(&mut self, random: &mut Random, world: &mut World) -> bool {
        if self.work.is_empty() {
            return false;
        }
        let (lane, work) = self.work.remove(random.below(self.work.len()));
        if world.effects_max.is_some() && !matches!(work, Work::Decide(..)) {
            self.transact_effects(random, world, lane, work);
            return true;
        }
        let locked = match (&work, work.held()) {
            (Work::RunHeld(_, _, true), _) => Vec::new(),
            (Work::RunHeld(max, ..), _) => world.ready_keys(*max, &[]),
            (_, Some(HeldWork::Decision(key))) => vec![key],
            _ => Vec::new(),
        };
        // Another executor may look for held messages while this one has them.
        let look = self.work.iter().position(|it| matches!(it.1, Work::RunHeld(..)));
        if let Some(other) = look.filter(|_| !locked.is_empty() && random.one_in(2)) {
            let (lane, work) = self.work.remove(other);
            self.transact(random, world, lane, work, &locked);
        }
        self.transact(random, world, lane, work, &[]);
        true
    }

    fn transact(&mut self, random: &mut Random, world: &mut World, lane: LaneId, work: Work, locked: &[usize]) {
        let held = work.held();
        let (outcome, findings, items) = match work {
            Work::Run(items, how) => {
                let (outcome, findings) = world.transact(random, &items, how);
                (outcome, findings, items)
            }
            Work::RunHeld(_, _, true) => {
                (Outcome::Decided, Findings { ready: Some(false), ..Findings::default() }, Vec::new())
            }
            Work::RunHeld(max, how, _) => world.run_held(random, max, how, locked),
            Work::Decide(item, decision) => {
                let (outcome, findings) = world.decide(random, &item, decision);
                (outcome, findings, vec![item])
            }
            Work::Record(_) => return,
        };
        // The connection may break after the commit and before its answer.
        let unknown = outcome == Outcome::Decided && world.strikes(random, Fault::LostAnswer, 12);
        let (outcome, findings) =
            if unknown { (Outcome::Interrupted, Findings::default()) } else { (outcome, findings) };
        let items = if outcome == Outcome::Decided { Vec::new() } else { items };
        self.reports.push_back(Report { lane, held, outcome, items, findings });
    }

    /// A read of the holds is made, or its answer arrives.
    pub(crate) fn read_holds(&mut self, random: &mut Random, world: &mut World) -> bool {
        if !self.answers.is_empty() && random.one_in(2) {
            return self.take_answer(world);
        }
        self.look_at_holds(world)
    }

    pub(crate) fn take_answer(&mut self, world: &mut World) -> bool {
        let Some(HoldsAnswer { read, held, ready }) = self.answers.pop_front() else { return false };
        self.apply(world, Event::HoldsRead { read, held, ready });
        true
    }

    pub(crate) fn look_at_holds(&mut self, world: &World) -> bool {
        let Some(read) = self.reads.pop_front() else { return false };
        let held = world.tables.holds.keys().map(|it| key_id(*it)).collect();
        let ready = world.tables.holds.values().any(|it| it.ready);
        self.answers.push_back(HoldsAnswer { read, held, ready });
        true
    }

    pub(crate) fn report(&mut self, world: &mut World) -> bool {
        if let Some(news) = self.news.pop_front() {
            self.tell(world, news);
            return true;
        }
        let Some(Report { lane, held, outcome, items, findings }) = self.reports.pop_front() else { return false };
        if outcome == Outcome::Interrupted && self.changes == self.changes_at_start[lane.0] {
            self.rests_until[lane.0] = world.now.after(self.shape.limits.interrupted_delay);
        }
        if outcome == Outcome::Decided {
            self.check_budget(world, &findings);
        }
        self.left_held |= match held {
            Some(HeldWork::Decision(key)) if outcome == Outcome::Decided => {
                world.tables.holds.get(&key).is_some_and(|it| it.ready)
            }
            Some(_) => outcome != Outcome::Decided,
            None => false,
        };
        let full = findings.full.clone();
        let began_at = self.changes_at_start[lane.0];
        self.apply(world, Event::Finished { lane, outcome, items, findings });
        if outcome == Outcome::Full && self.changes == began_at {
            self.note_full(world, full);
        }
        true
    }

    /// The oldest commit reaches the broker, which takes it only for partitions that are ours; or it gets lost.
    pub(crate) fn deliver_commit(
        &mut self,
        random: &mut Random,
        world: &mut World,
        owns: impl Fn(Partition) -> bool,
    ) -> bool {
        let Some(positions) = self.commits.pop_front() else { return false };
        if world.strikes(random, Fault::LostCommit, 4) {
            return true;
        }
        let current = |place, generation| owns(place) && self.generations.get(&place) == Some(&generation);
        let accepted: Vec<_> = positions.into_iter().filter(|it| current(it.0, it.2)).map(|it| (it.0, it.1)).collect();
        for &(place, offset) in &accepted {
            world.commit(place, offset);
        }
        self.apply(world, Event::Committed(accepted));
        true
    }

    pub(crate) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.core.next_deadline(now)
    }

    /// Whether a deadline of the core has passed.
    pub(crate) fn overslept(&self, world: &World) -> bool {
        self.next_deadline(Timestamp(0)).is_some_and(|it| it <= world.now)
    }

    pub(crate) fn held_keys(&self) -> usize {
        self.core.held_keys()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    pub(crate) fn has_reports(&self) -> bool {
        !self.reports.is_empty() || !self.news.is_empty()
    }

    pub(crate) fn has_commits(&self) -> bool {
        !self.commits.is_empty()
    }

    pub(crate) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Nothing buffered, in hand or on its way.
    pub(crate) fn idle(&self) -> bool {
        let performs = 0 < self.core.performing() || !self.news.is_empty();
        let works = performs || !self.work.is_empty() || !self.reports.is_empty();
        self.core.in_flight() == 0 && !works && self.commits.is_empty()
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "in flight {}, performing {}, work {}, reports {}, commits {}, paused {:?}, fetching {:?}, stopping {}, releasing {}",
            self.core.in_flight(),
            self.performing.len(),
            self.work.len(),
            self.reports.len(),
            self.commits.len(),
            self.paused,
            self.fetching,
            self.stopping,
            self.releasing
        )
    }

    fn apply(&mut self, world: &mut World, event: Event<Logged>) {
        let before = self.core.in_flight();
        let actions = self.core.apply(world.now, event);
        if self.stopping && before < self.core.in_flight() {
            world.violated("took something new while draining".to_owned());
        }
        for action in actions {
            match action {
                Action::Run { lane, items, care, dead_max } => {
                    self.start(world, lane, Work::Run(items, How { careful: care != Care::None, dead_max }));
                }
                Action::RunHeld { lane, messages_max, except, care, dead_max } => {
                    let how = How { careful: care != Care::None, dead_max };
                    self.start(world, lane, Work::RunHeld(messages_max, how, except.contains(&0)));
                }
                Action::ReadHolds { read } => {
                    if !self.ordered {
                        world.violated("holds were read although nobody waits".to_owned());
                    }
                    self.reads.push_back(read);
                }
                Action::Decide { lane, item, decision } => self.start(world, lane, Work::Decide(item, decision)),
                Action::Perform(leased) => self.begin_effect(world, leased),
                Action::GiveBack(fences) => self.give_back_unused(world, &fences),
                Action::Record { lane, records } => self.start(world, lane, Work::Record(records)),
                Action::Commit(positions) => {
                    if self.shape.one_commit_on_its_way {
                        self.commits.clear();
                    }
                    let generation = |place| self.generations.get(&place).copied().unwrap_or_default();
                    self.commits
                        .push_back(positions.into_iter().map(|(it, offset)| (it, offset, generation(it))).collect());
                }
                Action::Reconnect { retry, positions } => self.reconnect(world, retry, positions),
                Action::Pause(place, _) => {
                    self.paused.insert(place);
                }
                Action::Resume(place) => {
                    if !self.paused.remove(&place) {
                        world.violated(format!("{place:?} resumed without a pause"));
                    }
                }
                Action::Release { positions, .. } => {
                    if self.revoked.is_some_and(|it| self.in_hand(it)) {
                        world.violated("let go of a partition while its work was in hand".to_owned());
                    }
                    self.released = Some(positions);
                    self.releasing = false;
                }
                Action::Stop(positions) => {
                    let in_hand = !self.work.is_empty() || self.has_reports() || !self.performing.is_empty();
                    if in_hand && world.now < self.drain_until {
                        world.violated("stopped while work was in hand".to_owned());
                    }
                    self.stopped = Some(positions);
                }
            }
        }
        self.check_pauses(world);
        self.check_leases(world);
        self.check_memory(world);
        self.check_held(world);
    }

    fn is_busy(&self, lane: LaneId) -> bool {
        let reports = self.reports.iter().map(|it| it.lane).chain(self.news.iter().map(News::lane));
        self.work.iter().map(|it| it.0).chain(reports).any(|it| it == lane)
    }

    fn start(&mut self, world: &mut World, lane: LaneId, work: Work) {
        self.check_start(world, lane, &work);
        self.left_held &= work.held().is_none();
        if let Work::Record(_) = &work {
            self.changes_at_start[lane.0] = self.changes;
            self.in_batch[lane.0] = Vec::new();
        }
        if let Work::RunHeld(..) = &work {
            self.changes_at_start[lane.0] = self.changes;
            self.in_batch[lane.0] = Vec::new();
        }
        // A decision goes on with what its batch began with.
        if let Work::Run(items, _) = &work {
            self.changes_at_start[lane.0] = self.changes;
            self.in_batch[lane.0] = items.iter().map(|it| it.partition).collect();
        }
        self.work.push((lane, work));
        self.work.sort_by_key(|it| it.0);
    }
}
