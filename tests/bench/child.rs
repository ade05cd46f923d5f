//! The programs under measurement: this program again, as a child with a task in its environment.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use sekali_consumer::{Config, Consumer, Failure, Handler, Message, Reply, Transaction, run_relay, shutdown_signal};
use sekali_tests::harness;
use sekali_worker::log;
use sekali_worker::stock::{Stock, StockMode};
use serde::{Deserialize, Serialize};

use crate::hand;
use crate::load::{FAULT, Fault};

const VARIABLE: &str = "BENCH_CHILD";

/// Which loop drains the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Program {
    /// Written by hand: [`hand`].
    Hand,
    /// The product with its default configuration and the stock handler.
    Product,
    /// A relay alone, as `sekali relay`.
    Relay,
}

impl Program {
    /// Its name in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Hand => "P1x",
            Program::Product => "sekali",
            Program::Relay => "relay",
        }
    }
}

/// What a child is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Child {
    pub(crate) program: Program,
    pub(crate) brokers: String,
    pub(crate) postgres: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) admin_port: u16,
}

/// The task of this process, if it is a child.
pub(crate) fn given() -> Option<Child> {
    serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
}

impl Child {
    pub(crate) fn spawn(&self) -> Result<harness::Process, anyhow::Error> {
        // Not by its path: a build in the middle of a run must not change what is compared.
        let program = harness::Program::at(Path::new("/proc/self/exe"));
        Ok(program.env(VARIABLE, serde_json::to_string(self)?).spawn())
    }

    /// Runs until SIGTERM.
    pub(crate) fn run(&self) -> ExitCode {
        let result = match self.program {
            Program::Hand => hand::run(self),
            Program::Product => self.product(),
            Program::Relay => self.relay(),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn product(&self) -> Result<(), anyhow::Error> {
        let config = self.config()?;
        log::init(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let consumer = Consumer::connect(config, Faulty(Stock::new(StockMode::Batch))).await?;
            consumer.run(shutdown_signal()).await.context("the consumer ended")
        })
    }

    fn relay(&self) -> Result<(), anyhow::Error> {
        let config = self.config()?;
        log::init(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run_relay(&config, shutdown_signal())).context("the relay ended")
    }

    /// Every default, but for what has none, and a port that two runs do not share.
    pub(crate) fn config(&self) -> Result<Config, anyhow::Error> {
        let Child { brokers, postgres, topic, group, admin_port, .. } = self;
        let text = format!(
            "[kafka]\nbrokers = \"{brokers}\"\n[postgres]\nurl = \"{postgres}\"\n\
             [consumer]\ngroup = \"{group}\"\ntopics = [\"{topic}\"]\n[admin]\nlisten = \"127.0.0.1:{admin_port}\"\n"
        );
        Ok(Config::from_toml(&text)?)
    }
}

/// The stock handler, for events some of which are made to fail.
struct Faulty(Stock);

impl Handler for Faulty {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let mut replies = self.handle_batch(std::slice::from_ref(message), tx).await?;
        Ok(replies.pop().unwrap_or_else(Reply::done))
    }

    async fn handle_batch(&self, messages: &[Message], tx: &Transaction<'_>) -> Result<Vec<Reply>, Failure> {
        let fault = |it: &Message| it.headers().text(FAULT).unwrap_or_default().to_owned();
        if messages.iter().all(|it| fault(it).is_empty()) {
            return self.0.handle_batch(messages, tx).await;
        }
        if messages.iter().any(|it| fault(it) == Fault::Sql.name()) {
            tx.batch_execute("SELECT 1 / 0").await?;
        }
        let good: Vec<Message> = messages.iter().filter(|it| fault(it).is_empty()).cloned().collect();
        let mut replies = if good.is_empty() { Vec::new() } else { self.0.handle_batch(&good, tx).await? }.into_iter();
        let reply = |it: &Message| match fault(it).as_str() {
            "" => replies.next().unwrap_or_else(Reply::done),
            _ => Reply::rejected(Failure::permanent("made to fail")),
        };
        Ok(messages.iter().map(reply).collect())
    }
}
