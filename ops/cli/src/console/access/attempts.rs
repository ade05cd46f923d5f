//! Wrong tokens, by the address that they came from: after a few, an address waits, longer each time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tokens in a row before the first wait: slips of the hand.
const FREE: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longer would let a stranger behind the same proxy keep operators out; a token is not guessed at this pace either.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// An address without a wrong token for so long begins anew.
const FORGET: Duration = Duration::from_secs(15 * 60);
/// Beyond that, the address that has been silent for longest is forgotten.
const ADDRESSES_MAX: usize = 4_096;

/// Addresses whose last token was wrong.
#[derive(Default)]
pub(super) struct Attempts(Mutex<HashMap<IpAddr, Wrong>>);

struct Wrong {
    in_a_row: u32,
    last_at: Instant,
}

impl Wrong {
    fn wait(&self) -> Duration {
        let Some(doublings) = self.in_a_row.checked_sub(FREE) else { return Duration::ZERO };
        FIRST_WAIT.saturating_mul(1 << doublings.min(16)).min(WAIT_MAX)
    }
}

impl Attempts {
    /// Looks at a token, unless its address has to wait: then says for how long. One at a time, so that many at once are
    /// no way around.
    pub(super) fn attempt(
        &self,
        from: IpAddr,
        now: Instant,
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, Duration> {
        let from = network(from);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&from).filter(|it| now.duration_since(it.last_at) < FORGET);
        let in_a_row = known.map_or(0, |it| it.in_a_row);
        if let Some(left) = known.and_then(|it| (it.last_at + it.wait()).checked_duration_since(now))
            && !left.is_zero()
        {
            return Err(left);
        }
        if is_right() {
            all.remove(&from);
            return Ok(true);
        }
        if ADDRESSES_MAX <= all.len() && !all.contains_key(&from) {
            let oldest = all.iter().min_by_key(|it| it.1.last_at).map(|it| *it.0);
            oldest.and_then(|it| all.remove(&it));
        }
        let wrong = Wrong { in_a_row: in_a_row.saturating_add(1), last_at: now };
        if !wrong.wait().is_zero() {
            tracing::warn!(address = %from, in_a_row = wrong.in_a_row, "wrong tokens: this address has to wait");
        }
        all.insert(from, wrong);
        Ok(false)
    }
}

/// Whoever has one address of IPv6 has the whole network of it.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() & (u128::MAX << 64)).into(),
        it => it,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn wrong(attempts: &Attempts, from: IpAddr, now: Instant) -> Result<bool, Duration> {
        attempts.attempt(from, now, || false)
    }

    #[test]
    fn after_five_wrong_tokens_an_address_waits_longer_each_time_even_with_the_right_one() {
        let (attempts, mut now) = (Attempts::default(), Instant::now());
        for _ in 0..FREE {
            assert_eq!(wrong(&attempts, HOME, now), Ok(false));
        }
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(attempts.attempt(HOME, now, || panic!("not even looked at")), Err(wait));
            now += wait - Duration::from_millis(1);
            assert_eq!(wrong(&attempts, HOME, now), Err(Duration::from_millis(1)));
            now += Duration::from_millis(1);
            assert_eq!(wrong(&attempts, HOME, now), Ok(false));
        }
        now += WAIT_MAX;
        assert_eq!(attempts.attempt(HOME, now, || true), Ok(true));
        assert_eq!(wrong(&attempts, HOME, now), Ok(false), "the right one makes up for the wrong ones");
    }

    #[test]
    fn other_addresses_do_not_wait_and_time_makes_up_for_everything() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for second in 0..5_000 {
            let _ = wrong(&attempts, HOME, now + Duration::from_millis(second));
        }
        assert!(wrong(&attempts, HOME, now + Duration::from_secs(5)).is_err());
        assert_eq!(attempts.attempt("192.0.2.2".parse().unwrap(), now, || true), Ok(true));
        assert_eq!(wrong(&attempts, HOME, now + FORGET + Duration::from_secs(60)), Ok(false));
        assert_eq!(wrong(&attempts, HOME, now + FORGET + Duration::from_secs(60)), Ok(false));
    }

    #[test]
    fn addresses_of_one_network_are_one_and_the_table_is_bounded() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for host in 1..=u128::from(FREE) {
            let from = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | host);
            assert_eq!(wrong(&attempts, from.into(), now), Ok(false));
        }
        assert!(wrong(&attempts, "2001:db8::ffff".parse().unwrap(), now).is_err());
        assert_eq!(wrong(&attempts, "::ffff:192.0.2.1".parse().unwrap(), now), Ok(false));
        assert!(attempts.0.lock().unwrap().contains_key(&HOME), "an IPv4 address in IPv6 is that address");
        for host in 0..10_000_u32 {
            let _ = wrong(&attempts, IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + host)), now);
        }
        assert_eq!(attempts.0.lock().unwrap().len(), ADDRESSES_MAX);
    }
}
