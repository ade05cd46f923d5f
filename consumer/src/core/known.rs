//! What one process knows about the held keys of its group.
//!
//! Knowing too much is harmless: a key that is thought to be held is looked up before its message is handled. Knowing too
//! little would let a message overtake, which is why a partition starts only after the holds were read, and why an entry
//! goes only with a read of all holds that is newer than itself.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::event::{KeyId, Timestamp};

/// The held keys, as far as known.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// Each with the number of reads that had been asked for when it was learned.
    held: BTreeMap<KeyId, u64>,
    /// Reads asked for so far.
    reads: u64,
    /// The last read that was answered.
    answered: u64,
    /// Counts every sign that what waits behind some head may run.
    signs: u64,
    /// Such a sign has not been followed up.
    pub(super) ready: bool,
    asked_at: Timestamp,
    read_again_at: Timestamp,
}

/// Numbers of reads matter only from the last answer on, that of signs only to a lane that took up held messages.
impl Hash for Known {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.held.iter().for_each(|(key, learned)| (key, learned.saturating_sub(self.answered)).hash(hasher));
        (self.held.len(), self.reads - self.answered, self.ready, self.asked_at, self.read_again_at).hash(hasher);
    }
}

impl Known {
    pub(super) fn is_held(&self, key: Option<KeyId>) -> bool {
        key.is_some_and(|it| self.held.contains_key(&it))
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Notes a key that is held.
    pub(super) fn learn(&mut self, key: KeyId) {
        self.held.insert(key, self.reads);
    }

    /// Some key is held no longer. Which one is not said: another one may have the same hash, so that only a read tells
    /// what to forget. It is made soon, but not again and again.
    pub(super) fn doubt(&mut self, soon: Duration) {
        self.read_again_at = self.read_again_at.min(self.asked_at.after(soon));
    }

    /// Numbers a read that is asked for now.
    pub(super) fn ask(&mut self, now: Timestamp, interval: Duration) -> u64 {
        self.reads += 1;
        self.asked_at = now;
        self.read_again_at = now.after(interval);
        self.reads
    }

    /// Takes in the answer to a read: what was learned before it was asked for, and is not in it, is held no more.
    pub(super) fn answer(&mut self, read: u64, held: Vec<KeyId>) {
        self.held.retain(|_, learned| read <= *learned);
        for key in held {
            self.held.entry(key).or_insert(read);
        }
        self.answered = self.answered.max(read);
    }

    /// When to look again: only while something is held, and no look is under way.
    pub(super) fn read_again_at(&self) -> Option<Timestamp> {
        (!self.held.is_empty() && self.answered == self.reads).then_some(self.read_again_at)
    }

    /// What waits behind some head may run.
    pub(super) fn sign(&mut self) {
        self.signs += 1;
        self.ready = true;
    }

    pub(super) fn signs(&self) -> u64 {
        self.signs
    }

    /// Nothing was ready for somebody who looked after sign number `signs`.
    pub(super) fn nothing_ready(&mut self, signs: u64) {
        if self.signs == signs {
            self.ready = false;
        }
    }
}
