//! Effects outside the database.

mod provider;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sekali_consumer::{Effect, Failure, Lease, Message, Reply, Transaction};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::performing::{Calling, attempts, calls};
use sekali_tests::scripted::SCRIPT;
use tokio::sync::{Notify, Semaphore};

fn scripted(key: &str, id: &str, script: &str) -> Outgoing {
    Outgoing::new(key.to_owned(), "{}").id(id).header(SCRIPT, script.to_owned())
}

/// A group with short leases.
async fn group(label: &str, partitions: i32) -> Group {
    Group::new(label, partitions, |config| {
        config.effects.lease_ttl = Duration::from_secs(2);
        config.effects.perform_timeout = Duration::from_secs(5);
    })
    .await
}

async fn leases(group: &Group) -> i64 {
    group.database.scalar("SELECT count(*) FROM sekali.lease").await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_ends_where_it_should() {
    let group = group("effect-outcomes", 2).await;
    let cases: [(&str, &str, &[i32]); 9] = [
        ("ok", "ok", &[1]),
        ("transient", "transient=1", &[1, 2]),
        ("exhausted", "transient", &[1, 2, 3]),
        ("permanent", "permanent", &[1]),
        ("panic", "panic=1", &[1, 2]),
        ("hang", "hang=1", &[1, 2]),
        // Contention burns no attempt.
        ("contended", "contended=2", &[1, 1, 1]),
        ("unrecorded", "unrecorded=1", &[1, 2]),
        ("swallow", "swallow=1", &[1, 2]),
    ];
    group.produce(cases.iter().map(|(id, script, _)| scripted(id, id, script))).await;
    group.produce((0..50).map(|it| scripted(&format!("good-{it}"), &format!("good-{it}"), "ok"))).await;
    for _restart in 0..2 {
        let member = group.start_effect(Calling::new(&group).await).await;
        group.settled().await;
        member.stop().await.unwrap();
    }
    let performed = attempts(&group).await;
    for (id, _, expected) in cases {
        assert_eq!(performed[id], expected, "{id}");
    }
    assert!((0..50).all(|it| performed[&format!("good-{it}")] == [1]), "{performed:?}");
    let effects = group.effects().await;
    assert_eq!((effects.len(), effects.values().all(|it| *it == 1)), (57, true), "{effects:?}");
    let dead: Vec<_> = group.dead_letters().await.into_iter().map(|it| (it.0, it.1)).collect();
    let expected = [("exhausted", "exhausted"), ("permanent", "permanent")];
    assert_eq!(dead, expected.map(|it| (it.0.to_owned(), it.1.to_owned())));
    assert_eq!(leases(&group).await, 0);
    let stored = "SELECT count(*) FROM sekali.inbox WHERE state = 1 AND result ? 'call'";
    assert_eq!(group.database.scalar::<i64>(stored).await, 57);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_key_keep_their_order_through_failures_and_a_restart() {
    const KEYS: usize = 20;
    const EACH: usize = 30;
    let group = group("effect-order", 3).await;
    let script = |key: usize, place: usize| match (key + place) % 23 {
        0 => "transient=1",
        1 => "slow=20",
        _ => "ok",
    };
    let record = |it: usize| {
        let (key, place) = (it % KEYS, it / KEYS);
        scripted(&format!("key-{key}"), &format!("key-{key}:{place}"), script(key, place))
    };
    group.produce((0..KEYS * EACH).map(record)).await;
    let member = group.start_effect(Calling::new(&group).await).await;
    eventually("some are done", LIMIT, async || 100 < group.effects().await.len()).await;
    let second = group.start_effect(Calling::new(&group).await).await;
    member.stop().await.unwrap();
    group.settled().await;
    second.stop().await.unwrap();
    let expected: BTreeMap<String, Vec<i64>> =
        (0..KEYS).map(|it| (format!("key-{it}"), (0..EACH as i64).collect())).collect();
    assert_eq!(group.order().await, expected, "in the order in which they were recorded");
    let mut first_calls: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for call in calls(&group).await {
        let (key, place) = call.key.split_once(':').unwrap();
        let (places, place) = (first_calls.entry(key.to_owned()).or_default(), place.parse().unwrap());
        if places.last() != Some(&place) {
            places.push(place);
        }
    }
    assert_eq!(first_calls, expected, "in the order in which they were performed");
    assert_eq!(leases(&group).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_position_is_the_lowest_undecided_offset() {
    let group = group("effect-position", 1).await;
    group.produce([scripted("slow", "slow", "slow=4000")]).await;
    group.produce((0..200).map(|it| scripted(&format!("k-{it}"), &format!("m-{it}"), "ok"))).await;
    let member = group.start_effect(Calling::new(&group).await).await;
    eventually("the others are done", LIMIT, async || group.effects().await.len() == 200).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let committed = group.kafka.committed_offsets(group.name(), &group.topic).await;
    assert_eq!(committed.get(&0).copied().unwrap_or_default(), 0, "nothing passes the first one");
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(group.kafka.committed_offsets(group.name(), &group.topic).await[&0], 201);
}

/// How many a second is measured by `sekali-bench --effects`.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_keys_as_allowed_are_performed_at_once_and_a_slow_one_slows_nobody() {
    const KEYS: usize = 64;
    const EACH: usize = 20;
    let group = Group::new("effect-many", 1, |_| {}).await;
    let mut records = vec![scripted("slow", "slow", "slow")];
    let others = KEYS - 1;
    records.extend((0..others * EACH).map(|it| scripted(&format!("k-{}", it % others), &format!("m-{it}"), "ok")));
    group.produce(records).await;
    let meeting = Meeting { others, ..Meeting::default() };
    let member = group.start_effect(meeting.clone()).await;
    eventually("all others are done beside the slow one", LIMIT, async || match meeting.done.load(Ordering::SeqCst) {
        it if it == others * EACH => Ok(()),
        it => Err(format!("{it} done")),
    })
    .await;
    meeting.all_done.add_permits(1);
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(meeting.done.load(Ordering::SeqCst), others * EACH + 1, "nothing is performed twice");
}

/// The first messages wait for each other, and the slow one for all of the others.
#[derive(Clone)]
struct Meeting {
    others: usize,
    here: Arc<AtomicUsize>,
    all_here: Arc<Notify>,
    done: Arc<AtomicUsize>,
    all_done: Arc<Semaphore>,
}

impl Default for Meeting {
    fn default() -> Meeting {
        Meeting {
            others: 0,
            here: Arc::default(),
            all_here: Arc::default(),
            done: Arc::default(),
            all_done: Arc::new(Semaphore::new(0)),
        }
    }
}

impl Effect for Meeting {
    type Outcome = ();

    async fn perform(&self, message: &Message, _: &Lease) -> Result<(), Failure> {
        if message.headers().text(SCRIPT) == Some("slow") {
            drop(self.all_done.acquire().await?);
        } else {
            let all_here = self.all_here.notified();
            if self.here.fetch_add(1, Ordering::SeqCst) + 1 == self.others {
                self.all_here.notify_waiters();
            } else if self.here.load(Ordering::SeqCst) < self.others {
                all_here.await;
            }
        }
        self.done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn record(&self, _: &Message, (): &(), _: &Transaction<'_>) -> Result<Reply, Failure> {
        Ok(Reply::done())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stood_still_for_longer_than_its_lease_ends_nothing() {
    let group = group("effect-takeover", 1).await;
    Calling::new(&group).await;
    group.produce([scripted("k", "stopped", "slow=1000"), scripted("k", "next", "ok")]).await;
    let first = group.start_effect_process();
    eventually("it is performed", LIMIT, async || !calls(&group).await.is_empty()).await;
    first.sigstop();
    let member = group.start_effect(Calling::new(&group).await).await;
    group.settled_within(2 * LIMIT).await;
    // It wakes up and finds that its time has run out, before it ends what it began.
    first.sigcont();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let found = calls(&group).await;
    let fences: Vec<i64> = found.iter().filter(|it| it.key == "stopped").map(|it| it.fence).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{found:?}");
    assert!(found.iter().all(|it| it.attempt == 1), "no attempt is burned: {found:?}");
    assert_eq!(group.effects().await, [("stopped".to_owned(), 1), ("next".to_owned(), 1)].into());
    let results = "SELECT (result ->> 'call')::bigint FROM sekali.inbox ORDER BY decided_at LIMIT 1";
    assert_eq!(group.database.scalar::<i64>(results).await, 2, "the outcome is the second one's");
    member.stop().await.unwrap();
    assert_eq!(leases(&group).await, 0);
}

/// LCK-03.
#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_comes_after_its_lease_was_taken_over_is_refused() {
    const TAKE_OVER: &str = "UPDATE sekali.lease SET owner = gen_random_uuid(), fence = nextval('sekali.fence'), \
         until = clock_timestamp() + interval '5 s'";
    // Heartbeats, which would tell, come every five seconds.
    let group = Group::new("effect-fenced", 1, |config| config.effects.lease_ttl = Duration::from_secs(15)).await;
    group.produce([scripted("k", "late", "slow=1500"), scripted("k", "next", "ok")]).await;
    let member = group.start_effect(Calling::new(&group).await).await;
    eventually("it is performed", LIMIT, async || !calls(&group).await.is_empty()).await;
    group.database.execute(TAKE_OVER).await;
    eventually("it has ended", LIMIT, async || calls(&group).await.iter().any(|it| it.ended)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(group.effects().await.len(), 0, "the outcome is refused");
    group.settled().await;
    member.stop().await.unwrap();
    let performed: Vec<(String, i32)> = calls(&group).await.into_iter().map(|it| (it.key, it.attempt)).collect();
    let expected = [("late", 1), ("late", 1), ("next", 1)];
    assert_eq!(performed, expected.map(|it| (it.0.to_owned(), it.1)), "again, when the other one's lease ran out");
    assert_eq!(group.effects().await, [("late".to_owned(), 1), ("next".to_owned(), 1)].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_had_in_progress_is_performed_again_after_its_lease() {
    let group = group("effect-kill", 2).await;
    Calling::new(&group).await;
    let records = (0..60).map(|it| scripted(&format!("k-{}", it % 12), &format!("m-{it}"), "slow=150"));
    group.produce(records).await;
    let mut first = group.start_effect_process();
    eventually("some are done", LIMIT, async || 12 < group.effects().await.len()).await;
    first.sigkill().await;
    let in_progress = leases(&group).await as usize;
    assert!(0 < in_progress, "it died in the middle");
    let member = group.start_effect(Calling::new(&group).await).await;
    group.settled_within(2 * LIMIT).await;
    member.stop().await.unwrap();
    let effects = group.effects().await;
    const STATES: &str = "SELECT coalesce(string_agg(state || ' ' || attempt || ' x ' || count, ', '), '') FROM \
        (SELECT state, attempt, count(*) FROM sekali.inbox GROUP BY 1, 2) AS it";
    const DEAD: &str = "SELECT coalesce(string_agg(key_text || ' ' || class || ' ' || code || ' ' || message, ', '), '') \
        FROM sekali.dead_letter";
    let states = (group.database.scalar::<String>(STATES).await, group.database.scalar::<String>(DEAD).await);
    assert_eq!((effects.len(), effects.values().all(|it| *it == 1)), (60, true), "{states:?} {effects:?}");
    let performed = attempts(&group).await;
    let again = performed.values().filter(|it| 1 < it.len()).count();
    assert!(again <= in_progress, "only what was in progress is performed again: {again} of {in_progress}");
    assert!(performed.values().flatten().all(|it| *it == 1), "no attempt is burned: {performed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_waits_for_effects_in_progress_and_begins_none() {
    let group = group("effect-stop", 1).await;
    let records = (0..100).map(|it| scripted(&format!("k-{it}"), &format!("m-{it}"), "slow=500"));
    group.produce(records).await;
    let member = group.start_effect(Calling::new(&group).await).await;
    eventually("they are performed", LIMIT, async || 10 < calls(&group).await.len()).await;
    member.stop().await.unwrap();
    let found = calls(&group).await;
    assert!(found.iter().all(|it| it.ended), "nothing is cut off");
    assert_eq!(group.effects().await.len(), found.len(), "what was performed is recorded");
    assert_eq!(leases(&group).await, 0);
    let member = group.start_effect(Calling::new(&group).await).await;
    group.settled().await;
    member.stop().await.unwrap();
    assert_eq!(calls(&group).await.len(), 100, "nothing is performed twice");
}
