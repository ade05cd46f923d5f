//! The programs as processes: whoever measures starts itself again with a description as its argument.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use secrecy::ExposeSecret;
use sekali_consumer::config::{Config, Needs, Order};
use sekali_consumer::{Consumer, Handler, run_relay, shutdown_signal};
use sekali_producer::config::PostgresSection;
use sekali_worker::log;
use sekali_worker::stock::{Stock, StockMode};
use serde::{Deserialize, Serialize};

use crate::fault::Faulty;
use crate::hand::{self, Claim, Shape, Writing};
use crate::handler::PerEvent;
use crate::naive;
use crate::program::Program;

/// First argument of a process that is to be one of the programs. The second one is a [`Child`] as JSON.
pub const ARGUMENT: &str = "bench-program";

/// Batches of the loops by hand that send statements for each event: their transactions last longer.
const PER_EVENT_BATCH_MAX: usize = 500;
const IN_PROGRESS_MAX: usize = 32;

/// Where brokers and database come from.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Configuration file.
    pub file: Option<PathBuf>,
    /// Whether `SEKALI_*` variables count, too.
    pub with_environment: bool,
}

/// What differs from the defaults of the product, or from the user's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Scope of the inbox, where it is not the group.
    pub name: Option<String>,
    /// `consumer.executors`
    pub executors: Option<NonZeroUsize>,
    /// `consumer.batch_messages_max`
    pub batch_messages_max: Option<NonZeroUsize>,
    /// `consumer.session_timeout`
    pub session_timeout: Option<Duration>,
    /// `retry.delays`
    pub delays: Option<Vec<Duration>>,
    /// Whether a failed message holds its key.
    pub unordered: bool,
    /// Whether some of the events are made to fail.
    pub with_faults: bool,
}

/// One program: what it reads, and where it writes. Holds no secrets, since arguments of processes can be seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Child {
    /// Which one.
    pub program: Program,
    /// Brokers and database.
    pub origin: Origin,
    /// Database, instead of the one that is configured.
    pub database: String,
    /// Port on 127.0.0.1 that leads to the database server, for one that counts what passes.
    pub through: Option<u16>,
    /// Source topic.
    pub topic: String,
    /// Partitions of it.
    pub partitions: NonZeroU16,
    /// Consumer group.
    pub group: String,
    /// Port of the product's metrics.
    pub admin_port: Option<u16>,
    /// Settings of the product.
    pub settings: Settings,
}

impl Origin {
    /// Brokers and database as configured.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load(&self) -> Result<Config, anyhow::Error> {
        if self.with_environment {
            return Ok(Config::load_for(self.file.as_deref(), Needs::Relay)?);
        }
        let file = self.file.as_ref().context("neither a configuration file nor the environment")?;
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Config::from_toml(&text)?)
    }
}

impl Child {
    /// Runs the program of the process's arguments until SIGTERM, if they ask for one.
    pub fn run_if_asked() -> Option<ExitCode> {
        let mut arguments = std::env::args().skip(1);
        if arguments.next()? != ARGUMENT {
            return None;
        }
        Some(Child::run_text(&arguments.next().unwrap_or_default()))
    }

    /// Runs the program of a description until SIGTERM.
    pub fn run_text(text: &str) -> ExitCode {
        let child = serde_json::from_str::<Child>(text).context("the description of the program");
        match child.and_then(|it| it.run()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // The parent shows it. Nobody else reads standard error here.
                let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {error:#}\n"));
                ExitCode::FAILURE
            }
        }
    }

    fn run(&self) -> Result<(), anyhow::Error> {
        let best = Shape::BEST;
        let each = |writing| Shape { batch_max: PER_EVENT_BATCH_MAX, writing, ..best };
        match self.program {
            Program::P0 => naive::run(self, 1),
            Program::P0c => naive::run(self, IN_PROGRESS_MAX),
            Program::P1 => hand::run(self, Shape { lanes: 1, ..best }),
            Program::P1x => hand::run(self, best),
            Program::P1xPlain => hand::run(self, Shape { claim: Claim::Plain, ..best }),
            Program::P1e => hand::run(self, each(Writing::Pipelined)),
            Program::P1a => hand::run(self, each(Writing::Awaited)),
            Program::M1 if self.settings.with_faults => self.consume(Faulty(Stock::new(StockMode::Batch))),
            Program::M1 => self.consume(Stock::new(StockMode::Batch)),
            Program::M2 => self.consume(PerEvent::Pipelined),
            Program::M3 => self.consume(PerEvent::Awaited),
            Program::M4 => self.consume(Stock::new(StockMode::PerEvent)),
            Program::Relay => self.relay(),
        }
    }

