//! Checks of the topics.

use std::collections::BTreeMap;

use super::Check;
use crate::admin::retention::outlived;
use crate::admin::topics::{Action, Found, compare};
use crate::config::Config;

const APPLY: &str = "run `sekali topics apply`";

pub(super) fn topics(config: &Config, found: &BTreeMap<String, Found>) -> Check {
    const NAME: &str = "topics";
    let plan = match compare(config, found) {
        Ok(plan) => plan,
        Err(error) => return Check::error(NAME, &error),
    };
    let named = |action| {
        let names = plan.topics.iter().filter(move |it| it.action == action).map(|it| it.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let (missing, differing) = (named(Action::Create), named(Action::Alter));
    let problems: Vec<String> =
        plan.topics.iter().flat_map(|topic| topic.problems.iter().map(|it| format!("{} {it}", topic.name))).collect();
    if !missing.is_empty() {
        return Check::fail(NAME, format!("missing: {missing}"), APPLY);
    }
    if let Some(first) = problems.first() {
        let more = if problems.len() < 2 { String::new() } else { format!(" (and {} more)", problems.len() - 1) };
        return Check::warn(NAME, format!("{first}{more}"), "see `sekali topics plan`");
    }
    if !differing.is_empty() {
        return Check::warn(NAME, format!("settings differ: {differing}"), APPLY);
    }
    Check::ok(NAME, format!("all {} are there", plan.topics.len()))
}

/// Compares what the cluster really keeps, not what is configured.
pub(super) fn retention(config: &Config, found: &BTreeMap<String, Found>) -> Check {
    const NAME: &str = "retention";
    if found.is_empty() {
        return Check::skipped(NAME, "topics");
    }
    match outlived(config, found) {
        Err(error) => Check::error(NAME, &error),
        Ok(Some(it)) => Check::fail(NAME, it.finding, it.remedy),
        Ok(None) if config.inbox.retention.is_none() => Check::ok(NAME, "the inbox never forgets a decision"),
        Ok(None) => Check::ok(NAME, "the inbox outlives everything that Kafka may deliver again"),
    }
}
