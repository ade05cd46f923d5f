//! Locks that a handler only names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sekali_consumer::lock::{LockKey, Name};
use sekali_consumer::{Effect, Failure, Handler, Lease, Message, Reply, Transaction};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};

use super::{LONG, locks, no_row_is_left, nobody_is_idle_in_transaction, take};

const EVENTS: i64 = 12;

/// Reads, waits, and writes: without a lock, two of them lose an increment.
struct Counts {
    key: fn(Name) -> LockKey,
}

fn wanted(message: &Message) -> Result<Option<Name>, Failure> {
    Ok(message.headers().text("lock").map(Name::new).transpose()?)
}

impl Handler for Counts {
    async fn handle(&self, _: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        let n: i32 = tx.query_one("SELECT n FROM account", &[]).await?.get(0);
        tokio::time::sleep(Duration::from_millis(3)).await;
        tx.execute("UPDATE account SET n = $1", &[&(n + 1)]).await?;
        Ok(Reply::done())
    }

    fn lock_key(&self, message: &Message) -> Result<Option<LockKey>, Failure> {
        Ok(wanted(message)?.map(self.key))
    }
}

/// Two groups on one database, which nothing but a lock keeps apart.
async fn two(label: &str) -> [Group; 2] {
    let group = Group::new(label, 2, |config| config.retry.delays.truncate(1)).await;
    let mut other = Group::new(&format!("{label}-too"), 2, |config| config.retry.delays.truncate(1)).await;
    other.config.postgres.url = Some(group.database.url().into());
    group.database.execute("CREATE TABLE account (n int); INSERT INTO account VALUES (0)").await;
    [group, other]
}

async fn produce(groups: &[Group; 2]) {
    for it in groups {
        let event = |n| Outgoing::new(format!("k{n}"), "{}").id(&format!("{}-{n}", it.topic)).header("lock", "account");
        it.produce((0..EVENTS).map(event)).await;
    }
}

async fn all_are_done(group: &Group) {
    let done = "SELECT count(*) FROM sekali.inbox WHERE state = 1 AND attempt = 1";
    eventually("all are done on their first attempt", LIMIT, async || match group.database.scalar::<i64>(done).await {
        n if n == 2 * EVENTS => Ok(()),
        n => Err(format!("{n} done")),
    })
    .await;
}

async fn counts(label: &str, key: fn(Name) -> LockKey) {
    let groups = two(label).await;
    let members = [groups[0].start(Counts { key }).await, groups[1].start(Counts { key }).await];
    produce(&groups).await;
    all_are_done(&groups[0]).await;
    let n: i32 = groups[0].database.scalar("SELECT n FROM account").await;
    assert_eq!(i64::from(n), 2 * EVENTS, "no increment is lost");
    for it in members {
        it.stop().await.unwrap();
    }
    no_row_is_left(&groups[0].database).await;
    nobody_is_idle_in_transaction(&groups[0].database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_lock_around_handlers_excludes_other_groups() {
    counts("around-named", LockKey::Named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_the_transaction_around_handlers_excludes_other_groups() {
    counts("around-transaction", LockKey::Transaction).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_delays_only_the_messages_that_want_it() {
    let group = Group::new("around-taken", 1, |config| config.retry.delays.truncate(1)).await;
    group.database.execute("CREATE TABLE account (n int); INSERT INTO account VALUES (0)").await;
    let elsewhere = locks(&group.database.url());
    let guard = take(&elsewhere, "account", LONG).await;
    let event = |n: i64| Outgoing::new(format!("k{n}"), "{}").id(&format!("m-{n}"));
    group.produce((0..EVENTS).map(|it| event(it).header("lock", "account"))).await;
    group.produce((EVENTS..2 * EVENTS).map(event)).await;
    // A name that cannot be one: the message's own fault.
    group.produce([event(99).header("lock", "")]).await;
    let member = group.start(Counts { key: LockKey::Named }).await;
    let done = "SELECT count(*) FROM sekali.inbox WHERE state = 1";
    eventually("the others are done", LIMIT, async || group.database.scalar::<i64>(done).await == EVENTS).await;
    eventually("one is dead", LIMIT, async || group.dead_letters().await.len() == 1).await;
    guard.release().await.unwrap();
    all_are_done(&group).await;
    member.stop().await.unwrap();
    no_row_is_left(&group.database).await;
}

/// Notes how many are at work at once.
#[derive(Clone, Default)]
struct Exclusive {
    working: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Effect for Exclusive {
    type Outcome = ();

    async fn perform(&self, _: &Message, _: &Lease) -> Result<(), Failure> {
        self.most.fetch_max(1 + self.working.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.working.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    async fn record(&self, _: &Message, (): &(), _: &Transaction<'_>) -> Result<Reply, Failure> {
        Ok(Reply::done())
    }

    fn lock_key(&self, message: &Message) -> Result<Option<Name>, Failure> {
        wanted(message)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_lock_around_effects_lets_one_perform_at_a_time() {
    let groups = two("around-effect").await;
    let effect = Exclusive::default();
    let members = [groups[0].start_effect(effect.clone()).await, groups[1].start_effect(effect.clone()).await];
    produce(&groups).await;
    all_are_done(&groups[0]).await;
    assert_eq!(effect.most.load(Ordering::SeqCst), 1);
    for it in members {
        it.stop().await.unwrap();
    }
    no_row_is_left(&groups[0].database).await;
}
