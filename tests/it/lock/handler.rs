//! A handler that takes locks.

use std::time::Duration;

use sekali_consumer::lock::{self, LockError, Locks, Name};
use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};

use super::{LONG, locks, name, no_row_is_left, nobody_is_idle_in_transaction, take};

/// Takes the lock that its message names. The guard is dropped before the transaction ends.
struct Locked {
    locks: Locks,
}

impl Handler for Locked {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let name = Name::new(message.headers().text("lock").unwrap_or_default())?;
        let guard = self.locks.try_acquire(&name, LONG).await?.ok_or(LockError::Contended)?;
        guard.check(tx).await?;
        lock::advisory(tx, &name).await?;
        let read = "SELECT n FROM account";
        let n: i32 = tx.query_one(read, &[]).await?.get(0);
        guard.run(tokio::time::sleep(Duration::from_millis(2))).await?;
        tx.execute("UPDATE account SET n = $1", &[&(n + 1)]).await?;
        Ok(Reply::done())
    }
}

/// Two groups, so that nothing but the lock keeps them apart. Without it, one would read what the other has not committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_two_groups_exclude_each_other_and_contention_burns_no_attempt() {
    const EVENTS: i64 = 8;
    let group = Group::new("locked", 2, |config| config.consumer.executors = 1.try_into().unwrap()).await;
    let mut other = Group::new("locked-too", 2, |config| config.consumer.executors = 1.try_into().unwrap()).await;
    other.config.postgres.url = Some(group.database.url().into());
    group.database.execute("CREATE TABLE account (n int); INSERT INTO account VALUES (0)").await;
    let elsewhere = locks(&group.database.url());
    let guard = take(&elsewhere, "account", LONG).await;
    let members = [
        group.start(Locked { locks: locks(&group.database.url()) }).await,
        other.start(Locked { locks: locks(&group.database.url()) }).await,
    ];
    for it in [&group, &other] {
        let event = |n| Outgoing::new(format!("k{n}"), "{}").id(&format!("{}-{n}", it.topic)).header("lock", "account");
        it.produce((0..EVENTS).map(event)).await;
    }
    let waiting = "SELECT count(*) FROM sekali.inbox WHERE state = 2 AND attempt = 1";
    eventually("some have met the lock", LIMIT, async || group.database.scalar::<i64>(waiting).await > 0).await;
    assert_eq!(group.database.scalar::<i32>("SELECT n FROM account").await, 0);
    guard.release().await.unwrap();
    let done = "SELECT count(*) FROM sekali.inbox WHERE state = 1 AND attempt = 1";
    eventually("all are done", LIMIT, async || match group.database.scalar::<i64>(done).await {
        n if n == 2 * EVENTS => Ok(()),
        n => Err(format!("{n} done")),
    })
    .await;
    assert_eq!(i64::from(group.database.scalar::<i32>("SELECT n FROM account").await), 2 * EVENTS);
    // The text of a message that never becomes a name.
    group.produce([Outgoing::new("k", "{}").id("nameless")]).await;
    eventually("it is dead", LIMIT, async || group.dead_letters().await.len() == 1).await;
    assert_eq!(group.dead_letters().await[0].2, "permanent");
    for it in members {
        it.stop().await.unwrap();
    }
    no_row_is_left(&group.database).await;
    nobody_is_idle_in_transaction(&group.database).await;
    assert!(elsewhere.try_acquire(&name("account"), LONG).await.unwrap().is_some());
}
