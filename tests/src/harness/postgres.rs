//! PostgreSQL as the tests see it: a server for all, a migrated database for each.

use std::time::Duration;

use anyhow::Context;
use sekali_schemas::migrations::Part;
use tokio::sync::OnceCell;
use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Client, Config, NoTls};

use super::kafka::unique;
use super::servers;

/// Any number will do that no migration uses.
const TEMPLATE_LOCK: i64 = 0x005E_CA11_7E57;
const DROP_TIMEOUT: Duration = Duration::from_secs(10);

/// A server on which databases can be made.
#[derive(Debug, Clone)]
pub struct Postgres {
    url: String,
}

/// A migrated database of one test. Dropped with the value, even when something still uses it.
#[derive(Debug)]
pub struct TestDatabase {
    server: Postgres,
    name: String,
}

/// The server that all tests of the run share: `SEKALI_TEST_POSTGRES`, or one that is started on first use.
///
/// # Panics
/// There is none to be had; the message says what was tried.
pub async fn postgres() -> &'static Postgres {
    static SHARED: OnceCell<Postgres> = OnceCell::const_new();
    let start = async || servers::shared(servers::Server::Postgres).await.map(|url| Postgres::at(&url));
    SHARED.get_or_try_init(start).await.unwrap_or_else(|error| panic!("no PostgreSQL for the tests: {error:#}"))
}

/// Connects without TLS and drives the connection on the present runtime.
///
/// # Errors
/// As `tokio_postgres`.
pub async fn connect(url: &str) -> Result<Client, anyhow::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Its errors reach the client as closed connections.
    tokio::spawn(connection);
    Ok(client)
}

impl Postgres {
    /// A server, given by the URL of a superuser.
    pub fn at(url: &str) -> Postgres {
        Postgres { url: url.to_owned() }
    }

    /// URL of a database of the server, for the superuser.
    pub fn url(&self, database: &str) -> String {
        let (base, parameters) = self.url.split_once('?').map_or((self.url.as_str(), None), |(a, b)| (a, Some(b)));
        let authority = base.find("://").map_or(0, |it| it + 3);
        let end = base[authority..].find('/').map_or(base.len(), |it| authority + it);
        let parameters = parameters.map(|it| format!("?{it}")).unwrap_or_default();
        format!("{}/{database}{parameters}", &base[..end])
    }

    /// Host and port, for a proxy.
    ///
    /// # Panics
    /// The URL names none.
    pub fn address(&self) -> (String, u16) {
        let config: Config = self.url.parse().expect("the server's URL is valid");
        let host = match config.get_hosts().first() {
            Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
            other => panic!("a proxy needs a TCP host, not {other:?}"),
        };
        (host, config.get_ports().first().copied().unwrap_or(5432))
    }

    /// A connection to database `postgres`.
    ///
    /// # Panics
    /// The server does not take it.
    pub async fn admin(&self) -> Client {
        connect(&self.url("postgres")).await.unwrap_or_else(|error| panic!("cannot connect to PostgreSQL: {error:#}"))
    }

    /// Name of a migrated database to copy, made by whoever asks first. The name follows from the migrations, so that
    /// a server which outlives the run never hands out an old one.
    async fn template(&self) -> Result<String, anyhow::Error> {
        let runners = Part::ALL.map(Part::runner);
        let all = runners.iter().flat_map(|it| it.get_migrations());
        let checksums = all.map(|it| it.checksum()).fold(0, u64::wrapping_add);
        let name = format!("sekali_template_{checksums:016x}");
        let mut admin = connect(&self.url("postgres")).await?;
        let transaction = admin.transaction().await?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&TEMPLATE_LOCK]).await?;
        let exists = "SELECT FROM pg_database WHERE datname = $1";
        if transaction.query_opt(exists, &[&name]).await?.is_none() {
            self.make_template(&name).await.context("cannot make the template database")?;
        }
        transaction.commit().await?;
        Ok(name)
    }

    /// Under another name first: a run that dies half-way must not leave a half-migrated template.
    async fn make_template(&self, name: &str) -> Result<(), anyhow::Error> {
        let admin = connect(&self.url("postgres")).await?;
        let draft = unique("sekali_draft").replace('-', "_");
        admin.batch_execute(&format!("CREATE DATABASE {draft}")).await?;
        let (mut client, connection) = tokio_postgres::connect(&self.url(&draft), NoTls).await?;
        let connection = tokio::spawn(connection);
        client.batch_execute("CREATE SCHEMA IF NOT EXISTS sekali").await?;
        for part in Part::ALL {
            part.runner().run_async(&mut client).await?;
        }
        drop(client);
        // A database that somebody is connected to cannot be renamed or copied.
        connection.await??;
        admin.batch_execute(&format!("ALTER DATABASE {draft} RENAME TO {name}")).await?;
        Ok(())
    }
}

