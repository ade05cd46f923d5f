//! A Kafka broker of a test's own, which may be killed, frozen and put behind a proxy.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use sekali::private_postgres::free_port;
use sekali::private_postgres::supervised::{Start, Supervised};
use tempfile::TempDir;

use super::kafka::{Kafka, blocking};
use super::proxy::Proxy;
use super::servers::{Runnable, kafka_jars};

mod secured;

pub use secured::{PASSWORD, SecuredPorts, USER};

const START_TIMEOUT: Duration = Duration::from_secs(90);
/// A killed broker may register again only when its last session has run out; one that gets no processor for longer is
/// fenced.
const SESSION_SHORT_MS: u32 = 4_000;
const SESSION_LONG_MS: u32 = 60_000;
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the listener behind a proxy.
const PROXIED: &str = "PROXIED";

/// Broker settings of the suite, wherever the broker comes from.
pub(crate) const SETTINGS: [(&str, &str); 11] = [
    ("auto.create.topics.enable", "false"),
    ("offsets.topic.replication.factor", "1"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.state.log.num.partitions", "4"),
    ("group.initial.rebalance.delay.ms", "0"),
    // Tests with a dead member wait for its session to end.
    ("group.min.session.timeout.ms", "1000"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.min.heartbeat.interval.ms", "200"),
    ("log.message.timestamp.type", "CreateTime"),
];

/// A running broker in KRaft mode, started from Kafka's jars. Dropping it kills it and deletes its data.
pub struct OwnBroker {
    server: Option<Supervised>,
    runnable: Runnable,
    kafka: Kafka,
    extra: Extra,
    dir: TempDir,
}

/// What a broker has beside its own listener.
#[derive(Default)]
struct Extra {
    listeners: Vec<Listener>,
    settings: Vec<(String, String)>,
    /// Users with a password, as `kafka-storage` takes them.
    users: Vec<String>,
}

struct Listener {
    name: &'static str,
    protocol: &'static str,
    port: u16,
    /// The port that clients are told.
    advertised: u16,
}

impl Listener {
    fn new(name: &'static str, protocol: &'static str) -> Result<Listener, anyhow::Error> {
        let port = free_port()?;
        Ok(Listener { name, protocol, port, advertised: port })
    }
}

impl OwnBroker {
    /// Starts a broker with empty logs. Takes three to five seconds.
    ///
    /// # Errors
    /// No Java, no Maven for the first fetch, or the broker does not start.
    pub async fn start() -> Result<OwnBroker, anyhow::Error> {
        OwnBroker::start_with(Extra::default(), SESSION_SHORT_MS).await
    }

    /// Starts a broker that nobody kills, for a whole run: a busy machine does not make it lose its session.
    ///
    /// # Errors
    /// As [`OwnBroker::start`].
    pub async fn start_lasting() -> Result<OwnBroker, anyhow::Error> {
        OwnBroker::start_with(Extra::default(), SESSION_LONG_MS).await
    }

    /// Starts a broker that has a second address, which leads through a proxy: see [`OwnBroker::proxied_bootstrap`].
    ///
    /// # Errors
    /// As [`OwnBroker::start`].
    pub async fn start_proxied() -> Result<(OwnBroker, Proxy), anyhow::Error> {
        let behind = Listener::new(PROXIED, "PLAINTEXT")?;
        let proxy = Proxy::to(&format!("127.0.0.1:{}", behind.port)).await?;
        let listeners = vec![Listener { advertised: proxy.port(), ..behind }];
        let broker = OwnBroker::start_with(Extra { listeners, ..Extra::default() }, SESSION_SHORT_MS).await?;
        Ok((broker, proxy))
    }

    async fn start_with(extra: Extra, session_ms: u32) -> Result<OwnBroker, anyhow::Error> {
        let mut broker = blocking(move || {
            let runnable = kafka_jars()?;
            let dir = tempfile::Builder::new().prefix("sekali-kafka-").tempdir()?;
            let (port, controller) = (free_port()?, free_port()?);
            let kafka = Kafka::at(&format!("127.0.0.1:{port}"))?;
            let broker = OwnBroker { server: None, runnable, kafka, extra, dir };
            std::fs::write(broker.properties(), properties(&broker, port, controller, session_ms))?;
            broker.format()?;
            anyhow::Ok(broker)
        })
        .await?;
        broker.restart().await?;
        Ok(broker)
    }

    /// Clients for it.
    pub fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Supervised::pid)
    }

    /// Address that leads through the proxy of [`OwnBroker::start_proxied`], for this and all following connections.
    ///
    /// # Panics
    /// The broker was started without.
    pub fn proxied_bootstrap(&self) -> String {
        let proxied = self.extra.listeners.iter().find(|it| it.name == PROXIED);
        format!("127.0.0.1:{}", proxied.expect("the broker was started by start_proxied").advertised)
    }

    /// What the broker has logged: warnings and errors.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Kills the broker with SIGKILL. Its data stays.
    ///
    /// # Panics
    /// It cannot be signalled.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Signal::SIGKILL, STOP_TIMEOUT).expect("the broker can be killed");
        }
    }

    /// Freezes the broker: connections stay, nothing answers.
    ///
    /// # Panics
    /// It does not run.
    pub fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Ends [`OwnBroker::freeze`].
    ///
    /// # Panics
    /// It does not run.
    pub fn thaw(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    /// Stops the broker in good order. Its data stays.
    ///
    /// # Errors
    /// It takes too long, and was killed.
    pub async fn stop(&mut self) -> Result<(), anyhow::Error> {
        match self.server.take() {
            Some(server) => blocking(move || server.stop(Signal::SIGTERM, STOP_TIMEOUT)).await,
            None => Ok(()),
        }
    }

    /// Starts the broker again on the same ports with the same data, and waits until it serves groups.
    ///
    /// # Errors
    /// It ends at once.
    pub async fn restart(&mut self) -> Result<(), anyhow::Error> {
        self.stop().await?;
        let mut command = self.java(&["-Xms128m", "-Xmx512m"]);
        command.extend(["kafka.Kafka".into(), self.properties().into()]);
        let start = Start {
            command: &command,
            log: &self.log_path(),
            dir: self.dir.path(),
            user: None,
            on_orphaned: Signal::SIGKILL,
        };
        let mut server = start.spawn()?;
        // Wait on the port first: a client that meets a closed one backs off.
        let address = self.kafka.bootstrap().to_owned();
        let listens = super::eventually("the broker listens, or ends", START_TIMEOUT, async || {
            if server.has_ended().unwrap_or(true) {
                return Some(false);
            }
            tokio::net::TcpStream::connect(&address).await.is_ok().then_some(true)
        });
        let listens = listens.await;
        ensure!(listens, "the broker ended while it started: {}", last_lines(&self.log()));
        self.server = Some(server);
        self.kafka.warm_up(START_TIMEOUT).await;
        Ok(())
    }

    fn format(&self) -> Result<(), anyhow::Error> {
        let command = self.java(&["-Xmx128m"]);
        let mut format = Command::new(&command[0]);
        let id = cluster_id();
        // With `=`, because an id may begin with a dash.
        let arguments = ["kafka.tools.StorageTool", "format", &format!("--cluster-id={id}"), "-c"];
        format.args(&command[1..]).args(arguments).arg(self.properties()).stdin(Stdio::null());
        for user in &self.extra.users {
            format.args(["--add-scram", user]);
        }
        let output = format.output().context("cannot run java")?;
        let text = [output.stdout, output.stderr].concat();
        ensure!(output.status.success(), "cannot format Kafka's logs: {}", last_lines(&String::from_utf8_lossy(&text)));
        Ok(())
    }

    fn java(&self, limits: &[&str]) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![self.runnable.java.clone().into()];
        command.extend(limits.iter().map(OsString::from));
        // Half of the start is the compiler: the broker lives for minutes, and the simple one will do.
        let options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"];
        command.extend(options.iter().map(OsString::from));
        command.extend(["-Dorg.slf4j.simpleLogger.showDateTime=true".into(), "-cp".into()]);
        command.push(self.runnable.jars.join("*").into());
        command
    }

    fn signal(&mut self, signal: Signal) {
        let server = self.server.as_mut().expect("the broker runs");
        server.signal(signal).expect("the broker can be signalled");
    }

    fn properties(&self) -> PathBuf {
        self.dir.path().join("server.properties")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("broker.log")
    }
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // Before its directory goes; nobody needs its data.
            let _ = server.stop(Signal::SIGKILL, STOP_TIMEOUT);
        }
    }
}

