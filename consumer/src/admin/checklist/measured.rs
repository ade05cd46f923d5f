//! Points 6 and 9: what a worker and Prometheus have measured.

use std::time::Duration;

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
    /// To [`Prometheus::buckets_query`].
    pub buckets: Value,
    /// To `/api/v1/rules`.
    pub rules: Value,
}

impl Prometheus {
    /// Asks for what all workers of a group have measured.
    pub fn buckets_query(group: &str) -> String {
        let names: Vec<String> = TIMED.iter().map(|it| format!("{}_bucket", it.metric)).collect();
        let group = group.replace('\\', "\\\\").replace('"', "\\\"");
        format!("sum by (__name__, le) ({{__name__=~\"{}\",consumer_group=\"{group}\"}})", names.join("|"))
    }
}

impl Measured {
    /// Whether metrics are those of a worker of this group.
    pub fn are_of(metrics: &str, group: &str) -> bool {
        group_of(metrics) == Some(group)
    }

    /// Metrics of a worker that was asked, and answered.
    pub(super) fn worker_metrics(&self) -> Option<&str> {
        self.worker.as_ref()?.as_deref().ok()
    }
}

/// What takes time, and the limit that it must keep.
struct Timed {
    metric: &'static str,
    what: &'static str,
    key: &'static str,
    limit: fn(&Config) -> Duration,
}

const TIMED: [Timed; 3] = [
    Timed {
        metric: "sekali_processing_duration_seconds",
        what: "transactions",
        key: "consumer.handler_timeout",
        limit: |it| it.consumer.handler_timeout,
    },
    Timed {
        metric: "sekali_effect_duration_seconds",
        what: "effects",
        key: "effects.perform_timeout",
        limit: |it| it.effects.perform_timeout,
    },
    Timed {
        metric: "sekali_lock_hold_seconds",
        what: "locks",
        key: "consumer.lock_ttl",
        limit: |it| it.consumer.lock_ttl,
    },
];

/// Upper ends of buckets with the count up to there, in order.
type Buckets = Vec<(f64, f64)>;

/// Point 6.
pub(super) fn durations(config: &Config, measured: &Measured, findings: &mut Findings) {
    match (&measured.worker, &measured.prometheus) {
        (Some(Ok(text)), _) => of_worker(config, text, findings),
        (Some(Err(problem)), _) => findings.fail(format!("the worker was not asked: {problem}"), "check --admin"),
        (None, Some(Ok(it))) => held_against(config, "all workers", |metric| of_answer(&it.buckets, metric), findings),
        (None, _) => {
            let limits = format!(
                "handler_timeout {}, lock_ttl {}, lease_ttl {}; durations were not looked at",
                humantime::format_duration(config.consumer.handler_timeout),
                humantime::format_duration(config.consumer.lock_ttl),
                humantime::format_duration(config.effects.lease_ttl)
            );
            findings.warn(limits, "give --prometheus, or the admin port of a worker: --admin http://host:9464");
        }
    }
}

fn of_worker(config: &Config, text: &str, findings: &mut Findings) {
    let group = &config.consumer.group;
    if let Some(other) = group_of(text).filter(|it| it != group) {
        return findings.fail(format!("the worker is one of group {other}"), format!("give --admin of one of {group}"));
    }
    held_against(config, "one worker", |metric| of_text(text, metric), findings);
    let lost = sum(text, "sekali_lease_expirations_total") + sum(text, "sekali_lock_expirations_total");
    if 0.0 < lost {
        findings.warn(format!("{lost} leases ran out and were taken over"), "raise the ttl, or find who stands still");
    }
}

