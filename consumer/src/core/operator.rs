//! What an operator may do with a dead letter, and what becomes of it.
//!
//! A letter is *open* until somebody does something about it. A replay gives its inbox row the next attempt, for which
//! one record goes out: whatever else arrives of the message is no such attempt, and so a duplicate. The row therefore
//! decides, and not the letter: two operators, a crash or a record that is published twice apply nothing twice.

use sekali_schemas::control::ATTEMPT_MAX;
use sekali_schemas::inbox::State;

use super::verdict::Row;

/// The state of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LetterState {
    /// Nobody has done anything about it, or what was done did not help.
    Open,
    /// It is on its way back through a retry topic.
    Replaying,
    /// It took effect after all.
    Resolved,
    /// An operator closed it.
    Discarded,
}

impl LetterState {
    /// Every state.
    pub const ALL: [LetterState; 4] =
        [LetterState::Open, LetterState::Replaying, LetterState::Resolved, LetterState::Discarded];

    /// Word for tables and texts.
    pub fn as_str(self) -> &'static str {
        match self {
            LetterState::Open => "open",
            LetterState::Replaying => "replaying",
            LetterState::Resolved => "resolved",
            LetterState::Discarded => "discarded",
        }
    }

    /// The state of a word.
    pub fn named(word: &str) -> Option<LetterState> {
        LetterState::ALL.into_iter().find(|it| it.as_str() == word)
    }
}

/// What an operator wants of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// Back to the group that gave it up.
    Replay,
    /// Close it: nothing more is to be done.
    Discard,
    /// Take the closing back.
    Restore,
}

impl Act {
    /// Every act.
    pub const ALL: [Act; 3] = [Act::Replay, Act::Discard, Act::Restore];

    /// Word for tables and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Act::Replay => "replay",
            Act::Discard => "discard",
            Act::Restore => "restore",
        }
    }

    /// The state that it usually takes a letter from.
    pub fn from(self) -> LetterState {
        match self {
            Act::Replay | Act::Discard => LetterState::Open,
            Act::Restore => LetterState::Discarded,
        }
    }
}

/// A dead letter as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Letter {
    /// Its state.
    pub state: LetterState,
    /// How often it was replayed.
    pub replays: u32,
    /// Attempts that were made when it was given up.
    pub attempts: u32,
    /// Whether it is a record that Kafka refused, and not a message that a group gave up: it has no inbox row.
    pub unpublished: bool,
}

/// What holds for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// A letter that was replayed so often is not replayed again.
    pub replays_max: u32,
    /// Beyond that bound, and though a replay is on its way.
    pub force: bool,
}

/// What an act changes, all in one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Change {
    /// State of the letter from now on.
    pub letter: LetterState,
    /// State and attempt of the inbox row from now on; `None` leaves it as it is.
    pub row: Option<(State, u32)>,
    /// Whether a record of that attempt goes out.
    pub publish: bool,
    /// Whether what waits behind it may run.
    pub release: bool,
    /// What is said of it.
    pub told: Told,
}

/// How an act ended, or why it did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Told {
    /// A record is on its way.
    Replaying,
    /// A record that Kafka refused goes out once more, and the letter is closed: refused again, it comes as a new one.
    Republished,
    /// It is closed.
    Discarded,
    /// It is open again.
    Restored,
    /// The message took effect before: nothing was sent, and the letter is closed.
    AlreadyProcessed,
    /// Somebody else's replay is on its way.
    AlreadyReplaying,
    /// It took effect after all.
    AlreadyResolved,
    /// It is closed.
    AlreadyDiscarded,
    /// It is open.
    AlreadyOpen,
    /// An attempt of the message is on its way without any replay.
    InProgress,
    /// It was replayed as often as allowed.
    TooManyReplays,
    /// Its attempts cannot be counted any further.
    TooManyAttempts,
    /// The group reads no retry topic.
    NoRoute,
    /// It does not exist any more.
    Gone,
}

