//! Halts: the traffic of one connection stops where a pattern passes, and the test is told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use super::pattern::{LONGEST, Step};
use super::{Direction, When};

/// A halt that waits for its connection, or holds it. Dropping it lets everything go on.
#[derive(Debug)]
#[must_use = "dropping the halt disarms it"]
pub struct Halt {
    armed: Arc<Armed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Armed,
    /// A connection has taken the last step, and is about to stand still.
    Taken,
    Reached,
    Released,
    Cut,
}

#[derive(Debug)]
pub(super) struct Armed {
    id: u64,
    steps: Vec<Step>,
    pub(super) when: When,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
pub(super) struct Halts {
    list: Mutex<Vec<Weak<Armed>>>,
    ids: AtomicU64,
}

/// How far one connection is on its way to each halt: steps taken, and the end of what passed since the last one.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<HashMap<u64, (usize, Vec<u8>)>>);

impl Halt {
    /// Waits until a connection stands still. For a limit, see `tokio::time::timeout`.
    pub async fn reached(&self) {
        // The sender lives in what this halt holds.
        let _ = self.armed.state.subscribe().wait_for(|it| !matches!(it, State::Armed | State::Taken)).await;
    }

    /// Whether a connection stands still.
    pub fn is_reached(&self) -> bool {
        *self.armed.state.borrow() == State::Reached
    }

    /// Lets the connection go on: what was held arrives, late.
    pub fn let_go(self) {
        self.end(State::Released);
    }

    /// Ends the connection: what was held is lost.
    pub fn cut(self) {
        self.end(State::Cut);
    }

    fn end(&self, state: State) {
        self.armed.state.send_if_modified(|it| {
            let is_open = !matches!(it, State::Released | State::Cut);
            if is_open {
                *it = state;
            }
            is_open
        });
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        self.end(State::Released);
    }
}

impl Armed {
    /// Tells the test, and waits for its word: whether the connection goes on.
    pub(super) async fn hold(&self) -> bool {
        self.pass(State::Taken, State::Reached);
        let mut state = self.state.subscribe();
        let is_over = |it: &State| matches!(it, State::Released | State::Cut);
        state.wait_for(is_over).await.is_ok_and(|it| *it == State::Released)
    }

    /// Whether the last step has been taken with these bytes, on this connection, and by no other one before.
    fn is_reached(&self, progress: &mut (usize, Vec<u8>), direction: Direction, chunk: &[u8]) -> bool {
        let (taken, tail) = progress;
        let is_next = |taken: usize| self.steps.get(taken).filter(|it| it.direction == direction);
        if is_next(*taken).is_none() {
            return false;
        }
        let mut seen = std::mem::take(tail);
        seen.extend_from_slice(chunk);
        let mut begin = 0;
        while let Some(step) = is_next(*taken) {
            let Some(end) = step.pattern.end_in(&seen[begin..]) else {
                // The pattern may be split between chunks.
                let kept = (seen.len() - begin).min(step.pattern.len() - 1);
                *tail = seen.split_off(seen.len() - kept);
                break;
            };
            begin += end;
            *taken += 1;
        }
        *taken == self.steps.len() && self.pass(State::Armed, State::Taken)
    }

    /// Goes from one state to another, unless it is in a third.
    fn pass(&self, from: State, to: State) -> bool {
        self.state.send_if_modified(|it| {
            let is_there = *it == from;
            if is_there {
                *it = to;
            }
            is_there
        })
    }
}

impl Halts {
    pub(super) fn arm(&self, steps: Vec<Step>, when: When) -> Halt {
        assert!(!steps.is_empty(), "a halt has a step");
        let is_legal = |it: &Step| (1..=LONGEST).contains(&it.pattern.len());
        assert!(steps.iter().all(is_legal), "a pattern has 1 to {LONGEST} bytes");
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let armed = Arc::new(Armed { id, steps, when, state: watch::Sender::new(State::Armed) });
        lock(&self.list).push(Arc::downgrade(&armed));
        Halt { armed }
    }

    /// The halt that this chunk has reached, if any.
    pub(super) fn reached(&self, progress: &Progress, direction: Direction, chunk: &[u8]) -> Option<Arc<Armed>> {
        let mut list = lock(&self.list);
        list.retain(|it| it.upgrade().is_some_and(|it| *it.state.borrow() == State::Armed));
        let armed: Vec<Arc<Armed>> = list.iter().filter_map(Weak::upgrade).collect();
        drop(list);
        let mut progress = lock(&progress.0);
        armed.into_iter().find(|it| it.is_reached(progress.entry(it.id).or_default(), direction, chunk))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
