//! Points 6 and 9: what a worker and Prometheus have measured.

use serde_json::Value;

use super::Findings;
use crate::config::Config;

/// What was asked of others; none where no address was given.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// The metrics of a worker, as its admin port shows them; or why there are none.
    pub worker: Option<Result<String, String>>,
    /// What Prometheus says; or why it says nothing.
    pub prometheus: Option<Result<Prometheus, String>>,
}

/// Answers of the HTTP API of Prometheus.
#[derive(Debug, Clone)]
pub struct Prometheus {
    /// To the query `sekali_build_info`.
    pub build_info: Value,
    /// To `/api/v1/rules`.
    pub rules: Value,
}

/// Point 6: what takes time, and the limit that it must keep.
pub(super) fn durations(config: &Config, measured: &Measured, findings: &mut Findings) {
    let consumer = &config.consumer;
    let text = match &measured.worker {
        Some(Ok(text)) => text,
        Some(Err(problem)) => return findings.fail(format!("the worker was not asked: {problem}"), "check --admin"),
        None => {
            let limits = format!(
                "handler_timeout {}, lock_ttl {}, lease_ttl {}; durations were not looked at",
                humantime::format_duration(consumer.handler_timeout),
                humantime::format_duration(consumer.lock_ttl),
                humantime::format_duration(config.effects.lease_ttl)
            );
            return findings.warn(limits, "give the admin port of a worker: --admin http://host:9464");
        }
    };
    let limits = [
        ("sekali_processing_duration_seconds", "transactions", "consumer.handler_timeout", consumer.handler_timeout),
        ("sekali_effect_duration_seconds", "effects", "effects.perform_timeout", config.effects.perform_timeout),
        ("sekali_lock_hold_seconds", "locks", "consumer.lock_ttl", consumer.lock_ttl),
    ];
    for (metric, what, key, limit) in limits {
        let Some((count, p999)) = quantile(text, metric, 0.999) else { continue };
        let limit = limit.as_secs_f64();
        let at_most =
            if p999.is_finite() { format!("at most {p999} s") } else { "beyond the largest bucket".to_owned() };
        let figure = format!("{what}: p99.9 of {count} {at_most}, limit {limit} s");
        if limit <= p999 {
            findings.fail(figure, format!("raise {key}, or make them faster"));
        } else if limit / 2.0 < p999 {
            findings.warn(figure, format!("raise {key}: little is left"));
        } else {
            findings.ok(figure);
        }
    }
    let lost = sum(text, "sekali_lease_expirations_total") + sum(text, "sekali_lock_expirations_total");
    if 0.0 < lost {
        findings.warn(format!("{lost} leases ran out and were taken over"), "raise the ttl, or find who stands still");
    }
    if findings.0.is_empty() {
        findings.warn("the worker has measured nothing yet", "look again under load");
    }
}

/// Point 9.
pub(super) fn scraped(config: &Config, measured: &Measured, findings: &mut Findings) {
    let answers = match &measured.prometheus {
        Some(Ok(answers)) => answers,
        Some(Err(problem)) => {
            return findings.fail(format!("Prometheus was not asked: {problem}"), "check --prometheus");
        }
        None => return findings.warn("not looked at", "give the address of Prometheus: --prometheus http://host:9090"),
    };
    let group = &config.consumer.group;
    let of_group = |it: &&Value| it["metric"]["consumer_group"] == **group;
    let targets = answers.build_info["data"]["result"].as_array().map_or(0, |it| it.iter().filter(of_group).count());
    if targets == 0 {
        findings
            .fail(format!("no worker of group {group} is scraped"), "add the admin ports of the workers as targets");
    } else {
        findings.ok(format!("{targets} workers of the group are scraped"));
    }
    let groups = answers.rules["data"]["groups"].as_array().map_or(&[][..], Vec::as_slice);
    let rules = groups.iter().flat_map(|it| it["rules"].as_array().map_or(&[][..], Vec::as_slice));
    let ours: Vec<&Value> = rules
        .filter(|it| it["type"] == "alerting" && it["name"].as_str().is_some_and(|it| it.starts_with("Sekali")))
        .collect();
    let broken: Vec<&str> =
        ours.iter().filter(|it| it["health"] == "err").filter_map(|it| it["name"].as_str()).collect();
    if ours.is_empty() {
        findings.fail("no alert rule of Sekali is loaded", "load ops/prometheus/rules.yaml");
    } else if broken.is_empty() {
        findings.ok(format!("{} alert rules are loaded", ours.len()));
    } else {
        findings.fail(format!("rules that fail: {}", broken.join(", ")), "see the page Rules of Prometheus");
    }
}

/// How many were measured, and the upper end of the bucket that holds this share of them.
fn quantile(text: &str, metric: &str, share: f64) -> Option<(u64, f64)> {
    let prefix = format!("{metric}_bucket{{");
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for line in text.lines().filter(|it| it.starts_with(&prefix)) {
        let (Some((_, rest)), Some((_, value))) = (line.split_once("le=\""), line.rsplit_once(' ')) else { continue };
        let bound = rest.split('"').next().map_or("", |it| it);
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        let value: f64 = value.parse().ok()?;
        match buckets.iter_mut().find(|it| it.0 == bound) {
            Some(bucket) => bucket.1 += value,
            None => buckets.push((bound, value)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = buckets.last().map(|it| it.1).filter(|it| 0.0 < *it)?;
    let bound = buckets.iter().find(|it| share * total <= it.1).map_or(f64::INFINITY, |it| it.0);
    Some((total as u64, bound))
}

fn sum(text: &str, metric: &str) -> f64 {
    let is_of = |line: &&str| line.strip_prefix(metric).is_some_and(|it| it.starts_with([' ', '{']));
    let values = text.lines().filter(is_of).filter_map(|it| it.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_add_the_buckets_of_all_labels_up() {
        let text = "x_bucket{topic=\"a\",le=\"0.1\"} 990\nx_bucket{topic=\"a\",le=\"1\"} 999\nx_bucket{topic=\"a\",le=\"+Inf\"} 1000\n\
             x_bucket{topic=\"b\",le=\"0.1\"} 1000\nx_bucket{topic=\"b\",le=\"1\"} 1000\nx_bucket{topic=\"b\",le=\"+Inf\"} 1000\n";
        assert_eq!(quantile(text, "x", 0.99), Some((2000, 0.1)));
        assert_eq!(quantile(text, "x", 0.999), Some((2000, 1.0)));
        assert_eq!(quantile(text, "x", 0.9999), Some((2000, f64::INFINITY)));
        assert_eq!(quantile(text, "y", 0.5), None);
        assert_eq!(quantile("x_bucket{le=\"+Inf\"} 0\n", "x", 0.5), None);
    }

    #[test]
    fn counters_add_up_and_names_are_whole() {
        let text = "n_total{a=\"1\"} 2\nn_total{a=\"2\"} 3\nn_total_more 7\nn 9\n";
        assert_eq!((sum(text, "n_total"), sum(text, "n"), sum(text, "m")), (5.0, 9.0, 0.0));
    }
}
