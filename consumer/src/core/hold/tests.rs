use std::time::Duration;

use super::*;
use crate::core::retry::Reason;

const RETRY: Decision = Decision::Retry { attempt: 2, tier: 0, delay: Duration::from_secs(1) };
const DEAD: Decision = Decision::Dead(Reason::Permanent);

#[test]
fn a_retry_holds_and_a_dead_letter_as_configured() {
    assert!(Rule::ByKey(AfterDeadLetter::Continue).holds(RETRY));
    assert!(!Rule::ByKey(AfterDeadLetter::Continue).holds(DEAD));
    assert!(Rule::ByKey(AfterDeadLetter::Hold).holds(RETRY));
    assert!(Rule::ByKey(AfterDeadLetter::Hold).holds(DEAD));
    assert!(!Rule::Never.holds(RETRY) && !Rule::Never.holds(DEAD));
}

#[test]
fn what_runs_is_parked_behind_a_held_key_and_behind_an_item_that_holds() {
    use Standing::{Holds, Passes, Runs};
    let items = [
        (Some('a'), Runs),
        (Some('b'), Runs),
        (Some('b'), Holds),
        (Some('b'), Runs),
        (None, Runs),
        (Some('a'), Passes),
    ];
    let held = BTreeSet::from(['a']);
    assert_eq!(parked(items, &held), [true, false, false, true, false, false]);
}

#[test]
fn nothing_takes_effect_behind_a_refused_message_of_its_key() {
    use Answered::{Applied, Refused};
    let (holds, dies) = (Refused { holds: true }, Refused { holds: false });
    let overtaken = [(Some('b'), dies), (Some('a'), holds), (Some('a'), holds), (Some('a'), Applied), (None, holds)];
    assert_eq!(parked_after(overtaken), Err(Overtaken { heads: vec![1, 4] }));
    assert_eq!(parked_after([(Some('a'), dies), (Some('a'), Applied)]), Ok(vec![false, false]));
    assert_eq!(
        parked_after([(Some('a'), holds), (Some('b'), Applied), (None, holds), (None, Applied)]),
        Ok(vec![false; 4])
    );
    let behind = [(Some('a'), holds), (Some('a'), dies), (Some('a'), holds)];
    assert_eq!(parked_after(behind), Ok(vec![false, true, true]));
}

#[test]
fn a_hold_is_released_only_behind_a_head_that_can_come_no_more() {
    use sekali_schemas::inbox::State;
    for head in State::ALL.map(Some).into_iter().chain([None]) {
        for open in [false, true] {
            assert_eq!(release(true, head, open), Release::Already, "{head:?}");
            let undecided = matches!(head, Some(State::Retrying | State::Leased | State::Held));
            let expected = match (undecided, open) {
                (true, _) => Release::Overtakes(Head::Undecided),
                (false, true) => Release::Overtakes(Head::DeadLetter),
                (false, false) => Release::Free,
            };
            assert_eq!(release(false, head, open), expected, "{head:?}, {open}");
        }
    }
}
