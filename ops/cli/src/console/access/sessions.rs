//! Sessions of people who logged in. They end with the process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a login lasts.
pub(super) const TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// Beyond that, the oldest session ends.
const SESSIONS_MAX: usize = 1_000;

type Id = [u8; 32];

/// Names by the digests of the sessions' ids.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<Id, Session>>);

struct Session {
    name: String,
    begun_at: Instant,
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<Id, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, id: Id, name: String) {
        let mut all = self.all();
        all.retain(|_, it| it.begun_at.elapsed() < TTL);
        if SESSIONS_MAX <= all.len() {
            let oldest = all.iter().min_by_key(|it| it.1.begun_at).map(|it| *it.0);
            oldest.and_then(|it| all.remove(&it));
        }
        all.insert(id, Session { name, begun_at: Instant::now() });
    }

    pub(super) fn name(&self, id: &Id) -> Option<String> {
        self.all().get(id).filter(|it| it.begun_at.elapsed() < TTL).map(|it| it.name.clone())
    }

    pub(super) fn end(&self, id: &Id) {
        self.all().remove(id);
    }
}
