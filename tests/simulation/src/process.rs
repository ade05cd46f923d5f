//! One consumer process: the core, its executors, and its view of the assignment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sekali_consumer::core::hold::Rule;
use sekali_consumer::core::retry::Decision;
use sekali_consumer::core::{
    Action, Core, Event, Findings, Item, KeyId, LaneId, Limits, Offset, Order, Outcome, Partition, Timestamp,
};

use super::Random;
use super::database::key_id;
use super::world::{Logged, World};

pub(crate) const LANES: usize = 2;
pub(crate) const BATCH_MAX: usize = 8;
pub(crate) const BUFFERED_MAX: usize = 24;

enum Work {
    Run(Vec<Item<Logged>>, usize),
    RunHeld(usize, usize),
    Decide(Item<Logged>, Decision),
}

/// An answer to a read of the holds: as of then, not of now.
struct HoldsAnswer {
    read: u64,
    held: Vec<KeyId>,
    ready: bool,
}

/// What an executor will report; the transaction has already ended.
struct Report {
    lane: LaneId,
    outcome: Outcome,
    items: Vec<Item<Logged>>,
    findings: Findings,
}

pub(crate) struct Process {
    core: Core<Logged>,
    /// Next offset to fetch of each partition that it believes to own.
    pub(crate) fetching: BTreeMap<Partition, Offset>,
    /// Generation of each ownership.
    generations: BTreeMap<Partition, u64>,
    paused: BTreeSet<Partition>,
    work: Vec<(LaneId, Work)>,
    reports: VecDeque<Report>,
    /// Reads of the holds that were asked for, and answers on their way.
    reads: VecDeque<u64>,
    answers: VecDeque<HoldsAnswer>,
    /// What this process earned and spent, for the budget of dead letters.
    processed: usize,
    dead: usize,
    started: Timestamp,
    ordered: bool,
    dead_letters_ahead_max: Option<u32>,
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
    rests_until: [Timestamp; LANES],
    /// Changes of the assignment: so far, and when each executor's batch began. What was interrupted may not be ours any
    /// more, and then there is nothing to wait for.
    changes: u64,
    changes_at_start: [u64; LANES],
    /// Partitions of each executor's batch.
    in_batch: [Vec<Partition>; LANES],
}

const INTERRUPTED_DELAY: Duration = Duration::from_millis(10);
const DEAD_LETTER_REFILL: Duration = Duration::from_millis(200);
const DRAIN: Duration = Duration::from_millis(500);

impl Process {
    pub(crate) fn new(random: &mut Random, world: &World) -> Process {
        let limits = Limits {
            lanes: LANES,
            batch_max: BATCH_MAX,
            buffered_max: BUFFERED_MAX,
            commit_interval: Duration::from_millis(100),
            interrupted_delay: INTERRUPTED_DELAY,
            interrupted_delay_max: Duration::from_millis(80),
            order: if world.rule == Rule::Never { Order::None } else { Order::Key },
            full_delay: Duration::from_millis(30),
            holds_interval: Duration::from_millis(400),
            dead_letters_ahead_max: world.dead_letters_ahead_max,
            dead_letter_refill: DEAD_LETTER_REFILL,
        };
        Process {
            core: Core::new(world.policy.clone(), limits, random.next()),
            fetching: BTreeMap::new(),
            generations: BTreeMap::new(),
            paused: BTreeSet::new(),
            work: Vec::new(),
            reports: VecDeque::new(),
            reads: VecDeque::new(),
            answers: VecDeque::new(),
            processed: 0,
            dead: 0,
            started: world.now,
            ordered: world.rule != Rule::Never,
            dead_letters_ahead_max: world.dead_letters_ahead_max,
            commits: VecDeque::new(),
            released: None,
            stopped: None,
            stopping: false,
            releasing: false,
            revoked: None,
            drain_until: Timestamp::default(),
            rests_until: [Timestamp::default(); LANES],
            changes: 0,
            changes_at_start: [0; LANES],
            in_batch: [const { Vec::new() }; LANES],
        }
    }

