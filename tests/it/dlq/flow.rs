//! A burst of dead letters from its beginning to its end.

use sekali_tests::group::Group;
use sekali_tests::harness::eventually;
use serde_json::json;

use super::{LIMIT, Repairable, dlq, message, once, sekali, start, states, states_become};

const EACH: usize = 250;

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_two_causes_is_found_repaired_replayed_discarded_and_told() {
    let group = Group::new("burst", 3, |_| {}).await;
    let handler = Repairable::default();
    let member = group.start(handler.clone()).await;
    let cause = |nr: usize| if nr.is_multiple_of(2) { "stock" } else { "price" };
    group.produce((0..2 * EACH).map(|nr| message(&format!("k{}", nr % 40), nr, cause(nr)))).await;
    group.produce((0..100).map(|nr| message("good", nr, "none"))).await;
    states_become(&group, "all are dead", [2 * EACH as i64, 0, 0, 0]).await;

    let (stock, price) = causes(&group).await;

    // Repair it, and look before anything is changed.
    handler.repair(&handler.stock);
    let dry = dlq(&group, &["replay", "--group", &stock, "--reason", "stock is repaired"]).await.json();
    assert_eq!((&dry["dry_run"], &dry["preview"]["letters"]), (&json!(true), &json!(EACH)));
    assert!(0 < dry["preview"]["keys_at_risk"].as_u64().unwrap(), "{dry:#}");
    assert_eq!(states(&group).await, [2 * EACH as i64, 0, 0, 0]);

    replay_with_interruptions(&group, &stock).await;
    states_become(&group, "the replayed ones took effect", [EACH as i64, 0, EACH as i64, 0]).await;
    once(&group, EACH + 100).await;

    // Close the others, and take that back.
    let discard = ["discard", "--group", &price, "--reason", "prices were wrong", "--count", "250", "--yes"];
    let discarded = dlq(&group, &discard).await;
    assert_eq!((discarded.status, discarded.outcome("discarded")), (0, EACH as u64), "{}", discarded.stderr);
    assert_eq!(states(&group).await, [0, 0, EACH as i64, EACH as i64]);
    let restored = dlq(&group, &["restore", "--group", &price, "--reason", "they were right", "--yes"]).await;
    assert_eq!((restored.status, restored.outcome("restored")), (0, EACH as u64), "{}", restored.stderr);
    assert_eq!(states(&group).await, [EACH as i64, 0, EACH as i64, 0]);
    member.stop().await.unwrap();

    the_audit_tells_all(&group).await;
}

/// Groups of the two causes, as an operator finds them.
async fn causes(group: &Group) -> (String, String) {
    let groups = dlq(group, &["groups"]).await.json();
    let found: Vec<_> =
        groups.as_array().unwrap().iter().map(|it| (it["letters"].clone(), it["cause"].clone())).collect();
    assert_eq!(found.len(), 2, "{groups:#}");
    assert!(found.contains(&(json!(EACH), json!("no warehouse # has ?"))), "{groups:#}");
    assert!(found.contains(&(json!(EACH), json!("a price of -# is none"))), "{groups:#}");
    let id_of = |text: &str| {
        let group = groups.as_array().unwrap().iter().find(|it| it["cause"].as_str().unwrap().contains(text));
        group.unwrap()["id"].as_str().unwrap().to_owned()
    };
    let newest = groups[0]["newest"].as_str().unwrap();
    let shown = dlq(group, &["show", newest]).await.json();
    assert_eq!((&shown["state"], &shown["inbox"]["state"]), (&json!("open"), &json!("dead")));
    assert_eq!(shown["timeline"].as_array().unwrap().len(), 1, "{shown:#}");
    (id_of("warehouse"), id_of("price"))
}

/// Replays a group; stops it, goes on, has the operator's process killed, and goes on again.
async fn replay_with_interruptions(group: &Group, stock: &str) {
    let replay = ["replay", "--group", stock, "--reason", "stock is repaired", "--rate", "100", "--yes"];
    let mut first = start(group, &replay);
    let done = "SELECT count(*) FROM sekali.operation_item WHERE outcome IS NOT NULL";
    let reaches = async |count: i64| {
        eventually("the operation goes on", LIMIT, async || count <= group.database.scalar::<i64>(done).await).await;
    };
    reaches(30).await;
    first.signal_interrupt();
    assert_eq!(first.wait(LIMIT).await.code(), Some(3), "it is not over");
    assert!(first.stderr().contains("dlq resume 1"), "{}", first.stderr());
    let stopped: i64 = group.database.scalar(done).await;
    assert!(stopped < EACH as i64, "it was stopped in the middle");
    let mut second = start(group, &["resume", "1"]);
    reaches(stopped + 30).await;
    second.sigkill().await;
    assert!(group.database.scalar::<i64>(done).await < EACH as i64, "it was killed in the middle");
    let third = dlq(group, &["resume", "1"]).await;
    assert_eq!((third.status, third.outcome("replaying")), (0, EACH as u64), "{}{}", third.stdout, third.stderr);
}

/// Message by message, and nobody changes it.
async fn the_audit_tells_all(group: &Group) {
    let told = "SELECT count(DISTINCT dead_letter_id) FROM sekali.audit WHERE";
    for (condition, count) in [
        ("who = 'anna' AND action = 'replay' AND outcome = 'replaying' AND reason = 'stock is repaired'", EACH),
        ("who <> 'anna' AND action = 'replay' AND outcome = 'resolved' AND reason = 'stock is repaired'", EACH),
        ("who = 'anna' AND outcome = 'discarded' AND reason = 'prices were wrong' AND operation_id = 2", EACH),
        ("who = 'anna' AND outcome = 'restored' AND selection ->> 'group' IS NOT NULL", EACH),
    ] {
        assert_eq!(group.database.scalar::<i64>(&format!("{told} {condition}")).await, count as i64, "{condition}");
    }
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM sekali.audit").await, 4 * EACH as i64);
    let client = group.database.connect().await;
    for change in ["DELETE FROM sekali.audit", "UPDATE sekali.audit SET who = 'x'", "TRUNCATE sekali.audit"] {
        assert!(client.batch_execute(change).await.is_err(), "{change}");
    }
    let audit = sekali(group, &["audit", "--operation", "2", "-o", "ndjson"], &[]).await;
    assert_eq!(audit.stdout.lines().count(), 100, "{}", audit.stderr);
}