fn properties(broker: &OwnBroker, port: u16, controller: u16, session_ms: u32) -> String {
    let mut protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
    let mut listeners = format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}");
    let mut advertised = format!("PLAINTEXT://127.0.0.1:{port}");
    for Listener { name, protocol, port, advertised: told } in &broker.extra.listeners {
        let _ = write!(protocols, ",{name}:{protocol}");
        let _ = write!(listeners, ",{name}://127.0.0.1:{port}");
        let _ = write!(advertised, ",{name}://127.0.0.1:{told}");
    }
    let data = broker.dir.path().join("data").display().to_string();
    let place = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.voters", &format!("1@127.0.0.1:{controller}")),
        ("listeners", &listeners),
        ("advertised.listeners", &advertised),
        ("listener.security.protocol.map", &protocols),
        ("controller.listener.names", "CONTROLLER"),
        ("inter.broker.listener.name", "PLAINTEXT"),
        ("log.dirs", &data),
        ("broker.session.timeout.ms", &session_ms.to_string()),
        ("broker.heartbeat.interval.ms", "300"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
    ];
    let mut text = String::new();
    let extra = broker.extra.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in place.into_iter().chain(SETTINGS).chain(extra) {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// 128 random bits in URL-safe base64: 22 characters, of which the last has two bits of them. Hexadecimal digits in the
/// first 21 and an `A` at the end are valid, too, and need no encoder.
fn cluster_id() -> String {
    format!("{}A", &uuid::Uuid::new_v4().simple().to_string()[..21])
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|it| !it.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}
