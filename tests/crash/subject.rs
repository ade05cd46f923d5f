//! A group with topics, a database and a worker of its own, which is brought to one point again and again.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use sekali_consumer::Config;
use sekali_tests::harness::proxy::Halt;
use sekali_tests::harness::{Kafka, Postgres, Process, Proxy, TestDatabase, eventually, unique};
use sekali_tests::scripted::LEDGER;
use tokio::time::timeout;

use crate::child::{Child, Role};
use crate::judge::{self, Findings, Watch};
use crate::point::{Place, Point};
use crate::servers::Servers;
use crate::traffic::Traffic;

/// Of source topics. The others have one: a broker that was killed looks through every partition when it starts.
const PARTITIONS: i32 = 2;
/// Longest way to a point: a start, a rebalance, and a retry or two on a busy machine.
const APPROACH_LIMIT: Duration = Duration::from_secs(60);
/// Longest way back to rest: dead sessions, clients that back off, retries.
const REST_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const LOG_LINES: usize = 12;

pub(crate) struct Subject {
    pub(crate) point: &'static Point,
    /// The relay is a process of its own, and the one to die.
    pub(crate) has_own_relay: bool,
    worker: Child,
    relay: Option<Child>,
    /// Id of the clients whose requests a point means.
    client_id: String,
    group: String,
    topics: Topics,
    database: TestDatabase,
    proxy: Proxy,
    traffic: Traffic,
    processes: Vec<(Role, Process)>,
    halt: Option<Halt>,
    /// Up to the last round.
    republished: usize,
}

struct Topics {
    source: String,
    retries: Vec<String>,
    dlq: String,
}

impl Subject {
    pub(crate) async fn new(
        servers: &Servers,
        point: &'static Point,
        has_own_relay: bool,
    ) -> Result<Subject, anyhow::Error> {
        let database = TestDatabase::create_on(&Postgres::at(&servers.postgres.url("postgres"))).await;
        database.execute(LEDGER).await;
        let proxy = Proxy::to(&format!("127.0.0.1:{}", servers.postgres.port())).await?;
        let source = unique(&point.name.replace(['.', '_'], "-"));
        let group = format!("{source}-group");
        let config = |client_id: &str, embedded: bool| {
            format!(
                "[kafka]\nbrokers = \"{}\"\nclient_id = \"{client_id}\"\n\
                 [kafka.properties]\n\"reconnect.backoff.max.ms\" = \"300\"\n[postgres]\nurl = \"{}\"\n\
                 [consumer]\ngroup = \"{group}\"\ntopics = [\"{source}\"]\nsession_timeout = \"2s\"\n\
                 drain_timeout = \"10s\"\n[retry]\ndelays = [\"100ms\", \"200ms\"]\n\
                 [relay]\nembedded = {embedded}\nlease_ttl = \"1s\"\n[admin]\nlisten = \"none\"\n",
                servers.broker.proxied_bootstrap(),
                database.url_through(proxy.port()),
            )
        };
        // Names that occur nowhere but in the heads of requests: a topic's name also stands in their bodies.
        let (worker_id, relay_id) = (format!("worker-of-{source}"), format!("relay-of-{source}"));
        let worker = Child { role: Role::Worker, config: config(&worker_id, !has_own_relay) };
        let relay = has_own_relay.then(|| Child { role: Role::Relay, config: config(&relay_id, true) });
        let topics = Topics::of(&worker.config)?;
        topics.create(servers.broker.kafka()).await;
        let client_id = if has_own_relay { relay_id } else { worker_id };
        Ok(Subject {
            point,
            has_own_relay,
            worker,
            relay,
            client_id,
            group,
            topics,
            database,
            proxy,
            traffic: Traffic::default(),
            processes: Vec::new(),
            halt: None,
            republished: 0,
        })
    }

    /// The process that dies when processes do.
    pub(crate) fn victim(&self) -> Role {
        if self.has_own_relay { Role::Relay } else { Role::Worker }
    }

