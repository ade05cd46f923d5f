//! Checks of the topics.

use std::collections::BTreeMap;

use super::Check;
use crate::admin::topics::{Action, Found, compare};
use crate::config::{Config, inbox_retention_problem};

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
    let all = match config.group_topics() {
        Ok(all) => all,
        Err(error) => return Check::fail(NAME, error.to_string(), "correct the names of the topics"),
    };
    let read = all.topics.iter().flat_map(|it| std::iter::once(&it.source).chain(it.retry.iter().map(|it| &it.1)));
    let kept: Vec<(&String, &Found)> = read.filter_map(|it| Some((it, found.get(it)?))).collect();
    if kept.is_empty() {
        return Check::skipped(NAME, "topics");
    }
    let finite = kept.iter().filter_map(|(name, topic)| Some((topic.retention()?, *name)));
    if let Some((longest, name)) = finite.max()
        && let Some(problem) = inbox_retention_problem(config.inbox.retention, longest, config.retry_path_max())
    {
        return Check::fail(
            NAME,
            format!("topic {name}: inbox.retention {problem}"),
            "raise inbox.retention, or shorten the topic's retention.ms",
        );
    }
    match kept.iter().find(|(_, topic)| topic.retention().is_none()) {
        Some((name, _)) => Check::warn(
            NAME,
            format!("topic {name} keeps records for ever, the inbox forgets decisions after inbox.retention"),
            "limit the topic's retention.ms, and never move the group's offsets back beyond inbox.retention",
        ),
        None => Check::ok(NAME, "the inbox outlives everything that Kafka may deliver again"),
    }
}
