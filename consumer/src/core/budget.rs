//! How many messages may become dead letters: when everything fails, the world is broken and not the messages.

use std::time::Duration;

use super::event::{Findings, Timestamp};

/// Tokens: a success earns one, a dead letter costs one, and time gives one now and then, so that a topic on which
/// nothing ever succeeds does not stand for ever.
#[derive(Clone, Hash)]
pub(super) struct Budget {
    /// `None` for no bound.
    max: Option<u32>,
    tokens: u32,
    refill: Duration,
    refilled_at: Timestamp,
    /// A dead letter had to wait, and none has been written since.
    spent: bool,
}

impl Budget {
    /// `refill` is the time that gives a token.
    pub(super) fn new(max: Option<u32>, refill: Duration) -> Budget {
        Budget { max, tokens: max.unwrap_or_default(), refill, refilled_at: Timestamp::default(), spent: false }
    }

    /// Takes in what time has given.
    pub(super) fn refill(&mut self, now: Timestamp) {
        let Some(max) = self.max else { return };
        let step = (self.refill.as_millis() as u64).max(1);
        let steps = now.0.saturating_sub(self.refilled_at.0) / step;
        if 0 < steps {
            self.tokens = self.tokens.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX)).min(max);
            self.refilled_at = Timestamp(self.refilled_at.0 + steps * step);
        }
    }

    /// Settles a committed transaction.
    pub(super) fn settle(&mut self, findings: &Findings) {
        let Some(max) = self.max else { return };
        let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        let earned = self.tokens.saturating_add(count(findings.processed)).min(max);
        self.tokens = earned.saturating_sub(count(findings.dead));
        if 0 < findings.dead {
            self.spent = false;
        }
    }

    /// Dead letters that one transaction may make now.
    pub(super) fn available(&self) -> usize {
        if self.max.is_none() { usize::MAX } else { self.tokens as usize }
    }

    /// A dead letter has to wait.
    pub(super) fn refuse(&mut self) {
        self.spent = true;
    }

    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(budget: &mut Budget, processed: usize, dead: usize) -> usize {
        budget.settle(&Findings { processed, dead, ..Findings::default() });
        budget.available()
    }

    #[test]
    fn a_success_earns_what_a_dead_letter_costs_up_to_the_limit() {
        let mut budget = Budget::new(Some(3), Duration::from_secs(10));
        assert_eq!(budget.available(), 3);
        assert_eq!(settled(&mut budget, 0, 2), 1);
        assert_eq!(settled(&mut budget, 1, 0), 2);
        assert_eq!(settled(&mut budget, 100, 0), 3);
        assert_eq!(settled(&mut budget, 0, 3), 0);
    }

    #[test]
    fn time_gives_one_a_step_and_each_step_once() {
        let mut budget = Budget::new(Some(3), Duration::from_secs(10));
        budget.refill(Timestamp(95_000));
        settled(&mut budget, 0, 3);
        for (now, tokens) in [(99_999, 0), (100_000, 1), (100_001, 1), (109_999, 1), (125_000, 3), (999_000, 3)] {
            budget.refill(Timestamp(now));
            assert_eq!(budget.available(), tokens, "at {now}");
        }
    }

    #[test]
    fn without_a_limit_everything_may_die() {
        let mut budget = Budget::new(None, Duration::from_secs(10));
        assert_eq!(settled(&mut budget, 0, 1_000_000), usize::MAX);
    }
}
