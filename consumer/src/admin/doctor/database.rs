//! Checks of the database.

use std::time::{Duration, Instant, SystemTime};

use sekali_producer::{Error, ErrorKind, SqlError};
use tokio_postgres::{Client, Row};

use super::{Check, NAMES};
use crate::admin::{postgres, require_schema};
use crate::config::Config;

/// The outbox needs `xid8` and `pg_current_xact_id`.
const SERVER_VERSION_MIN: i32 = 130_000;
/// Due times are written by workers and compared by workers.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(2);
/// The relay publishes within a second; a record that waits for so long has nobody to publish it.
const OUTBOX_AGE_MAX: Duration = Duration::from_secs(60);

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let connected = async { postgres::connect(&config.postgres.pool("sekali-doctor")?).await }.await;
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) => {
            let skipped = NAMES[4..].iter().map(|it| Check::skipped(it, "postgres"));
            return std::iter::once(Check::error("postgres", &error)).chain(skipped).collect();
        }
    };
    let client: &Client = &connection;
    let mut checks = vec![result("postgres", server(client).await)];
    let schema = match require_schema(client).await {
        Ok(()) => Ok(Check::ok("schema", "outbox and inbox have the versions of this program, or newer ones")),
        Err(error) => Err(error),
    };
    let usable = schema.is_ok();
    checks.push(result("schema", schema));
    checks.push(if usable { result("permissions", permissions(client).await) } else { no_schema("permissions") });
    checks.push(result("clock", clock(client).await));
    checks.push(result("connections", connections(client, config).await));
    checks.push(result("durability", durability(client).await));
    checks.push(if usable { result("outbox", outbox(client).await) } else { no_schema("outbox") });
    checks.push(if usable { result("relay", relay(client, config).await) } else { no_schema("relay") });
    checks
}

fn no_schema(name: &'static str) -> Check {
    Check::skipped(name, "schema")
}

fn result(name: &'static str, result: Result<Check, Error>) -> Check {
    result.unwrap_or_else(|error| Check::error(name, &error))
}

async fn row(client: &Client, doing: &str, sql: &str) -> Result<Row, Error> {
    let failed = |error| Error::new(ErrorKind::Postgres, doing).because(SqlError::of(&error));
    client.query_one(sql, &[]).await.map_err(failed)
}

async fn server(client: &Client) -> Result<Check, Error> {
    const NAME: &str = "postgres";
    let sql = "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                      pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool";
    let row = row(client, "read the version of the server", sql).await?;
    let (number, version): (i32, String) = (row.get(0), row.get(1));
    if row.get(2) || row.get(3) {
        let remedy = "let postgres.url find the primary, for instance with target_session_attrs=read-write";
        return Ok(Check::fail(NAME, format!("version {version}, read only"), remedy));
    }
    if number < SERVER_VERSION_MIN {
        return Ok(Check::fail(NAME, format!("version {version}"), "upgrade to version 14 or newer"));
    }
    Ok(Check::ok(NAME, format!("version {version}")))
}

