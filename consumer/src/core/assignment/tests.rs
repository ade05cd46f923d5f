use std::time::Duration;

use super::super::event::{Findings, Item, Outcome};
use super::super::retry::{Decision, FailureKind};
use super::*;

const SOURCE: Partition = Partition { topic: 0, number: 0, retry: false };
const RETRY: Partition = Partition { topic: 1, number: 0, retry: true };
const SECOND: Duration = Duration::from_secs(1);

fn core() -> Core<()> {
    with_dead_letters(None)
}

fn with_dead_letters(dead_letters_ahead_max: Option<u32>) -> Core<()> {
    let limits = Limits {
        lanes: 1,
        batch_max: 4,
        buffered_max: 8,
        commit_interval: SECOND,
        interrupted_delay: Duration::from_millis(100),
        interrupted_delay_max: Duration::from_secs(5),
        stall_timeout: Duration::from_secs(60),
        order: Order::None,
        full_delay: SECOND,
        holds_interval: SECOND,
        effects_max: None,
        leases_ahead_max: 0,
        dead_letters_ahead_max,
        dead_letter_refill: SECOND,
    };
    let policy = RetryPolicy::new(vec![SECOND], 3, 0.0, Duration::from_secs(600));
    let mut core = Core::new(policy, limits, 1);
    core.apply(Timestamp(0), Event::Assigned(vec![SOURCE, RETRY]));
    core
}

fn record(offset: Offset, due_at: Option<Timestamp>) -> Record<()> {
    Record { offset, attempt: 1, key: None, due_at, first_failed_at: None, produced_at: None, message: () }
}

/// What the executor was given.
fn items(actions: Vec<Action<()>>) -> Vec<Item<()>> {
    let run = |it| match it {
        Action::Run { items, .. } => Some(items),
        _ => None,
    };
    actions.into_iter().find_map(run).expect("something runs")
}

fn finished(outcome: Outcome, items: Vec<Item<()>>, findings: Findings) -> Event<()> {
    Event::Finished { lane: LaneId(0), outcome, items, findings }
}

#[test]
fn a_partition_is_paused_at_its_share_and_resumed_at_half_of_it() {
    let mut core = core();
    // Four go to the executor at once.
    let actions = core.apply(Timestamp(1), Event::Received(SOURCE, (0..11).map(|it| record(it, None)).collect()));
    assert!(!actions.iter().any(|it| matches!(it, Action::Pause(..))));
    let actions = core.apply(Timestamp(2), Event::Received(SOURCE, vec![record(11, None)]));
    assert!(actions.iter().any(|it| matches!(it, Action::Pause(SOURCE, PauseReason::Full))));
    let actions = core.apply(Timestamp(3), finished(Outcome::Decided, Vec::new(), Findings::default()));
    assert!(actions.iter().any(|it| matches!(it, Action::Resume(SOURCE))));
}

#[test]
fn the_core_asks_to_be_woken_when_a_record_is_due() {
    let mut core = core();
    let due_at = Timestamp(5_000);
    core.apply(Timestamp(1), Event::Received(RETRY, vec![record(0, Some(due_at))]));
    assert_eq!(core.next_deadline(Timestamp(1)), Some(due_at));
    let actions = core.apply(due_at, Event::Tick);
    assert!(actions.iter().any(|it| matches!(it, Action::Run { .. })));
}

#[test]
fn the_core_asks_to_be_woken_after_an_interruption() {
    let mut core = core();
    let actions = core.apply(Timestamp(1), Event::Received(SOURCE, vec![record(0, None)]));
    core.apply(Timestamp(10), finished(Outcome::Interrupted, items(actions), Findings::default()));
    assert_eq!(core.next_deadline(Timestamp(10)), Some(Timestamp(110)));
    let actions = core.apply(Timestamp(110), Event::Tick);
    assert!(actions.iter().any(|it| matches!(it, Action::Run { .. })));
}

#[test]
fn a_client_is_made_anew_only_when_it_hands_out_nothing() {
    let renewed = |actions: &[Action<()>]| actions.iter().any(|it| matches!(it, Action::Reconnect { .. }));
    let mut core = core();
    core.apply(Timestamp(1), Event::Received(SOURCE, vec![record(0, None)]));
    // Late news of the time before: what it had is at work now.
    core.apply(Timestamp(2), Event::Backlog(vec![SOURCE]));
    assert!(!renewed(&core.apply(Timestamp(100_000), Event::Tick)));
    core.apply(Timestamp(100_001), Event::Backlog(vec![RETRY]));
    assert!(!renewed(&core.apply(Timestamp(160_000), Event::Tick)));
    assert!(renewed(&core.apply(Timestamp(160_001), Event::Tick)));
}

#[test]
fn without_budget_a_message_that_would_die_waits() {
    let mut core = with_dead_letters(Some(1));
    let fails = |actions| finished(Outcome::Failed(FailureKind::Permanent), items(actions), Findings::default());
    let actions = core.apply(Timestamp(1), Event::Received(SOURCE, vec![record(0, None)]));
    let actions = core.apply(Timestamp(2), fails(actions));
    assert!(actions.iter().any(|it| matches!(it, Action::Decide { decision: Decision::Dead(_), .. })));
    let findings = Findings { dead: 1, ..Findings::default() };
    core.apply(Timestamp(3), finished(Outcome::Decided, Vec::new(), findings));
    let actions = core.apply(Timestamp(4), Event::Received(SOURCE, vec![record(1, None)]));
    let actions = core.apply(Timestamp(5), fails(actions));
    assert!(!actions.iter().any(|it| matches!(it, Action::Decide { .. })));
    assert!(core.is_budget_spent());
}
