//! A broker and a database of the bench's own, as one would run them: commits wait for the disk.

use std::io::Write;
use std::time::Instant;

use sekali::private_postgres::{Options, PrivatePostgres};
use sekali_tests::harness::{Kafka, OwnBroker, Postgres};

pub(crate) struct Servers {
    broker: OwnBroker,
    postgres: PrivatePostgres,
}

impl Servers {
    pub(crate) async fn start() -> Result<Servers, anyhow::Error> {
        let settings = [
            ("synchronous_commit", "on"),
            ("shared_buffers", "256MB"),
            // No checkpoint in the middle of a run: one is made before each.
            ("max_wal_size", "4GB"),
            ("checkpoint_timeout", "30min"),
            ("track_commit_timestamp", "on"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let options = Options { fsync: true, settings, ..Options::default() };
        let postgres = tokio::task::spawn_blocking(|| PrivatePostgres::start(options)).await??;
        Ok(Servers { broker: OwnBroker::start().await?, postgres })
    }

    pub(crate) fn kafka(&self) -> &Kafka {
        self.broker.kafka()
    }

    pub(crate) fn postgres(&self) -> Postgres {
        Postgres::at(&self.postgres.url("postgres"))
    }

    /// Process id of the postmaster.
    pub(crate) fn postmaster(&self) -> Option<u32> {
        self.postgres.pid()
    }

    /// Median time in µs of writing a page and waiting for the disk, where the database's directory lies.
    pub(crate) fn fsync_us(&self) -> Result<u64, anyhow::Error> {
        const TIMES: usize = 101;
        let mut file = tempfile::tempfile()?;
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let begin = Instant::now();
            file.write_all(&[1; 8192])?;
            file.sync_data()?;
            times.push(u64::try_from(begin.elapsed().as_micros())?);
        }
        times.sort_unstable();
        Ok(times[TIMES / 2])
    }
}
