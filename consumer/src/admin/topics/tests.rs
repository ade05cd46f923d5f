use super::*;

const DAY_MS: i64 = 24 * 3600 * 1000;

fn config(topics: &str) -> Config {
    Config::from_toml(&format!(
        "[kafka]\nbrokers = \"b:1\"\n[postgres]\nurl = \"postgres://u@h/d\"\n[consumer]\ngroup = \"g\"\n\
         topics = [\"t\"]\n[retry]\ndelays = [\"2s\"]\n[topics]\n{topics}"
    ))
    .unwrap()
}

fn found(partitions: i32, settings: &[(&str, i64)]) -> Found {
    let settings: BTreeMap<String, String> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    Found { partitions, replication_factor: 1, own: settings.clone(), settings }
}

fn planned(config: &Config, found: &[(&str, Found)]) -> Vec<TopicPlan> {
    let found = found.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
    compare(config, &found).unwrap().topics
}

fn wanted<'a>(topic: &'a TopicPlan, name: &str) -> Option<&'a str> {
    topic.settings.iter().find(|it| it.name == name).map(|it| it.wanted.as_str())
}

#[test]
fn missing_topics_are_created_with_room_for_headers() {
    let topics = planned(&config(""), &[]);
    let names: Vec<(&str, Role)> = topics.iter().map(|it| (it.name.as_str(), it.role)).collect();
    assert_eq!(names, [("t", Role::Source), ("t.g.retry.2s", Role::Retry), ("t.g.dlq", Role::DeadLetter)]);
    for topic in &topics {
        assert_eq!((topic.action, topic.partitions, topic.replication_factor), (Action::Create, 12, 1));
        assert_eq!(wanted(topic, "cleanup.policy"), Some("delete"));
        assert_eq!(wanted(topic, "min.insync.replicas"), None);
    }
    let sizes: Vec<_> = topics.iter().map(|it| wanted(it, "max.message.bytes").unwrap()).collect();
    assert_eq!(sizes, ["1048576", "1114112", "1114112"]);
    let kept: Vec<_> = topics.iter().map(|it| wanted(it, "retention.ms").unwrap().parse::<i64>().unwrap()).collect();
    assert_eq!(kept, [7 * DAY_MS, 7 * DAY_MS, 14 * DAY_MS]);
    let safe = planned(&config("replication_factor = 3"), &[]);
    assert_eq!(wanted(&safe[0], "min.insync.replicas"), Some("2"));
}

#[test]
fn retry_topics_follow_what_the_source_really_is() {
    let source = found(3, &[("retention.ms", 7 * DAY_MS), ("max.message.bytes", 5_000_000)]);
    let topics = planned(&config(""), &[("t", source)]);
    assert_eq!((topics[0].action, topics[0].settings.len(), topics[0].problems.len()), (Action::Keep, 0, 0));
    for topic in &topics[1..] {
        assert_eq!((topic.action, topic.partitions), (Action::Create, 3));
        assert_eq!(wanted(topic, "max.message.bytes"), Some("5065536"));
    }
}

#[test]
fn settings_only_ever_grow() {
    let small = found(12, &[("retention.ms", 1000), ("max.message.bytes", 1000)]);
    let topics = planned(&config(""), &[("t", small)]);
    assert_eq!(topics[0].action, Action::Alter);
    assert_eq!(wanted(&topics[0], "retention.ms"), Some((7 * DAY_MS).to_string().as_str()));
    assert_eq!(wanted(&topics[0], "max.message.bytes"), Some("1048576"));
    let large = found(24, &[("retention.ms", 30 * DAY_MS), ("max.message.bytes", 9_000_000)]);
    let for_ever = found(24, &[("retention.ms", -1), ("max.message.bytes", 99_000_000)]);
    let all = [("t", large), ("t.g.retry.2s", for_ever.clone()), ("t.g.dlq", for_ever)];
    let topics = planned(&config(""), &all);
    assert!(topics.iter().all(|it| it.action == Action::Keep && it.settings.is_empty()), "{topics:?}");
    assert!(topics[0].problems[0].contains("shortening it deletes records"), "{topics:?}");
    assert!(topics[1].problems[0].contains("for ever"), "{topics:?}");
    assert!(topics[2].problems.is_empty(), "dead letters may stay: {topics:?}");
}

#[test]
fn partitions_and_copies_are_left_to_a_person() {
    let settings = [("retention.ms", 7 * DAY_MS), ("max.message.bytes", 2_000_000)];
    let topics = planned(&config("partitions = 6\nreplication_factor = 2"), &[("t", found(3, &settings))]);
    assert_eq!((topics[0].action, topics[0].partitions), (Action::Keep, 3));
    assert!(topics[0].problems[0].contains("breaks their order"), "{topics:?}");
    assert!(topics[0].problems[1].contains("copies"), "{topics:?}");
    let fewer = planned(&config(""), &[("t", found(12, &settings)), ("t.g.retry.2s", found(6, &settings))]);
    assert!(fewer[1].problems[0].starts_with("has 6 partitions, 12 are wanted"), "{fewer:?}");
}

#[test]
fn compaction_would_swallow_messages() {
    let mut compacted = found(12, &[("retention.ms", 7 * DAY_MS), ("max.message.bytes", 2_000_000)]);
    compacted.settings.insert("cleanup.policy".to_owned(), "compact".to_owned());
    let topics = planned(&config(""), &[("t", compacted.clone()), ("t.g.retry.2s", compacted)]);
    assert!(topics[0].problems[0].contains("compaction"), "{topics:?}");
    assert_eq!((topics[1].action, wanted(&topics[1], "cleanup.policy")), (Action::Alter, Some("delete")));
}
