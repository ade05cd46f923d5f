//! Leases on messages whose effect happens outside the database. Whose lease lasts is judged by the database's clock.
//!
//! The inbox row of a message is locked before its lease is read or written, and the hold's row before the inbox row of a
//! message that was held: two who want the same message come one after the other.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures_util::future;
use tokio_postgres::{Error, Row as SqlRow};
use uuid::Uuid;

use super::inbox::{self, Request};
use crate::core::verdict::{Arrival, Leasing, Row, leasing};
use crate::core::{Fence, Timestamp};

/// First attempts, sorted by key. What comes back is new.
const INSERT: &str = "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
     SELECT key, fingerprint, $1, 6, 1 FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fingerprint) \
     ON CONFLICT DO NOTHING RETURNING key";

const LOCK: &str = "SELECT row.key, state, attempt, fingerprint FROM unnest($2::uuid[]) AS asked (key) \
     CROSS JOIN LATERAL (SELECT key, state, attempt, fingerprint FROM sekali.inbox AS it \
     WHERE it.consumer_id = $1 AND it.key = asked.key FOR UPDATE) AS row";

/// A statement of its own after the one that locked the inbox rows: only then does it see what others wrote under their
/// locks.
const LASTING: &str = "SELECT lease.key, (extract(epoch FROM lease.until) * 1000)::bigint \
     FROM unnest($2::uuid[]) AS asked (key) CROSS JOIN LATERAL (SELECT key, until FROM sekali.lease AS it \
     WHERE it.consumer_id = $1 AND it.key = asked.key OFFSET 0) AS lease WHERE clock_timestamp() < lease.until";

/// A lease that ran out is taken over.
const TAKE: &str = "INSERT INTO sekali.lease AS held (consumer_id, key, owner, fence, until) \
     SELECT $1, key, $3, nextval('sekali.fence'), clock_timestamp() + $4 * interval '1 ms' \
     FROM unnest($2::uuid[]) AS asked (key) \
     ON CONFLICT (consumer_id, key) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until \
     WHERE held.until <= clock_timestamp() RETURNING key, fence, xmax <> 0";

const RENEW: &str = "UPDATE sekali.lease AS held SET until = clock_timestamp() + $4 * interval '1 ms' \
     FROM unnest($2::uuid[], $3::bigint[]) AS asked (key, fence) \
     WHERE held.consumer_id = $1 AND held.key = asked.key AND held.fence = asked.fence RETURNING held.fence";

const END: &str = "DELETE FROM sekali.lease AS held USING unnest($2::uuid[], $3::bigint[]) AS asked (key, fence) \
     WHERE held.consumer_id = $1 AND held.key = asked.key AND held.fence = asked.fence RETURNING held.fence";

const DROP: &str = "DELETE FROM sekali.lease WHERE consumer_id = $1 AND key = ANY($2)";

/// Heads are decided, and the first message behind each is on nobody's lease, as far as this statement sees.
const READY: &str = "SELECT hold.topic, hold.resource_key FROM sekali.held_key AS hold \
     WHERE hold.consumer_id = $1 AND hold.ready AND hold.topic <> ALL ($3) AND NOT EXISTS (SELECT FROM sekali.lease AS lease \
     WHERE lease.consumer_id = $1 AND clock_timestamp() < lease.until AND lease.key = (SELECT it.key \
     FROM sekali.held_message AS it WHERE it.consumer_id = $1 AND it.topic = hold.topic \
     AND it.resource_key = hold.resource_key ORDER BY it.seq LIMIT 1)) \
     ORDER BY hold.since, hold.topic, hold.resource_key LIMIT $2 FOR UPDATE OF hold SKIP LOCKED";

/// Who takes leases, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) consumer_id: i16,
    /// Of this process.
    pub(crate) id: Uuid,
    pub(crate) ttl: Duration,
}

impl Owner {
    fn ttl_ms(&self) -> f64 {
        self.ttl.as_secs_f64() * 1000.0
    }
}

/// What messages met: a verdict for each request, and until when somebody's lease lasts for those that wait.
pub(crate) struct Met {
    pub(crate) verdicts: Vec<Leasing>,
    pub(crate) until: HashMap<Uuid, Timestamp>,
}

