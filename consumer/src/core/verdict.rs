//! What a message meets in the inbox: the decision table of arrivals.

use sekali_schemas::inbox::State;

/// An inbox row as far as it matters for a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// What was decided.
    pub state: State,
    /// The attempt that the row stands for: with [`State::Retrying`], the one that may run next.
    pub attempt: u32,
    /// Of the payload that was decided.
    pub fingerprint: i64,
}

/// A message that asks to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// Whether it came through a retry topic.
    pub retry: bool,
    /// Its attempt; 1 unless `retry`.
    pub attempt: u32,
    /// Of its payload.
    pub fingerprint: i64,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// This attempt is undecided: handle it.
    Handle,
    /// Somebody decided this attempt already.
    Duplicate,
    /// A source message that somebody decided already, and that is not done: it is retried, held or dead, so that its key
    /// may be held.
    Pending,
    /// The key was decided with another payload: the operation must not vanish silently.
    KeyReuse,
    /// A retry record, but nobody decided the attempt before.
    Orphan,
}

/// The verdict on a message, given the row of its key.
pub fn arrival(asking: Asking, row: Option<Row>) -> Arrival {
    let Some(row) = row else {
        return if asking.retry { Arrival::Orphan } else { Arrival::Handle };
    };
    if row.fingerprint != asking.fingerprint {
        return Arrival::KeyReuse;
    }
    if asking.retry && row.state == State::Retrying && row.attempt == asking.attempt {
        return Arrival::Handle;
    }
    match row.state {
        State::Retrying | State::Held | State::Dead | State::Leased if !asking.retry => Arrival::Pending,
        _ => Arrival::Duplicate,
    }
}

/// What happens to a message whose effect needs a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leasing {
    /// This attempt is undecided, and nobody else has a lease that lasts: take one.
    Lease,
    /// Somebody else may be performing it: later.
    Wait,
    /// It gets no lease.
    Other(Arrival),
}

/// The verdict on a message with an effect, given the row of its key and whether somebody has a lease on it that lasts.
/// [`State::Leased`] is the first attempt on its way; a retry keeps its row.
pub fn leasing(asking: Asking, row: Option<Row>, lease_lasts: bool) -> Leasing {
    let first = |it: &Row| !asking.retry && it.state == State::Leased && it.fingerprint == asking.fingerprint;
    let verdict = if row.as_ref().is_some_and(first) { Arrival::Handle } else { arrival(asking, row) };
    match verdict {
        Arrival::Handle if lease_lasts => Leasing::Wait,
        Arrival::Handle => Leasing::Lease,
        other => Leasing::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_once_at_a_time_and_only_for_what_is_undecided() {
        let source = Asking { retry: false, attempt: 1, fingerprint: 5 };
        let third = Asking { retry: true, attempt: 3, fingerprint: 5 };
        assert_eq!(leasing(source, None, false), Leasing::Lease);
        assert_eq!(leasing(third, None, false), Leasing::Other(Arrival::Orphan));
        for state in State::ALL {
            for attempt in 1..=4 {
                let row = Some(Row { state, attempt, fingerprint: 5 });
                for lasts in [false, true] {
                    let now = if lasts { Leasing::Wait } else { Leasing::Lease };
                    let expected = if state == State::Leased { now } else { Leasing::Other(arrival(source, row)) };
                    assert_eq!(leasing(source, row, lasts), expected, "source, {state:?}({attempt})");
                    let runs = state == State::Retrying && attempt == 3;
                    let expected = if runs { now } else { Leasing::Other(arrival(third, row)) };
                    assert_eq!(leasing(third, row, lasts), expected, "retry, {state:?}({attempt})");
                    let other = Some(Row { state, attempt, fingerprint: 6 });
                    assert_eq!(leasing(source, other, lasts), Leasing::Other(Arrival::KeyReuse));
                }
            }
        }
    }

    #[test]
    fn every_cell_of_the_table() {
        let source = Asking { retry: false, attempt: 1, fingerprint: 5 };
        let third = Asking { retry: true, attempt: 3, fingerprint: 5 };
        assert_eq!(arrival(source, None), Arrival::Handle);
        assert_eq!(arrival(third, None), Arrival::Orphan);
        for state in State::ALL {
            for attempt in 1..=5 {
                let row = Some(Row { state, attempt, fingerprint: 5 });
                let done = matches!(state, State::Processed | State::Discarded);
                let expected = if done { Arrival::Duplicate } else { Arrival::Pending };
                assert_eq!(arrival(source, row), expected, "source, {state:?}({attempt})");
                let runs = state == State::Retrying && attempt == 3;
                let expected = if runs { Arrival::Handle } else { Arrival::Duplicate };
                assert_eq!(arrival(third, row), expected, "retry, {state:?}({attempt})");
                let other = Some(Row { state, attempt, fingerprint: 6 });
                assert_eq!(arrival(source, other), Arrival::KeyReuse);
                assert_eq!(arrival(third, other), Arrival::KeyReuse);
            }
        }
    }
}
