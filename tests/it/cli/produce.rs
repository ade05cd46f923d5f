//! `sekali produce`.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use sekali_tests::harness::{TestDatabase, ended, kafka, sekali};

use super::Operator;

const COUNT: usize = 5_000;

fn line(number: usize) -> String {
    // Members in an order and with spaces that no serializer would choose: the payload is the line.
    format!("{{\"id\": \"e-{number}\",  \"sku\":\"SKU-{}\", \"type\":\"stock.adjusted\", \"delta\":-1}}", number % 50)
}

fn lines(count: usize) -> String {
    (0..count).map(|it| line(it) + "\n").collect()
}

async fn operator(partitions: i32) -> (TestDatabase, Operator) {
    let database = TestDatabase::create().await;
    let operator = Operator::new(&database).await;
    kafka().await.create_exactly(&[(&operator.topic, partitions)], &[("max.message.bytes", "3000")]).await;
    (database, operator)
}

async fn count(operator: &Operator) -> i64 {
    kafka().await.end_offsets(&operator.topic).await.values().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_becomes_a_record_in_the_order_of_its_key() {
    let (_database, operator) = operator(3).await;
    operator.file("events.ndjson", lines(COUNT));
    let (status, summary) = operator.json(&["produce", "events.ndjson", "--topic", &operator.topic]).await;
    assert_eq!((status, &summary["sent"], &summary["skipped"]), (0, &COUNT.into(), &0.into()));
    assert_eq!(summary["bytes"], (0..COUNT).map(|it| line(it).len()).sum::<usize>());

    let records = kafka().await.read_all(&operator.topic).await;
    assert_eq!(records.len(), COUNT);
    let mut last: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for record in &records {
        let id = record.headers.text("idempotency-key").unwrap();
        let number: usize = id.strip_prefix("e-").unwrap().parse().unwrap();
        assert_eq!(record.payload.as_deref(), Some(line(number).as_bytes()), "byte for byte");
        let key = record.key.as_deref().unwrap();
        assert_eq!(key, format!("SKU-{}", number % 50).as_bytes());
        assert_eq!(record.partition, sekali_producer::partition_for(key, 3), "where a JVM client would put it");
        let header = |name| record.headers.text(name).unwrap();
        assert_eq!((header("ce_type"), header("ce_source")), ("stock.adjusted", "/sekali/produce"));
        let before = last.insert(key.to_vec(), number);
        assert!(before.is_none_or(|it| it < number), "key {key:?} out of order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_input_is_sent_from_its_first_line() {
    let (_database, operator) = operator(1).await;
    let file = operator.file("events.ndjson", lines(COUNT));
    let mut command = sekali(&["produce", "-", "--topic", &operator.topic, "-o", "json"]);
    command.current_dir(operator.dir.path()).stdin(std::fs::File::open(file).unwrap());
    let ended = ended(command).await;
    ended.expect(0, &[]);
    assert_eq!((ended.json()["sent"].clone(), count(&operator).await), (COUNT.into(), COUNT as i64));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_pointers_limits_and_repetitions_are_as_asked() {
    let (_database, operator) = operator(1).await;
    let events: String =
        (0..10).map(|it| format!("{{\"item\":{{\"no\":{it}}},\"n\":[{{\"x\":\"i{it}\"}}]}}\r\n\n")).collect();
    operator.file("events.ndjson", events);
    let arguments = ["--key", "/item/no", "--id", "/n/0/x", "--event-type", "moved", "--source", "/test"];
    // Lines 1, 3, 5 ... have text; 4 are passed over, of the next 3 every one in a line divisible by 5 goes out twice.
    let bounds = ["--skip", "4", "--limit", "3", "--repeat-every", "5"];
    let topic = operator.topic.clone();
    let all = [&["produce", "events.ndjson", "--topic", &topic], &arguments[..], &bounds[..]].concat();
    operator.run(&all).await.expect(0, &[]);
    let records = kafka().await.read_all(&operator.topic).await;
    let ids: Vec<&str> = records.iter().map(|it| it.headers.text("idempotency-key").unwrap()).collect();
    assert_eq!(ids, ["i2", "i2", "i3", "i4"]);
    assert_eq!(records[0].key.as_deref(), Some(&b"2"[..]));
    assert_eq!(records[0].headers.text("ce_type"), Some("moved"));
    assert!(!records[0].payload.as_deref().unwrap().ends_with(b"\r"));
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_files_are_read_and_truncated_ones_noticed() {
    let (_database, operator) = operator(1).await;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(lines(COUNT).as_bytes()).unwrap();
    let compressed = encoder.finish().unwrap();
    operator.file("events.gz", &compressed);
    operator.run(&["produce", "events.gz", "--topic", &operator.topic]).await.expect(0, &[]);
    assert_eq!(count(&operator).await, COUNT as i64);
    operator.file("half.gz", &compressed[..compressed.len() / 2]);
    let ended = operator.run(&["produce", "half.gz", "--topic", &operator.topic]).await;
    ended.expect(1, &["cannot read half.gz after line", "records were sent before that"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_stops_everything_after_it() {
    let (_database, operator) = operator(1).await;
    for (bad, expected) in [
        ("{\"id\":\"x\",", "line 4 is not JSON"),
        ("{\"id\":\"x\",\"type\":\"t\"}", "line 4 has no field \"sku\""),
        ("{\"id\":[1],\"sku\":\"s\",\"type\":\"t\"}", "line 4 field \"id\" is neither a string nor a number"),
        ("{\"id\":\"x\",\"sku\":\"\",\"type\":\"t\"}", "line 4 field \"sku\" is empty"),
        (&format!("{{\"id\":\"x\",\"sku\":\"{}\",\"type\":\"t\"}}", "s".repeat(2900)), "line 4 is too large"),
        (&"x".repeat(100_000), "line 4 is too large"),
        (&format!("{{\"id\":\"{}\",\"sku\":\"s\",\"type\":\"t\"}}", "i".repeat(1025)), "line 4 cannot be an event"),
    ] {
        let before = count(&operator).await;
        operator.file("events.ndjson", [&lines(3), bad, "\n", &lines(3)].concat());
        let ended = operator.run(&["produce", "events.ndjson", "--topic", &operator.topic]).await;
        ended.expect(1, &[expected, "3 records were sent before it and none after it", "--skip 3"]);
        assert_eq!(count(&operator).await - before, 3, "{expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_can_be_passed_over_and_are_listed() {
    let (_database, operator) = operator(1).await;
    operator.file("events.ndjson", ["no\n", &lines(2), "{}\n", &lines(2), "[]"].concat());
    let arguments = ["produce", "events.ndjson", "--topic", &operator.topic, "--on-error", "skip"];
    let ended = operator.run(&arguments).await;
    ended.expect(3, &["line 1 is not JSON", "line 4 has no field \"sku\"", "line 7 is no JSON object"]);
    assert!(ended.stdout.contains("sent 4 records") && ended.stdout.contains("3 bad lines"), "{}", ended.stdout);
    assert_eq!(count(&operator).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_is_not_created() {
    let (_database, operator) = operator(1).await;
    operator.file("events.ndjson", lines(1));
    let missing = format!("{}-missing", operator.topic);
    let ended = operator.run(&["produce", "events.ndjson", "--topic", &missing]).await;
    ended.expect(1, &["does not exist", "sekali topics apply"]);
    let metadata = kafka().await.admin().inner().fetch_metadata(None, super::LIMIT).unwrap();
    assert!(metadata.topics().iter().all(|it| it.name() != missing));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_real_events_arrives_whole() {
    let directory = tempfile::tempdir().unwrap();
    let events = sekali_tests::events::first_events(directory.path(), 2_000);
    let (_database, operator) = operator(3).await;
    let arguments = ["produce", events.file.to_str().unwrap(), "--topic", &operator.topic];
    operator.run(&arguments).await.expect(0, &[]);
    assert_eq!(count(&operator).await, events.count as i64, "{}", events.origin);
}
