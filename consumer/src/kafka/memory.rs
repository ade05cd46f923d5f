//! How many bytes wait in memory: records that were taken from the client and are not decided.
//!
//! The core bounds them by number, which says nothing about their size. Here the client is kept from fetching, all of its
//! partitions at once, while they weigh too much; polling goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of one client's records.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<AtomicUsize>);

/// A part of it, for as long as somebody has it.
pub(crate) struct Held {
    memory: Memory,
    bytes: usize,
}

impl Memory {
    pub(crate) fn hold(&self, bytes: usize) -> Held {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Held { memory: self.clone(), bytes }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_any_more_weighs_nothing() {
        let memory = Memory::default();
        let (first, second) = (memory.hold(10), memory.hold(5));
        assert_eq!(memory.bytes(), 15);
        drop(first);
        assert_eq!(memory.bytes(), 5);
        drop(second);
        assert_eq!(memory.bytes(), 0);
    }
}
