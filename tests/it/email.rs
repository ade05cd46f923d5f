//! The email group as its users run it: workers as processes, and a mail server that misbehaves.

mod outcomes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use sekali_consumer::IdempotencyKey;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::smtp::{MailFault, MailServer};
use sekali_tests::harness::{Outgoing, eventually};
use sekali_tests::worker::{Worker, value};
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

const LEASE_TTL: Duration = Duration::from_secs(2);
/// Mails in progress at once in one worker; as many more may wait to be written.
const AT_ONCE: usize = 16;
/// For longer than the lease, and than Kafka waits for a silent member (6 s): others take over what it had.
const PAUSE: Duration = Duration::from_secs(9);

/// A worker that sends over this address.
fn worker(group: &Group, port: u16) -> Worker {
    let more = format!("[effects]\nlease_ttl = \"{}s\"\nconcurrent_max = {AT_ONCE}", LEASE_TTL.as_secs());
    let port = port.to_string();
    let server = ["--smtp-host", "127.0.0.1", "--smtp-port", &port, "--smtp-tls", "none", "--smtp-timeout-ms", "5000"];
    let mut arguments = vec!["email", "--create-tables", "--from", "Shop <shop@example.test>"];
    arguments.extend(server);
    Worker::with_arguments(group, &group.database.url(), &more, &arguments)
}

/// A request whose key is `reminder:user-<nr>:2026-11`.
fn request(nr: usize, text: &str) -> Outgoing {
    let user = format!("user-{nr}");
    let to = format!("{user}@example.test");
    let body = json!({"email_type": "reminder", "user_id": user, "period": "2026-11", "to": to,
        "subject": "Your invoice", "text": text});
    Outgoing::new(user, body.to_string())
}

fn key(nr: usize) -> Uuid {
    IdempotencyKey::new(format!("reminder:user-{nr}:2026-11")).unwrap().uuid()
}

fn message_id(nr: usize) -> String {
    format!("<{}@example.test>", key(nr).simple())
}

/// Number of the user whom a mail is for.
fn user(recipients: &[String]) -> usize {
    let user = recipients[0].strip_suffix("@example.test").and_then(|it| it.strip_prefix("user-"));
    user.unwrap().parse().unwrap()
}

async fn count(group: &Group, from: &str) -> i64 {
    group.database.scalar(&format!("SELECT count(*) FROM {from}")).await
}

/// Keys whose leases it lost while it was alive: on a busy machine a heartbeat may come late, and then nobody knows what
/// became of the mail.
async fn ends_well(mut worker: Worker) -> BTreeSet<Uuid> {
    worker.process.sigterm();
    let status = worker.process.wait(LIMIT).await;
    let log = worker.process.stderr();
    assert!(status.success(), "{status}: {log}");
    let lost = log.lines().filter(|it| it.contains("a lease was lost"));
    let words = lost.flat_map(|it| it.split(|it: char| !it.is_ascii_hexdigit() && it != '-'));
    words.filter_map(|it| it.parse().ok()).collect()
}

/// Remembers each time that the status of a mail becomes *sent*.
const SENT_LOG: &str = "CREATE TABLE sent_log (key uuid NOT NULL); \
     CREATE FUNCTION log_sent() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN INSERT INTO public.sent_log VALUES (NEW.key); RETURN NULL; END $$; \
     CREATE TRIGGER log_sent AFTER INSERT OR UPDATE ON email_delivery FOR EACH ROW WHEN (NEW.status = 'sent') \
     EXECUTE FUNCTION log_sent()";

async fn has_partitions(worker: &Worker) {
    let assigned = async || value(&worker.metrics().await, "sekali_assigned_partitions").is_some_and(|it| 0.0 < it);
    worker.is_ready().await;
    eventually("the worker has partitions", LIMIT, assigned).await;
}

/// Until so many mails were delivered and two workers have some in progress.
async fn in_the_middle(group: &Group, server: &MailServer, delivered_min: usize) {
    eventually("two workers are in the middle", LIMIT, async || {
        let delivered = server.delivered().len();
        let workers: i64 = group.database.scalar("SELECT count(DISTINCT owner) FROM sekali.lease").await;
        let reached = delivered_min <= delivered && workers == 2;
        if reached { Ok(()) } else { Err(format!("{delivered} delivered, {workers} have leases")) }
    })
    .await;
}

