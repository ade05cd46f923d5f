//! Who has which lease: named locks, the relay's leadership, effects in progress.

use deadpool_postgres::Pool;
use sekali_producer::{Error, ErrorKind};
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::actor::{Actor, Entry, audit};
use super::rows::{self, Listed, Open};
use crate::admin;

/// What a lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A named lock.
    Lock,
    /// Publishing the outbox.
    Relay,
    /// An effect in progress.
    Effect,
}

impl Kind {
    /// In lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Relay => "relay",
            Kind::Effect => "effect",
        }
    }

    fn of(word: &str) -> Kind {
        match word {
            "relay" => Kind::Relay,
            "effect" => Kind::Effect,
            _ => Kind::Lock,
        }
    }
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lease {
    /// What it is for.
    pub kind: Kind,
    /// Name of the lock; of an effect, the key of its inbox row.
    pub name: String,
    /// Consumer group of an effect.
    pub group: Option<String>,
    /// Token of the process that has it.
    pub owner: Uuid,
    /// Its number: a later owner has a higher one.
    pub fence: i64,
    /// How long it has been held, in seconds; of an effect, since its message was claimed or last decided.
    pub age_seconds: Option<f64>,
    /// Until it runs out, unless it is prolonged, in seconds; negative when it has.
    pub left_seconds: f64,
}

/// Which leases.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only these.
    pub kind: Option<Kind>,
    /// Effects of this group; with it, no locks.
    pub group: Option<String>,
    /// Exactly this name, or key of an inbox row.
    pub name: Option<String>,
}

const LIST: &str = "SELECT kind, name, consumer, owner, fence, age, left_seconds, count(*) OVER () FROM ( \
     SELECT CASE name WHEN 'relay' THEN 'relay' ELSE 'lock' END AS kind, name, NULL AS consumer, owner, fence, \
       extract(epoch FROM now() - acquired_at)::float8 AS age, extract(epoch FROM until - now())::float8 AS left_seconds \
     FROM sekali.lock \
     UNION ALL \
     SELECT 'effect', lease.key::text, consumer.name, lease.owner, lease.fence, \
       extract(epoch FROM now() - row.decided_at)::float8, extract(epoch FROM lease.until - now())::float8 \
     FROM sekali.lease JOIN sekali.consumer ON consumer.id = lease.consumer_id \
     LEFT JOIN sekali.inbox AS row ON row.consumer_id = lease.consumer_id AND row.key = lease.key) AS found \
     WHERE ($1::text IS NULL OR kind = $1) AND ($2::text IS NULL OR consumer = $2) AND ($3::text IS NULL OR name = $3) \
     ORDER BY kind, consumer, name LIMIT $4";

/// Leases, by kind and name. Changes nothing.
///
/// # Errors
/// PostgreSQL does not answer.
pub async fn list(pool: &Pool, filter: &Filter, limit: i64) -> Result<Listed<Lease>, Error> {
    let client = admin::connect(pool).await?;
    let kind = filter.kind.map(Kind::as_str);
    let found = rows::query(
        &client,
        "list the leases",
        LIST,
        &[(&kind, Type::TEXT), (&filter.group, Type::TEXT), (&filter.name, Type::TEXT), (&limit, Type::INT8)],
    )
    .await?;
    let total = found.first().map_or(0, |it| it.get(7));
    let lease = |it: &tokio_postgres::Row| Lease {
        kind: Kind::of(it.get(0)),
        name: it.get(1),
        group: it.get(2),
        owner: it.get(3),
        fence: it.get(4),
        age_seconds: it.get::<_, Option<f64>>(5).map(|it| it.max(0.0)),
        left_seconds: it.get(6),
    };
    Ok(Listed::of(found.iter().map(lease).collect(), total))
}

/// A lease that was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Released {
    /// What it was for.
    pub kind: Kind,
    /// Name of the lock; of an effect, the key of its inbox row.
    pub name: String,
    /// Who had it.
    pub owner: Uuid,
    /// Its number, which is refused from now on.
    pub refused_fence: i64,
    /// The next owner's number is higher than this one.
    pub fence: i64,
}

const END_LOCK: &str = "DELETE FROM sekali.lock WHERE name = $1 AND fence = $2 RETURNING owner";
/// The inbox row of a message is locked before its lease is read or written.
const LOCK_ROW: &str = "SELECT FROM sekali.inbox JOIN sekali.consumer ON consumer.id = consumer_id \
     WHERE consumer.name = $1 AND key = $2 FOR UPDATE OF inbox";
const END_LEASE: &str = "DELETE FROM sekali.lease USING sekali.consumer WHERE consumer.id = consumer_id \
     AND consumer.name = $1 AND key = $2 AND fence = $3 RETURNING owner, consumer_id";
const BUMP: &str = "SELECT nextval('sekali.fence')";

/// Ends a lease that was listed, whoever has it. The fence rises with it, so that whatever its owner still writes under the
/// old one is refused; an effect is performed again by whoever takes its message up, under the same idempotency key.
/// Returns none when the lease was not there any more, or is another owner's by now.
///
/// # Errors
/// PostgreSQL does not answer, or a transaction that has checked the lock is still open.
pub async fn release(pool: &Pool, lease: &Lease, actor: &Actor) -> Result<Option<Released>, Error> {
    let open = Open::begin(pool).await?;
    let client = open.client();
    let fence = &lease.fence;
    let (ended, key) = match (lease.kind, &lease.group) {
        (Kind::Effect, Some(group)) => {
            let key: Uuid = lease.name.parse().map_err(|error| {
                Error::new(ErrorKind::Config, "read the key of the lease: it is the key of an inbox row").because(error)
            })?;
            let of = [(group as _, Type::TEXT), (&key as _, Type::UUID), (fence as _, Type::INT8)];
            rows::query(client, "lock the row of the message", LOCK_ROW, &of[..2]).await?;
            (rows::query(client, "end the lease", END_LEASE, &of).await?, Some(key))
        }
        _ => {
            let of = [(&lease.name as _, Type::TEXT), (fence as _, Type::INT8)];
            (rows::query(client, "end the lock", END_LOCK, &of).await?, None)
        }
    };
    let Some(row) = ended.first() else { return Ok(None) };
    let bumped = rows::query(client, "raise the fence", BUMP, &[]).await?;
    let released = Released {
        kind: lease.kind,
        name: lease.name.clone(),
        owner: row.get(0),
        refused_fence: lease.fence,
        fence: bumped.first().map_or(lease.fence, |it| it.get(0)),
    };
    let entry = Entry {
        action: "lock.release",
        consumer_id: key.map(|_| row.get(1)),
        key,
        subject: format!("{} {}", lease.kind.as_str(), lease.name),
        outcome: format!("fence {} is refused from now on", lease.fence),
    };
    audit(client, actor, &[entry]).await?;
    open.commit().await?;
    Ok(Some(released))
}
