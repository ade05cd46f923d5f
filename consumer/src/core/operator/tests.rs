use super::*;

const BOUNDS: Bounds = Bounds { replays_max: 3, force: false };

fn letter(state: LetterState) -> Letter {
    Letter { state, replays: 0, attempts: 4, unpublished: false }
}

fn row(state: State) -> Option<Row> {
    Some(Row { state, attempt: 4, fingerprint: 5 })
}

#[test]
fn every_cell_of_the_table() {
    use LetterState::{Discarded, Open, Replaying, Resolved};
    for state in LetterState::ALL {
        for act in Act::ALL {
            for inbox in State::ALL.map(row).into_iter().chain([None]) {
                let told = decide(act, letter(state), inbox, BOUNDS).map_or_else(|it| it, |it| it.told);
                let expected = match (state, act, inbox.map(|it| it.state)) {
                    (Resolved, ..) => Told::AlreadyResolved,
                    (Discarded, Act::Replay | Act::Discard, _) => Told::AlreadyDiscarded,
                    (Open | Replaying, Act::Restore, _) => Told::AlreadyOpen,
                    (.., Some(State::Processed)) => Told::AlreadyProcessed,
                    (Replaying, _, Some(State::Retrying | State::Leased)) => Told::AlreadyReplaying,
                    (.., Some(State::Retrying | State::Leased | State::Held)) => Told::InProgress,
                    (_, Act::Replay, Some(State::Discarded)) => Told::AlreadyDiscarded,
                    (_, Act::Replay, _) => Told::Replaying,
                    (_, Act::Discard, _) => Told::Discarded,
                    (_, Act::Restore, _) => Told::Restored,
                };
                assert_eq!(told, expected, "{state:?}, {act:?}, {inbox:?}");
            }
        }
    }
}

#[test]
fn a_replay_asks_for_an_attempt_that_nothing_else_asks_for() {
    let change = decide(Act::Replay, letter(LetterState::Open), row(State::Dead), BOUNDS).unwrap();
    assert_eq!((change.row, change.publish, change.release), (Some((State::Retrying, 5)), true, false));
    let change = decide(Act::Replay, letter(LetterState::Open), None, BOUNDS).unwrap();
    assert_eq!(change.row, Some((State::Retrying, 5)), "the inbox has forgotten it, the letter counts");
    let forced = Bounds { force: true, ..BOUNDS };
    let change = decide(Act::Replay, letter(LetterState::Replaying), row(State::Retrying), forced).unwrap();
    assert_eq!(change.row, Some((State::Retrying, 5)), "what was sent before comes too late now");
    let last = Letter { attempts: ATTEMPT_MAX, ..letter(LetterState::Open) };
    assert_eq!(decide(Act::Replay, last, None, forced), Err(Told::TooManyAttempts));
}

#[test]
fn replays_are_bounded_unless_forced() {
    for (replays, force, allowed) in [(2, false, true), (3, false, false), (9, false, false), (9, true, true)] {
        let letter = Letter { replays, ..letter(LetterState::Open) };
        let decided = decide(Act::Replay, letter, row(State::Dead), Bounds { force, ..BOUNDS });
        assert_eq!(decided.is_ok(), allowed, "{replays} {force}");
        assert!(decide(Act::Discard, letter, row(State::Dead), BOUNDS).is_ok(), "closing it is always possible");
    }
}

#[test]
fn what_was_closed_lets_its_key_go_and_a_replay_does_not() {
    let change = |act, state, inbox| decide(act, letter(state), row(inbox), BOUNDS).unwrap();
    let discarded = change(Act::Discard, LetterState::Open, State::Dead);
    assert_eq!((discarded.letter, discarded.release), (LetterState::Discarded, true));
    assert!(!change(Act::Replay, LetterState::Open, State::Dead).release);
    let restored = change(Act::Restore, LetterState::Discarded, State::Discarded);
    assert_eq!((restored.letter, restored.row), (LetterState::Open, Some((State::Dead, 4))));
}

#[test]
fn a_record_that_kafka_refused_goes_out_once_more_and_touches_no_inbox() {
    let letter = Letter { unpublished: true, ..letter(LetterState::Open) };
    let change = decide(Act::Replay, letter, None, BOUNDS).unwrap();
    assert_eq!((change.letter, change.row, change.publish), (LetterState::Resolved, None, true));
    let change = decide(Act::Discard, letter, None, BOUNDS).unwrap();
    assert_eq!((change.letter, change.row, change.publish), (LetterState::Discarded, None, false));
    let closed = Letter { state: LetterState::Resolved, ..letter };
    assert_eq!(decide(Act::Replay, closed, None, BOUNDS), Err(Told::AlreadyResolved));
}

#[test]
fn words_are_read_back_and_only_what_was_asked_for_is_done() {
    assert!(LetterState::ALL.iter().all(|it| LetterState::named(it.as_str()) == Some(*it)));
    assert_eq!(LetterState::named("dead"), None);
    assert_eq!(Told::ALL.iter().filter(|it| it.is_done()).count(), Act::ALL.len() + 1);
    assert_eq!((after_replay(true), after_replay(false)), (LetterState::Resolved, LetterState::Open));
}
