//! Follows the workers: kills one at the right moment, and sees when everything is decided.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::found::{Tally, committed, counted_from, is_settled};
use super::narration::{Narration, grouped};
use super::plan::{Kind, Plan};
use super::publish::Published;
use super::stage::Stage;
use super::workers::Worker;
use super::{PARTITIONS, SESSION_TIMEOUT};
use crate::exit::Failure;

/// Between two looks.
const STEP: Duration = Duration::from_millis(100);
/// Between two looks at what costs more: lag, and the other worker's metrics.
const LONG_STEP: Duration = Duration::from_millis(500);
/// Longest wait for both workers to have partitions.
const START_TIMEOUT: Duration = Duration::from_secs(40);
/// Longest time from the first record to the last decision.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The kill comes when so many per cent of the events are in the ledger.
const KILL_AT_PERCENT: usize = 40;

/// Waits until both workers have partitions, and all are taken.
pub(super) async fn wait_for_partitions(workers: &mut [Worker; 2]) -> Result<(), Failure> {
    let started = Instant::now();
    while started.elapsed() < START_TIMEOUT {
        let mut owned = [0, 0];
        for (worker, owned) in workers.iter_mut().zip(&mut owned) {
            worker.require_alive()?;
            *owned = worker.assigned().await.unwrap_or_default();
        }
        if !owned.contains(&0) && owned.iter().sum::<usize>() == PARTITIONS as usize {
            return Ok(());
        }
        sleep(STEP).await;
    }
    Err(Failure::error(format!("the workers did not share the partitions within {} s", START_TIMEOUT.as_secs())))
}

/// Offsets are committed every second: what has not moved for longer is not owned by a living worker, or is at rest.
const COMMIT_BEATS: Duration = Duration::from_secs(2);

/// The eye on a running demo.
pub(super) struct Watch<'a> {
    stage: &'a Stage,
    narration: &'a Narration,
    published: &'a Published,
    kill_at: usize,
    victim: Option<Worker>,
    survivor: Worker,
    crash: Option<Crash>,
}

/// The killed worker, and what came of it.
struct Crash {
    at: Instant,
    committed: BTreeMap<i32, i64>,
    redelivered: Option<usize>,
    takeover: Option<Duration>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        stage: &'a Stage,
        plan: &Plan,
        narration: &'a Narration,
        published: &'a Published,
        victim: Worker,
        survivor: Worker,
    ) -> Watch<'a> {
        let kill_at = plan.count(Kind::is_counted) * KILL_AT_PERCENT / 100;
        let victim = Some(victim);
        Watch { stage, narration, published, kill_at, victim, survivor, crash: None }
    }

    /// Until everything is decided. `false` when that took too long.
    pub(super) async fn run(&mut self) -> Result<bool, Failure> {
        let started = Instant::now();
        let mut looked = started;
        self.narration.follow();
        while started.elapsed() < TIMEOUT {
            let tally = Tally::read(&self.stage.client).await?;
            self.narration.at(tally);
            self.survivor.require_alive()?;
            if self.kill_at <= tally.counted {
                self.kill().await?;
            }
            if LONG_STEP <= looked.elapsed() {
                if self.is_over().await? {
                    return Ok(true);
                }
                looked = Instant::now();
            }
            sleep(STEP).await;
        }
        self.narration.end();
        Ok(false)
    }

    async fn kill(&mut self) -> Result<(), Failure> {
        let Some(mut victim) = self.victim.take() else { return Ok(()) };
        victim.require_alive()?;
        let number = victim.number;
        let killed = tokio::task::spawn_blocking(move || victim.kill()).await;
        killed.map_err(|error| Failure::error(format!("cannot kill worker {number}: {error}")))??;
        let at = Instant::now();
        self.crash = Some(Crash { at, committed: committed(self.stage).await?, redelivered: None, takeover: None });
        self.narration.say(format_args!(
            "Worker {number} is killed with SIGKILL. What it had in hand is rolled back by PostgreSQL. Nothing takes \
             its place: after {} s without a sign of life, Kafka gives its partitions to worker {}.",
            SESSION_TIMEOUT.as_secs(),
            self.survivor.number
        ));
        Ok(())
    }

    /// The other worker has taken over, and everything is decided.
    async fn is_over(&mut self) -> Result<bool, Failure> {
        let Some(crash) = &mut self.crash else { return Ok(false) };
        if crash.redelivered.is_none() && COMMIT_BEATS <= crash.at.elapsed() {
            let mut at_rest = committed(self.stage).await?;
            at_rest.retain(|partition, offset| crash.committed.get(partition) == Some(offset));
            crash.redelivered = Some(counted_from(&self.stage.client, &at_rest).await?);
        }
        if crash.takeover.is_none() && self.survivor.assigned().await == Some(PARTITIONS as usize) {
            crash.takeover = Some(crash.at.elapsed());
            self.say_takeover();
        }
        let has_taken_over = self.takeover_seconds().is_some();
        if !(has_taken_over && self.published.is_complete() && is_settled(self.stage).await?) {
            return Ok(false);
        }
        self.narration.at(Tally::read(&self.stage.client).await?);
        self.narration.end();
        self.narration.say("Every record is read and decided. Now the ledger is held against what was published.");
        Ok(true)
    }

    fn say_takeover(&self) {
        let again = match self.redelivered() {
            0 => "Records that worker 1 had decided and not yet reported to Kafka would come again now.".to_owned(),
            count => format!(
                "{} records come again: worker 1 had decided them and not yet told Kafka. The inbox knows them.",
                grouped(count)
            ),
        };
        self.narration.say(format_args!(
            "Worker {} has all {PARTITIONS} partitions, {:.1} s after the kill. {again}",
            self.survivor.number,
            self.takeover_seconds().unwrap_or_default()
        ));
    }

    /// Workers that were killed.
    pub(super) fn killed(&self) -> usize {
        usize::from(self.crash.is_some())
    }

    /// From the kill until the other worker had all partitions, as far as a look every half second can tell.
    pub(super) fn takeover_seconds(&self) -> Option<f64> {
        self.crash.as_ref()?.takeover.map(|it| it.as_secs_f64())
    }

    /// Events that the killed worker had counted, and whose records came again.
    pub(super) fn redelivered(&self) -> usize {
        self.crash.as_ref().and_then(|it| it.redelivered).unwrap_or_default()
    }

    /// The worker that is left.
    pub(super) fn survivor(self) -> Worker {
        self.survivor
    }
}
