//! Up to which moment everything of a partition is committed: the group's own clock.
//!
//! The purge of the inbox must not forget a decision whose record Kafka may deliver again, which is every record from
//! the committed offset on. The moment of the last commit says nothing about those: after a long outage the first commit
//! comes now, while records behind it were decided long ago by a process that died before it could commit them. So the
//! clock of a partition is the last moment at which somebody looked where it ended, and by now everything up to that
//! end is committed. What was decided before that moment lies before that end, and so is committed.
//!
//! * A partition without work is caught up at every look; it stops nothing.
//! * A partition that is behind keeps its clock, however often it commits, until it has passed the end of some look.
//! * While nobody runs nobody looks, and ten days of downtime are no time at all.

use std::collections::HashMap;

use crate::core::{Offset, Partition, Timestamp};

/// The looks at the partitions of this process.
#[derive(Default)]
pub(crate) struct CaughtUp {
    looks: HashMap<Partition, Look>,
}

#[derive(Clone, Copy)]
struct Look {
    at: Timestamp,
    end: Offset,
}

/// Where a partition begins and ends now, and where the group goes on reading, as Kafka has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    /// `None`: at the start.
    pub(crate) committed: Option<Offset>,
}

impl Extent {
    /// Next record that Kafka would deliver.
    pub(crate) fn next(self) -> Offset {
        self.committed.unwrap_or(self.start).max(self.start)
    }
}

impl CaughtUp {
    /// Takes a look at a partition. Returns the moment of an earlier look, or of this one, up to whose end everything is
    /// committed; `None` when no look was passed since the last time.
    pub(crate) fn look(&mut self, now: Timestamp, partition: Partition, extent: Extent) -> Option<Timestamp> {
        let look = self.looks.entry(partition).or_insert(Look { at: now, end: extent.end });
        let passed = if extent.end <= extent.next() {
            now
        } else if look.end <= extent.next() {
            look.at
        } else {
            return None;
        };
        *look = Look { at: now, end: extent.end };
        Some(passed)
    }

    /// The partitions belong to somebody else, who looks for himself.
    pub(crate) fn forget(&mut self, partitions: &[Partition]) {
        self.looks.retain(|it, _| !partitions.contains(it));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Partition = Partition { topic: 0, number: 0, retry: false };

    fn look(it: &mut CaughtUp, now: u64, committed: Option<Offset>, end: Offset) -> Option<u64> {
        it.look(Timestamp(now), P, Extent { start: 100, end, committed }).map(|it| it.0)
    }

    #[test]
    fn an_idle_partition_is_caught_up_at_every_look() {
        let mut it = CaughtUp::default();
        for now in [10, 20, 30] {
            assert_eq!(look(&mut it, now, Some(500), 500), Some(now));
        }
        // Empty, nothing committed yet; or what was committed is deleted.
        assert_eq!(look(&mut it, 40, None, 100), Some(40));
        assert_eq!(look(&mut it, 50, Some(50), 100), Some(50));
    }

    #[test]
    fn commits_of_a_partition_that_is_behind_do_not_move_its_clock() {
        let mut it = CaughtUp::default();
        assert_eq!(look(&mut it, 10, Some(200), 1_000), None);
        assert_eq!(look(&mut it, 20, Some(600), 1_400), None);
        assert_eq!(look(&mut it, 30, Some(999), 1_800), None);
        assert_eq!(look(&mut it, 40, Some(1_000), 2_200), Some(10), "the end of the first look is passed");
        assert_eq!(look(&mut it, 50, Some(2_199), 2_600), None);
        assert_eq!(look(&mut it, 60, Some(2_600), 2_600), Some(60), "caught up");
        assert_eq!(look(&mut it, 70, Some(2_600), 2_700), Some(60), "nothing else existed at that look");
        assert_eq!(look(&mut it, 80, Some(2_600), 2_700), None);
    }

    #[test]
    fn another_ownership_begins_with_a_look_of_its_own() {
        let mut it = CaughtUp::default();
        assert_eq!(look(&mut it, 10, Some(200), 300), None);
        it.forget(&[P]);
        assert_eq!(look(&mut it, 20, Some(300), 900), None, "the others may have decided up to 900");
    }
}
