//! The states of an inbox row.

/// What was decided about the message of one inbox row. The numbers are stored: never change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum State {
    /// Business change, inbox row and result were committed together.
    Processed = 1,
    /// An attempt failed; the attempt named in the row is on its way through a retry topic.
    Retrying = 2,
    /// Parked behind the failed head of its key.
    Held = 3,
    /// In the dead-letter store.
    Dead = 4,
    /// Closed by an operator.
    Discarded = 5,
    /// An effect outside the database is in progress under a lease.
    Leased = 6,
}

impl State {
    /// Every state, in the order of the numbers.
    pub const ALL: [State; 6] =
        [State::Processed, State::Retrying, State::Held, State::Dead, State::Discarded, State::Leased];

    /// The state of a stored number; `None` for one that this version does not know.
    pub fn from_i16(number: i16) -> Option<State> {
        State::ALL.into_iter().find(|it| *it as i16 == number)
    }

    /// Lower-case name, as shown to operators.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Processed => "processed",
            State::Retrying => "retrying",
            State::Held => "held",
            State::Dead => "dead",
            State::Discarded => "discarded",
            State::Leased => "leased",
        }
    }
}