    pub(crate) fn assign(&mut self, world: &mut World, place: Partition, generation: u64) {
        self.generations.insert(place, generation);
        self.changes += 1;
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
        self.drain_until = world.now.after(DRAIN);
        self.apply(world, Event::Shutdown { drain: DRAIN });
    }

    pub(crate) fn tick(&mut self, world: &mut World) {
        self.apply(world, Event::Tick);
    }

    /// Fetches a few records of one partition; false when there is nothing to fetch.
    pub(crate) fn fetch(&mut self, random: &mut Random, world: &mut World) -> bool {
        let open: Vec<Partition> = self
            .fetching
            .iter()
            .filter(|(it, from)| !self.paused.contains(it) && **from < world.end(**it))
            .map(|(&it, _)| it)
            .collect();
        if open.is_empty() || self.releasing {
            return false;
        }
        let place = open[random.below(open.len())];
        let from = self.fetching[&place];
        let records = world.read(place, from, 1 + random.below(6));
        // Now and then a client hands out a record again after a pause.
        let next = from + records.len() as Offset;
        let back = if world.faulty && random.one_in(10) { random.below(3) as Offset } else { 0 };
        self.fetching.insert(place, (next - back).max(0));
        self.apply(world, Event::Received(place, records));
        true
    }

    /// Ends one transaction of an executor; its report comes later.
    pub(crate) fn execute(&mut self, random: &mut Random, world: &mut World) -> bool {
        if self.work.is_empty() {
            return false;
        }
        let (lane, work) = self.work.swap_remove(random.below(self.work.len()));
        let (outcome, findings, items) = match work {
            Work::Run(items, dead_max) => {
                let (outcome, findings) = world.transact(random, &items, dead_max);
                (outcome, findings, items)
            }
            Work::RunHeld(max, dead_max) => world.run_held(random, max, dead_max),
            Work::Decide(item, decision) => {
                let (outcome, findings) = world.decide(random, &item, decision);
                (outcome, findings, vec![item])
            }
        };
        if outcome == Outcome::Decided {
            self.processed += findings.processed;
            self.dead += findings.dead;
            self.check_budget(world);
        }
        // The connection may break after the commit and before its answer.
        let unknown = outcome == Outcome::Decided && world.faulty && random.one_in(12);
        let (outcome, findings) =
            if unknown { (Outcome::Interrupted, Findings::default()) } else { (outcome, findings) };
        let items = if outcome == Outcome::Decided { Vec::new() } else { items };
        self.reports.push_back(Report { lane, outcome, items, findings });
        true
    }

    /// Dead letters never run ahead of successes by more than the budget of each executor.
    fn check_budget(&self, world: &mut World) {
        let Some(max) = self.dead_letters_ahead_max else { return };
        let refilled = (world.now.0 - self.started.0) as usize / DEAD_LETTER_REFILL.as_millis() as usize + 1;
        if max as usize * LANES + self.processed + refilled < self.dead {
            world.violated(format!("{} dead letters ahead of {} successes", self.dead, self.processed));
        }
    }

    /// A read of the holds is made, or its answer arrives.
    pub(crate) fn read_holds(&mut self, random: &mut Random, world: &mut World) -> bool {
        if !self.answers.is_empty() && random.one_in(2) {
            if let Some(HoldsAnswer { read, held, ready }) = self.answers.pop_front() {
                self.apply(world, Event::HoldsRead { read, held, ready });
            }
            return true;
        }
        let Some(read) = self.reads.pop_front() else { return false };
        let held = world.tables.holds.keys().map(|it| key_id(*it)).collect();
        let ready = world.tables.holds.values().any(|it| it.ready);
        self.answers.push_back(HoldsAnswer { read, held, ready });
        true
    }

    /// The regular look of housekeeping.
    pub(crate) fn look_for_ready(&mut self, world: &mut World) {
        if world.tables.holds.values().any(|it| it.ready) {
            self.apply(world, Event::HoldsReady);
        }
    }

