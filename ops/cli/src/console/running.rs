//! Operations that this console carries out.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Shared;

/// Errors that are remembered: those of the latest operations.
const ERRORS_MAX: usize = 100;

/// Operations in progress, by their number.
#[derive(Default)]
pub(super) struct Running {
    state: Mutex<State>,
    tracker: TaskTracker,
}

#[derive(Default)]
struct State {
    stops: HashMap<i64, CancellationToken>,
    errors: HashMap<i64, String>,
    ended: bool,
}

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_here(&self, id: i64) -> bool {
        self.state().stops.contains_key(&id)
    }

    /// Why this console gave an operation up.
    pub(super) fn error(&self, id: i64) -> Option<String> {
        self.state().errors.get(&id).cloned()
    }

    /// Asks an operation to end after the transaction in hand. False: it does not run here.
    pub(super) fn stop(&self, id: i64) -> bool {
        let state = self.state();
        let found = state.stops.get(&id);
        found.inspect(|it| it.cancel()).is_some()
    }

    /// Stops everything and waits for it.
    pub(super) async fn stop_all(&self) {
        {
            let mut state = self.state();
            state.ended = true;
            state.stops.values().for_each(CancellationToken::cancel);
        }
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Carries an operation out in the background. Nothing happens when this console does so already.
pub(super) fn start(console: &Shared, id: i64) {
    let stop = CancellationToken::new();
    {
        let mut state = console.running.state();
        if state.ended || state.stops.contains_key(&id) {
            return;
        }
        state.stops.insert(id, stop.clone());
        state.errors.remove(&id);
    }
    let shared = console.clone();
    console.running.tracker.spawn(async move {
        let ran = shared.letters.run(id, &stop, |_| {}).await;
        let mut state = shared.running.state();
        state.stops.remove(&id);
        if let Err(error) = ran {
            tracing::warn!(operation = id, error = error.chain(), "an operation was given up; it can be resumed");
            if state.errors.len() < ERRORS_MAX {
                state.errors.insert(id, error.chain());
            }
        }
    });
}
