use std::time::Duration;

use serde_json::json;

use super::measured::{durations, scraped};
use super::*;

fn config(more: &str) -> Config {
    let text = format!(
        "[kafka]\nbrokers = \"x:1\"\n[postgres]\nurl = \"postgres://x/d\"\n[consumer]\ngroup = \"g\"\ntopics = [\"t\"]\n{more}"
    );
    Config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn point(look: impl FnOnce(&mut Findings)) -> Point {
    let mut findings = Findings::default();
    look(&mut findings);
    findings.point(4)
}

#[test]
fn attempts_without_an_end_and_outages_without_a_budget_are_noticed() {
    let usual = point(|it| bounds(&config(""), it));
    assert_eq!(usual.verdict, Verdict::Ok, "{usual:?}");
    assert!(usual.figure.contains("6 attempts") && usual.remedy.is_empty(), "{usual:?}");
    for (more, remedy) in [
        ("[retry]\nmax_attempts = 500\n", "retry.max_attempts"),
        ("[retry]\ndelays = []\n", "retry.delays"),
        ("[retry]\njitter = 0.0\n", "retry.jitter"),
        ("[retry]\ndead_letters_ahead_max = 0\n", "retry.dead_letters_ahead_max"),
    ] {
        let found = point(|it| bounds(&config(more), it));
        assert_eq!(found.verdict, Verdict::Warning, "{found:?}");
        assert!(found.remedy.contains(remedy), "{found:?}");
    }
}

#[test]
fn the_worst_finding_counts_and_all_are_said() {
    let found = point(|it| {
        it.ok("a");
        it.fail("b", "do this");
        it.warn("c", "do that");
    });
    assert_eq!((found.verdict, found.figure.as_str()), (Verdict::Failure, "a; b; c"));
    assert_eq!(found.remedy, "do this; do that");
    assert_eq!(point(|_| {}).verdict, Verdict::Warning, "what nobody looked at is not well");
}

#[test]
fn durations_are_held_against_their_limits() {
    let (mut slow, metrics) = (config(""), |bound: &str| {
        format!("sekali_processing_duration_seconds_bucket{{topic=\"t\",le=\"{bound}\"}} 10\n")
    });
    slow.consumer.handler_timeout = Duration::from_secs(10);
    let judge = |bound: &str| {
        let measured = Measured { worker: Some(Ok(metrics(bound))), ..Measured::default() };
        point(|it| durations(&slow, &measured, it)).verdict
    };
    assert_eq!((judge("5"), judge("10"), judge("+Inf")), (Verdict::Ok, Verdict::Failure, Verdict::Failure));
    assert_eq!(judge("7.5"), Verdict::Warning);
    assert_eq!(point(|it| durations(&slow, &Measured::default(), it)).verdict, Verdict::Warning);
    let of_prometheus = |bound: &str| {
        let metric = json!({ "__name__": "sekali_processing_duration_seconds_bucket", "le": bound });
        let buckets = json!({ "data": { "result": [{ "metric": metric, "value": [0, "10"] }] } });
        let prometheus = Some(Ok(Prometheus { build_info: json!({}), rules: json!({}), buckets }));
        point(|it| durations(&slow, &Measured { prometheus, ..Measured::default() }, it)).verdict
    };
    assert_eq!((of_prometheus("5"), of_prometheus("+Inf")), (Verdict::Ok, Verdict::Failure));
    let stranger = format!("sekali_build_info{{consumer_group=\"h\"}} 1\n{}", metrics("5"));
    let found = point(|it| durations(&slow, &Measured { worker: Some(Ok(stranger)), ..Measured::default() }, it));
    assert!(found.verdict == Verdict::Failure && found.figure.contains("group h"), "{found:?}");
    let silent = Measured { worker: Some(Err("refused".to_owned())), ..Measured::default() };
    assert_eq!(point(|it| durations(&slow, &silent, it)).verdict, Verdict::Failure);
}

#[test]
fn a_worker_that_is_not_scraped_and_rules_that_are_not_loaded_are_failures() {
    let target = |group: &str| json!({ "data": { "result": [{ "metric": { "consumer_group": group } }] } });
    let rules = |health: &str| {
        let rule = json!({ "type": "alerting", "name": "SekaliDbDown", "health": health });
        json!({ "data": { "groups": [{ "rules": [rule] }] } })
    };
    let judge = |build_info, rules| {
        let measured = Measured {
            prometheus: Some(Ok(Prometheus { build_info, rules, buckets: json!({}) })),
            ..Measured::default()
        };
        point(|it| scraped(&config(""), &measured, it)).verdict
    };
    assert_eq!(judge(target("g"), rules("ok")), Verdict::Ok);
    assert_eq!(judge(target("h"), rules("ok")), Verdict::Failure);
    assert_eq!(judge(target("g"), rules("err")), Verdict::Failure);
    assert_eq!(judge(target("g"), json!({})), Verdict::Failure);
    assert_eq!(judge(json!({}), rules("ok")), Verdict::Failure);
}

#[test]
fn a_class_of_failures_that_is_never_permanent_is_suspicious() {
    let judge = |counts: &[(&str, &str, i64)]| {
        let counts: Vec<_> = counts.iter().map(|it| (it.0.to_owned(), it.1.to_owned(), it.2)).collect();
        point(|it| database::judge_classes(&counts, it))
    };
    assert_eq!(judge(&[]).verdict, Verdict::Ok);
    assert_eq!(judge(&[("transient", "", 19)]).verdict, Verdict::Ok, "too few to say");
    let all = judge(&[("transient", "", 20)]);
    assert!(all.verdict == Verdict::Warning && all.figure.contains("transient 100 %"), "{all:?}");
    let one = judge(&[("permanent", "bad_sku", 60), ("transient", "bad_price", 40), ("permanent", "", 1)]);
    assert!(one.verdict == Verdict::Warning && one.figure.contains("all 40 of code bad_price"), "{one:?}");
    assert!(one.figure.contains("permanent 60 %, transient 40 %"), "{one:?}");
    assert_eq!(judge(&[("transient", "away", 40), ("permanent", "away", 1)]).verdict, Verdict::Ok);
}
