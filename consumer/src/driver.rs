//! The loop that feeds the core with events and carries out its actions.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sekali_producer::{Error, ErrorKind};
use tokio::sync::mpsc;

use crate::caught_up::{CaughtUp, Extent};
use crate::clock::Clock;
use crate::core::{Action, Core, Event, Offset, Partition, Timestamp};
use crate::effects::LeaseOrder;
use crate::executor::{HeldOrder, How, Work};
use crate::holds::Holds;
use crate::housekeeping::Progress;
use crate::incoming::Incoming;
use crate::kafka::{Clients, Command, Link, Lookout, Polled, Role, Statistics};
use crate::metrics::{self, Metrics};
use crate::probes::Status;
use crate::routes::Routes;

pub(crate) struct Driver {
    pub(crate) core: Core<Incoming>,
    pub(crate) polled: mpsc::Receiver<Polled>,
    pub(crate) links: Vec<Link>,
    /// Clients whose threads have ended.
    pub(crate) closed: Vec<Role>,
    /// What starts a client anew, and those that are on their way.
    pub(crate) clients: Clients,
    pub(crate) reconnecting: Vec<Role>,
    /// What the clients fetch next, as they said last.
    pub(crate) fetched: HashMap<Partition, Offset>,
    pub(crate) lookout: Lookout,
    pub(crate) look_at: Timestamp,
    pub(crate) look_interval: Duration,
    pub(crate) stopping: bool,
    pub(crate) lanes: Vec<mpsc::Sender<Work>>,
    /// Performs effects, where messages have some.
    pub(crate) effects: Option<mpsc::UnboundedSender<LeaseOrder>>,
    pub(crate) results: mpsc::UnboundedReceiver<Event<Incoming>>,
    pub(crate) holds: Holds,
    pub(crate) routes: Arc<Routes>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) status: Arc<Status>,
    pub(crate) progress: Progress,
    pub(crate) drain: Duration,
    /// What Kafka had of each partition when it was last asked.
    pub(crate) confirmed: HashMap<Partition, Offset>,
    pub(crate) caught_up: CaughtUp,
}

/// The longest the loop sleeps, so that a loop that turns can be told from one that stands still.
const TURN_MAX: Duration = Duration::from_millis(500);
/// Longest wait for the client to leave the group.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);

/// What a turn of the loop means for the next one.
enum Turn {
    On,
    Closing,
    Closed,
    Dead(Error),
}

