//! What becomes of one mail.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::smtp::{MailFault, MailServer, RecipientFault};
use sekali_tests::harness::{Outgoing, eventually};
use tokio::time::sleep;

use super::{count, ends_well, message_id, request, user, worker};

/// Users of the mails that were delivered.
fn users(server: &MailServer) -> Vec<usize> {
    let mut users: Vec<usize> = server.delivered().iter().map(|it| user(&it.recipients)).collect();
    users.sort_unstable();
    users
}

/// Status and attempts of the mail of a user.
async fn delivery(group: &Group, nr: usize) -> String {
    let sql = "SELECT coalesce(string_agg(status || ' ' || attempts, ','), 'none') FROM email_delivery";
    group.database.scalar(&format!("{sql} WHERE user_id = 'user-{nr}'")).await
}

async fn last_words(group: &Group) -> String {
    let sql = "SELECT coalesce(string_agg(class || ' ' || code || ' ' || message, ', ' ORDER BY class), '') \
         FROM sekali.dead_letter";
    group.database.scalar(sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_for_good_is_a_dead_letter_and_one_for_now_is_tried_again() {
    let group = Group::new("email-refused", 2, |_| {}).await;
    let server = MailServer::start().await.unwrap();
    server.on_recipient(|it| (it == "user-1@example.test").then_some(RecipientFault::Refuse(550)));
    let (refused, stalled) = (AtomicBool::new(false), AtomicBool::new(false));
    server.on_mail(move |mail| match user(&mail.recipients) {
        2 if !refused.swap(true, Ordering::Relaxed) => Some(MailFault::Refuse(451)),
        3 => Some(MailFault::Refuse(554)),
        4 if !stalled.swap(true, Ordering::Relaxed) => Some(MailFault::DeliverAndStall),
        _ => None,
    });
    let worker = worker(&group, server.address().port());
    group.produce((0..5).map(|it| request(it, "text"))).await;
    worker.is_ready().await;
    group.settled().await;
    assert_eq!(users(&server), [0, 2, 4, 4], "a mail whose answer did not come is sent again");
    let ids: Vec<_> = server.delivered().into_iter().map(|it| (user(&it.recipients), it.message_id)).collect();
    assert!(ids.iter().all(|(user, id)| *id == Some(message_id(*user))), "{ids:?}");
    for (nr, expected) in ["sent 1", "failed 1", "sent 2", "failed 1", "sent 2"].into_iter().enumerate() {
        assert_eq!(delivery(&group, nr).await, expected, "user {nr}");
    }
    let words = last_words(&group).await;
    let expected = "permanent 550 the mail server refused the mail with 550, \
         permanent 554 the mail server refused the mail with 554";
    assert_eq!(words.split(", ").collect::<std::collections::BTreeSet<_>>(), expected.split(", ").collect());
    let log = worker.process.stderr();
    assert!(!log.contains("example.test"), "no address in the log: {log}");
    ends_well(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_is_asked_for_again_is_sent_once_also_when_the_inbox_has_forgotten() {
    let group = Group::new("email-again", 2, |_| {}).await;
    let server = MailServer::start().await.unwrap();
    let worker = worker(&group, server.address().port());
    group.produce([request(1, "text"), request(1, "text").id("another"), Outgoing::new("user-1", "no mail")]).await;
    worker.is_ready().await;
    group.settled().await;
    group.produce([request(1, "text"), request(1, "another text")]).await;
    group.settled().await;
    assert_eq!(users(&server), [1]);
    let dead: Vec<_> = group.dead_letters().await.into_iter().map(|it| (it.0, it.2)).collect();
    let expected = [("-", "invalid"), ("reminder:user-1:2026-11", "key_reuse")];
    assert_eq!(dead, expected.map(|it| (it.0.to_owned(), it.1.to_owned())));

    group.database.execute("DELETE FROM sekali.inbox").await;
    group.produce([request(1, "text"), request(2, "text")]).await;
    group.settled().await;
    assert_eq!(users(&server), [1, 2], "the first one was sent before");
    assert_eq!(count(&group, "sekali.inbox WHERE state = 1").await, 2);
    assert_eq!((delivery(&group, 1).await, delivery(&group, 2).await), ("sent 1".to_owned(), "sent 1".to_owned()));
    ends_well(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_that_is_away_burns_no_attempt() {
    let group = Group::new("email-away", 2, |_| {}).await;
    let nobody = sekali::private_postgres::free_port().unwrap();
    let lost = worker(&group, nobody);
    group.produce((0..20).map(|it| request(it, "text"))).await;
    eventually("it has noticed", LIMIT, async || lost.process.stderr().contains("cannot be used")).await;
    // Longer than it would take to use up all attempts.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(count(&group, "email_delivery").await, 0, "nothing was begun");
    assert_eq!(count(&group, "sekali.inbox WHERE state IN (2, 4)").await, 0, "nothing is retried, nothing is dead");
    let log = lost.process.stderr();
    assert_eq!(log.matches("cannot be used").count(), 1, "one line is enough: {log}");
    ends_well(lost).await;

    let server = MailServer::start().await.unwrap();
    let worker = worker(&group, server.address().port());
    group.settled().await;
    assert_eq!(users(&server), (0..20).collect::<Vec<_>>());
    assert_eq!(count(&group, "email_delivery WHERE status = 'sent' AND attempts = 1").await, 20);
    assert_eq!((count(&group, "sekali.lease").await, count(&group, "sekali.dead_letter").await), (0, 0));
    ends_well(worker).await;
}
