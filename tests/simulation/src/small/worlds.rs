//! The small worlds.

use sekali_consumer::core::hold::{AfterDeadLetter, Rule};

use super::SmallWorld;
use crate::choice::Fault::{
    Crash, HandOver, Impatience, Interruption, LeaseEnds, Leave, LostAnswer, LostCommit, Pause, PublishedTwice,
    ReadTwice, TakeOver,
};
use crate::shape::{STILL, STILL_IN_ONE_PARTITION, STILL_WITH_TWO_LANES};
use crate::world::{Behaviour, Manner};

const HOLD: Rule = Rule::ByKey(AfterDeadLetter::Hold);

const GOOD: Behaviour = Behaviour::Good;
const FAILS_ONCE: Behaviour = Behaviour::FailsTimes(1, Manner::Fails);
const REFUSED_ONCE: Behaviour = Behaviour::FailsTimes(1, Manner::Refuses);
const FAILS_LATE: Behaviour = Behaviour::FailsTimes(1, Manner::FailsLate);
const EXHAUSTED: Behaviour = Behaviour::FailsTimes(2, Manner::Fails);
const POISON: Behaviour = Behaviour::Poison(Manner::Fails);

/// Two of one key, of which the first one fails once, and one of another key, in one partition; every step apart.
const APART: SmallWorld = SmallWorld {
    name: "",
    quick: true,
    states_min: 0,
    shape: &STILL_IN_ONE_PARTITION,
    rule: Rule::ByKey(AfterDeadLetter::Continue),
    held_per_key_max: usize::MAX,
    effects_max: None,
    leases_ahead_max: 0,
    messages: &[(2, FAILS_ONCE), (3, GOOD), (2, GOOD)],
    faults: &[],
    replays: false,
    eager: false,
};
const EAGER: SmallWorld = SmallWorld { eager: true, ..APART };
const TWO: SmallWorld = SmallWorld { shape: &STILL, ..EAGER };

/// Effects outside the database, two at once.
const EFFECTS: SmallWorld = SmallWorld { effects_max: Some(2), ..EAGER };
/// One at a time, and the lease for another one taken ahead.
const AHEAD: SmallWorld = SmallWorld { effects_max: Some(1), leases_ahead_max: 1, ..EAGER };