async fn permissions(client: &Client) -> Result<Check, Error> {
    const NAME: &str = "permissions";
    let sql = "SELECT has_schema_privilege('sekali', 'USAGE'),
                      coalesce(string_agg(relname, ', ' ORDER BY relname), ''), current_user::text
               FROM (SELECT relname FROM pg_class
                     WHERE relnamespace = 'sekali'::regnamespace AND relkind IN ('r', 'p') AND NOT (
                         has_table_privilege(oid, 'SELECT')
                         AND (relname LIKE 'migration\\_%' OR has_table_privilege(oid, 'INSERT'))
                         AND (relname LIKE 'migration\\_%' OR relname = 'audit'
                              OR has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')))
                     UNION ALL
                     SELECT relname FROM pg_class
                     WHERE oid = to_regclass('sekali.fence') AND NOT has_sequence_privilege(oid, 'USAGE')) AS refused";
    let row = row(client, "read the permissions", sql).await?;
    let (usage, refused, user): (bool, String, String) = (row.get(0), row.get(1), row.get(2));
    let finding = match (usage, refused.as_str()) {
        (true, "") => return Ok(Check::ok(NAME, format!("user {user} may read and write schema sekali"))),
        (false, _) => format!("user {user} may not use schema sekali"),
        (true, refused) => format!("user {user} may not read and write: {refused}"),
    };
    let remedy =
        "grant it USAGE on schema sekali and on its sequences, and SELECT, INSERT, UPDATE, DELETE on its tables";
    Ok(Check::fail(NAME, finding, remedy))
}

async fn clock(client: &Client) -> Result<Check, Error> {
    const NAME: &str = "clock";
    let (before, asked) = (SystemTime::now(), Instant::now());
    let sql = "SELECT extract(epoch FROM clock_timestamp())::float8";
    let server: f64 = row(client, "read the clock of the server", sql).await?.get(0);
    let here = before + asked.elapsed() / 2;
    let here = here.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let skew = (here - server).abs();
    let finding = format!("this machine and the database differ by {skew:.3} s");
    if skew < CLOCK_SKEW_MAX.as_secs_f64() {
        return Ok(Check::ok(NAME, finding));
    }
    Ok(Check::warn(NAME, finding, "set both clocks by NTP: retries become due too early or too late"))
}

async fn connections(client: &Client, config: &Config) -> Result<Check, Error> {
    const NAME: &str = "connections";
    let sql = "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
                      (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'
                       AND pid <> pg_backend_pid())";
    let row = row(client, "count the connections", sql).await?;
    let (limit, used): (i32, i32) = (row.get(0), row.get(1));
    let pool = i32::try_from(config.postgres.pool_max_connections.get()).unwrap_or(i32::MAX);
    let finding = format!("each process may open {pool}, {used} of {limit} are in use");
    let remedy = "lower postgres.pool_max_connections or raise max_connections of the server";
    Ok(if limit < pool {
        Check::fail(NAME, finding, remedy)
    } else if limit < used.saturating_add(pool) {
        Check::warn(NAME, finding, remedy)
    } else {
        Check::ok(NAME, finding)
    })
}

async fn durability(client: &Client) -> Result<Check, Error> {
    const NAME: &str = "durability";
    let sql = "SELECT current_setting('fsync'), current_setting('full_page_writes'),
                      current_setting('synchronous_commit')";
    let row = row(client, "read the durability settings", sql).await?;
    let off: Vec<&str> = ["fsync", "full_page_writes", "synchronous_commit"]
        .into_iter()
        .enumerate()
        .filter(|(column, _)| row.get::<_, &str>(*column) == "off")
        .map(|(_, name)| name)
        .collect();
    if off.is_empty() {
        return Ok(Check::ok(NAME, "commits are on disk before offsets are"));
    }
    let finding = format!("off: {}", off.join(", "));
    Ok(Check::warn(NAME, finding, "switch it on: after a crash decisions are lost whose offsets were committed"))
}

async fn outbox(client: &Client) -> Result<Check, Error> {
    const NAME: &str = "outbox";
    let sql = "SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM (
                   SELECT created_at FROM sekali.outbox, sekali.outbox_cursor
                   WHERE NOT pg_visible_in_snapshot(outbox.xid, published) ORDER BY id LIMIT 1000) AS pending";
    let age: f64 = row(client, "read the outbox", sql).await?.get(0);
    if age < OUTBOX_AGE_MAX.as_secs_f64() {
        return Ok(Check::ok(NAME, "nothing waits for long"));
    }
    let finding = format!("the oldest record waits for {age:.0} s: retries and dead letters do not reach Kafka");
    Ok(Check::fail(NAME, finding, "look at check \"relay\" and at the log of the leader"))
}

async fn relay(client: &Client, config: &Config) -> Result<Check, Error> {
    const NAME: &str = "relay";
    let sql = "SELECT count(*) FILTER (WHERE until > now())::int,
                      coalesce(extract(epoch FROM now() - max(acquired_at)), 0)::float8
               FROM sekali.lock WHERE name = 'relay'";
    let row = row(client, "read the leader of the relay", sql).await?;
    if 0 < row.get::<_, i32>(0) {
        return Ok(Check::ok(NAME, format!("one process leads since {:.0} s", row.get::<_, f64>(1))));
    }
    let remedy = if config.relay.embedded {
        "start a worker; each takes part in the relay"
    } else {
        "set relay.embedded = true, or start a process that runs the relay"
    };
    Ok(Check::warn(NAME, "no process publishes the outbox", remedy))
}
