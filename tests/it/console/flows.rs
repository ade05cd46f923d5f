//! A burst of dead letters, worked off with forms alone.

use sekali_tests::group::{Group, Member};
use sekali_tests::harness::eventually;
use serde_json::json;
use tokio::join;

use super::wire::Client;
use super::{Console, LIMIT, operation};
use crate::dlq::{Repairable, message, once, states, states_become};

const EACH: usize = 40;

/// A group with dead letters of two causes, which are repaired by now.
async fn repaired(label: &str) -> (Group, Member) {
    let group = Group::new(label, 2, |_| {}).await;
    let handler = Repairable::default();
    let member = group.start(handler.clone()).await;
    let of = |cause: &'static str| (0..EACH).map(move |nr| message(&format!("{cause}{nr}"), nr, cause));
    group.produce(of("stock").chain(of("price"))).await;
    states_become(&group, "all are dead", [2 * EACH as i64, 0, 0, 0]).await;
    handler.repair(&handler.stock);
    handler.repair(&handler.price);
    (group, member)
}

async fn becomes(client: &Client, id: i64, state: &str) {
    eventually("the operation moves", LIMIT, async || {
        let found = client.get(&format!("/api/v1/operations/{id}")).await.json();
        if found["operation"]["state"] == state && found["runs_here"] == false {
            Ok(())
        } else {
            Err(found.to_string())
        }
    })
    .await;
}

