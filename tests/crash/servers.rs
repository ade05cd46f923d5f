//! The broker and the database server of the whole run, which are killed and restarted.

use anyhow::Context;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sekali::private_postgres::{Options, PrivatePostgres};
use sekali_tests::harness::{OwnBroker, Proxy};

pub(crate) struct Servers {
    pub(crate) broker: OwnBroker,
    /// In front of the broker's second listener.
    pub(crate) kafka_proxy: Proxy,
    pub(crate) postgres: PrivatePostgres,
}

impl Servers {
    pub(crate) async fn start() -> Result<Servers, anyhow::Error> {
        // Processes are killed, never the machine, so that nothing depends on the disk.
        let options = Options { fsync: false, max_connections: 300, ..Options::default() };
        let postgres = tokio::task::block_in_place(|| PrivatePostgres::start(options)).context("PostgreSQL")?;
        let (broker, kafka_proxy) = OwnBroker::start_proxied().await.context("Kafka")?;
        Ok(Servers { broker, kafka_proxy, postgres })
    }

    /// Stops every backend in its tracks (`immediate`), or kills the postmaster and lets them notice.
    pub(crate) fn kill_postgres(&mut self, immediate: bool) -> Result<(), anyhow::Error> {
        if !immediate {
            return self.postgres.kill();
        }
        let pid = self.postgres.pid().context("PostgreSQL runs")?;
        nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), Signal::SIGQUIT).context("cannot stop PostgreSQL")
    }

    pub(crate) fn restart_postgres(&mut self) -> Result<(), anyhow::Error> {
        tokio::task::block_in_place(|| self.postgres.restart())
    }
}
