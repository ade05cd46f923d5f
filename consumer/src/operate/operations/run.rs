//! Carrying out an operation, at its rate, until it is done or somebody stops it.

use std::time::Duration;

use deadpool_postgres::Object;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::{Act, DeadLetters, answered, refused};
use super::Operation;
use super::chunk::{self, Step};
use crate::Error;
use crate::core::operator::Bounds;

/// How long an operation belongs to a process that says nothing more of it.
const CLAIM_TTL: Duration = Duration::from_secs(10);
/// How often to look whether it has become free.
const LOOK: Duration = Duration::from_millis(250);
/// Letters of one transaction.
const CHUNK_MAX: u32 = 500;
const CHUNKS_A_SECOND: u32 = 10;

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Letters that were selected.
    pub letters: u64,
    /// Letters whose turn has come.
    pub done: u64,
}

/// An operation that this process carries out.
pub(super) struct Claimed {
    pub(super) id: i64,
    pub(super) owner: Uuid,
    pub(super) act: Act,
    pub(super) bounds: Bounds,
    pub(super) who: String,
    pub(super) reason: String,
    pub(super) selection: serde_json::Value,
    pub(super) ttl_ms: f64,
    rate: u32,
    letters: u64,
}

impl DeadLetters {
    /// Carries out an operation that has begun, or goes on with one that was stopped or whose process died. Every letter
    /// is one small transaction with others: wherever it ends, what is done is noted, and nothing is done twice.
    /// `progress` is called after each of them.
    ///
    /// # Errors
    /// It has ended, or another process carries it out; the database refuses, and then it can be gone on with.
    pub async fn run(
        &self,
        id: i64,
        stop: &CancellationToken,
        mut progress: impl FnMut(Progress) + Send,
    ) -> Result<Operation, Error> {
        let claimed = self.claim(id, stop).await?;
        let size = (claimed.rate / CHUNKS_A_SECOND).clamp(1, CHUNK_MAX);
        let pause = Duration::from_secs_f64(f64::from(size) / f64::from(claimed.rate));
        let mut done = self.operation(id).await?.done;
        let mut next = Instant::now();
        while !stop.is_cancelled() {
            match self.step(&claimed, size).await? {
                Step::Did(letters) => {
                    done += letters;
                    progress(Progress { letters: claimed.letters, done });
                }
                Step::Again => {}
                Step::Done | Step::NotOurs => return self.operation(id).await,
            }
            // Never faster than the rate afterwards because something took long before.
            next = (next + pause).max(Instant::now());
            let _stopped = stop.run_until_cancelled(tokio::time::sleep_until(next)).await;
        }
        self.release(&claimed).await?;
        self.operation(id).await
    }

    /// Takes an operation, if necessary after the claim of a process that died has run out.
    async fn claim(&self, id: i64, stop: &CancellationToken) -> Result<Claimed, Error> {
        const CLAIM: &str = "UPDATE sekali.operation SET state = 'running', owner = $2, \
             until = clock_timestamp() + $3 * interval '1 ms' WHERE id = $1 AND state IN ('running', 'stopped') \
             AND (owner IS NULL OR until < clock_timestamp()) \
             RETURNING kind, force, who, reason, selection, rate, items";
        let (owner, ttl_ms) = (Uuid::new_v4(), CLAIM_TTL.as_secs_f64() * 1000.0);
        let deadline = Instant::now() + CLAIM_TTL + CLAIM_TTL / 4;
        loop {
            let client = self.client().await?;
            let row = answered("take the operation", client.query_opt(CLAIM, &[&id, &owner, &ttl_ms])).await?;
            drop(client);
            if let Some(row) = row {
                let kind: &str = row.get(0);
                let act = Act::ALL.into_iter().find(|it| it.as_str() == kind);
                let act = act.ok_or_else(|| refused(format!("go on with operation {id}: a {kind} is one step")))?;
                return Ok(Claimed {
                    id,
                    owner,
                    act,
                    bounds: Bounds { replays_max: self.bounds.replays_max.get(), force: row.get(1) },
                    who: row.get(2),
                    reason: row.get(3),
                    selection: row.get(4),
                    ttl_ms,
                    rate: row.get::<_, i32>(5).unsigned_abs().max(1),
                    letters: row.get::<_, i32>(6).unsigned_abs().into(),
                });
            }
            let operation = self.operation(id).await?;
            if !matches!(operation.state.as_str(), "running" | "stopped") {
                return Err(refused(format!("go on with operation {id}: it is {}", operation.state)));
            }
            if deadline < Instant::now() || stop.is_cancelled() {
                return Err(refused(format!("go on with operation {id}: another process carries it out")));
            }
            sleep(LOOK).await;
        }
    }

    async fn step(&self, claimed: &Claimed, size: u32) -> Result<Step, Error> {
        let client = self.client().await?;
        let step = answered("carry out the operation", chunk::run(&client, claimed, size)).await;
        if step.is_err() {
            // Not back to the pool: it may be in a transaction.
            drop(Object::take(client));
        }
        step
    }

    async fn release(&self, claimed: &Claimed) -> Result<(), Error> {
        const RELEASE: &str = "UPDATE sekali.operation SET state = 'stopped', owner = NULL \
             WHERE id = $1 AND owner = $2 AND state = 'running'";
        let client = self.client().await?;
        answered("stop the operation", client.execute(RELEASE, &[&claimed.id, &claimed.owner])).await?;
        Ok(())
    }
}
