//! Filters: what they mean, and what they never do.

use sekali_tests::group::Group;
use sekali_tests::harness::Outgoing;
use serde_json::json;

use super::{Repairable, dlq, message, states, states_become};

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_selects_what_it_says_and_pages_come_one_after_another() {
    let group = Group::new("filters", 2, |_| {}).await;
    let member = group.start(Repairable::default()).await;
    group.produce((0..6).map(|nr| message(&format!("k{nr}"), nr, if nr < 2 { "price" } else { "stock" }))).await;
    states_become(&group, "all are dead", [6, 0, 0, 0]).await;
    member.stop().await.unwrap();
    let count = async |arguments: &[&str]| {
        let listed = dlq(&group, &[&["list"], arguments].concat()).await;
        listed.json()["letters"].as_array().unwrap_or_else(|| panic!("{}", listed.stderr)).len()
    };
    for (arguments, expected) in [
        (&["--topic", &group.topic][..], 6),
        (&["--topic", "other"], 0),
        (&["--class", "permanent"], 6),
        (&["--class", "transient"], 0),
        (&["--key", "k3:3"], 1),
        (&["--key", "k3"], 1),
        (&["--text", "WAREHOUSE"], 4),
        (&["--text", "price"], 2),
        (&["--text", "k3:"], 1),
        (&["--since", "1h"], 6),
        (&["--until", "1h"], 0),
        (&["--until", "2020-01-01T00:00:00Z"], 0),
        (&["--state", "discarded"], 0),
        (&["--consumer", "*"], 6),
        (&["--consumer", "other"], 0),
        (&["--group", "0000000000000000"], 0),
    ] {
        assert_eq!(count(arguments).await, expected, "{arguments:?}");
    }
    let (mut ids, mut before) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["list", "--first", "4"];
        arguments.extend(before.iter().flat_map(|it| ["--before", it.as_str()]));
        let page = dlq(&group, &arguments).await.json();
        ids.extend(page["letters"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => before = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(ids.len(), 6);
    assert!(ids.windows(2).all(|it| it[1] < it[0]), "the newest first: {ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_in_a_filter_and_in_a_message_is_text() {
    let group = Group::new("inject", 1, |_| {}).await;
    let member = group.start(Repairable::default()).await;
    let evil = "'; DROP TABLE sekali.dead_letter; --%_\\";
    let record = Outgoing::new(evil, evil).id(evil).header("cause", "stock").header(evil, evil);
    group.produce([record, message("k", 1, "stock")]).await;
    states_become(&group, "both are dead", [2, 0, 0, 0]).await;
    member.stop().await.unwrap();
    for (name, expected) in [("--key", 1), ("--text", 1), ("--topic", 0), ("--class", 0), ("--consumer", 0)] {
        let listed = dlq(&group, &["list", name, evil]).await.json();
        assert_eq!(listed["letters"].as_array().unwrap().len(), expected, "{name}");
    }
    // Wildcards of LIKE are letters here.
    for text in ["%", "_"] {
        let listed = dlq(&group, &["list", "--text", text]).await.json();
        assert_eq!(listed["letters"].as_array().unwrap().len(), 1, "{text}");
    }
    assert_eq!(dlq(&group, &["list", "--group", evil]).await.status, 2);
    let discarded = dlq(&group, &["discard", "--key", evil, "--reason", evil, "--yes"]).await;
    assert_eq!(discarded.outcome("discarded"), 1, "{}", discarded.stderr);
    assert_eq!(states(&group).await, [1, 0, 0, 1]);
    let audit = super::sekali(&group, &["audit", "-o", "json"], &[("SEKALI_ACTOR", evil)]).await.json();
    assert_eq!((&audit[0]["reason"], &audit[0]["selection"]["key"]), (&json!(evil), &json!(evil)));
    let longest = "x".repeat(1025);
    let refused = dlq(&group, &["list", "--text", &longest]).await;
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("longer than 1024 bytes"), "{}", refused.stderr);
}
