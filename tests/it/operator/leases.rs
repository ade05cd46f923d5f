//! `sekali lock list|release`.

use std::time::Duration;

use sekali_consumer::lock::{Locks, Name};
use sekali_tests::group::Group;

use super::{Operator, audited};

#[tokio::test(flavor = "multi_thread")]
async fn the_old_holder_of_a_released_lock_is_refused_and_the_next_one_has_a_higher_fence() {
    let group = Group::new("locks", 1, |_| {}).await;
    let operator = Operator::of(&group);
    let pool = group.config.postgres.pool("test").unwrap();
    let (locks, others) = (Locks::new(pool.clone()), Locks::new(pool.clone()));
    let name = Name::new("warehouse:7").unwrap();
    let guard = locks.acquire(&name, Duration::from_secs(60), Duration::ZERO).await.unwrap();

    let (_, listed) = operator.json(&["lock", "list", "--kind", "lock"]).await;
    let fence = listed["rows"][0]["fence"].as_i64().unwrap();
    assert_eq!((&listed["rows"][0]["name"], listed["more"].as_i64()), (&"warehouse:7".into(), Some(0)), "{listed:#}");
    assert!(0.0 < listed["rows"][0]["left_seconds"].as_f64().unwrap());
    let other = (fence + 1).to_string();
    let changed = operator.run(&["lock", "release", "warehouse:7", "--fence", &other, "--reason", "test"]).await;
    assert!(changed.status == 1 && changed.stderr.contains("another one has it"), "{}", changed.stderr);

    let (status, released) = operator.json(&["lock", "release", "warehouse:7", "--reason", "its host is gone"]).await;
    assert_eq!((status, released["refused_fence"].as_i64()), (0, Some(fence)), "{released:#}");
    let mut client = group.database.connect().await;
    let tx = client.transaction().await.unwrap();
    assert!(guard.check(&tx).await.is_err(), "the old holder is refused inside its transaction");
    tx.rollback().await.unwrap();
    let next = others.acquire(&name, Duration::from_secs(60), Duration::ZERO).await.unwrap();
    let (_, listed) = operator.json(&["lock", "list", "--name", "warehouse:7"]).await;
    assert!(released["fence"].as_i64().unwrap() < listed["rows"][0]["fence"].as_i64().unwrap(), "{listed:#}");
    Operator::table(&operator.run(&["lock", "list"]).await, &["warehouse:7", "TIME LEFT"]);
    next.release().await.unwrap();
    let gone = operator.run(&["lock", "release", "warehouse:7", "--reason", "test"]).await;
    assert!(gone.status == 1 && gone.stderr.contains("nobody has a lease"), "{}", gone.stderr);
    assert_eq!(audited(&group).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_whose_lease_was_released_is_taken_over() {
    let group = Group::new("leases", 1, |_| {}).await;
    let operator = Operator::of(&group);
    let row = "INSERT INTO sekali.consumer (name) VALUES ('mail'); \
         INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
         SELECT '0198c0de-0000-7000-8000-000000000001', 1, id, 6, 1 FROM sekali.consumer WHERE name = 'mail'; \
         INSERT INTO sekali.lease SELECT id, '0198c0de-0000-7000-8000-000000000001', gen_random_uuid(), 5, \
         now() + interval '1 hour' FROM sekali.consumer WHERE name = 'mail'";
    group.database.execute(row).await;
    let key = "0198c0de-0000-7000-8000-000000000001";
    let (_, listed) = operator.json(&["lock", "list", "--kind", "effect", "--group", "mail"]).await;
    assert_eq!((&listed["rows"][0]["name"], listed["rows"][0]["fence"].as_i64()), (&key.into(), Some(5)), "{listed:#}");
    let (status, released) =
        operator.json(&["lock", "release", key, "--group", "mail", "--reason", "its pod is gone"]).await;
    assert_eq!((status, &released["kind"]), (0, &"effect".into()), "{released:#}");
    assert_eq!(group.database.scalar::<i64>("SELECT count(*) FROM sekali.lease").await, 0);
}