    /// Starts the processes and leads them to the point.
    pub(crate) async fn approach(&mut self, servers: &Servers) -> Result<(), anyhow::Error> {
        let proxy = match self.point.place {
            Place::Postgres(_) => &self.proxy,
            Place::Kafka(_) => &servers.kafka_proxy,
        };
        let halt = proxy.halt_at(self.point.place.steps(&self.client_id), self.point.when);
        self.start(Role::Worker)?;
        if self.has_own_relay {
            self.start(Role::Relay)?;
        }
        let records = self.traffic.lead(self.point.lead);
        servers.broker.kafka().produce(&self.topics.source, records).await;
        let reached = timeout(APPROACH_LIMIT, halt.reached()).await;
        ensure!(reached.is_ok(), "the point was not reached within {APPROACH_LIMIT:?}");
        self.halt = Some(halt);
        Ok(())
    }

    pub(crate) async fn kill(&mut self) {
        let victim = self.victim();
        if let Some(at) = self.processes.iter().position(|it| it.0 == victim) {
            self.processes.remove(at).1.sigkill().await;
        }
    }

    /// Starts what [`Subject::kill`] killed.
    pub(crate) fn restart(&mut self) -> Result<(), anyhow::Error> {
        self.start(self.victim())
    }

    /// Lets what was held arrive late, or never.
    pub(crate) fn release(&mut self, is_lost: bool) {
        if let Some(halt) = self.halt.take() {
            if is_lost { halt.cut() } else { halt.let_go() }
        }
    }

    /// Goes on until everything has come to rest, and judges.
    pub(crate) async fn recover(&mut self, kafka: &Kafka) -> Result<Findings, anyhow::Error> {
        kafka.produce(&self.topics.source, self.traffic.mixed()).await;
        let what = format!("{} comes to rest", self.point.name);
        let mut watch = Watch::over(&self.database);
        let traffic = &self.traffic;
        eventually(&what, REST_LIMIT, async || watch.rests(traffic).await).await;
        let mut read = self.topics.retries.clone();
        read.push(self.topics.source.clone());
        let view = kafka.view(&self.group, &read).await;
        eventually("the committed offsets are the ends", REST_LIMIT, async || view.caught_up().await).await;
        let mut findings = judge::judge(&self.database, kafka, &self.topics.dlq, &self.traffic).await?;
        let before = std::mem::replace(&mut self.republished, findings.republished);
        findings.republished -= before.min(findings.republished);
        self.stop().await?;
        Ok(findings)
    }

    /// Last lines of what its processes have logged.
    pub(crate) fn logs(&self) -> String {
        let last = |(role, process): &(Role, Process)| {
            let log = process.stderr();
            let lines: Vec<&str> = log.lines().collect();
            format!("{role:?}:\n{}\n", lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
        };
        self.processes.iter().map(last).collect()
    }

    /// What survived a crash stops as gracefully as ever.
    async fn stop(&mut self) -> Result<(), anyhow::Error> {
        for (role, process) in &mut self.processes {
            ensure!(process.is_running(), "{role:?} has ended by itself");
            process.sigterm();
        }
        for (role, process) in &mut self.processes {
            let status = process.wait(STOP_LIMIT).await;
            ensure!(status.success(), "{role:?} stopped with {status}");
        }
        self.processes.clear();
        Ok(())
    }

    fn start(&mut self, role: Role) -> Result<(), anyhow::Error> {
        let child = match (role, &self.relay) {
            (Role::Worker, _) => &self.worker,
            (Role::Relay, Some(relay)) => relay,
            (Role::Relay, None) => bail!("this subject has no relay of its own"),
        };
        self.processes.push((role, child.spawn()?));
        Ok(())
    }
}

impl Topics {
    fn of(config: &str) -> Result<Topics, anyhow::Error> {
        let topics = Config::from_toml(config)?.group_topics()?;
        let of_source = topics.topics.first().context("the group has a source topic")?;
        Ok(Topics {
            source: of_source.source.clone(),
            retries: of_source.retry.iter().map(|it| it.1.clone()).collect(),
            dlq: of_source.dlq.clone(),
        })
    }

    async fn create(&self, kafka: &Kafka) {
        let mut topics: Vec<(&str, i32)> = self.retries.iter().map(|it| (it.as_str(), 1)).collect();
        topics.extend([(self.source.as_str(), PARTITIONS), (self.dlq.as_str(), 1)]);
        kafka.create_exactly(&topics, &[]).await;
    }
}