/// Ids of all letters of a state, through the pages.
async fn ids(client: &Client, state: &str) -> Vec<String> {
    let (mut ids, mut before) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/api/v1/messages?state={state}&first=7{before}")).await.json();
        ids.extend(page["letters"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => return ids,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cause_is_replayed_the_other_discarded_and_restored_and_the_audit_names_who_did_it() {
    let (group, member) = repaired("console-flow").await;
    let console = Console::of(&group, &[]).await;
    let anna = console.operator("anna").await;
    let page = anna.get("/").await;
    assert_eq!(page.status, 200);
    for part in ["no warehouse", "a price of", "<svg", "/runbooks/SekaliDeadLetterBurst", "Held keys"] {
        assert!(page.body.contains(part), "{part} is missing: {}", page.body);
    }
    let groups = anna.get("/api/v1/groups").await.json();
    let group_of = |code: &str| {
        let found =
            groups["groups"].as_array().unwrap().iter().find(|it| it["code"] == code).expect("a group of that code");
        found["id"].as_str().unwrap().to_owned()
    };
    let (price, stock) = (group_of("PRICE"), group_of(""));
    let preview = anna.get(&format!("/preview?act=replay&group={stock}")).await;
    assert!(preview.body.contains(&format!("Replay {EACH} dead letters?")), "{}", preview.body);
    let form = [("act", "replay"), ("group", stock.as_str()), ("reason", "repaired"), ("rate", "400")];
    let other = anna.act("/operations", &[&form[..], &[("count", "41")]].concat()).await;
    assert_eq!((other.status, other.body.contains("are selected and not 41")), (409, true), "{}", other.body);
    let unsaid = anna.act("/operations", &form).await;
    assert_eq!(unsaid.status, 400, "without the count: {}", unsaid.body);
    assert_eq!(states(&group).await, [2 * EACH as i64, 0, 0, 0]);
    let begun = operation(&anna.act("/operations", &[&form[..], &[("count", "40")]].concat()).await);
    becomes(&anna, begun, "done").await;
    states_become(&group, "one cause took effect", [EACH as i64, 0, EACH as i64, 0]).await;
    once(&group, EACH).await;

    let form = [("act", "discard"), ("group", price.as_str()), ("count", "40"), ("reason", "these were never orders")];
    becomes(&anna, operation(&anna.act("/operations", &form).await), "done").await;
    assert_eq!(states(&group).await, [0, 0, EACH as i64, EACH as i64]);
    let form = [("act", "restore"), ("group", price.as_str()), ("count", "40"), ("reason", "they were")];
    becomes(&anna, operation(&anna.act("/operations", &form).await), "done").await;
    assert_eq!(states(&group).await, [EACH as i64, 0, EACH as i64, 0]);

    let audit = anna.get("/api/v1/audit?who=anna&first=1000").await.json();
    let rows = audit["audit"].as_array().unwrap();
    for (action, reason) in [("replay", "repaired"), ("discard", "these were never orders"), ("restore", "they were")] {
        let fits = rows.iter().filter(|it| it["action"] == action && it["reason"] == reason).count();
        assert_eq!(fits, EACH, "{action}");
    }
    assert!(anna.get("/audit").await.body.contains("these were never orders"));
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_stopped_resumed_survives_its_console_and_is_cancelled() {
    let (group, member) = repaired("console-stop").await;
    let mut console = Console::of(&group, &[]).await;
    let anna = console.program("anna");
    let ask = json!({"act": "replay", "filter": {"class": "permanent"}, "reason": "slowly", "count": 80, "rate": 10});
    let begun = anna.post_json("/api/v1/operations", &ask).await;
    assert_eq!(begun.status, 201, "{}", begun.body);
    let id = begun.json()["operation"]["id"].as_i64().unwrap();
    let done = async |client: &Client| {
        client.get(&format!("/api/v1/operations/{id}")).await.json()["operation"]["done"].as_u64().unwrap()
    };
    let advances = async |client: &Client, from: u64| {
        eventually("it advances", LIMIT, async || {
            let done = done(client).await;
            if from < done { Ok(()) } else { Err(format!("{done}")) }
        })
        .await;
    };
    advances(&anna, 0).await;
    let stopped = anna.post_json(&format!("/api/v1/operations/{id}/stop"), &json!({})).await;
    assert_eq!(stopped.status, 202, "{}", stopped.body);
    becomes(&anna, id, "stopped").await;
    let at = done(&anna).await;
    assert!(0 < at && at < 80, "{at}");
    let again = anna.post_json(&format!("/api/v1/operations/{id}/stop"), &json!({})).await;
    assert_eq!((again.status, again.body.contains("not carried out by this console")), (409, true));
    anna.post_json(&format!("/api/v1/operations/{id}/resume"), &json!({})).await;
    advances(&anna, at).await;
    console.process.sigkill().await;

    let console = Console::of(&group, &[]).await;
    let bert = console.operator("bert").await;
    let page = bert.get(&format!("/operations/{id}")).await;
    assert!(page.body.contains("Resume") && page.body.contains("slowly"), "{}", page.body);
    let at = done(&bert).await;
    assert_eq!(bert.act(&format!("/operations/{id}/resume"), &[]).await.status, 303);
    advances(&bert, at).await;
    let cancelled = bert.act(&format!("/operations/{id}/cancel"), &[("reason", "enough")]).await;
    assert_eq!(cancelled.status, 303, "{}", cancelled.body);
    becomes(&bert, id, "cancelled").await;
    let sent = done(&bert).await;
    states_become(&group, "what was sent took effect", [80 - sent as i64, 0, sent as i64, 0]).await;
    once(&group, sent as usize).await;
    member.stop().await.unwrap();
}

/// RTY-11.
#[tokio::test(flavor = "multi_thread")]
async fn two_consoles_replay_the_same_selection_and_each_message_takes_effect_once() {
    let (group, member) = repaired("console-two").await;
    let (one, two) = join!(Console::of(&group, &[]), Console::of(&group, &[]));
    let (anna, bert) = join!(one.operator("anna"), two.operator("bert"));
    let chosen = ids(&anna, "open").await;
    assert_eq!(chosen.len(), 2 * EACH);
    let replay = async |client: &Client| {
        let mut form = vec![("act", "replay"), ("reason", "at once"), ("count", "80"), ("rate", "200")];
        form.extend(chosen.iter().map(|it| ("id", it.as_str())));
        let id = operation(&client.act("/operations", &form).await);
        becomes(client, id, "done").await;
        (
            client.get(&format!("/api/v1/operations/{id}")).await.json(),
            client.get(&format!("/operations/{id}")).await.body,
        )
    };
    let (by_anna, by_bert) = join!(replay(&anna), replay(&bert));
    let count = |of: &serde_json::Value, outcome: &str| {
        let outcomes = of["operation"]["outcomes"].as_array().unwrap();
        outcomes.iter().find(|it| it[0] == outcome).map_or(0, |it| it[1].as_u64().unwrap())
    };
    let sent = count(&by_anna.0, "replaying") + count(&by_bert.0, "replaying");
    assert_eq!(sent, 80, "{} {}", by_anna.0, by_bert.0);
    for (json, page) in [&by_anna, &by_bert] {
        assert_eq!(json["operation"]["done"], 80);
        let refused = count(json, "already_replaying") + count(json, "already_resolved");
        assert_eq!(refused + count(json, "replaying"), 80, "{json}");
        assert_eq!(page.contains("Somebody came first"), 0 < refused, "who came second is told so: {page}");
    }
    states_become(&group, "all took effect", [0, 0, 80, 0]).await;
    once(&group, 80).await;
    let retries = group.kafka.end_offsets(&group.retry_topics()[0]).await;
    assert_eq!(retries.values().sum::<i64>(), 80, "nothing was sent twice");
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_edited_where_that_is_allowed_and_nowhere_else() {
    let (group, member) = repaired("console-edit").await;
    let (off, on) = join!(Console::of(&group, &[]), Console::of(&group, &[("SEKALI_OPERATE__ALLOW_EDIT", "true")]));
    let (without, with) = join!(off.operator("anna"), on.operator("anna"));
    let id = ids(&with, "open").await.remove(0);
    let address = format!("/messages/{id}/edit");
    assert!(!without.get(&format!("/messages/{id}")).await.body.contains("Edit and replay"));
    assert_eq!(without.get(&address).await.status, 403);
    assert_eq!(without.act(&address, &[("payload", "{}"), ("reason", "x")]).await.status, 403);
    assert!(with.get(&address).await.body.contains("{&quot;nr&quot;:"), "the payload is in the form");
    let edited = with.act(&address, &[("payload", "{\"nr\":7,\r\n\"by\":\"hand\"}"), ("reason", "put right")]).await;
    assert_eq!(edited.status, 303, "{}", edited.body);
    let copy = edited.header("location").unwrap_or_default().to_owned();
    assert!(with.get(&copy).await.body.contains(&id), "it says what it was made from");
    states_become(&group, "the edited one took effect", [79, 0, 2, 0]).await;
    let payload: Vec<u8> =
        group.database.scalar("SELECT payload FROM sekali.dead_letter WHERE edited_from IS NOT NULL").await;
    assert_eq!(payload, b"{\"nr\":7,\n\"by\":\"hand\"}");
    once(&group, 1).await;
    member.stop().await.unwrap();
}
