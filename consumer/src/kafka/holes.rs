//! Offsets at the end of a partition that no record has: transaction markers, aborted and compacted records.
//!
//! A position that only follows records stops before them, so that lag never reaches zero. The client passes over them in
//! silence; only its statistics show that it goes on reading behind them.

use std::collections::HashMap;

use rdkafka::statistics::Partition as Seen;

use crate::core::{Offset, Partition};

/// Statistics are put together from several threads of the client, which may be so far apart. What stays the same for
/// longer is true.
const SETTLED_US: i64 = 3_000_000;

/// What stayed the same since when.
#[derive(Default)]
pub(crate) struct Holes {
    still: HashMap<Partition, Still>,
}

#[derive(Clone, Copy)]
struct Still {
    /// Offset after the last record that was taken from the client; negative when there was none.
    taken: Offset,
    /// Next offset that the client fetches.
    fetched: Offset,
    since_us: i64,
}

impl Holes {
    /// Takes the statistics of one partition. Returns the offset below which no record is left: the client has fetched
    /// up to there and holds nothing back.
    pub(crate) fn look(&mut self, now_us: i64, partition: Partition, seen: &Seen) -> Option<Offset> {
        let (taken, fetched) = (seen.app_offset, seen.next_offset);
        let nothing_queued = seen.fetch_state == "active" && seen.fetchq_cnt == 0;
        if !nothing_queued || fetched <= taken.max(0) {
            self.still.remove(&partition);
            return None;
        }
        let still = self.still.entry(partition).or_insert(Still { taken, fetched, since_us: now_us });
        if (still.taken, still.fetched) != (taken, fetched) {
            *still = Still { taken, fetched, since_us: now_us };
        }
        (SETTLED_US <= now_us - still.since_us).then_some(fetched)
    }

    /// Pausing throws away what the client has fetched, and it goes back by itself: what was seen before means nothing.
    pub(crate) fn disturbed(&mut self, partitions: &[Partition]) {
        self.still.retain(|it, _| !partitions.contains(it));
    }

    /// So does a rebalance, for every partition.
    pub(crate) fn rebalanced(&mut self) {
        self.still.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Partition = Partition { topic: 0, number: 0, retry: false };

    fn seen(taken: i64, queued: i64, fetched: i64) -> Seen {
        Seen {
            fetch_state: "active".to_owned(),
            app_offset: taken,
            fetchq_cnt: queued,
            next_offset: fetched,
            ..Seen::default()
        }
    }

    #[test]
    fn only_what_stays_the_same_without_anything_queued_is_a_hole() {
        let mut holes = Holes::default();
        assert_eq!(holes.look(0, P, &seen(10, 0, 12)), None);
        assert_eq!(holes.look(SETTLED_US - 1, P, &seen(10, 0, 12)), None);
        assert_eq!(holes.look(SETTLED_US, P, &seen(10, 0, 12)), Some(12));
        assert_eq!(holes.look(2 * SETTLED_US, P, &seen(10, 0, 13)), None, "the client went on");
        assert_eq!(holes.look(3 * SETTLED_US, P, &seen(10, 1, 13)), None, "something is queued");
        assert_eq!(holes.look(4 * SETTLED_US, P, &seen(10, 0, 13)), None, "and was gone again");
        holes.disturbed(&[P]);
        assert_eq!(holes.look(8 * SETTLED_US, P, &seen(10, 0, 13)), None, "it was paused");
        let waiting = Seen { fetch_state: "offset-query".to_owned(), ..seen(10, 0, 13) };
        assert_eq!(holes.look(12 * SETTLED_US, P, &waiting), None);
        assert_eq!(holes.look(16 * SETTLED_US, P, &seen(13, 0, 13)), None, "no hole");
    }

    #[test]
    fn a_partition_of_aborted_records_only_is_a_hole() {
        let mut holes = Holes::default();
        let nothing_yet = seen(-1001, 0, 9);
        assert_eq!(holes.look(0, P, &nothing_yet), None);
        assert_eq!(holes.look(SETTLED_US, P, &nothing_yet), Some(9));
        assert_eq!(holes.look(2 * SETTLED_US, P, &seen(-1001, 0, 0)), None, "an empty one has none");
    }
}
