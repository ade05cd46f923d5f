//! `sekali schemas`, as a process.

use std::fs;

use sekali_schemas::confluent;
use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, eventually, workspace_root};
use sekali_tests::scripted::Scripted;
use serde_json::{Value, json};

use super::{LIMIT, Operator};

async fn operator() -> Operator {
    let database = sekali_tests::harness::TestDatabase::create_empty().await;
    Operator::new(&database).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_refuses_what_was_accepted_is_found_until_it_is_recorded() {
    let operator = operator().await;
    let (schemas, baseline) = (operator.dir.path().join("schemas"), operator.dir.path().join("baseline"));
    let (schemas, baseline) = (schemas.to_str().unwrap(), baseline.to_str().unwrap());
    fs::create_dir(schemas).unwrap();
    let write = |name: &str, schema: Value| fs::write(format!("{schemas}/{name}"), schema.to_string()).unwrap();
    let price = |more: Value| {
        let mut schema = json!({"type": "object", "required": ["price"], "properties": {"price": {"type": "integer"}}});
        schema["properties"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    write("price.set.v1.json", price(json!({})));
    write("gone.v1.json", json!({}));
    let arguments = ["schemas", "check", "--schemas", schemas, "--baseline", baseline];
    operator.run(&arguments).await.expect(2, &["cannot be read", "sekali schemas record"]);
    let record = ["schemas", "record", "--schemas", schemas, "--baseline", baseline];
    assert_eq!(operator.json(&record).await.1["written"], json!(["gone.v1.json", "price.set.v1.json"]));
    let (status, report) = operator.json(&arguments).await;
    assert_eq!((status, &report["ok"], &report["findings"]), (0, &json!(true), &json!([])));

    // A new member and a new version are no harm; producers must wait for the consumers with a wider type.
    write("price.set.v1.json", price(json!({"price": {"type": "number"}, "since": {"type": "string"}})));
    write("price.set.v2.json", json!({"type": "array"}));
    let (status, report) = operator.json(&arguments).await;
    let found: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|it| (&it["verdict"], &it["concerns"])).collect();
    let expected = [(json!("note"), json!("consumers")), (json!("breaking"), json!("producers"))];
    assert_eq!((status, found), (0, expected.iter().map(|it| (&it.0, &it.1)).collect()));

    write("price.set.v1.json", price(json!({"price": {"type": "string"}})));
    fs::remove_file(format!("{schemas}/gone.v1.json")).unwrap();
    let (status, report) = operator.json(&arguments).await;
    assert_eq!((status, &report["ok"]), (3, &json!(false)));
    let findings = report["findings"].as_array().unwrap();
    let breaking: Vec<_> = findings.iter().filter(|it| it["concerns"] == "consumers").collect();
    assert_eq!(breaking.len(), 2, "{findings:#?}");
    assert_eq!((&breaking[0]["schema"], &breaking[0]["rule"]), (&json!("gone v1"), &json!("removed")));
    let changed = breaking[1];
    assert_eq!(changed["pointer"], "/properties/price/type");
    assert_eq!((&changed["verdict"], &changed["schema"]), (&json!("breaking"), &json!("price.set v1")));
    assert!(changed["remedy"].as_str().unwrap().contains("new version"), "{changed}");
    let table = operator.run(&arguments).await;
    assert!(table.status == 3 && table.stdout.contains("/properties/price/type"), "{}", table.stdout);

    assert_eq!(operator.json(&record).await.1["removed"], json!(["gone.v1.json"]));
    assert_eq!(operator.run(&arguments).await.status, 0, "recorded on purpose");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schemas_of_this_version_are_those_that_were_recorded() {
    let operator = operator().await;
    let baseline = workspace_root().join("schemas/baseline");
    let (status, report) = operator.json(&["schemas", "check", "--baseline", baseline.to_str().unwrap()]).await;
    assert_eq!((status, &report["findings"]), (0, &json!([])), "record changes: sekali schemas record");
    assert_eq!(report["schemas"], sekali_schemas::events::ALL.len());
    let document = operator.run(&["schemas", "asyncapi"]).await.stdout;
    assert!(document == fs::read_to_string(workspace_root().join("schemas/asyncapi.yaml")).unwrap());
}

fn adjusted(id: &str, script: &str, payload: impl Into<bytes::Bytes>) -> Outgoing {
    Outgoing::new(id.to_owned(), payload).id(id).header("ce_type", "stock.adjusted").header("script", script.to_owned())
}

/// The configuration of a group for the command line.
fn configured(operator: &Operator, group: &Group, more: &str) {
    let text = group.config.print().replace("url = \"***\"", &format!("url = \"{}\"", group.database.url()));
    let text = text.replace("# url =\n", more);
    fs::write(operator.dir.path().join("sekali.toml"), text).unwrap();
}

/// A group with four dead letters, two retries and a held message, and no member.
async fn waiting() -> Group {
    const UNPUBLISHED: &str = "SELECT count(*) FROM sekali.outbox, sekali.outbox_cursor \
         WHERE NOT pg_visible_in_snapshot(xid, published)";
    let group = Group::new("waiting", 1, |config| {
        config.retry.delays = vec![std::time::Duration::from_secs(600)];
    })
    .await;
    let records = [
        adjusted("dead", "permanent", WIDE),
        adjusted("fine", "permanent", NARROW),
        adjusted("retry", "transient", WIDE),
        adjusted("other", "transient", NARROW),
        Outgoing { key: Some("retry".into()), ..adjusted("held", "ok", "secret no json") },
        Outgoing::new("untyped", "secret").id("untyped").header("script", "permanent"),
        adjusted("prefixed", "permanent", confluent::write(1, WIDE.as_bytes())),
    ];
    group.produce(records).await;
    let member = group.start(Scripted::default()).await;
    let retry = &group.retry_topics()[0];
    eventually("all is decided and published", LIMIT, async || {
        let letters = group.kafka.read_all(&group.dlq()).await.len();
        let retries = group.kafka.read_all(retry).await.len();
        let (_, held) = group.held().await;
        // What is published stays in the outbox until the cursor has moved on.
        let unpublished: i64 = group.database.scalar(UNPUBLISHED).await;
        let found = (letters, retries, held, unpublished);
        if found == (4, 2, 1, 0) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    member.stop().await.unwrap();
    group
}

const NARROW: &str = r#"{"sku":"a","delta":1}"#;
const WIDE: &str = r#"{"sku":"secret","delta":987654321}"#;

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_dead_letters_is_looked_at() {
    let operator = operator().await;
    let group = Group::new("many", 1, |_| {}).await;
    let sql = "INSERT INTO sekali.dead_letter (id, consumer_id, key, reason, class, code, message, attempts, origin_topic, \
         origin_partition, origin_offset, payload, header_names, header_values, group_fingerprint, first_failed_at, state) \
         SELECT gen_random_uuid(), (SELECT id FROM sekali.consumer), gen_random_uuid(), 'permanent', 'permanent', '', '', 1, \
         't', 0, nr, '{}', ARRAY['ce_type'], ARRAY['stock.adjusted'::bytea], 0, now(), \
         CASE WHEN nr % 2 = 0 THEN 'open' ELSE 'discarded' END FROM generate_series(1, 2402) AS nr";
    let name = format!("INSERT INTO sekali.consumer (name) VALUES ('{}')", group.name());
    group.database.execute(&name).await;
    group.database.execute(sql).await;
    configured(&operator, &group, "");
    let (status, found) = operator.json(&["schemas", "check", "--against-dlq"]).await;
    assert_eq!(
        (status, &found["messages"], &found["refused"]),
        (3, &json!(1201), &json!(1201)),
        "open ones, each once"
    );
    assert_eq!(found["first"].as_array().unwrap().len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_new_schemas_could_not_read_are_counted_where_they_wait() {
    let (operator, group) = (operator().await, waiting().await);
    let retry = &group.retry_topics()[0];
    let schemas = operator.dir.path().join("schemas");
    fs::create_dir(&schemas).unwrap();
    let arguments = ["schemas", "check", "--against-dlq", "--schemas", schemas.to_str().unwrap()];
    let file = schemas.join("stock.adjusted.v1.json");
    configured(&operator, &group, "url = \"http://127.0.0.1:1\"\n");
    fs::write(&file, r#"{"type": "object"}"#).unwrap();
    let (status, found) = operator.json(&arguments).await;
    assert_eq!((status, &found["messages"], &found["refused"]), (3, &json!(7), &json!(1)), "{found:#}");
    fs::write(&file, r#"{"properties": {"delta": {"maximum": 10}}}"#).unwrap();
    let (status, found) = operator.json(&arguments).await;
    assert_eq!(status, 3);
    let expected = json!([
        {"place": "dead_letter", "ty": null, "messages": 1, "refused": 0},
        {"place": "dead_letter", "ty": "stock.adjusted", "messages": 3, "refused": 2},
        {"place": "held", "ty": "stock.adjusted", "messages": 1, "refused": 1},
        {"place": "retry", "ty": "stock.adjusted", "messages": 2, "refused": 1},
    ]);
    assert_eq!(found["counts"], expected, "{found:#}");
    let first = found["first"].as_array().unwrap();
    let pointers: Vec<&Value> = first.iter().map(|it| &it["pointer"]).collect();
    assert_eq!(pointers, [&json!("/delta"), &json!("/delta"), &Value::Null, &json!("/delta")]);
    let id: String = group.database.scalar("SELECT id::text FROM sekali.dead_letter WHERE key_text = 'dead'").await;
    assert!(first.iter().any(|it| it["id"] == id.as_str()), "{first:#?}");
    assert_eq!(first[3]["id"], format!("{retry}/0/0"));
    let limited = operator.json(&[&arguments[..], &["--first", "1"]].concat()).await.1;
    assert_eq!((limited["first"].as_array().unwrap().len(), &limited["refused"]), (1, &json!(4)));
    let table = operator.run(&arguments).await.stdout;
    assert!(table.contains("4 of 7 messages could not be read"), "{table}");
    for text in [table, found.to_string(), limited.to_string()] {
        assert!(!text.contains("secret") && !text.contains("987654321"), "{text}");
    }
    assert_eq!(
        group.kafka.committed_offsets(group.name(), retry).await.get(&0).copied().unwrap_or(0),
        0,
        "nothing is committed"
    );
}
