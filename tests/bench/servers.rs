//! A broker and a database of the bench's own, as one would run them: commits wait for the disk.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use anyhow::Context;
use sekali::private_postgres::{Options, PrivatePostgres};
use sekali_benchmark::child::Origin;
use sekali_benchmark::stage::{OwnServers, Stage};
use sekali_tests::harness::{Kafka, OwnBroker, Postgres};
use tempfile::TempDir;

pub(crate) struct Servers {
    pub(crate) stage: Stage,
    broker: OwnBroker,
    postgres: PrivatePostgres,
    // The configuration that the programs read.
    _dir: TempDir,
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
        let broker = OwnBroker::start_lasting().await?;
        // It holds a password.
        let private = std::fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("sekali-bench-").permissions(private).tempdir()?;
        let file = dir.path().join("sekali.toml");
        let text = format!(
            "[kafka]\nbrokers = \"{}\"\n[postgres]\nurl = \"{}\"\n[consumer]\ngroup = \"bench\"\ntopics = [\"bench\"]\n\
             [log]\nfilter = \"warn\"\n",
            broker.kafka().bootstrap(),
            postgres.url("postgres"),
        );
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let own = OwnServers {
            postmaster: postgres.pid().context("the database server has ended")?,
            broker: broker.pid().context("the broker has ended")?,
        };
        let stage = Stage::new(Origin { file: Some(file), with_environment: false }, Some(own))?;
        Ok(Servers { stage, broker, postgres, _dir: dir })
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
}

/// Median time in µs of writing a page and waiting for the disk, where temporary files lie.
pub(crate) fn fsync_us() -> Result<u64, anyhow::Error> {
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