impl TestDatabase {
    /// A new database on the shared server, migrated to the newest version.
    ///
    /// # Panics
    /// The server refuses.
    pub async fn create() -> TestDatabase {
        TestDatabase::create_on(postgres().await).await
    }

    /// A new database on a server of the test's own.
    ///
    /// # Panics
    /// The server refuses.
    pub async fn create_on(server: &Postgres) -> TestDatabase {
        let template = server.template().await.unwrap_or_else(|error| panic!("no migrated database: {error:#}"));
        TestDatabase::copy(server, &template).await
    }

    /// A new database without schema `sekali`, for tests of the migrations.
    ///
    /// # Panics
    /// The server refuses.
    pub async fn create_empty() -> TestDatabase {
        TestDatabase::copy(postgres().await, "template0").await
    }

    async fn copy(server: &Postgres, template: &str) -> TestDatabase {
        let name = unique("sekali_test").replace('-', "_");
        let created = server.admin().await.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        created.unwrap_or_else(|error| panic!("cannot create a database: {error:?}"));
        TestDatabase { server: server.clone(), name }
    }

    /// URL for the superuser.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// URL that goes through something else on 127.0.0.1, such as a [`super::Proxy`], which must be able to read along.
    pub fn url_through(&self, port: u16) -> String {
        let (host, direct) = self.server.address();
        let url = self.url().replacen(&format!("{host}:{direct}"), &format!("127.0.0.1:{port}"), 1);
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}sslmode=disable")
    }

    /// Name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it lies on.
    pub fn server(&self) -> &Postgres {
        &self.server
    }

    /// A new connection.
    ///
    /// # Panics
    /// The server does not take it.
    pub async fn connect(&self) -> Client {
        connect(&self.url()).await.unwrap_or_else(|error| panic!("cannot connect to the test's database: {error:#}"))
    }

    /// Runs statements without parameters.
    ///
    /// # Panics
    /// One fails.
    pub async fn execute(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// First column of the only row of a query without parameters.
    ///
    /// # Panics
    /// The query fails or has another number of rows.
    pub async fn scalar<T: FromSqlOwned>(&self, sql: &str) -> T {
        let row = self.connect().await.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        row.get(0)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (url, name) = (self.server.url("postgres"), self.name.clone());
        // The test's runtime may be ending, so that this needs one of its own. Best effort: the server may be dead.
        let ending = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let drop_database = async {
                let admin = connect(&url).await?;
                admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
                anyhow::Ok(())
            };
            runtime.block_on(async { tokio::time::timeout(DROP_TIMEOUT, drop_database).await? })
        });
        let _ = ending.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_the_url_changes() {
        let cases = [
            ("postgres://a:b@h:1/x", "postgres://a:b@h:1/d"),
            ("postgres://a:b@h:1", "postgres://a:b@h:1/d"),
            ("postgresql://h/x?sslmode=disable", "postgresql://h/d?sslmode=disable"),
        ];
        for (url, expected) in cases {
            assert_eq!(Postgres::at(url).url("d"), expected);
        }
    }
}
