//! The programs that are killed: this program again, with a configuration to run.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use sekali_consumer::{Config, Consumer, shutdown_signal};
use sekali_producer::Relay;
use sekali_tests::harness::{Process, Program};
use sekali_tests::scripted::Scripted;
use sekali_worker::log;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

const VARIABLE: &str = "CRASH_CHILD";
const PARENT_LOOK: Duration = Duration::from_millis(500);

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// A member of the group, whose handler does what its messages say.
    Worker,
    /// A relay and nothing else.
    Relay,
}

/// One child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Child {
    pub(crate) role: Role,
    /// TOML.
    pub(crate) config: String,
}

/// The part of this process, if it is a child.
pub(crate) fn given() -> Option<Child> {
    serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
}

impl Child {
    pub(crate) fn spawn(&self) -> Result<Process, anyhow::Error> {
        // Not by its path: a build in the middle of a long run must not change what is killed.
        let program = Program::at(Path::new("/proc/self/exe"));
        Ok(program.env(VARIABLE, serde_json::to_string(self)?).spawn())
    }

    /// Runs until SIGTERM.
    pub(crate) fn run(&self) -> ExitCode {
        match self.serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn serve(&self) -> Result<(), anyhow::Error> {
        let config = Config::from_toml(&self.config)?;
        log::init(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            tokio::spawn(end_with_parent());
            match self.role {
                Role::Worker => {
                    let consumer = Consumer::connect(config, Scripted::default()).await?;
                    consumer.run(shutdown_signal()).await.context("the consumer ended")
                }
                Role::Relay => relay(&config).await,
            }
        })
    }
}

async fn relay(config: &Config) -> Result<(), anyhow::Error> {
    let relay = Relay::new(config.postgres.pool("sekali-relay")?, &config.kafka, &config.relay)?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        shutdown_signal().await;
        stopping.cancel();
    });
    relay.run(stop).await;
    Ok(())
}

/// The servers end with the bench, and a child would look for them for ever.
async fn end_with_parent() {
    let parent = std::os::unix::process::parent_id();
    let mut beat = tokio::time::interval(PARENT_LOOK);
    while std::os::unix::process::parent_id() == parent {
        beat.tick().await;
    }
    std::process::exit(1);
}
