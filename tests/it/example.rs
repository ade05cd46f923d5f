//! The example of the README, as a service of its own.

use std::time::Duration;

use sekali_consumer::Config;
use sekali_tests::harness::{Outgoing, Program, TestDatabase, eventually, kafka, unique, workspace_root};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_service_of_forty_lines_stores_every_order_once() {
    let example = workspace_root().join("examples/orders");
    let source = std::fs::read_to_string(example.join("src/main.rs")).unwrap();
    assert!(source.lines().count() <= 40, "the README promises at most 40 lines");

    let (kafka, database) = (kafka().await, TestDatabase::create().await);
    database.execute(&std::fs::read_to_string(example.join("orders.sql")).unwrap()).await;
    let (topic, group) = (unique("orders"), unique("orders"));
    let settings = [
        ("SEKALI_KAFKA__BROKERS", kafka.bootstrap().to_owned()),
        ("SEKALI_POSTGRES__URL", database.url()),
        ("SEKALI_CONSUMER__TOPICS", format!("[\"{topic}\"]")),
        ("SEKALI_CONSUMER__GROUP", group.clone()),
        ("SEKALI_ADMIN__LISTEN", "none".to_owned()),
    ];
    create_topics(kafka.bootstrap(), &database.url(), &topic, &group).await;

    let order = |id: &str, json: &str| Outgoing::new(id.to_owned(), json.to_owned()).id(id);
    let first = order("o-1", r#"{"id":"o-1","customer":"Ada","cents":1250}"#);
    let free = order("o-2", r#"{"id":"o-2","customer":"Ada","cents":0}"#);
    let last = order("o-3", r#"{"id":"o-3","customer":"Alan","cents":99}"#);
    kafka.produce(&topic, [first.clone(), free, first.clone()]).await;

    let mut service = Program::of_workspace("orders").arg(example.join("orders.toml"));
    for (name, value) in settings {
        service = service.env(name, value);
    }
    let mut service = service.spawn();
    // The first order again, when it has long been committed, and one behind it to wait for.
    eventually("the first order is stored", LIMIT, async || orders(&database).await == ["o-1"]).await;
    kafka.produce(&topic, [first.partition(0), last.partition(0)]).await;
    eventually("the last order is stored", LIMIT, async || orders(&database).await.contains(&"o-3".to_owned())).await;
    eventually("everything is read", LIMIT, async || match kafka.lag(&group, &topic).await {
        0 => Ok(()),
        lag => Err(format!("lag {lag}")),
    })
    .await;

    assert_eq!(orders(&database).await, ["o-1", "o-3"], "copies are duplicates, and the free order is dead");
    let dead = "SELECT key_text || ' ' || code || ' ' || state FROM sekali.dead_letter";
    assert_eq!(database.scalar::<String>(dead).await, "o-2 PRICE open");
    service.sigterm();
    assert_eq!(service.wait(LIMIT).await.code(), Some(0), "SIGTERM ends the service in good order");
}

async fn create_topics(brokers: &str, url: &str, topic: &str, group: &str) {
    let text = format!(
        "[kafka]\nbrokers = \"{brokers}\"\n[postgres]\nurl = \"{url}\"\n\
         [consumer]\ngroup = \"{group}\"\ntopics = [\"{topic}\"]\n[topics]\npartitions = 2\n"
    );
    let config = Config::from_toml(&text).unwrap();
    sekali_consumer::admin::topics::apply(&config).await.unwrap();
}

async fn orders(database: &TestDatabase) -> Vec<String> {
    let client = database.connect().await;
    let rows = client.query("SELECT id FROM placed_order ORDER BY id", &[]).await.unwrap();
    rows.iter().map(|it| it.get(0)).collect()
}
