//! The leases of this process: prolonged by one statement for all of them, on a connection of their own.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Client, Pool};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::core::Fence;
use crate::metrics;
use crate::postgres::lease::{self, Owner};
use crate::{Error, ErrorKind, SqlError, admin};

pub(crate) struct Leases {
    pool: Pool,
    pub(crate) owner: Owner,
    held: Mutex<HashMap<Fence, Held>>,
}

struct Held {
    key: Uuid,
    /// Counted from before the statement that took or prolonged it, so that this process gives up before another one may
    /// begin.
    valid_until: Instant,
    lost: CancellationToken,
}

impl Leases {
    pub(crate) fn new(pool: Pool, consumer_id: i16, ttl: Duration) -> Leases {
        Leases { pool, owner: Owner { consumer_id, id: Uuid::new_v4(), ttl }, held: Mutex::default() }
    }

    /// Notes a lease that was asked for at `asked_at`.
    pub(super) fn note(&self, fence: Fence, key: Uuid, asked_at: Instant) {
        let mut held = self.held();
        held.insert(fence, Held { key, valid_until: asked_at + self.owner.ttl, lost: CancellationToken::new() });
        metrics::LEASES_HELD.level(&[]).set(held.len() as f64);
    }

    /// What says that the lease is lost; of one that is not known any more, that it is.
    pub(super) fn lost(&self, fence: Fence) -> CancellationToken {
        let known = self.held().get(&fence).map(|it| it.lost.clone());
        known.unwrap_or_else(|| {
            let lost = CancellationToken::new();
            lost.cancel();
            lost
        })
    }

    pub(super) fn forget(&self, fences: &[Fence]) {
        let mut held = self.held();
        fences.iter().for_each(|it| drop(held.remove(it)));
        metrics::LEASES_HELD.level(&[]).set(held.len() as f64);
    }

    /// Ends leases under which nothing runs any more, so that the next owner need not wait until they run out.
    pub(super) async fn give_back(&self, fences: &[Fence]) {
        let leases: Vec<(Uuid, Fence)> = {
            let held = self.held();
            fences.iter().filter_map(|it| Some((held.get(it)?.key, *it))).collect()
        };
        // First, so that a beat does not take them for lost.
        self.forget(fences);
        let ended = async {
            let client = admin::connect(&self.pool).await?;
            let ended = lease::end(&client, self.owner.consumer_id, &leases).await;
            ended.map_err(|error| failed("give back leases", &error))
        };
        if !leases.is_empty() && !matches!(timeout(self.owner.ttl, ended).await, Ok(Ok(_))) {
            tracing::debug!("leases were not given back, they run out by themselves");
        }
    }

    /// Prolongs all leases until it is stopped.
    pub(crate) async fn keep(&self, stop: CancellationToken) {
        let mut client = None;
        let mut next = Instant::now() + self.owner.ttl / 3;
        loop {
            let wake_at = self.expire().map_or(next, |it| it.min(next));
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(wake_at) => {}
            }
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + self.owner.ttl / 3;
            if let Err(error) = self.beat(&mut client).await {
                tracing::warn!(error = error.chain(), "leases could not be prolonged");
                metrics::LEASE_RENEWALS.count(&[("result", "error")]).increment(1);
                client = None;
                next = Instant::now() + self.owner.ttl / 12;
            }
        }
    }

    /// Gives up what ran out; when the next one does.
    fn expire(&self) -> Option<Instant> {
        let now = Instant::now();
        let held = self.held();
        for it in held.values().filter(|it| it.valid_until <= now && !it.lost.is_cancelled()) {
            lose(it);
        }
        held.values().map(|it| it.valid_until).filter(|it| now < *it).min()
    }

    async fn beat(&self, client: &mut Option<Client>) -> Result<(), Error> {
        let leases: Vec<(Uuid, Fence)> = {
            let held = self.held();
            held.iter().filter(|it| !it.1.lost.is_cancelled()).map(|(fence, it)| (it.key, *fence)).collect()
        };
        if leases.is_empty() {
            return Ok(());
        }
        let asked_at = Instant::now();
        let renew = async {
            let client = match client {
                Some(client) if !client.is_closed() => client,
                _ => client.insert(admin::connect(&self.pool).await?),
            };
            lease::renew(client, self.owner, &leases).await.map_err(|error| failed("prolong leases", &error))
        };
        let too_late = |_| Error::new(ErrorKind::Postgres, "prolong leases in time");
        let renewed = timeout(self.owner.ttl / 3, renew).await.map_err(too_late)??;
        let mut held = self.held();
        for (_, fence) in leases {
            let Some(it) = held.get_mut(&fence) else { continue };
            if renewed.contains(&fence) {
                it.valid_until = asked_at + self.owner.ttl;
            } else {
                lose(it);
            }
        }
        metrics::LEASE_RENEWALS.count(&[("result", "ok")]).increment(renewed.len() as u64);
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Fence, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lose(held: &Held) {
    metrics::LEASE_RENEWALS.count(&[("result", "lost")]).increment(1);
    tracing::warn!(key = %held.key, "a lease was lost");
    held.lost.cancel();
}

fn failed(doing: &str, error: &tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Postgres, doing).because(SqlError::of(error))
}