/// The small worlds.
pub static SMALL_WORLDS: &[SmallWorld] = &[
    SmallWorld { name: "a crash", states_min: 5_000, faults: &[Crash], ..APART },
    SmallWorld {
        name: "an interruption and a lost answer",
        states_min: 3_000,
        faults: &[Interruption, LostAnswer],
        ..APART
    },
    SmallWorld {
        name: "records published and read twice",
        states_min: 5_000,
        faults: &[PublishedTwice, ReadTwice],
        ..APART
    },
    SmallWorld {
        name: "a member that leaves, and a lost commit",
        states_min: 10_000,
        faults: &[Leave, LostCommit],
        ..APART
    },
    SmallWorld {
        name: "a dead letter that holds its key until it is replayed or discarded, and a crash",
        states_min: 10_000,
        rule: HOLD,
        replays: true,
        messages: &[(2, POISON), (3, GOOD), (2, GOOD)],
        faults: &[Crash],
        ..APART
    },
    SmallWorld {
        name: "a dead letter that lets its key pass, and a crash",
        states_min: 500,
        messages: &[(2, POISON), (3, GOOD), (2, GOOD)],
        faults: &[Crash],
        ..APART
    },
    SmallWorld {
        name: "a message that is out of attempts, and a crash",
        states_min: 15_000,
        messages: &[(2, EXHAUSTED), (3, GOOD), (2, GOOD)],
        faults: &[Crash],
        ..APART
    },
    SmallWorld {
        name: "refusals inside a batch, and a crash",
        states_min: 7_500,
        messages: &[(2, REFUSED_ONCE), (3, GOOD), (2, REFUSED_ONCE)],
        faults: &[Crash],
        ..APART
    },
    SmallWorld {
        name: "failures at the end of transactions, and a crash",
        states_min: 2_500,
        messages: &[(2, FAILS_LATE), (3, GOOD), (2, FAILS_LATE)],
        faults: &[Crash],
        ..EAGER
    },
    SmallWorld {
        name: "two partitions, two executors, and nothing goes wrong",
        states_min: 2_500,
        shape: &STILL_WITH_TWO_LANES,
        eager: false,
        ..TWO
    },
    SmallWorld {
        name: "no order, a crash and a zombie",
        states_min: 5_000,
        rule: Rule::Never,
        faults: &[Crash, TakeOver],
        ..EAGER
    },
    SmallWorld { name: "a zombie and a lost commit", states_min: 5_000, faults: &[TakeOver, LostCommit], ..EAGER },
    SmallWorld { name: "a zombie and an interruption", states_min: 10_000, faults: &[TakeOver, Interruption], ..EAGER },
    SmallWorld {
        name: "a hand-over that is not waited for, and a lost commit",
        states_min: 5_000,
        faults: &[HandOver, Impatience, LostCommit],
        ..EAGER
    },
    SmallWorld {
        name: "a dead letter that holds its key, and a zombie",
        states_min: 5_000,
        rule: HOLD,
        replays: true,
        messages: &[(2, POISON), (3, GOOD), (2, GOOD)],
        faults: &[TakeOver],
        ..EAGER
    },
    SmallWorld {
        name: "no room behind a held key, and a crash",
        states_min: 2_500,
        held_per_key_max: 1,
        messages: &[(2, FAILS_ONCE), (2, GOOD), (2, GOOD), (3, GOOD)],
        faults: &[Crash],
        ..EAGER
    },
    SmallWorld {
        name: "two partitions, a crash and a lost commit",
        states_min: 15_000,
        faults: &[Crash, LostCommit],
        ..TWO
    },
    SmallWorld { name: "two partitions and a zombie", states_min: 10_000, faults: &[TakeOver], ..TWO },
    SmallWorld {
        name: "two partitions, two executors and a crash",
        states_min: 20_000,
        shape: &STILL_WITH_TWO_LANES,
        faults: &[Crash],
        ..TWO
    },
    SmallWorld {
        name: "two partitions whose keys share a hash, and a crash",
        states_min: 7_500,
        messages: &[(0, FAILS_ONCE), (1, GOOD), (0, GOOD)],
        faults: &[Crash],
        ..TWO
    },
    SmallWorld {
        name: "a crash, a zombie and a lost commit",
        quick: false,
        states_min: 200_000,
        faults: &[Crash, TakeOver, LostCommit],
        ..EAGER
    },
    SmallWorld { name: "two zombies", quick: false, states_min: 50_000, faults: &[TakeOver, TakeOver], ..EAGER },
    SmallWorld {
        name: "a hand-over and a crash",
        quick: false,
        states_min: 35_000,
        faults: &[HandOver, Crash],
        ..EAGER
    },
    SmallWorld {
        name: "a dead letter that holds its key, a crash and a zombie",
        quick: false,
        states_min: 25_000,
        rule: HOLD,
        messages: &[(2, POISON), (3, GOOD), (2, GOOD)],
        faults: &[Crash, TakeOver],
        ..EAGER
    },
    SmallWorld {
        name: "no room behind a held key, and a zombie",
        quick: false,
        states_min: 15_000,
        held_per_key_max: 1,
        messages: &[(2, FAILS_ONCE), (2, GOOD), (2, GOOD), (3, GOOD)],
        faults: &[TakeOver],
        ..EAGER
    },
    SmallWorld {
        name: "two heads after each other, and a crash",
        quick: false,
        states_min: 50_000,
        messages: &[(2, FAILS_ONCE), (2, FAILS_ONCE), (2, GOOD)],
        faults: &[Crash],
        ..EAGER
    },
    SmallWorld {
        name: "two heads after each other, and a zombie",
        quick: false,
        states_min: 20_000,
        messages: &[(2, FAILS_ONCE), (2, FAILS_ONCE), (2, GOOD)],
        faults: &[TakeOver],
        ..EAGER
    },
    SmallWorld {
        name: "two partitions and two crashes",
        quick: false,
        states_min: 35_000,
        faults: &[Crash, Crash],
        ..TWO
    },
    SmallWorld { name: "a zombie, step by step", quick: false, states_min: 50_000, faults: &[TakeOver], ..APART },
    SmallWorld { name: "an operator who pauses", states_min: 1_000, faults: &[Pause], ..EAGER },
    SmallWorld { name: "an operator who pauses, and a crash", states_min: 5_000, faults: &[Pause, Crash], ..EAGER },
    SmallWorld {
        name: "an operator who pauses, and an interruption",
        states_min: 2_000,
        faults: &[Pause, Interruption],
        ..EAGER
    },
    SmallWorld {
        name: "an operator who pauses, and a zombie",
        quick: false,
        states_min: 5_000,
        faults: &[Pause, TakeOver],
        ..EAGER
    },
    SmallWorld {
        name: "an operator who pauses twice, and failures at the end of transactions",
        states_min: 2_000,
        messages: &[(2, FAILS_LATE), (3, GOOD), (2, FAILS_LATE)],
        faults: &[Pause, Pause],
        ..EAGER
    },
    SmallWorld { name: "effects, and an operator who pauses", states_min: 2_000, faults: &[Pause], ..EFFECTS },
    SmallWorld {
        name: "effects leased ahead, and an operator who pauses",
        states_min: 500,
        messages: &[(2, FAILS_ONCE), (3, FAILS_LATE), (2, GOOD), (3, GOOD)],
        faults: &[Pause],
        ..AHEAD
    },
    SmallWorld {
        name: "effects, an operator who pauses, and a crash",
        quick: false,
        states_min: 10_000,
        faults: &[Pause, Crash],
        ..EFFECTS
    },
    SmallWorld { name: "effects, and a crash", states_min: 20_000, faults: &[Crash], ..EFFECTS },
    SmallWorld { name: "effects, and a zombie", states_min: 30_000, faults: &[TakeOver], ..EFFECTS },
    SmallWorld {
        name: "effects, an interruption and a lost answer",
        states_min: 6_000,
        faults: &[Interruption, LostAnswer],
        ..EFFECTS
    },
    SmallWorld {
        name: "effects, a zombie whose lease ends early",
        quick: false,
        states_min: 300_000,
        faults: &[TakeOver, LeaseEnds],
        ..EFFECTS
    },
    SmallWorld {
        name: "effects that are not recorded, and a crash",
        states_min: 20_000,
        messages: &[(2, FAILS_LATE), (3, GOOD), (2, GOOD)],
        faults: &[Crash],
        ..EFFECTS
    },
    SmallWorld {
        name: "effects, a member that leaves, and a lost commit",
        states_min: 8_000,
        faults: &[Leave, LostCommit],
        ..EFFECTS
    },
    SmallWorld {
        name: "effects, a hand-over that is not waited for",
        states_min: 16_000,
        faults: &[HandOver, Impatience],
        ..EFFECTS
    },
    SmallWorld {
        name: "effects without order, a crash and a zombie",
        quick: false,
        states_min: 700_000,
        rule: Rule::Never,
        faults: &[Crash, TakeOver],
        ..EFFECTS
    },
    SmallWorld {
        name: "effects leased ahead, a member that leaves, and a crash",
        states_min: 1_000,
        faults: &[Leave, Crash],
        ..AHEAD
    },
    SmallWorld { name: "effects leased ahead, and a hand-over", states_min: 1_000, faults: &[HandOver], ..AHEAD },
    SmallWorld {
        name: "effects leased ahead, a hand-over and a zombie",
        quick: false,
        states_min: 1_000,
        faults: &[HandOver, TakeOver],
        ..AHEAD
    },
    SmallWorld {
        name: "effects leased ahead behind a head that fails, an interruption and a lost answer",
        quick: false,
        states_min: 1_000,
        messages: &[(2, FAILS_ONCE), (3, FAILS_LATE), (2, GOOD), (3, GOOD)],
        faults: &[Interruption, LostAnswer],
        ..AHEAD
    },
    SmallWorld {
        name: "effects, a dead letter that holds its key, and a crash",
        states_min: 28_000,
        rule: HOLD,
        replays: true,
        messages: &[(2, POISON), (3, GOOD), (2, GOOD)],
        faults: &[Crash],
        ..EFFECTS
    },
];
