//! Who is alive, and who may be given work.

use std::time::Duration;

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::worker::Worker;

/// K8S-01: neither rebalances nor having no partition nor a long wait is a reason to be killed.
#[tokio::test(flavor = "multi_thread")]
async fn rebalances_and_idling_make_nobody_dead() {
    let group = Group::new("alive", 1, |_| {}).await;
    let url = group.database.url();
    let mut first = Worker::start(&group, &url).await;
    for round in 0..3 {
        // Ready, though there is no partition for it.
        let mut second = Worker::start(&group, &url).await;
        for it in 0..10 {
            let id = format!("m-{round}-{it}");
            group.produce([Outgoing::new("s", "{\"sku\":\"s\",\"delta\":1}").id(&id)]).await;
            for worker in [&first, &second] {
                assert_eq!(worker.get("/livez").await.unwrap().0, 200);
                assert_eq!(worker.get("/readyz").await.unwrap().0, 200);
            }
        }
        second.process.sigterm();
        assert!(second.process.wait(LIMIT).await.success());
    }
    eventually("all of them are handled", Duration::from_secs(20), async || {
        group.database.scalar::<i64>("SELECT count(*) FROM stock_movement").await == 30
    })
    .await;
    assert!(first.process.is_running());
    // A handler that is at it for long: the row it needs is locked.
    let mut lock = group.database.connect().await;
    let lock = lock.transaction().await.unwrap();
    lock.batch_execute("SELECT FROM stock WHERE sku = 's' FOR UPDATE").await.unwrap();
    group.produce([Outgoing::new("s", "{\"sku\":\"s\",\"delta\":1}").id("long")]).await;
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("the handler waits", LIMIT, async || group.database.scalar::<i64>(waiting).await == 1).await;
    for _ in 0..20 {
        assert_eq!(first.get("/livez").await.unwrap().0, 200);
        assert_eq!(first.get("/readyz").await.unwrap().0, 200);
    }
    lock.rollback().await.unwrap();
    group.settled().await;
    first.process.sigterm();
    assert!(first.process.wait(LIMIT).await.success());
}
