//! Whether the keys of the next batch are expected to be new.

/// Follows what claims met. Records that come twice come together: after a rebalance, after a restart, from a producer
/// that repeats itself. One that was wrong costs the half of a claim and a line in the database's log, so that each
/// time it takes longer until the next attempt.
#[derive(Debug, Default)]
pub(crate) struct Expectation {
    /// Claims without any known key that are still wanted before one expects none again.
    careful: u32,
    /// The last `careful` to begin with.
    penalty: u32,
    /// Claims that were right to expect none, in a row.
    right: u32,
}

const PENALTY_MIN: u32 = 16;
const PENALTY_MAX: u32 = 4096;

impl Expectation {
    /// Whether all keys are expected to be new.
    pub(crate) fn is_bold(&self) -> bool {
        self.careful == 0
    }

    /// Whether they were.
    pub(crate) fn note(&mut self, all_new: bool) {
        match (self.is_bold(), all_new) {
            (true, true) => {
                self.right = self.right.saturating_add(1);
                if self.penalty < self.right {
                    self.penalty = 0;
                }
            }
            (true, false) => {
                self.right = 0;
                self.penalty = (self.penalty * 2).clamp(PENALTY_MIN, PENALTY_MAX);
                self.careful = self.penalty;
            }
            (false, true) => self.careful -= 1,
            (false, false) => self.careful = self.penalty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(expectation: &mut Expectation, all_new: bool, times: u32) {
        (0..times).for_each(|_| expectation.note(all_new));
    }

    #[test]
    fn a_known_key_makes_careful_until_there_were_none_for_a_while() {
        let mut expectation = Expectation::default();
        noted(&mut expectation, true, 100);
        assert!(expectation.is_bold());
        expectation.note(false);
        noted(&mut expectation, true, PENALTY_MIN - 1);
        assert!(!expectation.is_bold());
        expectation.note(false);
        noted(&mut expectation, true, PENALTY_MIN - 1);
        assert!(!expectation.is_bold(), "each known key begins the wait anew");
        expectation.note(true);
        assert!(expectation.is_bold());
    }

    #[test]
    fn whoever_is_wrong_again_and_again_waits_longer_and_longer() {
        let mut expectation = Expectation::default();
        let mut waited = Vec::new();
        for _ in 0..10 {
            expectation.note(false);
            let mut claims = 0;
            while !expectation.is_bold() {
                expectation.note(true);
                claims += 1;
            }
            waited.push(claims);
        }
        assert_eq!(waited, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]);
        noted(&mut expectation, true, PENALTY_MAX + 1);
        expectation.note(false);
        assert_eq!(expectation.careful, PENALTY_MIN, "what is long past is forgotten");
    }
}
