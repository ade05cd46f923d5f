use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn policy(attempts_max: u32) -> RetryPolicy {
    RetryPolicy::new(vec![SECOND, 10 * SECOND], attempts_max, 0.0, HOUR)
}

#[test]
fn decides_by_attempt_and_kind() {
    use FailureKind::{Contended, Invalid, Permanent, Transient};
    let retry = |attempt, tier, delay| Decision::Retry { attempt, tier, delay };
    let cases = [
        (3, 1, Transient, retry(2, 0, SECOND)),
        (3, 2, Transient, retry(3, 1, 10 * SECOND)),
        (3, 3, Transient, Decision::Dead(Reason::Exhausted)),
        (200, 3, Transient, retry(4, 1, 10 * SECOND)),
        (200, 199, Transient, retry(200, 1, 10 * SECOND)),
        (200, 200, Transient, Decision::Dead(Reason::Exhausted)),
        (1, 1, Transient, Decision::Dead(Reason::Exhausted)),
        (3, 1, Permanent, Decision::Dead(Reason::Permanent)),
        (3, 3, Permanent, Decision::Dead(Reason::Permanent)),
        (3, 1, Invalid, Decision::Dead(Reason::Invalid)),
        (3, 1, Contended, retry(1, 0, SECOND)),
        (3, 3, Contended, retry(3, 0, SECOND)),
    ];
    for (attempts_max, attempt, kind, expected) in cases {
        let decision = policy(attempts_max).decide(attempt, kind, Duration::ZERO, 7);
        assert_eq!(decision, expected, "attempt {attempt} of {attempts_max}, {kind:?}");
    }
}

#[test]
fn contention_ends_at_its_age_limit() {
    let decide = |age| policy(3).decide(2, FailureKind::Contended, age, 7);
    assert!(matches!(decide(HOUR - SECOND), Decision::Retry { attempt: 2, .. }));
    assert_eq!(decide(HOUR), Decision::Dead(Reason::Contended));
}

#[test]
fn without_tiers_everything_dies_at_once() {
    let policy = RetryPolicy::new(Vec::new(), 5, 0.1, HOUR);
    assert_eq!(policy.decide(1, FailureKind::Transient, Duration::ZERO, 0), Decision::Dead(Reason::Exhausted));
    assert_eq!(policy.decide(1, FailureKind::Contended, Duration::ZERO, 0), Decision::Dead(Reason::Contended));
}

proptest! {
    #[test]
    fn delays_stay_within_the_jitter_and_never_overflow(
        attempt in 1_u32..=u32::MAX,
        delay_ms in prop_oneof![Just(0_u64), 1_u64..100_000, Just(365 * 86_400_000), Just(u64::MAX)],
        jitter in 0.0_f64..=1.0,
        random: u64,
    ) {
        let delay = Duration::from_millis(delay_ms);
        let policy = RetryPolicy::new(vec![delay], u32::MAX, jitter, HOUR);
        match policy.decide(attempt, FailureKind::Transient, Duration::ZERO, random) {
            Decision::Retry { attempt: next, tier, delay: jittered } => {
                prop_assert_eq!((next, tier), (attempt + 1, 0));
                let tolerance = 1e-6 + delay.as_secs_f64() * 1e-9;
                prop_assert!(jittered.as_secs_f64() <= delay.as_secs_f64() * (1.0 + jitter) + tolerance);
                prop_assert!(delay.as_secs_f64() * (1.0 - jitter) <= jittered.as_secs_f64() + tolerance);
            }
            Decision::Dead(reason) => prop_assert_eq!((reason, attempt), (Reason::Exhausted, u32::MAX)),
        }
    }
}

#[test]
fn simultaneous_failures_spread_over_the_jitter() {
    let policy = RetryPolicy::new(vec![30 * SECOND], 2, 0.1, HOUR);
    let mut slots = std::collections::BTreeMap::new();
    for seed in 0..10_000_u64 {
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if let Decision::Retry { delay, .. } = policy.decide(1, FailureKind::Transient, Duration::ZERO, random) {
            *slots.entry(delay.as_millis() / 100).or_insert(0) += 1;
        }
    }
    assert!(50 <= slots.len(), "{} slots of 100 ms", slots.len());
    assert!(slots.values().all(|&it| it < 400), "{slots:?}");
}
