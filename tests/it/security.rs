//! Servers that talk to nobody who does not show who he is, and to everybody in private.

mod kafka;
mod postgres;
mod tokens;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sekali_producer::{OutboundRecord, outbox};
use sekali_schemas::{Header, Headers};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::{SCRIPT, Scripted};

/// No refusal takes longer than this.
const REFUSED_WITHIN: Duration = Duration::from_secs(20);

/// Records are enqueued, published by a member's relay, fail once, run again, and end in the ledger: over whatever the
/// group's configuration says.
async fn whole_way(group: &Group) {
    let member = group.start(Scripted::default()).await;
    enqueue(group, &["a", "b", "c"], "transient=1").await;
    settled(group, &["a", "b", "c"]).await;
    assert_eq!(group.dead_letters().await, []);
    member.stop().await.unwrap();
}

/// Waits until these and no other records have taken effect, once each. In this order: what is still in the outbox is not
/// seen by a look at the topics.
async fn settled(group: &Group, ids: &[&str]) {
    eventually("every record takes effect", LIMIT, async || ids.len() <= group.effects().await.len()).await;
    group.settled().await;
    assert_eq!(group.effects().await, ids.iter().map(|it| ((*it).to_owned(), 1)).collect());
}

/// Puts records for the group into its outbox.
async fn enqueue(group: &Group, ids: &[&str], script: &str) {
    let pool = group.config.postgres.pool("security test").unwrap();
    let mut client = pool.get().await.unwrap();
    let tx = client.transaction().await.unwrap();
    for id in ids {
        let headers: Headers = [("idempotency-key", *id), (SCRIPT, script)]
            .into_iter()
            .map(|(name, value)| Header { name, value: Some(value.as_bytes()) })
            .collect();
        let record = OutboundRecord {
            topic: group.topic.clone(),
            key: Some(Bytes::copy_from_slice(id.as_bytes())),
            payload: Some(Bytes::from_static(b"{}")),
            headers,
        };
        outbox::enqueue(&tx, record).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Notes when an attempt began, and checks what came of it.
struct Refusal(Instant);

impl Refusal {
    fn begin() -> Refusal {
        Refusal(Instant::now())
    }

    /// The attempt failed in time, with a text that says what to do and no secret.
    fn is(&self, what: &str, error: &str, said: &[&str], secrets: &[&str]) {
        assert!(self.0.elapsed() < REFUSED_WITHIN, "{what} took {:?}", self.0.elapsed());
        for said in said {
            assert!(error.contains(said), "{what}: \"{said}\" is not in: {error}");
        }
        for secret in secrets {
            assert!(!error.contains(secret), "{what} shows a secret: {error}");
        }
    }
}
