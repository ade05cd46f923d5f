//! The containers of one compose project, its broker and its database.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sekali_tests::harness::{Kafka, connect};
use tokio::process::Command;
use tokio_postgres::Client;

/// The group that the compose file runs; its source topic has the same name.
pub(crate) const GROUP: &str = "stock";
pub(crate) const TOPIC: &str = "stock";
pub(crate) const DLQ: &str = "stock.stock.dlq";
pub(crate) const PARTITIONS: usize = 6;

/// The grace period of the compose file: whoever takes longer is killed.
pub(crate) const GRACE: Duration = Duration::from_secs(35);
const START_TIMEOUT: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(200);

pub(crate) struct Stack {
    project: String,
    pub(crate) kafka: Kafka,
    pub(crate) client: Client,
}

/// How a container ended after SIGTERM.
pub(crate) struct Stopped {
    pub(crate) seconds: f64,
    pub(crate) status: i32,
}

impl Stack {
    pub(crate) async fn connect(project: &str, kafka: &str, postgres: &str) -> Result<Stack, anyhow::Error> {
        let client = connect(postgres).await.context("the database of the containers cannot be reached")?;
        Ok(Stack { project: project.to_owned(), kafka: Kafka::at(kafka)?, client })
    }

    /// Names of the worker containers.
    pub(crate) async fn workers(&self) -> Result<Vec<String>, anyhow::Error> {
        let project = format!("label=com.docker.compose.project={}", self.project);
        let filters = ["--filter", &project, "--filter", "label=com.docker.compose.service=worker"];
        let listed = docker(&[&["ps", "--format", "{{.Names}}"], &filters[..]].concat()).await?;
        let mut names: Vec<String> = listed.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Ends a container as a crash would.
    pub(crate) async fn kill(&self, name: &str) -> Result<(), anyhow::Error> {
        docker(&["kill", name]).await.map(drop)
    }

    /// Ends a container as a deployment would.
    pub(crate) async fn stop(&self, name: &str) -> Result<Stopped, anyhow::Error> {
        let asked = Instant::now();
        docker(&["stop", "--time", &GRACE.as_secs().to_string(), name]).await?;
        let seconds = asked.elapsed().as_secs_f64();
        let status = docker(&["inspect", "--format", "{{.State.ExitCode}}", name]).await?;
        Ok(Stopped { seconds, status: status.trim().parse().context("an exit status is a number")? })
    }

    /// Starts a container again and waits until its health check is content.
    pub(crate) async fn start(&self, name: &str) -> Result<(), anyhow::Error> {
        docker(&["start", name]).await?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let health = docker(&["inspect", "--format", "{{.State.Health.Status}}", name]).await?;
            if health.trim() == "healthy" {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} is {} after {START_TIMEOUT:?}", health.trim());
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn docker(arguments: &[&str]) -> Result<String, anyhow::Error> {
    let output =
        Command::new("docker").args(arguments).stdin(Stdio::null()).output().await.context("cannot run docker")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "docker {} failed: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
