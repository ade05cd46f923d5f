//! The promises hold for a whole day, and nothing grows.

use std::time::Duration;

use sekali_simulation::{Lasted, Peaks, last};

#[test]
fn a_day_in_the_order_of_keys_leaves_nothing_behind() {
    last_a_day(15, 100, 150);
}

#[test]
fn a_day_of_keys_held_by_dead_letters_leaves_nothing_behind() {
    last_a_day(1, 100, 150);
}

#[test]
fn a_day_without_order_leaves_nothing_behind() {
    last_a_day(5, 100, 150);
}

#[test]
fn a_day_of_effects_leaves_nothing_behind() {
    last_a_day(3, 120, 600);
}

/// Effects take longer, so that more is on its way.
fn last_a_day(seed: u64, in_flight_max: usize, backlog_max: usize) {
    let lasted = last(seed, Duration::from_secs(24 * 3_600)).unwrap_or_else(|violation| panic!("{violation}"));
    let Lasted { stats, messages, peaks } = &lasted;
    assert!(
        30_000 < *messages && 30_000 < stats.faults && 1_000 < stats.retried && 500 < stats.dead,
        "too little happened: {lasted:?}"
    );
    for peak in peaks {
        let Peaks { in_flight, held_keys, holds, held, outbox, backlog, overdue } = *peak;
        assert!(
            in_flight <= in_flight_max
                && held_keys <= 64
                && holds <= 20
                && held <= in_flight_max
                && outbox <= 20
                && backlog <= backlog_max
                // What is behind cannot be forgotten yet.
                && overdue <= backlog_max / 20,
            "something grew: {lasted:?}"
        );
    }
}

#[test]
fn a_long_time_repeats_itself() {
    let hour = || last(4, Duration::from_secs(3_600));
    assert_eq!(hour(), hour());
}
