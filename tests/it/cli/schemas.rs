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

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_new_schemas_could_not_read_are_counted_where_they_wait() {
    let operator = operator().await;
    let group = Group::new("waiting", 1, |config| {
        config.retry.delays = vec![std::time::Duration::from_secs(600)];
    })
    .await;
    let (narrow, wide) = (r#"{"sku":"a","delta":1}"#, r#"{"sku":"secret","delta":99}"#);
    group
        .produce([
            adjusted("dead", "permanent", wide),
            adjusted("fine", "permanent", narrow),
            adjusted("retry", "transient", wide),
            adjusted("other", "transient", narrow),
            Outgoing { key: Some("retry".into()), ..adjusted("held", "ok", "secret no json") },
            Outgoing::new("untyped", "secret").id("untyped").header("script", "permanent"),
            adjusted("prefixed", "permanent", confluent::write(1, wide.as_bytes())),
        ])
        .await;
    let member = group.start(Scripted::default()).await;
    let retry = &group.retry_topics()[0];
    eventually("all is decided and published", LIMIT, async || {
        let letters = group.kafka.read_all(&group.dlq()).await.len();
        let retries = group.kafka.read_all(retry).await.len();
        let held = group.held().await.1;
        if (letters, retries, held) == (4, 2, 1) { Ok(()) } else { Err(format!("{letters} {retries} {held}")) }
    })
    .await;
    member.stop().await.unwrap();
    // What is published stays in the outbox until the cursor has moved on.
    eventually("the outbox is done", LIMIT, async || {
        let unpublished =
            "SELECT count(*) FROM sekali.outbox, sekali.outbox_cursor WHERE NOT pg_visible_in_snapshot(xid, published)";
        group.database.scalar::<i64>(unpublished).await == 0
    })
    .await;

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
        assert!(!text.contains("secret") && !text.contains("99"), "{text}");
    }
    assert_eq!(
        group.kafka.committed_offsets(group.name(), retry).await.get(&0).copied().unwrap_or(0),
        0,
        "nothing is committed"
    );
}
