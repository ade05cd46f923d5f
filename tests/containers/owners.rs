//! Who owns the partitions, as the group's coordinator tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::groups::GroupInfo;

use crate::stack::{GROUP, PARTITIONS, Stack, TOPIC};

const LOOK: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The group at one moment.
pub(crate) struct Sample {
    /// Whether the coordinator tells assignments: it does not while a rebalance is under way.
    stable: bool,
    /// Partitions of each member.
    members: BTreeMap<String, BTreeSet<i32>>,
}

/// Follows the owners. In a cooperative rebalance members keep what they have until the next assignment takes it away, so
/// that a partition has an owner as long as the member of the last assignment is in the group.
#[derive(Default)]
pub(crate) struct Owners {
    /// Of the last assignment, by member.
    assigned: BTreeMap<String, BTreeSet<i32>>,
    /// When each partition was last seen with an owner.
    seen: BTreeMap<i32, Duration>,
    gaps: BTreeMap<i32, Duration>,
}

impl Owners {
    /// Takes a sample in, `at` after the beginning.
    pub(crate) fn see(&mut self, at: Duration, sample: &Sample) {
        self.assigned.retain(|member, _| sample.members.contains_key(member));
        if sample.stable {
            self.assigned = sample.members.clone();
        }
        let owned: BTreeSet<i32> = self.assigned.values().flatten().copied().collect();
        for partition in 0..PARTITIONS as i32 {
            let since = *self.seen.entry(partition).or_insert(at);
            // Also from the last sighting to this one: what lies between two samples is not known to be well.
            let gap = self.gaps.entry(partition).or_default();
            *gap = (*gap).max(at - since);
            if owned.contains(&partition) {
                self.seen.insert(partition, at);
            }
        }
    }

    /// Partitions that have an owner, by member.
    pub(crate) fn assigned(&self) -> Vec<usize> {
        self.assigned.values().map(BTreeSet::len).filter(|it| 0 < *it).collect()
    }

    /// The longest time that any partition had none.
    pub(crate) fn longest_gap(&self) -> Duration {
        self.gaps.values().max().copied().unwrap_or_default()
    }
}

/// Asks a group's coordinator, through one connection.
pub(crate) struct Coordinator {
    client: BaseConsumer,
}

impl Coordinator {
    pub(crate) fn of(stack: &Stack) -> Result<Coordinator, anyhow::Error> {
        Ok(Coordinator { client: stack.kafka.client_config().create().context("a client for the group's state")? })
    }

    /// The group as it is now. Blocks.
    pub(crate) fn look(&self) -> Result<Sample, anyhow::Error> {
        let list = self.client.fetch_group_list(Some(GROUP), TIMEOUT).context("the group's state")?;
        let group = list.groups().iter().find(|it| it.name() == GROUP);
        Ok(group.map_or(Sample { stable: false, members: BTreeMap::new() }, sample))
    }

    /// Looks again and again on a thread of its own, until `ended`.
    pub(crate) fn watch(
        self,
        ended: Arc<AtomicBool>,
    ) -> std::thread::JoinHandle<Result<(Owners, usize), anyhow::Error>> {
        std::thread::spawn(move || {
            let (begin, mut owners, mut samples) = (Instant::now(), Owners::default(), 0);
            while !ended.load(Ordering::Relaxed) {
                let sample = self.look()?;
                owners.see(begin.elapsed(), &sample);
                samples += 1;
                std::thread::sleep(LOOK);
            }
            Ok((owners, samples))
        })
    }
}

fn sample(group: &GroupInfo) -> Sample {
    let stable = group.state() == "Stable";
    let partitions = |assignment: Option<&[u8]>| assignment.and_then(partitions).unwrap_or_default();
    let members = group.members().iter().map(|it| (it.id().to_owned(), partitions(it.assignment())));
    Sample { stable, members: members.collect() }
}

/// Partitions of the source topic in an assignment of the classic protocol: version, then for each topic its name and its
/// partitions.
fn partitions(mut bytes: &[u8]) -> Option<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    take(&mut bytes, 2)?;
    for _ in 0..number(&mut bytes)? {
        let length = i16::from_be_bytes(take(&mut bytes, 2)?.try_into().ok()?);
        let is_ours = take(&mut bytes, usize::try_from(length).ok()?)? == TOPIC.as_bytes();
        for _ in 0..number(&mut bytes)? {
            let partition = number(&mut bytes)?;
            if is_ours {
                found.insert(partition);
            }
        }
    }
    Some(found)
}

fn number(bytes: &mut &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(take(bytes, 4)?.try_into().ok()?))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(stable: bool, members: &[(&str, &[i32])]) -> Sample {
        let members = members.iter().map(|(name, owned)| ((*name).to_owned(), owned.iter().copied().collect()));
        Sample { stable, members: members.collect() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_member_that_stays_keeps_its_partitions_through_a_rebalance() {
        let mut owners = Owners::default();
        owners.see(at(0), &sample(true, &[("a", &[0, 1, 2]), ("b", &[3, 4, 5])]));
        for second in 1..9 {
            owners.see(at(second), &sample(false, &[("a", &[]), ("b", &[]), ("c", &[])]));
        }
        assert_eq!(owners.longest_gap(), at(1), "no more than between two samples");
        assert_eq!(owners.assigned(), [3, 3]);
    }

    #[test]
    fn partitions_of_a_member_that_left_have_no_owner_until_the_next_assignment() {
        let mut owners = Owners::default();
        owners.see(at(0), &sample(true, &[("a", &[0, 1, 2]), ("b", &[3, 4, 5])]));
        owners.see(at(1), &sample(false, &[("b", &[])]));
        owners.see(at(4), &sample(false, &[("b", &[])]));
        owners.see(at(6), &sample(true, &[("b", &[0, 1, 2, 3, 4, 5])]));
        assert_eq!(owners.longest_gap(), at(6));
    }

    #[test]
    fn partitions_between_two_owners_have_none() {
        let mut owners = Owners::default();
        owners.see(at(0), &sample(true, &[("a", &[0, 1, 2, 3, 4, 5])]));
        owners.see(at(1), &sample(true, &[("a", &[0, 1, 2]), ("b", &[])]));
        owners.see(at(2), &sample(false, &[("a", &[]), ("b", &[])]));
        owners.see(at(3), &sample(true, &[("a", &[0, 1, 2]), ("b", &[3, 4, 5])]));
        assert_eq!(owners.longest_gap(), at(3));
        owners.see(at(4), &sample(true, &[("a", &[0, 1, 2]), ("b", &[3, 4, 5])]));
        assert_eq!(owners.longest_gap(), at(3));
    }

    #[test]
    fn a_partition_that_never_had_an_owner_has_a_gap_from_the_beginning() {
        let mut owners = Owners::default();
        owners.see(at(0), &sample(true, &[("a", &[0])]));
        owners.see(at(7), &sample(true, &[("a", &[0])]));
        assert_eq!(owners.longest_gap(), at(7));
    }

    #[test]
    fn assignments_are_read_and_broken_ones_are_not() {
        let mut bytes = vec![0, 1, 0, 0, 0, 2];
        bytes.extend(b"\0\x05other\0\0\0\x01\0\0\0\x07");
        bytes.extend(b"\0\x05stock\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0");
        assert_eq!(partitions(&bytes), Some(BTreeSet::from([0, 3])));
        assert_eq!(partitions(&bytes[..bytes.len() - 6]), None);
        assert_eq!(partitions(&[]), None);
    }
}
