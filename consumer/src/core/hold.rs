//! Who waits for whom: a failed message holds its key, and the later messages of that key wait behind it.

use std::collections::BTreeSet;

use sekali_schemas::inbox::State;

use super::retry::Decision;

/// What becomes of a key whose message is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDeadLetter {
    /// The later messages take effect.
    Continue,
    /// They wait until the dead letter is replayed or discarded.
    Hold,
}

/// When a message's decision makes the later ones of its key wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Never: `order = "none"`.
    Never,
    /// While it is retried, and afterwards as configured.
    ByKey(AfterDeadLetter),
}

impl Rule {
    /// Whether this decision on a failed message holds its key.
    pub fn holds(self, decision: Decision) -> bool {
        match (self, decision) {
            (Rule::Never, _) | (Rule::ByKey(AfterDeadLetter::Continue), Decision::Dead(_)) => false,
            (Rule::ByKey(_), Decision::Retry { .. }) | (Rule::ByKey(AfterDeadLetter::Hold), Decision::Dead(_)) => true,
        }
    }
}

/// How an item of a batch stands before the handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is undecided and wants to run.
    Runs,
    /// It is decided in this transaction without the handler, and holds its key.
    Holds,
    /// It has nothing to do with order: a duplicate, or decided without holding.
    Passes,
}

/// Which items of a batch must be parked instead of handled, given the keys that are held in the database. Items without
/// a key wait for nobody.
pub fn parked<K: Ord + Clone>(items: impl IntoIterator<Item = (Option<K>, Standing)>, held: &BTreeSet<K>) -> Vec<bool> {
    let mut held = held.clone();
    let park = |(key, standing): (Option<K>, Standing)| match (key, standing) {
        (Some(key), Standing::Runs) => held.contains(&key),
        (Some(key), Standing::Holds) => {
            held.insert(key);
            false
        }
        _ => false,
    };
    items.into_iter().map(park).collect()
}

/// What the handler answered for an item that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// Its change is written.
    Applied,
    /// Nothing was written for it, and the decision holds its key or does not.
    Refused {
        /// Whether it holds.
        holds: bool,
    },
}

/// The handler let a message take effect behind one that it refused and that holds their key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overtaken {
    /// Places of the refused items that hold their keys, the first of each key.
    pub heads: Vec<usize>,
}

/// Which of the refused items must be parked instead, because they stand behind another refused one of their key.
///
/// # Errors
/// A message overtook a refused one. The transaction must be rolled back and run again with what is known now.
pub fn parked_after<K: Ord + Clone>(
    items: impl IntoIterator<Item = (Option<K>, Answered)>,
) -> Result<Vec<bool>, Overtaken> {
    let mut held = BTreeSet::new();
    let (mut parked, mut heads, mut overtaken) = (Vec::new(), Vec::new(), false);
    for (place, (key, answered)) in items.into_iter().enumerate() {
        let behind = key.as_ref().is_some_and(|it| held.contains(it));
        match answered {
            Answered::Applied => overtaken |= behind,
            Answered::Refused { holds: true } if !behind => {
                held.extend(key);
                heads.push(place);
            }
            Answered::Refused { .. } => {}
        }
        parked.push(behind);
    }
    if overtaken { Err(Overtaken { heads }) } else { Ok(parked) }
}

/// What becomes of a held key that an operator wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Nothing of the key can come before what waits: it may run.
    Free,
    /// It may run already, and is taken up by whoever comes first.
    Already,
    /// What waits would take effect before its head.
    Overtakes(Head),
}

/// A head that what waits behind it would overtake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// It is retried, or its effect is in progress: it holds its key until it is decided.
    Undecided,
    /// It is an open dead letter, and would come last if it were replayed.
    DeadLetter,
}

/// Whether a hold may be released, given its head's inbox row and whether the head is a dead letter that is not closed.
pub fn release(is_ready: bool, head: Option<State>, is_dead_letter_open: bool) -> Release {
    match head {
        _ if is_ready => Release::Already,
        Some(State::Retrying | State::Leased | State::Held) => Release::Overtakes(Head::Undecided),
        _ if is_dead_letter_open => Release::Overtakes(Head::DeadLetter),
        Some(State::Processed | State::Discarded | State::Dead) | None => Release::Free,
    }
}

#[cfg(test)]
mod tests;