    fn consume(&self, handler: impl Handler) -> Result<(), anyhow::Error> {
        let config = self.config()?;
        log::init(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let consumer = Consumer::connect(config, handler).await?;
            consumer.run(shutdown_signal()).await.context("the consumer ended")
        })
    }

    fn relay(&self) -> Result<(), anyhow::Error> {
        let config = self.config()?;
        log::init(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run_relay(&config, shutdown_signal())).context("the relay ended")
    }

    /// The configuration of the program, which its parent uses as well.
    ///
    /// # Errors
    /// As [`Origin::load`].
    pub fn config(&self) -> Result<Config, anyhow::Error> {
        let mut config = self.origin.load()?;
        let Settings { name, executors, batch_messages_max, session_timeout, delays, unordered, .. } = &self.settings;
        config.consumer.group = self.group.clone();
        config.consumer.topics = vec![self.topic.clone()];
        config.consumer.name = name.clone();
        config.consumer.group_instance_id = None;
        config.topics.partitions = Some(self.partitions);
        config.admin.listen = self.admin_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        config.postgres = section_for(&config.postgres, &self.database, self.through)?;
        config.consumer.executors = executors.unwrap_or(config.consumer.executors);
        config.consumer.batch_messages_max = batch_messages_max.unwrap_or(config.consumer.batch_messages_max);
        let twice = config.consumer.batch_messages_max.saturating_mul(NonZeroUsize::MIN.saturating_add(1));
        config.consumer.buffer_messages_max = config.consumer.buffer_messages_max.max(twice);
        config.consumer.session_timeout = session_timeout.unwrap_or(config.consumer.session_timeout);
        config.retry.delays = delays.clone().unwrap_or(config.retry.delays);
        if *unordered {
            config.consumer.order = Order::None;
        }
        if self.program == Program::M4 {
            config.consumer.batch_messages_max = NonZeroUsize::MIN;
            config.consumer.executors = NonZeroUsize::from(self.partitions);
        }
        if self.program == Program::M4 || self.program == Program::P0c {
            let connections = config.consumer.executors.saturating_add(IN_PROGRESS_MAX);
            config.postgres.pool_max_connections = config.postgres.pool_max_connections.max(connections);
        }
        Ok(config)
    }
}

/// The same server and login with another database, or another way to it.
///
/// # Errors
/// The URL cannot be read.
pub(crate) fn section_for(
    section: &PostgresSection,
    database: &str,
    through: Option<u16>,
) -> Result<PostgresSection, anyhow::Error> {
    let url = match (&section.url, &section.url_file) {
        (Some(url), _) => url.expose_secret().to_owned(),
        (None, Some(file)) => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}, which postgres.url_file names", file.display()))?,
        (None, None) => anyhow::bail!("postgres.url is not set"),
    };
    let url = url_for(url.trim(), database, through);
    Ok(PostgresSection { url: Some(url.into()), url_file: None, ..section.clone() })
}

fn url_for(url: &str, database: &str, through: Option<u16>) -> String {
    let (base, parameters) = url.split_once('?').map_or((url, None), |(base, parameters)| (base, Some(parameters)));
    let start = base.find("://").map_or(0, |it| it + 3);
    let end = base[start..].find('/').map_or(base.len(), |it| start + it);
    let mut authority = base[..end].to_owned();
    if let Some(port) = through {
        let host = authority[start..].rfind('@').map_or(start, |it| start + it + 1);
        authority.replace_range(host.., &format!("127.0.0.1:{port}"));
    }
    let parameters = parameters.map(|it| format!("?{it}")).unwrap_or_default();
    format!("{authority}/{database}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gets_another_database_and_another_way() {
        let cases = [
            ("postgres://a:b@h:1/x", None, "postgres://a:b@h:1/d"),
            (
                "postgres://a:b@h:1,i:2/x?target_session_attrs=read-write",
                None,
                "postgres://a:b@h:1,i:2/d?target_session_attrs=read-write",
            ),
            ("postgresql://h", None, "postgresql://h/d"),
            ("postgres://a:b@h:1/x?sslmode=disable", Some(9), "postgres://a:b@127.0.0.1:9/d?sslmode=disable"),
            ("postgres://h:1/x", Some(9), "postgres://127.0.0.1:9/d"),
        ];
        for (url, through, expected) in cases {
            assert_eq!(url_for(url, "d", through), expected);
        }
    }
}
