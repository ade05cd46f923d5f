//! Export and import.

use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, unique};
use sekali_tests::scripted::{SCRIPT, Scripted};
use serde_json::json;

use super::{Repairable, dlq, message, once, sekali, states, states_become};

#[tokio::test(flavor = "multi_thread")]
async fn an_export_comes_back_as_it_was_and_twice_adds_nothing() {
    let group = Group::new("export", 1, |_| {}).await;
    let member = group.start(Repairable::default()).await;
    let odd = Outgoing::new("k", vec![0, 0xFF, 1]).id("odd").header("cause", "stock").header("b", vec![0xC3, 0x28, 0]);
    group.produce((0..5).map(|nr| message("k", nr, "price")).chain([odd])).await;
    states_become(&group, "all are dead", [6, 0, 0, 0]).await;
    member.stop().await.unwrap();
    dlq(&group, &["discard", "--key", "k:1", "--reason", "x", "--yes"]).await;
    let exported = sekali(&group, &["dlq", "export"], &[]).await;
    assert_eq!((exported.status, exported.stdout.lines().count()), (0, 6), "{}", exported.stderr);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("letters.ndjson");
    std::fs::write(&file, &exported.stdout).unwrap();
    let import = ["import", file.to_str().unwrap(), "--reason", "moved"];
    let known = dlq(&group, &import).await;
    assert_eq!((&known.json()["imported"], &known.json()["known"]), (&json!(0), &json!(6)), "{}", known.stderr);

    let other = Group::new("import", 1, |_| {}).await;
    let imported = dlq(&other, &import).await;
    assert_eq!((imported.status, &imported.json()["imported"]), (0, &json!(6)), "{}", imported.stderr);
    assert_eq!(dlq(&other, &import).await.json()["imported"], json!(0));
    assert_eq!(states(&other).await, [5, 0, 0, 1]);
    let back = sekali(&other, &["dlq", "export", "--consumer", "*"], &[]).await;
    assert_eq!(back.stdout, exported.stdout, "byte for byte");
    let audited: i64 = other.database.scalar("SELECT count(*) FROM sekali.audit WHERE action = 'import'").await;
    assert_eq!(audited, 6);
    std::fs::write(&file, "{\"form\":1}\n").unwrap();
    let refused = dlq(&other, &import).await;
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("line 1 of"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_other_programs_are_imported_once_and_replayed_once() {
    let group = Group::new("foreign", 1, |_| {}).await;
    let topic = group.kafka.topic(&unique("dlt"), 2).await;
    let (source, at) = (group.topic.as_str(), |it: i64| it.to_be_bytes().to_vec());
    let spring = Outgoing::new("k1", "{}")
        .id("spring")
        .header("kafka_dlt-original-topic", source.to_owned())
        .header("kafka_dlt-original-partition", vec![0, 0, 0, 0])
        .header("kafka_dlt-original-offset", at(100))
        .header("kafka_dlt-exception-fqcn", "com.shop.PriceException")
        .header("kafka_dlt-exception-message", "price 17 is none");
    let texts = |prefix: &str, offset: &str| {
        let names = ["topic", "partition", "offset"].map(|it| format!("{prefix}{it}"));
        let values = [source.to_owned(), "0".to_owned(), offset.to_owned()];
        names.into_iter().zip(values).fold(Outgoing::new("k2", "{}"), |it, (name, value)| it.header(&name, value))
    };
    let streams = texts("__streams.errors.", "101").header("__streams.errors.exception", "org.x.StreamsException");
    let connect = texts("__connect.errors.", "102").header("__connect.errors.exception.message", "no");
    let share = texts("__dlq.errors.", "103").header("__dlq.errors.message", "gone").header(SCRIPT, "ok");
    let records = [spring, streams, connect, share, Outgoing::new("k", "{}").id("stranger")];
    group.kafka.produce(&topic, records).await;
    let import = ["import", "--from-topic", &topic, "--reason", "the old program"];
    let imported = dlq(&group, &import).await;
    assert_eq!(imported.status, 3, "one says nothing: {}{}", imported.stdout, imported.stderr);
    assert_eq!(imported.json(), json!({"imported": 4, "known": 0, "unreadable": 1}));
    assert_eq!(dlq(&group, &import).await.json(), json!({"imported": 0, "known": 4, "unreadable": 1}));
    let listed = dlq(&group, &["list", "--class", "PriceException"]).await.json();
    let letter = &listed["letters"][0];
    assert_eq!((&letter["topic"], &letter["offset"], &letter["code"]), (&json!(source), &json!(100), &json!("spring")));

    let lost = dlq(&group, &["replay", "--topic", source, "--reason", "x", "--yes"]).await;
    assert_eq!((lost.status, lost.outcome("no_route")), (3, 4), "nobody has read that topic yet: {}", lost.stderr);
    let member = group.start(Scripted::default()).await;
    let replayed = dlq(&group, &["replay", "--topic", source, "--reason", "x", "--yes"]).await;
    assert_eq!(replayed.outcome("replaying"), 4, "{}{}", replayed.stdout, replayed.stderr);
    states_become(&group, "all took effect", [0, 0, 4, 0]).await;
    member.stop().await.unwrap();
    once(&group, 4).await;
}