impl Driver {
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut closing = None;
        let mut dead = None;
        loop {
            self.metrics.driven();
            let now = self.clock.now();
            self.look_out(now);
            let wait =
                self.core.next_deadline(now).map_or(TURN_MAX, |it| Duration::from_millis(it.0 - now.0).min(TURN_MAX));
            let turn = tokio::select! {
                biased;
                Some(result) = self.results.recv() => self.step(result),
                Some(polled) = self.polled.recv() => self.polled(polled),
                () = &mut shutdown, if !self.stopping => {
                    self.stopping = true;
                    self.status.stopping();
                    tracing::info!("shutting down: finishing what is in hand");
                    self.step(Event::Shutdown { drain: self.drain })
                }
                () = tokio::time::sleep(wait) => self.step(Event::Tick),
            };
            match turn {
                Turn::On => {}
                Turn::Closing => closing = Some(tokio::time::Instant::now() + CLOSE_TIMEOUT),
                Turn::Closed => break,
                Turn::Dead(error) if !self.stopping => {
                    tracing::error!(error = error.chain(), "the kafka client cannot go on");
                    self.stopping = true;
                    dead = Some(error);
                    if let Turn::Closing = self.step(Event::Shutdown { drain: self.drain }) {
                        closing = Some(tokio::time::Instant::now() + CLOSE_TIMEOUT);
                    }
                }
                Turn::Dead(_) => {}
            }
            if closing.is_some_and(|it| it <= tokio::time::Instant::now()) {
                let stuck = Error::new(ErrorKind::Kafka, "leave the group in time");
                return Err(dead.unwrap_or(stuck));
            }
        }
        let joined: Vec<_> = self.links.drain(..).map(|link| link.thread.join()).collect();
        let crashed = joined.iter().any(Result::is_err);
        match dead {
            Some(error) => Err(error),
            None if crashed || !self.stopping => Err(Error::new(ErrorKind::System, "keep the poll thread alive")),
            None => Ok(()),
        }
    }

    fn polled(&mut self, polled: Polled) -> Turn {
        match polled {
            Polled::Assigned(partitions) => {
                let turn = self.step(Event::Assigned(partitions));
                self.assignment_changed();
                turn
            }
            Polled::Revoked(partitions) => {
                self.forget(&partitions);
                let turn = self.step(Event::Revoked(partitions));
                self.assignment_changed();
                turn
            }
            Polled::Lost(partitions) => {
                self.forget(&partitions);
                let turn = self.step(Event::Lost(partitions));
                self.assignment_changed();
                turn
            }
            Polled::Records(runs) => {
                for (partition, records) in runs {
                    if let Some(topic) = self.metrics.topic(self.routes.source_name(partition.topic)) {
                        topic.received.increment(records.len() as u64);
                    }
                    if let turn @ (Turn::Closing | Turn::Closed) = self.step(Event::Received(partition, records)) {
                        return turn;
                    }
                }
                Turn::On
            }
            Polled::Committed(Ok(positions)) => self.confirmed(positions),
            Polled::Reached(positions) => {
                for (partition, offset) in positions {
                    if let turn @ (Turn::Closing | Turn::Closed) = self.step(Event::Reached(partition, offset)) {
                        return turn;
                    }
                }
                Turn::On
            }
            // The positions stay uncommitted, so that a later beat tries again.
            Polled::Committed(Err(error)) => {
                tracing::debug!(error, "offset commit failed, trying again");
                Turn::On
            }
            Polled::Statistics(role, statistics) => self.statistics(role, statistics),
            Polled::Trouble => Turn::On,
            Polled::Fatal(error) => Turn::Dead(error),
            Polled::Closed(role) => self.closed(role, self.stopping),
        }
    }

    /// Ends a client that hands out nothing; when its thread has ended, another one follows.
    fn reconnect(&mut self, retry: bool, positions: Vec<(Partition, Offset)>) {
        let role = if retry { Role::Retry } else { Role::Source };
        if self.reconnecting.contains(&role) {
            return;
        }
        tracing::error!(?role, "a partition with a backlog got nothing for too long, the kafka client is made anew");
        metrics::CLIENTS_RENEWED.count(&[]).increment(1);
        self.status.stalled(true);
        self.reconnecting.push(role);
        self.command(role, Command::Close(positions));
    }

    /// Starts a client in the place of one that has ended.
    fn renew(&mut self, role: Role) -> Turn {
        self.reconnecting.retain(|it| *it != role);
        self.fetched.retain(|it, _| Role::of(*it) != role);
        self.confirmed.retain(|it, _| Role::of(*it) != role);
        // What the old client was given on its way out is nobody's.
        let left: Vec<Partition> = self.core.positions().map(|it| it.0).filter(|it| Role::of(*it) == role).collect();
        if let turn @ (Turn::Closing | Turn::Closed) = self.step(Event::Lost(left)) {
            return turn;
        }
        match self.clients.start(role) {
            Ok(link) => {
                self.links.retain(|it| it.role != role);
                self.links.push(link);
                self.status.stalled(!self.reconnecting.is_empty());
                Turn::On
            }
            Err(error) => {
                self.closed.push(role);
                Turn::Dead(error)
            }
        }
    }

    /// From time to time, beside everything else: whether partitions are quiet although they have records.
    fn look_out(&mut self, now: Timestamp) {
        if now < self.look_at || self.stopping {
            return;
        }
        self.look_at = now.after(self.look_interval);
        let quiet: Vec<(Partition, Offset)> =
            self.core.quiet(now).into_iter().filter_map(|it| Some((it, *self.fetched.get(&it)?))).collect();
        if quiet.is_empty() {
            return;
        }
        let (lookout, events) = (self.lookout.clone(), self.holds.events.clone());
        tokio::task::spawn_blocking(move || {
            let _ended = events.send(Event::Backlog(lookout.behind(&quiet)));
        });
    }

    /// Comes from each client every few seconds.
    fn statistics(&mut self, role: Role, statistics: Statistics) -> Turn {
        self.report_lag(&statistics.bounds);
        // Each client knows its own partitions only.
        self.fetched.retain(|it, _| Role::of(*it) != role);
        self.fetched.extend(statistics.fetched);
        let turn = self.confirmed(statistics.committed);
        let now = self.clock.now();
        let bounds = statistics.bounds.into_iter().filter(|it| self.core.owns(it.0));
        for (partition, start, end) in bounds {
            let extent = Extent { start, end, committed: self.confirmed.get(&partition).copied() };
            if let Some(at) = self.caught_up.look(now, partition, extent) {
                let topic = self.routes.name(partition.topic).clone();
                self.progress.caught_up(topic, partition.number, extent.next(), at);
            }
        }
        turn
    }

    /// A client's thread has ended, and must not before it was told to.
    fn closed(&mut self, role: Role, stopping: bool) -> Turn {
        if self.reconnecting.contains(&role) && !stopping {
            return self.renew(role);
        }
        self.closed.push(role);
        if self.closed.len() == self.links.len() {
            return Turn::Closed;
        }
        Turn::Dead(Error::new(ErrorKind::System, "keep the poll threads alive"))
    }

    /// Kafka has these positions.
    fn confirmed(&mut self, mut positions: Vec<(Partition, Offset)>) -> Turn {
        positions.retain(|(partition, offset)| self.confirmed.insert(*partition, *offset) != Some(*offset));
        if positions.is_empty() {
            return Turn::On;
        }
        metrics::LAST_COMMIT.level(&[]).set(metrics::unix_ms() as f64 / 1000.0);
        self.progress
            .note(positions.iter().map(|(it, offset)| (self.routes.name(it.topic).clone(), it.number, *offset)));
        self.step(Event::Committed(positions))
    }

    fn step(&mut self, event: Event<Incoming>) -> Turn {
        let now = self.clock.now();
        let mut turn = Turn::On;
        for action in self.core.apply(now, event) {
            match action {
                Action::Run { lane, items, care, dead_max } => {
                    self.order(lane.0, Work::Run(items, How { care, dead_max }));
                }
                Action::RunHeld { lane, messages_max, except, care, dead_max } => {
                    let except = except.iter().map(|it| self.routes.name(*it).clone()).collect();
                    self.order(lane.0, Work::RunHeld(HeldOrder { messages_max, except }, How { care, dead_max }));
                }
                Action::ReadHolds { read } => self.holds.read(read),
                Action::Decide { lane, item, decision } => self.order(lane.0, Work::Decide(item, decision)),
                Action::Perform(leased) => self.effects(LeaseOrder::Perform(leased)),
                Action::GiveBack(fences) => self.effects(LeaseOrder::GiveBack(fences)),
                Action::Record { lane, records } => self.order(lane.0, Work::Record(records)),
                Action::Reconnect { retry, positions } => self.reconnect(retry, positions),
                Action::Commit(positions) => self.each(positions, false, Command::Commit),
                Action::Pause(partition, reason) => {
                    self.command(Role::of(partition), Command::Pause(partition, reason))
                }
                Action::Resume(partition) => self.command(Role::of(partition), Command::Resume(partition)),
                Action::Release { partitions, positions } => {
                    if let Some(first) = partitions.first() {
                        self.command(Role::of(*first), Command::Release(positions));
                    }
                }
                Action::Stop(positions) => {
                    let mode = if self.core.in_flight() + self.core.performing() == 0 { "graceful" } else { "forced" };
                    metrics::SHUTDOWNS.count(&[("mode", mode)]).increment(1);
                    tracing::info!(mode, "leaving the group");
                    self.each(positions, true, Command::Close);
                    turn = Turn::Closing;
                }
            }
        }
        turn
    }

    fn order(&self, lane: usize, work: Work) {
        // The core gives an executor one order at a time, and the channel holds one.
        let sent = self.lanes[lane].try_send(work);
        assert!(sent.is_ok(), "executor {lane} is gone or was given a second order");
    }

    fn effects(&self, order: LeaseOrder) {
        let sent = self.effects.as_ref().is_some_and(|it| it.send(order).is_ok());
        assert!(sent, "leases are taken only where effects are performed, and as long as they are");
    }

    fn command(&self, role: Role, command: Command) {
        if let Some(link) = self.links.iter().find(|it| it.role == role) {
            // A poll thread that is gone says so through its own channel.
            let _gone = link.commands.send(command);
        }
    }

    /// Gives each client the positions of its partitions; none where there are none, unless all must be told.
    fn each(
        &self,
        positions: Vec<(Partition, Offset)>,
        all: bool,
        command: impl Fn(Vec<(Partition, Offset)>) -> Command,
    ) {
        let (retries, sources): (Vec<_>, Vec<_>) = positions.into_iter().partition(|it| it.0.retry);
        for (role, positions) in [(Role::Source, sources), (Role::Retry, retries)] {
            if all || !positions.is_empty() {
                self.command(role, command(positions));
            }
        }
    }

    fn assignment_changed(&self) {
        let mut assigned: HashMap<&str, usize> = self.routes.source_names().map(|it| (&**it, 0)).collect();
        let mut count = 0;
        for (partition, _) in self.core.positions() {
            count += 1;
            if !partition.retry
                && let Some(it) = assigned.get_mut(&**self.routes.name(partition.topic))
            {
                *it += 1;
            }
        }
        for (topic, count) in assigned {
            metrics::level(&metrics::ASSIGNED, &[("topic", topic)]).set(count as f64);
        }
        self.status.assigned(count);
    }

    fn forget(&mut self, partitions: &[Partition]) {
        self.caught_up.forget(partitions);
        self.confirmed.retain(|it, _| !partitions.contains(it));
        for it in partitions.iter().filter(|it| !it.retry) {
            self.set_lag(*it, f64::NAN, f64::NAN);
        }
    }

    /// Every few seconds, with the client's statistics.
    fn report_lag(&self, bounds: &[(Partition, Offset, Offset)]) {
        let now = self.clock.now();
        let bounds: HashMap<Partition, (Offset, Offset)> = bounds.iter().map(|it| (it.0, (it.1, it.2))).collect();
        let seconds_since = |it: Timestamp| now.0.saturating_sub(it.0) as f64 / 1000.0;
        let heads: HashMap<Partition, _> = self.core.heads().map(|(it, produced, due)| (it, (produced, due))).collect();
        let mut overdue: HashMap<&str, f64> = self.routes.source_names().map(|it| (&**it, 0.0)).collect();
        for (partition, position) in self.core.positions() {
            let (produced_at, due_at) = heads.get(&partition).copied().unwrap_or_default();
            if partition.retry {
                let late = due_at.map_or(0.0, seconds_since);
                if let Some(it) = overdue.get_mut(&**self.routes.source_name(partition.topic)) {
                    *it = it.max(late);
                }
                continue;
            }
            let Some(&(start, end)) = bounds.get(&partition) else { continue };
            // Nothing decided yet: what others committed, or the beginning.
            let position = position.or(self.confirmed.get(&partition).copied()).unwrap_or(start);
            let lag = (end - position).max(0) as f64;
            let seconds = if lag == 0.0 { 0.0 } else { produced_at.map_or(0.0, seconds_since) };
            self.set_lag(partition, lag, seconds);
        }
        for (topic, seconds) in overdue {
            metrics::level(&metrics::RETRY_OVERDUE, &[("topic", topic)]).set(seconds);
        }
        let mut paused: HashMap<&str, usize> = self.routes.source_names().map(|it| (&**it, 0)).collect();
        for (partition, _reason) in self.core.paused() {
            *paused.entry(&**self.routes.source_name(partition.topic)).or_default() += 1;
        }
        for (topic, count) in paused {
            metrics::level(&metrics::PAUSED, &[("topic", topic)]).set(count as f64);
        }
        metrics::INFLIGHT.level(&[]).set(self.core.in_flight() as f64);
        metrics::LAST_POLL.level(&[]).set(self.metrics.polled_at_ms() as f64 / 1000.0);
        self.status.interruptions(self.core.interruptions());
        metrics::BUDGET_SPENT.level(&[]).set(if self.core.is_budget_spent() { 1.0 } else { 0.0 });
    }

    fn set_lag(&self, partition: Partition, messages: f64, seconds: f64) {
        let number = partition.number.to_string();
        let labels = [("topic", &**self.routes.name(partition.topic)), ("partition", number.as_str())];
        metrics::level(&metrics::LAG_MESSAGES, &labels).set(messages);
        metrics::level(&metrics::LAG_SECONDS, &labels).set(seconds);
    }
}
