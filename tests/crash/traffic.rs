//! The records of a group, and where each must end.

use std::collections::BTreeMap;

use sekali_tests::harness::Outgoing;
use sekali_tests::scripted::SCRIPT;

use crate::point::Lead;

/// Failing messages share keys with good ones.
const KEYS: usize = 5;

/// Where a message ends, and only there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// In the ledger, by this attempt: a crash is never the message's fault.
    Ledger { attempt: i32 },
    /// A dead letter, in the table and on the topic.
    Dead { reason: &'static str, attempts: i16 },
}

/// Everything that one group was sent.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) ends: BTreeMap<String, End>,
    /// The ids of each key in the order in which they were sent.
    pub(crate) by_key: BTreeMap<String, Vec<String>>,
}

impl Traffic {
    /// Records that lead to a point.
    pub(crate) fn lead(&mut self, lead: Lead) -> Vec<Outgoing> {
        let scripts: &[&str] = match lead {
            Lead::Good => &["ok", "ok", "half-way", "ok", "half-way", "ok", "ok", "ok"],
            Lead::Transient => &["ok", "ok", "transient=1", "ok"],
            Lead::Permanent => &["ok", "ok", "permanent", "ok"],
            Lead::Held => {
                let key = self.next_key();
                return ["transient=1", "ok", "ok", "ok"].map(|it| self.message_of(&key, it)).into();
            }
        };
        scripts.iter().map(|it| self.message(it)).collect()
    }

    /// Records of every kind, for the time after a crash; one of them comes twice.
    pub(crate) fn mixed(&mut self) -> Vec<Outgoing> {
        let scripts = ["ok", "transient=1", "ok", "permanent", "ok", "reject=1", "transient", "ok", "result", "ok"];
        let mut records: Vec<Outgoing> = scripts.iter().map(|it| self.message(it)).collect();
        records.push(records[0].clone());
        records
    }

    fn message(&mut self, script: &str) -> Outgoing {
        self.message_of(&self.next_key(), script)
    }

    fn next_key(&self) -> String {
        format!("k{}", self.ends.len() % KEYS)
    }

    fn message_of(&mut self, key: &str, script: &str) -> Outgoing {
        let id = format!("m-{:05}", self.ends.len());
        self.ends.insert(id.clone(), end(script));
        self.by_key.entry(key.to_owned()).or_default().push(id.clone());
        Outgoing::new(key.to_owned(), "{}").id(&id).header(SCRIPT, script.to_owned())
    }
}

/// By the bench's own knowledge of its scripts and its three attempts, without any code of the product.
fn end(script: &str) -> End {
    match script {
        "transient=1" | "reject=1" => End::Ledger { attempt: 2 },
        "transient" => End::Dead { reason: "exhausted", attempts: 3 },
        "permanent" => End::Dead { reason: "permanent", attempts: 1 },
        _ => End::Ledger { attempt: 1 },
    }
}
