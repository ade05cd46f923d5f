//! Cuts that wait for a pattern of bytes.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

use super::Direction;
use super::pattern::LONGEST;

/// Which side of a cut or a halt the pattern is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The pattern never arrives.
    BeforeForwarding,
    /// The pattern arrives, and its answer does not.
    AfterForwarding,
}

/// An armed cut; dropping it disarms it.
#[derive(Debug)]
#[must_use = "dropping the trap disarms it"]
pub struct Trap {
    armed: Arc<Armed>,
}

#[derive(Debug)]
struct Armed {
    pattern: Vec<u8>,
    direction: Direction,
    when: When,
    /// Taken out of the list; second, the cut is done.
    sprung: Mutex<bool>,
    done: watch::Sender<bool>,
}

/// A trap that a connection has run into.
pub(super) struct Sprung {
    pub(super) when: When,
    armed: Arc<Armed>,
}

#[derive(Debug, Default)]
pub(super) struct Traps(Mutex<Vec<Weak<Armed>>>);

/// The end of what has passed on one connection in one direction: patterns may be split between chunks.
pub(super) struct Scan {
    direction: Direction,
    tail: Vec<u8>,
}

impl Trap {
    /// Whether the connection has been cut.
    pub fn has_sprung(&self) -> bool {
        *self.armed.done.borrow()
    }

    /// Waits for the cut. For a limit, see `tokio::time::timeout`.
    pub async fn sprung(&self) {
        // The sender lives in what this trap holds.
        let _ = self.armed.done.subscribe().wait_for(|done| *done).await;
    }
}

impl Sprung {
    pub(super) fn tell(self) {
        self.armed.done.send_replace(true);
    }
}

impl Traps {
    pub(super) fn arm(&self, pattern: &[u8], direction: Direction, when: When) -> Trap {
        assert!((1..=LONGEST).contains(&pattern.len()), "a pattern has 1 to {LONGEST} bytes");
        let armed = Armed {
            pattern: pattern.to_owned(),
            direction,
            when,
            sprung: Mutex::new(false),
            done: watch::Sender::new(false),
        };
        let armed = Arc::new(armed);
        self.list().push(Arc::downgrade(&armed));
        Trap { armed }
    }

    /// The first armed trap whose pattern ends in this chunk. Each springs once, for whichever connection comes first.
    pub(super) fn spring(&self, scan: &mut Scan, chunk: &[u8]) -> Option<Sprung> {
        let mut list = self.list();
        list.retain(|it| it.upgrade().is_some_and(|it| !*lock(&it.sprung)));
        let found = list.iter().filter_map(Weak::upgrade).find(|it| scan.finds(it, chunk));
        drop(list);
        scan.pass(chunk);
        found.map(|armed| {
            *lock(&armed.sprung) = true;
            Sprung { when: armed.when, armed }
        })
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Armed>>> {
        lock(&self.0)
    }
}

impl Scan {
    pub(super) fn new(direction: Direction) -> Scan {
        Scan { direction, tail: Vec::new() }
    }

    /// Patterns that had passed as a whole before this chunk do not count.
    fn finds(&self, armed: &Armed, chunk: &[u8]) -> bool {
        let keep = self.tail.len().min(armed.pattern.len() - 1);
        let seen = [&self.tail[self.tail.len() - keep..], chunk].concat();
        armed.direction == self.direction && seen.windows(armed.pattern.len()).any(|it| it == armed.pattern)
    }

    fn pass(&mut self, chunk: &[u8]) {
        self.tail.extend_from_slice(&chunk[chunk.len().saturating_sub(LONGEST)..]);
        let excess = self.tail.len().saturating_sub(LONGEST);
        self.tail.drain(..excess);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
