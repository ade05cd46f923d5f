//! The tables of schema `sekali`.

use std::collections::BTreeMap;
use std::time::Duration;

use sekali_producer::{Error, ErrorKind, SqlError};
use sekali_schemas::migrations::Part;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use crate::config::Config;

/// Key of the session advisory lock under which migrations run: "sekali" in ASCII.
const LOCK_KEY: i64 = 0x73_65_6b_61_6c_69;
/// How long to wait for another migration. Ours take seconds, and a deployment should fail rather than hang.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);
const LOCK_POLL: Duration = Duration::from_millis(200);
/// A migration that waits for a table lock stops everybody behind it. Give up soon; it can be run again.
const TABLE_LOCK_TIMEOUT: &str = "10s";

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MigrationReport {
    /// Migrations that were applied just now, in order; empty when there was nothing to do.
    pub applied: Vec<AppliedMigration>,
    /// Version of each part afterwards; above that of the program when a newer one was here before.
    pub versions: BTreeMap<&'static str, i64>,
}

/// One migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AppliedMigration {
    /// Part of the schema, `outbox` or `inbox`.
    pub part: &'static str,
    /// Its number.
    pub version: i64,
    /// Its name.
    pub name: String,
}

/// Brings these parts of schema `sekali` to the version of this program. Safe to run twice and from several machines at
/// once: one works, the others wait for it and find nothing left to do.
///
/// # Errors
/// The database cannot be reached, the role may not create the schema, another migration holds the lock for a minute,
/// or a migration fails; each migration is a transaction of its own, so that what was reported as applied stays.
pub async fn migrate(config: &Config, parts: &[Part]) -> Result<MigrationReport, Error> {
    let pool = config.postgres.pool("sekali-migrate")?;
    let mut connection = super::connect(&pool).await?;
    let client: &mut Client = &mut connection;
    set_up(client).await?;
    lock(client).await?;
    let report = run(client, parts).await;
    let unlocked = client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK_KEY]).await;
    let report = report?;
    unlocked.map_err(|error| postgres("release the migration lock", &error))?;
    Ok(report)
}

/// Version of a part of schema `sekali`; `None` when none of its migrations ever ran.
///
/// # Errors
/// The query fails, for instance because the role may not read the table.
pub async fn schema_version(client: &Client, part: Part) -> Result<Option<i64>, Error> {
    let reading = |error| postgres("read the version of schema sekali", &error);
    let found = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&part.table()]).await.map_err(reading)?;
    if !found.get::<_, bool>(0) {
        return Ok(None);
    }
    let sql = format!("SELECT max(version)::bigint FROM {}", part.table());
    Ok(client.query_one(&sql, &[]).await.map_err(reading)?.get(0))
}

/// Makes sure that the tables are there. A newer schema is fine: migrations only add, so that old and new programs run
/// side by side.
///
/// # Errors
/// The tables are missing or older than this program.
pub async fn require_schema(client: &Client) -> Result<(), Error> {
    require_parts(client, &Part::ALL).await
}

/// As [`require_schema`], for a program that needs only these parts.
///
/// # Errors
/// As there.
pub async fn require_parts(client: &Client, parts: &[Part]) -> Result<(), Error> {
    for &part in parts {
        let (name, needed) = (part.as_str(), part.latest_version());
        let problem = match schema_version(client, part).await? {
            Some(version) if needed <= version => continue,
            Some(version) => {
                format!("part {name} of its schema sekali has version {version}, this program needs {needed}")
            }
            None if part == Part::Outbox => "it has no tables of schema sekali".to_owned(),
            None => format!("its schema sekali has no part {name}"),
        };
        return Err(Error::new(ErrorKind::Migration, format!("use the database: {problem}; run `sekali migrate`")));
    }
    Ok(())
}

async fn set_up(client: &Client) -> Result<(), Error> {
    let sql = format!("SET statement_timeout = 0; SET lock_timeout = '{TABLE_LOCK_TIMEOUT}'");
    client.batch_execute(&sql).await.map_err(|error| postgres("prepare the connection for migrations", &error))
}

async fn lock(client: &Client) -> Result<(), Error> {
    let deadline = Instant::now() + LOCK_WAIT_MAX;
    loop {
        let row = client
            .query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK_KEY])
            .await
            .map_err(|error| postgres("take the migration lock", &error))?;
        if row.get(0) {
            return Ok(());
        }
        if deadline <= Instant::now() {
            break;
        }
        sleep(LOCK_POLL).await;
    }
    let holder = client
        .query_opt(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
             AND (classid::bigint << 32 | objid::bigint) = $1
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            &[&LOCK_KEY],
        )
        .await
        .map_err(|error| postgres("find the holder of the migration lock", &error))?;
    let holder = holder.map_or("another session".to_owned(), |it| format!("backend {}", it.get::<_, i32>(0)));
    let wait = LOCK_WAIT_MAX.as_secs();
    let doing =
        format!("take the migration lock within {wait} s: {holder} holds it; wait for that migration, or end it");
    Err(Error::new(ErrorKind::Migration, doing))
}

async fn run(client: &mut Client, parts: &[Part]) -> Result<MigrationReport, Error> {
    let mut report = MigrationReport { applied: Vec::new(), versions: BTreeMap::new() };
    for &part in parts {
        let before = schema_version(client, part).await?;
        if before.is_none_or(|version| version <= part.latest_version()) {
            apply(client, part, &mut report.applied).await?;
        }
        report.versions.insert(part.as_str(), schema_version(client, part).await?.unwrap_or_default());
    }
    Ok(report)
}

async fn apply(client: &mut Client, part: Part, applied: &mut Vec<AppliedMigration>) -> Result<(), Error> {
    client.batch_execute("CREATE SCHEMA IF NOT EXISTS sekali").await.map_err(|error| {
        let remedy =
            "create schema sekali (the role needs CREATE on the database; or let its owner run `sekali migrate`)";
        postgres(remedy, &error)
    })?;
    let report = part.runner().run_async(client).await.map_err(|error| failed(&error))?;
    let mut new: Vec<AppliedMigration> = report
        .applied_migrations()
        .iter()
        .map(|it| AppliedMigration {
            part: part.as_str(),
            version: i64::from(it.version()),
            name: it.name().to_owned(),
        })
        .collect();
    new.sort_by_key(|it| it.version);
    applied.append(&mut new);
    Ok(())
}

fn failed(error: &refinery::Error) -> Error {
    let doing = match error.kind() {
        refinery::error::Kind::DivergentVersion(applied, _) => format!(
            "migrate: migration {} was applied with another text than this program has; restore the database, or use \
             the program that applied it",
            applied.version()
        ),
        _ => "apply the migrations; what was applied before stays, and it can be run again".to_owned(),
    };
    let error_source = std::error::Error::source(error).and_then(|it| it.downcast_ref::<tokio_postgres::Error>());
    let done = Error::new(ErrorKind::Migration, doing);
    match error_source {
        Some(sql) => done.because(SqlError::of(sql)),
        None => done,
    }
}

fn postgres(doing: &str, error: &tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Postgres, doing).because(SqlError::of(error))
}
