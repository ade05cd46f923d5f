//! A worker as a process, with its admin port.

use std::time::Duration;

use sekali_worker::stock::create_tables;

use crate::group::Group;
use crate::harness::{Kafka, Process, Program, TestDatabase, eventually};

const LIMIT: Duration = Duration::from_secs(30);

/// A running `sekali-worker` of a group.
pub struct Worker {
    /// The process.
    pub process: Process,
    /// Its admin port.
    pub port: u16,
    _directory: tempfile::TempDir,
}

impl Worker {
    /// Starts one of group `stock` and waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready.
    pub async fn start(group: &Group, url: &str) -> Worker {
        let worker = Worker::spawn(group, url, "").await;
        worker.is_ready().await;
        worker
    }

    /// Starts one of group `stock` with more lines of configuration, which begin with those of section `consumer`.
    ///
    /// # Panics
    /// It cannot be started.
    pub async fn spawn(group: &Group, url: &str, more: &str) -> Worker {
        create_tables(&group.database.connect().await).await.expect("the tables can be made");
        Worker::with_arguments(group, url, more, &["stock"])
    }

    /// Starts one with the arguments of any reference group, whose tables may be missing.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn with_arguments(group: &Group, url: &str, more: &str, arguments: &[&str]) -> Worker {
        let port = sekali::private_postgres::free_port().expect("a port is free");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("worker.toml");
        let text = format!(
            "[kafka]\nbrokers = \"{}\"\nproperties = {{ \"statistics.interval.ms\" = \"500\" }}\n\
             [postgres]\nurl = \"{url}\"\n[retry]\ndelays = [\"300ms\", \"900ms\"]\n\
             [admin]\nlisten = \"127.0.0.1:{port}\"\n\
             [consumer]\ngroup = \"{}\"\ntopics = [\"{}\"]\nsession_timeout = \"6s\"\n{more}\n",
            group.kafka.bootstrap(),
            group.name(),
            group.topic
        );
        std::fs::write(&file, text).expect("a temporary file");
        let process = Program::of_workspace("sekali-worker").arg("--config").arg(&file).args(arguments).spawn();
        Worker { process, port, _directory: directory }
    }

    /// Waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready.
    pub async fn is_ready(&self) {
        let ready = async || self.get("/readyz").await.is_some_and(|it| it.0 == 200);
        eventually("the worker is ready", LIMIT, ready).await;
    }

    /// Status and body; `None` while the port is closed.
    ///
    /// # Panics
    /// Asking panics.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let asked = tokio::task::spawn_blocking(move || {
            let agent: ureq::Agent = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(Duration::from_secs(5)))
                .build()
                .into();
            let mut answer = agent.get(&url).call().ok()?;
            Some((answer.status().as_u16(), answer.body_mut().read_to_string().ok()?))
        });
        asked.await.expect("asking does not panic")
    }

    /// The metrics.
    ///
    /// # Panics
    /// The port is closed.
    pub async fn metrics(&self) -> String {
        self.get("/metrics").await.expect("the port is open").1
    }
}

/// `sekali relay` for a database, without an admin port; not yet started.
///
/// # Panics
/// It has not been built.
pub fn relay(kafka: &Kafka, database: &TestDatabase) -> Program {
    Program::of_workspace("sekali")
        .arg("relay")
        .env("SEKALI_KAFKA__BROKERS", kafka.bootstrap())
        .env("SEKALI_POSTGRES__URL", database.url())
        .env("SEKALI_ADMIN__LISTEN", "none")
}

/// Value of the first series that begins so.
pub fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|it| it.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}
