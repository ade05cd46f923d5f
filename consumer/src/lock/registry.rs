//! The locks of a process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Name, beat};
use crate::metrics;

/// A lock that this process has, as holder and heartbeat share it.
pub(super) struct Held {
    pub(super) name: Name,
    pub(super) owner: Uuid,
    pub(super) fence: i64,
    pub(super) ttl: Duration,
    acquired_at: Instant,
    valid_until: Mutex<Instant>,
    lost: CancellationToken,
}

/// Why a lock was lost.
#[derive(Debug, Clone, Copy)]
pub(super) enum Loss {
    /// It was not renewed in time.
    Expired,
    /// Its row is gone, or another's.
    Taken,
}

/// All of them, and what is left of earlier ones.
pub(super) struct Registry {
    pool: Pool,
    state: Mutex<State>,
    /// A lock was added or left.
    pub(super) wake: Notify,
}

#[derive(Default)]
struct State {
    /// By fence.
    held: BTreeMap<i64, Arc<Held>>,
    /// When to renew next.
    beat_at: Option<Instant>,
    left: Vec<Left>,
    beat: Option<JoinHandle<()>>,
}

/// A row to delete.
pub(super) struct Left {
    pub(super) name: Name,
    pub(super) owner: Uuid,
    /// Then it has run out.
    until: Instant,
}

impl Held {
    /// A lock, valid from before the request that took it.
    pub(super) fn new(name: Name, owner: Uuid, fence: i64, ttl: Duration, asked_at: Instant) -> Held {
        let valid_until = Mutex::new(asked_at + ttl);
        Held { name, owner, fence, ttl, acquired_at: Instant::now(), valid_until, lost: CancellationToken::new() }
    }

    pub(super) fn valid_until(&self) -> Instant {
        *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By this process's monotonic clock, whatever the heartbeat has noticed by now.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled() || self.valid_until() <= Instant::now()
    }

    pub(super) async fn lost(&self) {
        while !self.is_lost() {
            // It may be renewed meanwhile.
            self.lost.run_until_cancelled(sleep_until(self.valid_until())).await;
        }
    }

    /// Notes a renewal, unless it came too late: what was lost stays lost.
    pub(super) fn renewed(&self, asked_at: Instant) {
        let mut valid_until = self.valid_until.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *valid_until {
            *valid_until = asked_at + self.ttl;
        }
    }
}

impl Registry {
    pub(super) fn new(pool: Pool) -> Registry {
        Registry { pool, state: Mutex::default(), wake: Notify::new() }
    }

    /// Begins to renew a lock.
    pub(super) fn add(self: &Arc<Self>, held: Arc<Held>) {
        let mut state = self.lock();
        let beat_at = held.valid_until() - held.ttl + (held.ttl / 3).min(beat::BEAT_MAX);
        state.beat_at = Some(state.beat_at.map_or(beat_at, |it| it.min(beat_at)));
        state.held.insert(held.fence, held);
        metrics::LOCKS_HELD.level(&[]).increment(1.0);
        self.beat(&mut state);
    }

    /// Has a row deleted that nobody holds, if it is there: at once, or later while a transaction uses it.
    pub(super) fn leave(self: &Arc<Self>, name: Name, owner: Uuid, ttl: Duration) {
        let mut state = self.lock();
        state.left.push(Left { name, owner, until: Instant::now() + ttl });
        self.beat(&mut state);
    }

    /// Wakes the heartbeat, or starts it; outside a runtime nothing can, and locks run out.
    fn beat(self: &Arc<Self>, state: &mut State) {
        self.wake.notify_one();
        let is_beating = state.beat.as_ref().is_some_and(|it| !it.is_finished());
        if !is_beating && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            state.beat = Some(runtime.spawn(beat::run(self.pool.clone(), self.clone())));
        }
    }

    /// Ends the heartbeat of a lock; `None` when it had ended before.
    pub(super) fn remove(&self, fence: i64) -> Option<Arc<Held>> {
        let held = self.lock().held.remove(&fence)?;
        metrics::LOCKS_HELD.level(&[]).decrement(1.0);
        metrics::LOCK_HOLD.spread(&[]).record(held.acquired_at.elapsed());
        Some(held)
    }

    /// Tells the holder that its lock is lost.
    pub(super) fn lose(&self, fence: i64, loss: Loss) {
        let Some(held) = self.remove(fence) else { return };
        held.lost.cancel();
        let reason = match loss {
            Loss::Expired => "expired",
            Loss::Taken => "taken",
        };
        metrics::LOCK_LOSSES.count(&[("reason", reason)]).increment(1);
        tracing::warn!(fence, reason, "lost a lock: its holder's work ends here");
    }

    /// Loses what was not renewed in time.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        let expired: Vec<i64> =
            self.lock().held.values().filter(|it| it.valid_until() <= now).map(|it| it.fence).collect();
        expired.into_iter().for_each(|it| self.lose(it, Loss::Expired));
    }

    /// All locks, when it is time to renew them.
    pub(super) fn due(&self) -> Vec<Arc<Held>> {
        let state = self.lock();
        let is_due = state.beat_at.is_some_and(|it| it <= Instant::now());
        if is_due { state.held.values().cloned().collect() } else { Vec::new() }
    }

    /// Shortest time to live of what is held.
    pub(super) fn shortest_ttl(&self) -> Option<Duration> {
        self.lock().held.values().map(|it| it.ttl).min()
    }

    /// Renewal is due again then; nothing is when nothing is held.
    pub(super) fn beat_again_at(&self, at: Instant) {
        let mut state = self.lock();
        state.beat_at = Some(at).filter(|_| !state.held.is_empty());
    }

    /// When there is something to do next, apart from what is left.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let state = self.lock();
        let expires_at = state.held.values().map(|it| it.valid_until()).min()?;
        Some(state.beat_at.map_or(expires_at, |it| it.min(expires_at)))
    }

    /// Rows to delete. What is not deleted now is given back.
    pub(super) fn take_left(&self) -> Vec<Left> {
        std::mem::take(&mut self.lock().left)
    }

    /// Keeps what has not run out by itself.
    pub(super) fn give_back(&self, left: impl IntoIterator<Item = Left>) {
        let now = Instant::now();
        self.lock().left.extend(left.into_iter().filter(|it| now < it.until));
    }

    /// Ends the heartbeat if there is nothing to do. Whoever comes later starts another one.
    pub(super) fn rest(&self) -> bool {
        let mut state = self.lock();
        let is_idle = state.held.is_empty() && state.left.is_empty();
        if is_idle {
            state.beat = None;
            state.beat_at = None;
        }
        is_idle
    }

    pub(super) fn has_left(&self) -> bool {
        !self.lock().left.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
