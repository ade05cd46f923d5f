//! INF-07: tokens that run out, on clients that nobody polls and that have nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sekali_consumer::admin;
use sekali_producer::{OutboundRecord, Producer, Token};
use sekali_schemas::Headers;
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::eventually;
use sekali_tests::scripted::Scripted;
use sekali_tests::skip;

use super::kafka::Secured;
use super::{enqueue, settled};

const LIFETIME: Duration = Duration::from_secs(6);

/// A JWT without a signature, which brokers take that were not told whom to trust.
pub(super) fn unsigned(lifetime: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let exp = (now + lifetime).as_secs_f64();
    let claims = format!(r#"{{"sub":"stock","iat":{},"exp":{exp}}}"#, now.as_secs());
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
}

/// Gives out tokens, counts them, and can be out of order.
#[derive(Clone, Default)]
struct Counter {
    given: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    is_down: Arc<AtomicBool>,
}

impl sekali_producer::TokenProvider for Counter {
    fn token(&self) -> Result<Token, Box<dyn std::error::Error + Send + Sync>> {
        if self.is_down.load(Ordering::Relaxed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err("the token endpoint is down".into());
        }
        self.given.fetch_add(1, Ordering::Relaxed);
        Token::from_jwt(unsigned(LIFETIME).into())
    }
}

/// Waits until the tokens that are in use now have run out twice.
async fn two_lifetimes() {
    let begin = Instant::now();
    eventually("two lifetimes pass", LIMIT, async || 2 * LIFETIME + Duration::from_secs(1) < begin.elapsed()).await;
}

fn record(topic: &str) -> OutboundRecord {
    let (key, payload) = (Some(Bytes::from_static(b"k")), Some(Bytes::from_static(b"{}")));
    OutboundRecord { topic: topic.to_owned(), key, payload, headers: Headers::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_rarely_sends_renews_its_token() {
    let secured = match Secured::start().await {
        Ok(secured) => secured,
        Err(reason) => skip!("{reason:#}"),
    };
    let topic = secured.bench().topic("rare", 1).await;
    let tokens = Counter::default();
    let mut section = secured.login("OAUTHBEARER");
    section.set_tokens(tokens.clone());
    let producer = Producer::connect(&section).await.unwrap();
    for _ in 0..3 {
        let begin = Instant::now();
        producer.send_record(record(&topic)).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        assert!(begin.elapsed() < Duration::from_secs(2), "it had to log in first: {:?}", begin.elapsed());
        two_lifetimes().await;
    }
    assert!(5 <= tokens.given.load(Ordering::Relaxed), "{}", tokens.given.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_group_renews_its_tokens_and_an_outage_of_their_source_heals() {
    let secured = match Secured::start().await {
        Ok(secured) => secured,
        Err(reason) => skip!("{reason:#}"),
    };
    let tokens = Counter::default();
    let group = Group::on(secured.bench(), &secured.ports.login(), "idle", 2, |config| {
        let bytes = config.kafka.message_bytes_max;
        config.kafka = secured.login("OAUTHBEARER");
        config.kafka.message_bytes_max = bytes;
        config.kafka.set_tokens(tokens.clone());
    })
    .await;
    let handler = Scripted::default();
    let member = group.start(handler.clone()).await;
    enqueue(&group, &["before"], "transient=1").await;
    settled(&group, &["before"]).await;
    two_lifetimes().await;
    enqueue(&group, &["after"], "transient=1").await;
    settled(&group, &["before", "after"]).await;
    admin::lag(&group.config).await.unwrap();

    tokens.is_down.store(true, Ordering::Relaxed);
    eventually("clients ask in vain", LIMIT, async || 3 <= tokens.refused.load(Ordering::Relaxed)).await;
    two_lifetimes().await;
    let error = admin::lag(&group.config).await.unwrap_err().chain();
    assert!(error.contains("TokenProvider") && error.contains("the token endpoint is down"), "{error}");
    tokens.is_down.store(false, Ordering::Relaxed);
    enqueue(&group, &["healed"], "transient=1").await;
    settled(&group, &["before", "after", "healed"]).await;
    assert!(member.is_running() && group.dead_letters().await.is_empty());
    member.stop().await.unwrap();
}
