//! What an operator does about messages, keys, topics and leases, on rows that a real group made.

mod checklist;
mod drill;
mod held;
mod leases;
mod looks;
mod pauses;
mod retries;

use sekali_tests::group::Group;
use sekali_tests::harness::{Ended, Outgoing, ended, sekali};
use sekali_tests::scripted::SCRIPT;
use serde_json::Value;
use tempfile::TempDir;

/// The command line with a group's configuration.
pub(crate) struct Operator {
    directory: TempDir,
    url: String,
}

impl Operator {
    pub(crate) fn of(group: &Group) -> Operator {
        let directory = TempDir::new().unwrap();
        // Printed configurations hide the password of the URL.
        let text = group.config.print();
        std::fs::write(directory.path().join("sekali.toml"), text).unwrap();
        Operator { directory, url: group.database.url() }
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = sekali(arguments);
        command.env("SEKALI_POSTGRES__URL", &self.url);
        command.current_dir(self.directory.path());
        ended(command).await
    }

    pub(crate) async fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let ended = self.run(&[arguments, &["-o", "json"]].concat()).await;
        (ended.status, ended.json())
    }

    /// What must succeed, as a table.
    #[track_caller]
    fn table(ended: &Ended, texts: &[&str]) {
        assert_eq!(ended.status, 0, "{}{}", ended.stdout, ended.stderr);
        for text in texts {
            assert!(ended.stdout.contains(text), "{text:?} is not in\n{}", ended.stdout);
        }
    }
}

/// Message `place` of a key, with what its handler is to do.
fn message(key: &str, place: usize, script: &str) -> Outgoing {
    Outgoing::new(key.to_owned(), format!("{{\"place\": {place}}}"))
        .id(&format!("{key}:{place}"))
        .header(SCRIPT, script.to_owned())
}

/// Places of the effects of a key, in their order.
async fn effects_of(group: &Group, key: &str) -> Vec<i64> {
    group.order().await.remove(key).unwrap_or_default()
}

/// Rows of the audit: action and outcome.
async fn audited(group: &Group) -> Vec<(String, String)> {
    let rows = group.database.connect().await.query("SELECT action, outcome FROM sekali.audit ORDER BY id", &[]).await;
    rows.unwrap().iter().map(|it| (it.get(0), it.get(1))).collect()
}