/// Keys of the leases that nobody prolongs any more: what a worker had in progress when it stopped.
async fn abandoned(group: &Group) -> BTreeSet<Uuid> {
    sleep(LEASE_TTL + Duration::from_millis(500)).await;
    let rows = group.database.connect().await.query("SELECT key FROM sekali.lease WHERE until < now()", &[]).await;
    rows.unwrap().iter().map(|it| it.get(0)).collect()
}

/// The requirement of the email group. What may be sent twice is what nobody can know to have been sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_mail_comes_twice_only_when_nobody_knew_whether_it_was_sent() {
    const MAILS: usize = 2_000;
    const DROPPED_EACH: usize = 20;
    let group = Group::new("email", 4, |_| {}).await;
    sekali_worker::email::create_tables(&group.database.connect().await).await.unwrap();
    group.database.execute(SENT_LOG).await;
    let server = MailServer::start().await.unwrap();
    let seen: Mutex<HashSet<usize>> = Mutex::default();
    server.on_mail(move |mail| {
        // It takes its time, so that workers can be met in the middle.
        std::thread::sleep(Duration::from_millis(2));
        let user = user(&mail.recipients);
        let dropped = seen.lock().unwrap().insert(user) && user.is_multiple_of(DROPPED_EACH);
        dropped.then_some(MailFault::DeliverAndDrop)
    });

    let port = server.address().port();
    let (mut first, second) = (worker(&group, port), worker(&group, port));
    tokio::join!(has_partitions(&first), has_partitions(&second));
    group.produce((0..MAILS / 2).map(|it| request(it, "text"))).await;
    in_the_middle(&group, &server, 200).await;
    first.process.sigkill().await;
    let killed = abandoned(&group).await;

    let third = worker(&group, port);
    has_partitions(&third).await;
    group.settled().await;
    group.produce((MAILS / 2..MAILS).map(|it| request(it, "text"))).await;
    in_the_middle(&group, &server, MAILS / 2 + 200).await;
    second.process.sigstop();
    let stopped = tokio::join!(abandoned(&group), sleep(PAUSE)).0;
    second.process.sigcont();
    group.settled_within(2 * LIMIT).await;
    let (mut lost, by_third) = tokio::join!(ends_well(second), ends_well(third));
    lost.extend(by_third);

    for in_progress in [&killed, &stopped] {
        assert!((1..=2 * AT_ONCE).contains(&in_progress.len()), "{} were in progress", in_progress.len());
    }
    copies_are_explained(&server, MAILS, DROPPED_EACH, &[killed, stopped, lost]);
    assert_eq!(count(&group, "email_delivery WHERE status = 'sent'").await, MAILS as i64);
    assert_eq!(count(&group, "email_delivery").await, MAILS as i64);
    let log = "(count(*), count(DISTINCT key)) = ROW(2000::bigint, 2000::bigint) FROM sent_log";
    assert!(group.database.scalar::<bool>(&format!("SELECT {log}")).await, "sent is written once for each key");
    assert_eq!((count(&group, "sekali.lease").await, count(&group, "sekali.dead_letter").await), (0, 0));
}

/// Holds what the server got against what nobody knew.
fn copies_are_explained(server: &MailServer, mails: usize, dropped_each: usize, unknown: &[BTreeSet<Uuid>; 3]) {
    let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
    let mut dropped = BTreeSet::new();
    for mail in server.delivered() {
        let user = user(&mail.recipients);
        *copies.entry(user).or_default() += 1;
        assert_eq!(mail.message_id, Some(message_id(user)), "every copy has the Message-ID of its key");
        if mail.fault.is_some() {
            dropped.insert(user);
        }
    }
    assert_eq!(copies.keys().copied().collect::<Vec<_>>(), (0..mails).collect::<Vec<_>>(), "each is delivered");
    assert_eq!(dropped.len(), mails / dropped_each);
    let mut twice = 0;
    for (user, copies) in copies {
        let (key, dropped) = (key(user), dropped.contains(&user));
        let outcomes = usize::from(dropped) + unknown.iter().filter(|it| it.contains(&key)).count();
        let least = if dropped { 2 } else { 1 };
        assert!((least..=1 + outcomes).contains(&copies), "user {user}: {copies} copies, {outcomes} unknown outcomes");
        twice += usize::from(1 < copies);
    }
    assert!(twice <= mails / dropped_each + unknown.iter().map(BTreeSet::len).sum::<usize>(), "{twice}");
}
