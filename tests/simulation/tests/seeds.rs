//! The promises hold for every seed.

use sekali_simulation::{Stats, simulate};

#[test]
fn every_message_takes_effect_once_or_dies_once() {
    let mut total = Stats::default();
    for seed in 1..=10_000 {
        match simulate(seed) {
            Ok(stats) => total.add(&stats),
            Err(violation) => panic!("{violation}\nrun it again with `make sim SEED={}`", violation.seed),
        }
    }
    // A simulation in which nothing happens proves nothing.
    assert!(
        100_000 < total.faults
            && 10_000 < total.retried
            && 10_000 < total.duplicates
            && 10_000 < total.dead
            && 10_000 < total.held
            && 1_000 < total.replays
            && 1_000 < total.discarded,
        "{total:?}"
    );
}

#[test]
fn a_seed_repeats_itself() {
    assert_eq!(simulate(7), simulate(7));
}
