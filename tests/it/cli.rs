//! The operator's command line on a real broker and a real database.

mod doctor;
mod produce;
mod schema;
mod schemas;
mod topics;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use sekali_tests::harness::{TestDatabase, kafka, program, unique};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

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

struct Ended {
    status: i32,
    stdout: String,
    stderr: String,
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
        let mut command = Command::new(program("sekali"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEKALI_")) {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(LIMIT, command.output()).await.expect("the command ends").unwrap();
        Ended {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    async fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let ended = self.run(&[arguments, &["-o", "json"]].concat()).await;
        let value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}{}", ended.stdout, ended.stderr));
        (ended.status, value)
    }
}

impl Ended {
    #[track_caller]
    fn expect(&self, status: i32, texts: &[&str]) {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in\n{}", self.stderr);
        }
        assert_eq!(self.status, status, "{}{}", self.stdout, self.stderr);
    }
}
