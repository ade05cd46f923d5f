use std::collections::BTreeMap;

use super::*;
use crate::admin::topics::Found;

const DAY_MS: i64 = 24 * 3600 * 1000;

fn config() -> Config {
    Config::from_toml(
        "[kafka]\nbrokers = \"b:1\"\n[postgres]\nurl = \"postgres://u@h/d\"\n[consumer]\ngroup = \"g\"\n\
         topics = [\"t\"]\n[retry]\ndelays = [\"2s\"]",
    )
    .unwrap()
}

fn cluster(retention_ms: i64) -> BTreeMap<String, Found> {
    ["t", "t.g.retry.2s", "t.g.dlq"]
        .map(|name| {
            let kept = if name == "t" { retention_ms } else { 14 * DAY_MS / 2 };
            let kept = if name == "t.g.dlq" { 14 * DAY_MS } else { kept };
            let settings: BTreeMap<String, String> = [("retention.ms", kept), ("max.message.bytes", 1_114_112)]
                .map(|(name, value)| (name.to_owned(), value.to_string()))
                .into();
            (name.to_owned(), Found { partitions: 12, replication_factor: 1, own: BTreeMap::new(), settings })
        })
        .into()
}

#[test]
fn retention_is_measured_by_what_the_cluster_keeps() {
    let good = topics::retention(&config(), &cluster(7 * DAY_MS));
    assert_eq!(good.status, Status::Ok, "{good:?}");
    let long = topics::retention(&config(), &cluster(9 * DAY_MS));
    assert_eq!(long.status, Status::Fail, "{long:?}");
    assert!(long.finding.contains("topic t:") && long.finding.contains("9days"), "{long:?}");
    let endless = topics::retention(&config(), &cluster(-1));
    assert_eq!(endless.status, Status::Fail, "{endless:?}");
    assert!(endless.remedy.contains("inbox.retention = \"forever\""), "{endless:?}");
    let mut forever = config();
    forever.inbox.retention = None;
    assert_eq!(topics::retention(&forever, &cluster(-1)).status, Status::Ok);
    let mut compacted = cluster(DAY_MS);
    compacted.get_mut("t").unwrap().settings.insert("cleanup.policy".to_owned(), "compact".to_owned());
    assert_eq!(topics::retention(&config(), &compacted).status, Status::Fail, "its retention.ms means nothing");
    assert_eq!(topics::retention(&config(), &BTreeMap::new()).status, Status::Skipped);
}

#[test]
fn topics_are_missing_or_differ() {
    assert_eq!(topics::topics(&config(), &cluster(7 * DAY_MS)).status, Status::Warn, "retry is not above its source");
    let mut all = cluster(7 * DAY_MS);
    all.get_mut("t").unwrap().settings.insert("max.message.bytes".to_owned(), "1048576".to_owned());
    let good = topics::topics(&config(), &all);
    assert_eq!(good.status, Status::Ok, "{good:?}");
    all.remove("t.g.dlq");
    let missing = topics::topics(&config(), &all);
    assert_eq!((missing.status, missing.finding.as_str()), (Status::Fail, "missing: t.g.dlq"));
    assert_eq!(missing.remedy, "run `sekali topics apply`");
}
