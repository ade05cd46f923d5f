//! Waiting for a condition, with a limit and a good last word.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// What a probe may answer: yes with a value, or not yet with what it saw.
pub trait Outcome {
    /// What the probe found.
    type Value;

    /// `Err` describes the state that is not yet the wanted one.
    fn outcome(self) -> Result<Self::Value, String>;
}

impl<T> Outcome for Option<T> {
    type Value = T;

    fn outcome(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Display> Outcome for Result<T, E> {
    type Value = T;

    fn outcome(self) -> Result<T, String> {
        self.map_err(|it| format!("{it:#}"))
    }
}

impl Outcome for bool {
    type Value = ();

    fn outcome(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".to_owned())
    }
}

/// First pause between two probes; pauses grow to ten times this.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// Probes until the answer is yes: `Some`, `Ok` or `true`. A probe that hangs counts as no answer.
///
/// ```no_run
/// # use std::time::Duration;
/// # use sekali_tests::harness::eventually;
/// # async fn example(database: sekali_tests::harness::TestDatabase) {
/// let rows = eventually("the inbox has five rows", Duration::from_secs(10), async || {
///     let rows: i64 = database.scalar("SELECT count(*) FROM sekali.inbox").await;
///     if rows == 5 { Ok(rows) } else { Err(format!("{rows} rows")) }
/// })
/// .await;
/// # let _ = rows;
/// # }
/// ```
///
/// # Panics
/// It did not happen within `timeout`: the message has `what` and the state last seen.
#[track_caller]
pub fn eventually<R: Outcome>(
    what: &str,
    timeout: Duration,
    probe: impl AsyncFnMut() -> R,
) -> impl Future<Output = R::Value> {
    // A plain function with the caller's place, because an async one would report this file.
    wait(what, timeout, probe, std::panic::Location::caller())
}

async fn wait<R: Outcome>(
    what: &str,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> R,
    caller: &std::panic::Location<'_>,
) -> R::Value {
    let begin = Instant::now();
    let mut seen = "no answer from the probe".to_owned();
    let mut pause = FIRST_PAUSE;
    loop {
        let left = timeout.saturating_sub(begin.elapsed());
        match tokio::time::timeout(left, probe()).await.map(Outcome::outcome) {
            Ok(Ok(value)) => return value,
            Ok(Err(state)) => seen = state,
            Err(_) => {}
        }
        if begin.elapsed() + pause >= timeout {
            panic!("not within {timeout:?}: {what}; last seen: {seen} (at {caller})");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(FIRST_PAUSE * 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_the_first_yes() {
        let mut calls = 0;
        let found = eventually("third call", Duration::from_secs(5), async || {
            calls += 1;
            (calls == 3).then_some("found")
        });
        assert_eq!(found.await, "found");
        assert_eq!(calls, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "not within 50ms: a wonder; last seen: 7 of 9 (at ")]
    async fn says_what_it_waited_for_and_what_it_saw() {
        eventually("a wonder", Duration::from_millis(50), async || Err::<(), _>("7 of 9")).await;
    }

    #[tokio::test]
    #[should_panic(expected = "no answer from the probe")]
    async fn a_hanging_probe_does_not_hang_the_test() {
        eventually("an answer", Duration::from_millis(50), std::future::pending::<bool>).await;
    }
}