fn held_against(config: &Config, whose: &str, buckets: impl Fn(&str) -> Buckets, findings: &mut Findings) {
    for timed in &TIMED {
        let Some((count, p999)) = quantile(&buckets(timed.metric), 0.999) else { continue };
        let (limit, what) = ((timed.limit)(config).as_secs_f64(), timed.what);
        let at_most =
            if p999.is_finite() { format!("at most {p999} s") } else { "beyond the largest bucket".to_owned() };
        let figure = format!("{what}: p99.9 of {count} of {whose} {at_most}, limit {limit} s");
        let key = timed.key;
        if limit <= p999 {
            findings.fail(figure, format!("raise {key}, or make them faster"));
        } else if limit / 2.0 < p999 {
            findings.warn(figure, format!("raise {key}: little is left"));
        } else {
            findings.ok(figure);
        }
    }
    if findings.0.is_empty() {
        findings.warn(format!("{whose} measured nothing yet"), "look again under load");
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
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<(u64, f64)> {
    let total = buckets.last().map(|it| it.1).filter(|it| 0.0 < *it)?;
    let bound = buckets.iter().find(|it| share * total <= it.1).map_or(f64::INFINITY, |it| it.0);
    Some((total as u64, bound))
}

/// Buckets of a metric in the metrics of a process, over all other labels.
fn of_text(text: &str, metric: &str) -> Buckets {
    let prefix = format!("{metric}_bucket{{");
    let lines = text.lines().filter(|it| it.starts_with(&prefix));
    added_up(lines.filter_map(|line| Some((label(line, "le")?, line.rsplit_once(' ')?.1))))
}

/// Buckets of a metric in what Prometheus answered.
fn of_answer(answer: &Value, metric: &str) -> Buckets {
    let name = format!("{metric}_bucket");
    let series = answer["data"]["result"].as_array().map_or(&[][..], Vec::as_slice);
    let ours = series.iter().filter(|it| it["metric"]["__name__"] == *name);
    added_up(ours.filter_map(|it| Some((it["metric"]["le"].as_str()?, it["value"][1].as_str()?))))
}

fn added_up<'a>(counts: impl Iterator<Item = (&'a str, &'a str)>) -> Buckets {
    let mut buckets = Buckets::new();
    // "+Inf" is a number, too.
    for (bound, count) in counts.filter_map(|it| Some((it.0.parse::<f64>().ok()?, it.1.parse::<f64>().ok()?))) {
        match buckets.iter_mut().find(|it| it.0 == bound) {
            Some(bucket) => bucket.1 += count,
            None => buckets.push((bound, count)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let starts = |separator: char| line.split_once(&format!("{separator}{name}=\"")).map(|it| it.1);
    starts('{').or_else(|| starts(','))?.split('"').next()
}

/// The group that a process belongs to; none where its metrics do not say.
fn group_of(text: &str) -> Option<&str> {
    label(text.lines().find(|it| it.starts_with("sekali_build_info{"))?, "consumer_group")
}

pub(super) fn sum(text: &str, metric: &str) -> f64 {
    let is_of = |line: &&str| line.strip_prefix(metric).is_some_and(|it| it.starts_with([' ', '{']));
    let values = text.lines().filter(is_of).filter_map(|it| it.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantiles_add_the_buckets_of_all_labels_up() {
        let text = "x_bucket{topic=\"a\",le=\"0.1\"} 990\nx_bucket{topic=\"a\",le=\"1\"} 999\nx_bucket{topic=\"a\",le=\"+Inf\"} 1000\n\
             x_bucket{topic=\"b\",le=\"0.1\"} 1000\nx_bucket{topic=\"b\",le=\"1\"} 1000\nx_bucket{topic=\"b\",le=\"+Inf\"} 1000\n";
        let of = |metric, share| quantile(&of_text(text, metric), share);
        assert_eq!(of("x", 0.99), Some((2000, 0.1)));
        assert_eq!(of("x", 0.999), Some((2000, 1.0)));
        assert_eq!(of("x", 0.9999), Some((2000, f64::INFINITY)));
        assert_eq!(of("y", 0.5), None);
        assert_eq!(quantile(&of_text("x_bucket{le=\"+Inf\"} 0\n", "x"), 0.5), None);
    }

    #[test]
    fn prometheus_answers_with_the_same_buckets() {
        let series = |name: &str, le: &str, count: &str| json!({ "metric": { "__name__": name, "le": le }, "value": [1.5, count] });
        let result =
            [series("x_bucket", "+Inf", "1000"), series("x_bucket", "0.1", "990"), series("y_bucket", "9", "7")];
        let answer = json!({ "data": { "result": result } });
        assert_eq!(of_answer(&answer, "x"), [(0.1, 990.0), (f64::INFINITY, 1000.0)]);
        assert_eq!(of_answer(&json!({ "status": "error" }), "x"), []);
        let query = Prometheus::buckets_query("a\"b\\");
        assert!(query.ends_with("consumer_group=\"a\\\"b\\\\\"})"), "{query}");
    }

    #[test]
    fn a_worker_says_which_group_it_is_of() {
        let text = "# HELP\nsekali_build_info{consumer_group=\"stock\",version=\"1\"} 1\n";
        assert!(Measured::are_of(text, "stock") && !Measured::are_of(text, "sto") && !Measured::are_of("", "stock"));
    }

    #[test]
    fn counters_add_up_and_names_are_whole() {
        let text = "n_total{a=\"1\"} 2\nn_total{a=\"2\"} 3\nn_total_more 7\nn 9\n";
        assert_eq!((sum(text, "n_total"), sum(text, "n"), sum(text, "m")), (5.0, 9.0, 0.0));
    }
}
