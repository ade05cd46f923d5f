//! The configuration as TOML with its explanations.

use serde::Serialize;

use super::{
    AdminSection, Config, ConsoleSection, ConsumerSection, Docs, EffectsSection, InboxSection, LogSection,
    OperateSection, RetrySection, TopicsSection,
};

pub(super) mod foreign;

const WIDTH: usize = 118;

pub(super) fn print(config: &Config) -> String {
    let mut out = String::new();
    section(&mut out, "kafka", foreign::KAFKA, &config.kafka);
    section(&mut out, "postgres", foreign::POSTGRES, &config.postgres);
    section(&mut out, "consumer", ConsumerSection::DOCS, &config.consumer);
    section(&mut out, "effects", EffectsSection::DOCS, &config.effects);
    section(&mut out, "retry", RetrySection::DOCS, &config.retry);
    section(&mut out, "topics", TopicsSection::DOCS, &config.topics);
    section(&mut out, "inbox", InboxSection::DOCS, &config.inbox);
    section(&mut out, "operate", OperateSection::DOCS, &config.operate);
    section(&mut out, "console", ConsoleSection::DOCS, &config.console);
    section(&mut out, "relay", foreign::RELAY, &config.relay);
    section(&mut out, "schemas", foreign::SCHEMAS, &config.schemas);
    section(&mut out, "registry", foreign::REGISTRY, &config.registry);
    section(&mut out, "admin", AdminSection::DOCS, &config.admin);
    section(&mut out, "log", LogSection::DOCS, &config.log);
    out
}

fn section(out: &mut String, name: &str, docs: Docs, value: &impl Serialize) {
    let table = table(value);
    if !out.is_empty() {
        out.push('\n');
    }
    comment(out, docs.about);
    out.push_str(&format!("[{name}]\n"));
    for (key, doc) in docs.keys {
        comment(out, doc);
        match table.get(*key) {
            Some(value) => out.push_str(&format!("{key} = {value}\n")),
            None => out.push_str(&format!("# {key} =\n")),
        }
    }
}

/// Doc comments as TOML comments, filled anew.
fn comment(out: &mut String, doc: &[&str]) {
    let mut line = String::from("#");
    for word in doc.iter().flat_map(|it| it.split_whitespace()) {
        if WIDTH < line.len() + 1 + word.len() {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

fn table(value: &impl Serialize) -> toml::Table {
    match toml::Table::try_from(value) {
        Ok(table) => table,
        Err(error) => unreachable!("a section is a table of plain values: {error}"),
    }
}
