//! Why a partition is not fetched, and what an operator has stopped.
//!
//! The reasons are independent of each other: a partition is fetched again when none of them is left, whoever set them.
//! What an operator has stopped is also not begun any more, wherever it waits: buffered, to run again, or held in the
//! database. What is with an executor ends, and so do effects in progress.

use std::collections::BTreeSet;

use super::event::{Partition, PauseReason};

/// The subscribed topics that an operator has paused: source topics, and the retry topics that belong to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Paused(BTreeSet<u16>);

impl Paused {
    pub(super) fn of(topics: Vec<u16>) -> Paused {
        Paused(topics.into_iter().collect())
    }

    pub(super) fn contains(&self, partition: Partition) -> bool {
        self.0.contains(&partition.topic)
    }

    /// Whether something that was paused before is not any more.
    pub(super) fn resumes(&self, before: &Paused) -> bool {
        !before.0.is_subset(&self.0)
    }

    pub(super) fn topics(&self) -> Vec<u16> {
        self.0.iter().copied().collect()
    }
}

/// What may keep a partition from being fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wants {
    /// An operator has paused its topic.
    pub(super) halted: bool,
    /// Its first record is not due.
    pub(super) not_due: bool,
    /// Its next record must be held, and there is no room.
    pub(super) held_full: bool,
    /// Records in its buffer.
    pub(super) buffered: usize,
    /// As many as the buffer may hold.
    pub(super) cap: usize,
}

/// Why a partition must be paused now; `paused` is why it was until now.
///
/// A client that is paused before it has handed out anything may lose its place, so that an operator's pause waits for the
/// first records, which stay in the buffer.
pub(super) fn wanted(paused: Option<PauseReason>, wants: Wants) -> Option<PauseReason> {
    let Wants { halted, not_due, held_full, buffered, cap } = wants;
    match paused {
        _ if halted && 0 < buffered => Some(PauseReason::Operator),
        _ if not_due => Some(PauseReason::NotDue),
        _ if held_full => Some(PauseReason::HeldFull),
        // Resumed at half of what it was paused at, so that a partition does not flutter.
        Some(PauseReason::Full) if cap / 2 < buffered => Some(PauseReason::Full),
        _ if cap <= buffered => Some(PauseReason::Full),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Wants = Wants { halted: false, not_due: false, held_full: false, buffered: 3, cap: 100 };

    #[test]
    fn a_reason_that_goes_leaves_the_others() {
        let all = Wants { halted: true, not_due: true, held_full: true, buffered: 100, cap: 100 };
        assert_eq!(wanted(None, all), Some(PauseReason::Operator));
        let resumed = Wants { halted: false, ..all };
        assert_eq!(wanted(Some(PauseReason::Operator), resumed), Some(PauseReason::NotDue));
        let due = Wants { not_due: false, ..resumed };
        assert_eq!(wanted(Some(PauseReason::NotDue), due), Some(PauseReason::HeldFull));
        let room = Wants { held_full: false, ..due };
        assert_eq!(wanted(Some(PauseReason::HeldFull), room), Some(PauseReason::Full));
        assert_eq!(wanted(Some(PauseReason::Full), NOTHING), None);
        for reason in [None, Some(PauseReason::Operator), Some(PauseReason::NotDue), Some(PauseReason::HeldFull)] {
            assert_eq!(wanted(reason, NOTHING), None, "{reason:?}");
        }
    }

    #[test]
    fn nothing_is_paused_before_it_has_delivered_something() {
        let empty = Wants { halted: true, buffered: 0, ..NOTHING };
        assert_eq!(wanted(None, empty), None);
        assert_eq!(wanted(None, Wants { buffered: 1, ..empty }), Some(PauseReason::Operator));
    }

    #[test]
    fn a_topic_that_is_resumed_is_told_from_one_that_is_paused() {
        let before = Paused::of(vec![0, 3]);
        assert!(!Paused::of(vec![0, 3]).resumes(&before) && !Paused::of(vec![0, 1, 3]).resumes(&before));
        assert!(Paused::of(vec![0]).resumes(&before) && Paused::of(vec![0, 1]).resumes(&before));
    }
}
