//! The operator's command line on a real broker and a real database.

mod bench;
mod doctor;
mod produce;
mod schema;
mod schemas;
mod topics;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sekali_tests::harness::{Ended, TestDatabase, ended, kafka, sekali, unique};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// A directory with a configuration for one test.
struct Operator {
    dir: TempDir,
    topic: String,
    group: String,
    brokers: String,
    url: String,
    more: String,
}

impl Operator {
    async fn new(database: &TestDatabase) -> Operator {
        let operator = Operator {
            dir: TempDir::new().unwrap(),
            topic: unique("stock"),
            group: unique("group"),
            brokers: kafka().await.bootstrap().to_owned(),
            url: database.url(),
            more: "[topics]\npartitions = 3\n[retry]\ndelays = [\"2s\"]\n".to_owned(),
        };
        operator.configure();
        operator
    }

    fn configure(&self) {
        let text = format!(
            "[kafka]\nbrokers = \"{}\"\n[postgres]\nurl = \"{}\"\n[consumer]\ngroup = \"{}\"\ntopics = [\"{}\"]\n{}",
            self.brokers, self.url, self.group, self.topic, self.more
        );
        fs::write(self.dir.path().join("sekali.toml"), text).unwrap();
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = sekali(arguments);
        command.current_dir(self.dir.path());
        ended(command).await
    }

    async fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let ended = self.run(&[arguments, &["-o", "json"]].concat()).await;
        (ended.status, ended.json())
    }
}