    pub(crate) fn report(&mut self, world: &mut World) -> bool {
        let Some(Report { lane, outcome, items, findings }) = self.reports.pop_front() else { return false };
        if outcome == Outcome::Interrupted && self.changes == self.changes_at_start[lane.0] {
            self.rests_until[lane.0] = world.now.after(INTERRUPTED_DELAY);
        }
        self.apply(world, Event::Finished { lane, outcome, items, findings });
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
        if world.faulty && random.one_in(4) {
            world.stats.faults += 1;
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

    /// Nothing buffered, in hand or on its way.
    pub(crate) fn idle(&self) -> bool {
        self.core.in_flight() == 0 && self.work.is_empty() && self.reports.is_empty() && self.commits.is_empty()
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "in flight {}, work {}, reports {}, commits {}, paused {:?}, fetching {:?}, stopping {}, releasing {}",
            self.core.in_flight(),
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
                Action::Run { lane, items, dead_max } => self.start(world, lane, Work::Run(items, dead_max)),
                Action::RunHeld { lane, messages_max, dead_max } => {
                    self.start(world, lane, Work::RunHeld(messages_max, dead_max));
                }
                Action::ReadHolds { read } => {
                    if !self.ordered {
                        world.violated("holds were read although nobody waits".to_owned());
                    }
                    self.reads.push_back(read);
                }
                Action::Decide { lane, item, decision } => self.start(world, lane, Work::Decide(item, decision)),
                Action::Commit(positions) => {
                    let generation = |place| self.generations.get(&place).copied().unwrap_or_default();
                    self.commits
                        .push_back(positions.into_iter().map(|(it, offset)| (it, offset, generation(it))).collect());
                }
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
                    let in_hand = !self.work.is_empty() || !self.reports.is_empty();
                    if in_hand && world.now < self.drain_until {
                        world.violated("stopped while work was in hand".to_owned());
                    }
                    self.stopped = Some(positions);
                }
            }
        }
        self.check_pauses(world);
        // A fetch may overshoot the share of each partition by what one fetch holds.
        let bound = BUFFERED_MAX * 2 + LANES * BATCH_MAX * 2 + self.fetching.len() * 6;
        if bound < self.core.in_flight() {
            world.violated(format!("{} messages in memory", self.core.in_flight()));
        }
    }

    /// Whether an executor has a batch with records of a partition that is being handed over, read under this ownership.
    fn in_hand(&self, place: Partition) -> bool {
        let busy = |lane| self.work.iter().any(|it| it.0 == lane) || self.reports.iter().any(|it| it.lane == lane);
        let this_ownership = |lane: LaneId| self.changes_at_start[lane.0] + 1 == self.changes;
        (0..LANES).map(LaneId).any(|it| busy(it) && this_ownership(it) && self.in_batch[it.0].contains(&place))
    }

    /// What is not due is not fetched further: its tier would be read into memory.
    fn check_pauses(&self, world: &mut World) {
        for (place, _, due_at) in self.core.heads() {
            let waits = due_at.is_some_and(|it| world.now < it);
            if waits && !self.stopping && self.revoked != Some(place) && !self.paused.contains(&place) {
                world.violated(format!("{place:?} is fetched although its head is not due"));
            }
        }
    }

    fn start(&mut self, world: &mut World, lane: LaneId, work: Work) {
        if let Work::Run(items, _) = &work {
            if self.releasing && items.iter().any(|it| Some(it.partition) == self.revoked) {
                world.violated("a revoked partition was given new work".to_owned());
            }
            if world.now < self.rests_until[lane.0] {
                world.violated(format!("executor {} did not wait after an interruption", lane.0));
            }
        }
        if self.work.iter().any(|(it, _)| *it == lane) || self.reports.iter().any(|it| it.lane == lane) {
            world.violated(format!("executor {} was given a second batch", lane.0));
        }
        if let Work::Run(items, _) = &work
            && (BATCH_MAX < items.len() || items.iter().any(|it| it.partition.retry != items[0].partition.retry))
        {
            world.violated("a batch is too large or mixes source and retry records".to_owned());
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
    }
}
