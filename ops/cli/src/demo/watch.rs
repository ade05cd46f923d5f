//! Follows the workers: kills one at the right moment, and sees when everything is decided.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::found::{Tally, is_settled};
use super::narration::Narration;
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

/// The eye on a running demo.
pub(super) struct Watch<'a> {
    stage: &'a Stage,
    narration: &'a Narration,
    published: &'a Published,
    kill_at: usize,
    victim: Option<Worker>,
    survivor: Worker,
    killed_at: Option<Instant>,
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
        Watch { stage, narration, published, kill_at, victim, survivor, killed_at: None, takeover: None }
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
                self.look_for_takeover().await;
                let over = self.published.is_complete() && self.takeover.is_some() && is_settled(self.stage).await?;
                if over {
                    self.narration.at(Tally::read(&self.stage.client).await?);
                    self.narration.end();
                    self.narration.say("Every record is read and decided. Now the ledger is held against what was published.");
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
        self.killed_at = Some(Instant::now());
        self.narration.say(format_args!(
            "Worker {number} is killed with SIGKILL. What it had in hand is rolled back by PostgreSQL. Nothing takes its place: \
             after {} s without a sign of life, Kafka gives its partitions to worker {}.",
            SESSION_TIMEOUT.as_secs(),
            self.survivor.number
        ));
        Ok(())
    }

    async fn look_for_takeover(&mut self) {
        let Some(killed_at) = self.killed_at.filter(|_| self.takeover.is_none()) else { return };
        if self.survivor.assigned().await == Some(PARTITIONS as usize) {
            let takeover = killed_at.elapsed();
            self.takeover = Some(takeover);
            self.narration.say(format_args!(
                "Worker {} has all {PARTITIONS} partitions, {:.1} s after the kill. Where worker 1 had decided records and not yet \
                 told Kafka, they come again; the inbox knows them.",
                self.survivor.number,
                takeover.as_secs_f64()
            ));
        }
    }

    /// Workers that were killed.
    pub(super) fn killed(&self) -> usize {
        usize::from(self.killed_at.is_some())
    }

    /// From the kill until the other worker had all partitions, as far as a look every half second can tell.
    pub(super) fn takeover_seconds(&self) -> Option<f64> {
        self.takeover.map(|it| it.as_secs_f64())
    }

    /// The worker that is left.
    pub(super) fn survivor(self) -> Worker {
        self.survivor
    }
}