impl Told {
    /// Every answer.
    pub const ALL: [Told; 14] = [
        Told::Replaying,
        Told::Republished,
        Told::Discarded,
        Told::Restored,
        Told::AlreadyProcessed,
        Told::AlreadyReplaying,
        Told::AlreadyResolved,
        Told::AlreadyDiscarded,
        Told::AlreadyOpen,
        Told::InProgress,
        Told::TooManyReplays,
        Told::TooManyAttempts,
        Told::NoRoute,
        Told::Gone,
    ];

    /// Word for tables and texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Told::Replaying => "replaying",
            Told::Republished => "republished",
            Told::Discarded => "discarded",
            Told::Restored => "restored",
            Told::AlreadyProcessed => "already_processed",
            Told::AlreadyReplaying => "already_replaying",
            Told::AlreadyResolved => "already_resolved",
            Told::AlreadyDiscarded => "already_discarded",
            Told::AlreadyOpen => "already_open",
            Told::InProgress => "in_progress",
            Told::TooManyReplays => "too_many_replays",
            Told::TooManyAttempts => "too_many_attempts",
            Told::NoRoute => "no_route",
            Told::Gone => "gone",
        }
    }

    /// Whether what was asked for was done.
    pub fn is_done(self) -> bool {
        matches!(self, Told::Replaying | Told::Republished | Told::Discarded | Told::Restored)
    }
}

/// What an act on a letter changes, given the inbox row of its message; both are locked.
///
/// # Errors
/// Why nothing may be changed.
pub fn decide(act: Act, letter: Letter, row: Option<Row>, bounds: Bounds) -> Result<Change, Told> {
    use self::LetterState::{Discarded, Open, Replaying, Resolved};
    match (letter.state, act) {
        (Resolved, _) => return Err(Told::AlreadyResolved),
        (Discarded, Act::Replay | Act::Discard) => return Err(Told::AlreadyDiscarded),
        (Open | Replaying, Act::Restore) => return Err(Told::AlreadyOpen),
        (Open, _) | (Replaying, _) | (Discarded, Act::Restore) => {}
    }
    if letter.unpublished {
        let (state, told) = match act {
            Act::Replay => (Resolved, Told::Republished),
            Act::Discard => (Discarded, Told::Discarded),
            Act::Restore => (Open, Told::Restored),
        };
        return Ok(Change { letter: state, row: None, publish: act == Act::Replay, release: false, told });
    }
    let closed = Change { letter: Resolved, row: None, publish: false, release: true, told: Told::AlreadyProcessed };
    match row.map(|it| it.state) {
        Some(State::Processed) => return Ok(closed),
        // An attempt that a replay sent out is on its way.
        Some(State::Retrying | State::Leased) if letter.state == Replaying && bounds.force => {}
        Some(State::Retrying | State::Leased) if letter.state == Replaying => return Err(Told::AlreadyReplaying),
        Some(State::Retrying | State::Leased | State::Held) => return Err(Told::InProgress),
        Some(State::Dead | State::Discarded) | None => {}
    }
    let attempt = row.map_or(letter.attempts, |it| it.attempt).max(1);
    match act {
        // Of a message that is closed elsewhere, another letter would have to be restored.
        Act::Replay if row.is_some_and(|it| it.state == State::Discarded) => Err(Told::AlreadyDiscarded),
        Act::Replay if bounds.replays_max <= letter.replays && !bounds.force => Err(Told::TooManyReplays),
        Act::Replay if ATTEMPT_MAX <= attempt => Err(Told::TooManyAttempts),
        Act::Replay => {
            let row = Some((State::Retrying, attempt + 1));
            Ok(Change { letter: Replaying, row, publish: true, release: false, told: Told::Replaying })
        }
        Act::Discard => {
            let row = Some((State::Discarded, attempt));
            Ok(Change { letter: Discarded, row, publish: false, release: true, told: Told::Discarded })
        }
        Act::Restore => {
            let row = Some((State::Dead, attempt));
            Ok(Change { letter: Open, row, publish: false, release: false, told: Told::Restored })
        }
    }
}

/// What becomes of a letter whose replay is decided for good: it took effect, or did not.
pub fn after_replay(took_effect: bool) -> LetterState {
    if took_effect { LetterState::Resolved } else { LetterState::Open }
}

#[cfg(test)]
mod tests;
