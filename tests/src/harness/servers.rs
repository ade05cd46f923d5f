//! Where the servers under test come from. In this order: an address in the environment; a container, when a Docker
//! engine answers; Kafka's jars and PostgreSQL's binaries, run as processes of this machine.
//!
//! `sekali-test-servers` starts them. `make test` runs it around the whole suite, so that all test programs share one
//! broker and one database server; a test program that finds no address starts it for itself.

mod containers;
mod jars;
mod relocatable;

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, ensure};
use sekali::private_postgres::{Options, PrivatePostgres, find_binaries};

use super::kafka::blocking;
use super::own_broker::OwnBroker;
use super::paths::program;
use containers::Container;

pub(crate) use jars::{Runnable, kafka_jars};

/// Set to `never` where a Docker engine answers and shall not be used.
pub const CONTAINERS_VARIABLE: &str = "SEKALI_TEST_CONTAINERS";

/// One of the two servers that the suite needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// Apache Kafka.
    Kafka,
    /// PostgreSQL.
    Postgres,
}

impl Server {
    /// Environment variable with the address of a running one: `host:port`, or the URL of a superuser.
    pub fn variable(self) -> &'static str {
        match self {
            Server::Kafka => "SEKALI_TEST_KAFKA",
            Server::Postgres => "SEKALI_TEST_POSTGRES",
        }
    }

    /// The address given by the environment.
    pub fn given(self) -> Option<String> {
        std::env::var(self.variable()).ok().filter(|it| !it.is_empty())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Server::Kafka => "kafka",
            Server::Postgres => "postgres",
        })
    }
}

/// A server that was started here. Dropping it ends the server.
pub struct Running {
    /// `host:port`, or the URL of a superuser.
    pub address: String,
    /// Where it came from, in words.
    pub origin: String,
    _server: Handle,
}

enum Handle {
    Container { _it: Container },
    Broker { _it: Box<OwnBroker> },
    Postgres { _it: Box<PrivatePostgres> },
}

/// Starts a server from the first source that works, apart from the environment.
///
/// # Errors
/// None works; the error has the reason of each.
pub async fn start(server: Server) -> Result<Running, anyhow::Error> {
    let no_container = match containers::start(server).await {
        Ok((container, address, origin)) => {
            return Ok(Running { address, origin, _server: Handle::Container { _it: container } });
        }
        Err(reason) => reason,
    };
    let started = match server {
        Server::Kafka => broker().await,
        Server::Postgres => private_postgres().await,
    };
    started.with_context(|| format!("no container ({no_container:#}), no process of this machine"))
}

/// Fetches Kafka's jars of a version with Maven, unless they are there.
///
/// # Errors
/// No Java, no Maven, or the version cannot be had.
pub fn fetch_kafka(version: &str) -> Result<(), anyhow::Error> {
    jars::kafka_jars_of(version).map(drop)
}

/// Fetches PostgreSQL's relocatable binaries of a version with Maven, unless they are there. Returns their directory.
///
/// # Errors
/// No Maven, or the version cannot be had.
pub fn fetch_postgres(version: &str) -> Result<PathBuf, anyhow::Error> {
    relocatable::binaries(version)
}

async fn broker() -> Result<Running, anyhow::Error> {
    let broker = OwnBroker::start_lasting().await?;
    let address = broker.kafka().bootstrap().to_owned();
    let origin = format!("Apache Kafka {} from Maven", super::versions::kafka());
    Ok(Running { address, origin, _server: Handle::Broker { _it: Box::new(broker) } })
}

async fn private_postgres() -> Result<Running, anyhow::Error> {
    blocking(|| {
        let (binaries, origin) = match find_binaries() {
            Ok(dir) => (dir.clone(), format!("PostgreSQL of {}", dir.display())),
            Err(none) => {
                let version = super::versions::newest_postgres_binaries();
                let dir = relocatable::binaries(version).with_context(|| format!("{none:#}"))?;
                (dir, format!("PostgreSQL {version} from Maven"))
            }
        };
        // Tests kill the server, never the machine, so that nothing depends on the disk.
        let options = Options { binaries: Some(binaries), fsync: false, max_connections: 300, ..Options::default() };
        let postgres = PrivatePostgres::start(options)?;
        let address = postgres.url("postgres");
        Ok(Running { address, origin, _server: Handle::Postgres { _it: Box::new(postgres) } })
    })
    .await
}

/// Launchers of this test program. They end with it: the kernel closes their standard input.
static LAUNCHERS: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Address of the server that all tests share: the one of the environment, else of a launcher started for this program.
pub(crate) async fn shared(server: Server) -> Result<String, anyhow::Error> {
    match server.given() {
        Some(address) => Ok(address),
        None => blocking(move || launch(server)).await,
    }
}

fn launch(server: Server) -> Result<String, anyhow::Error> {
    let mut command = Command::new(program("sekali-test-servers"));
    command.args(["hold", &server.to_string()]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut launcher = command.spawn().context("cannot run sekali-test-servers")?;
    let mut address = String::new();
    BufReader::new(launcher.stdout.take().context("the launcher has no output")?).read_line(&mut address)?;
    let address = address.trim().to_owned();
    ensure!(!address.is_empty(), "sekali-test-servers could not start {server}; its message is above");
    LAUNCHERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(launcher);
    Ok(address)
}

/// A line for the person at the terminal, past the test runner's capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