/// Begins the transaction, claims new messages as leased, and locks the rows of all others.
pub(crate) async fn begin_and_claim(
    client: &ClientWrapper,
    consumer_id: i16,
    requests: &[Request],
) -> Result<Met, Error> {
    let mut met = Met { verdicts: Vec::new(), until: HashMap::new() };
    let first_copies = inbox::sorted_first_copies(requests);
    let keys: Vec<Uuid> = first_copies.iter().map(|&it| requests[it].key).collect();
    let begin = client.batch_execute("BEGIN");
    let mut fresh: HashSet<Uuid> = HashSet::new();
    if requests.is_empty() {
        begin.await?;
        return Ok(met);
    } else if requests[0].asking.retry {
        begin.await?;
    } else {
        let fingerprints: Vec<i64> = first_copies.iter().map(|&it| requests[it].asking.fingerprint).collect();
        let insert = client.prepare_cached(INSERT).await?;
        let (begun, rows) = future::join(begin, client.query(&insert, &[&consumer_id, &keys, &fingerprints])).await;
        begun?;
        fresh.extend(rows?.iter().map(|it| it.get::<_, Uuid>(0)));
    }
    let known: Vec<Uuid> = keys.into_iter().filter(|it| !fresh.contains(it)).collect();
    let rows = if known.is_empty() { HashMap::new() } else { lock(client, consumer_id, &known).await? };
    if !rows.is_empty() {
        met.until = lasting(client, consumer_id, &known).await?;
    }
    for (index, request) in requests.iter().enumerate() {
        let first = first_copies.binary_search_by_key(&(request.key, index), |&it| (requests[it].key, it)).is_ok();
        let verdict = if fresh.contains(&request.key) {
            Leasing::Lease
        } else {
            leasing(request.asking, rows.get(&request.key).copied(), met.until.contains_key(&request.key))
        };
        // A second copy looks again once the first one is on its way.
        met.verdicts.push(if verdict == Leasing::Lease && !first { Leasing::Wait } else { verdict });
    }
    Ok(met)
}

pub(crate) async fn lock(client: &ClientWrapper, consumer_id: i16, keys: &[Uuid]) -> Result<HashMap<Uuid, Row>, Error> {
    let statement = client.prepare_cached(LOCK).await?;
    let rows = client.query(&statement, &[&consumer_id, &keys]).await?;
    Ok(rows.iter().map(inbox::row).collect())
}

/// Which of the messages somebody has a lease on that lasts, and until when.
async fn lasting(client: &ClientWrapper, consumer_id: i16, keys: &[Uuid]) -> Result<HashMap<Uuid, Timestamp>, Error> {
    let statement = client.prepare_cached(LASTING).await?;
    let rows = client.query(&statement, &[&consumer_id, &keys]).await?;
    let until = |row: &SqlRow| (row.get(0), Timestamp(u64::try_from(row.get::<_, i64>(1)).unwrap_or_default()));
    Ok(rows.iter().map(until).collect())
}

/// A lease that was taken, and whether from somebody whose time had run out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) fence: Fence,
    pub(crate) taken_over: bool,
}

/// Takes leases on messages whose rows are locked; those on which somebody's lease lasts are not in the answer.
pub(crate) async fn take(client: &ClientWrapper, owner: Owner, keys: &[Uuid]) -> Result<HashMap<Uuid, Taken>, Error> {
    let statement = client.prepare_cached(TAKE).await?;
    let rows = client.query(&statement, &[&owner.consumer_id, &keys, &owner.id, &owner.ttl_ms()]).await?;
    let taken = |it: &SqlRow| (it.get(0), Taken { fence: Fence(it.get(1)), taken_over: it.get(2) });
    Ok(rows.iter().map(taken).collect())
}

/// Prolongs leases; the fences of those that still were ours.
pub(crate) async fn renew(
    client: &ClientWrapper,
    owner: Owner,
    leases: &[(Uuid, Fence)],
) -> Result<HashSet<Fence>, Error> {
    let (keys, fences): (Vec<Uuid>, Vec<i64>) = leases.iter().map(|it| (it.0, it.1.0)).unzip();
    let statement = client.prepare_cached(RENEW).await?;
    let rows = client.query(&statement, &[&owner.consumer_id, &keys, &fences, &owner.ttl_ms()]).await?;
    Ok(rows.iter().map(|it| Fence(it.get(0))).collect())
}

/// Ends leases; the fences of those that still were ours. Whoever writes an outcome does so only for them.
pub(crate) async fn end(
    client: &ClientWrapper,
    consumer_id: i16,
    leases: &[(Uuid, Fence)],
) -> Result<HashSet<Fence>, Error> {
    let mut sorted = leases.to_vec();
    sorted.sort_unstable();
    let (keys, fences): (Vec<Uuid>, Vec<i64>) = sorted.iter().map(|it| (it.0, it.1.0)).unzip();
    let statement = client.prepare_cached(END).await?;
    let rows = client.query(&statement, &[&consumer_id, &keys, &fences]).await?;
    Ok(rows.iter().map(|it| Fence(it.get(0))).collect())
}

/// Removes leases that ran out, of messages that are parked now.
pub(crate) async fn remove(client: &ClientWrapper, consumer_id: i16, keys: &[Uuid]) -> Result<(), Error> {
    let statement = client.prepare_cached(DROP).await?;
    client.execute(&statement, &[&consumer_id, &keys]).await?;
    Ok(())
}

/// Locks keys whose head is decided and whose first message nobody performs, but for those of some topics.
pub(crate) async fn ready_keys(
    client: &ClientWrapper,
    consumer_id: i16,
    except: &[&str],
    max: i64,
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let statement = client.prepare_cached(READY).await?;
    let rows = client.query(&statement, &[&consumer_id, &max, &except]).await?;
    Ok(rows.iter().map(|it| (it.get(0), it.get(1))).collect())
}

/// The verdict that stands for a message that gets no lease.
pub(crate) fn other(verdict: Leasing) -> Option<Arrival> {
    match verdict {
        Leasing::Lease => Some(Arrival::Handle),
        Leasing::Other(arrival) => Some(arrival),
        Leasing::Wait => None,
    }
}
