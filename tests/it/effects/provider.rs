//! Effects over HTTP, at a provider that misbehaves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use sekali_consumer::{Effect, Failure, Lease, Message, Reply, Transaction};
use sekali_tests::group::Group;
use sekali_tests::harness::Outgoing;
use sekali_tests::harness::http_provider::{CallFault, HttpProvider};

const TIMEOUT: Duration = Duration::from_secs(1);
/// What goes wrong with the first requests of a message, how many there are, and the attempt that succeeds in the end.
const CASES: [(&str, &str, usize, Option<i32>); 7] = [
    ("ok", "", 1, Some(1)),
    ("unavailable", "503", 2, Some(2)),
    // Asked to come later: no attempt.
    ("too-many", "429 429", 3, Some(1)),
    // Done, but nobody knows: the next attempt carries the same key.
    ("silent", "act-and-stall", 2, Some(2)),
    ("gateway", "act-and-502", 2, Some(2)),
    ("away", "stall stall", 3, Some(3)),
    ("bad", "400 400", 1, None),
];

/// Posts the payload with the idempotency key, as a team would.
struct Posting {
    agent: ureq::Agent,
    url: String,
}

impl Posting {
    fn to(url: String) -> Posting {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT)).build();
        Posting { agent: config.into(), url }
    }
}

impl Effect for Posting {
    type Outcome = String;

    async fn perform(&self, message: &Message, _: &Lease) -> Result<String, Failure> {
        let (agent, url) = (self.agent.clone(), self.url.clone());
        let key = message.idempotency_key().as_str().to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            let mut answer = agent.post(&url).header("idempotency-key", key).send("{}")?;
            Ok::<_, ureq::Error>((answer.status().as_u16(), answer.body_mut().read_to_string()?))
        });
        match asked.await?? {
            (200..300, reference) => Ok(reference),
            (429, _) => Err(Failure::contended("asked to come later")),
            (status @ 500.., _) => Err(Failure::transient(format!("status {status}"))),
            (status, _) => Err(Failure::permanent(format!("status {status}"))),
        }
    }

    async fn record(&self, _: &Message, reference: &String, _: &Transaction<'_>) -> Result<Reply, Failure> {
        Ok(Reply::stored(serde_json::from_str(reference)?))
    }
}

fn fault(word: &str) -> Option<CallFault> {
    match word {
        "429" => Some(CallFault::TooMany(Duration::from_secs(1))),
        "stall" => Some(CallFault::Stall),
        "act-and-stall" => Some(CallFault::ActAndStall),
        "act-and-502" => Some(CallFault::ActAndRefuse(502)),
        status => status.parse().ok().map(CallFault::Refuse),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_provider_answers_each_key_is_acted_on_once() {
    const EACH: usize = 10;
    let provider = HttpProvider::start().await.unwrap();
    let asked: Mutex<BTreeMap<String, usize>> = Mutex::default();
    provider.on_call(move |call| {
        let key = call.idempotency_key.clone().unwrap_or_default();
        let kind = key.rsplit_once(':').map_or("", |it| it.0);
        let faults = CASES.iter().find(|it| it.0 == kind).map_or("", |it| it.1);
        let mut asked = asked.lock().unwrap();
        let before = asked.entry(key.clone()).or_default();
        *before += 1;
        faults.split(' ').nth(*before - 1).and_then(fault)
    });
    let group = Group::new("effect-http", 2, |config| {
        config.effects.perform_timeout = 5 * TIMEOUT;
    })
    .await;
    let record = |it: usize| {
        let id = format!("{}:{}", CASES[it % CASES.len()].0, it / CASES.len());
        Outgoing::new(id.clone(), "{}").id(&id)
    };
    group.produce((0..EACH * CASES.len()).map(record)).await;
    let member = group.start_effect(Posting::to(provider.url())).await;
    group.settled().await;
    member.stop().await.unwrap();

    let mut calls: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for call in provider.calls() {
        calls.entry(call.idempotency_key.clone().unwrap()).or_default().push(call.is_acted_on());
    }
    let sql = "SELECT attempt::int, result ->> 'reference' FROM sekali.inbox WHERE key = $1 AND state = 1";
    let client = group.database.connect().await;
    let mut references = std::collections::BTreeSet::new();
    for (kind, _, expected_calls, attempt) in CASES {
        for it in 0..EACH {
            let id = format!("{kind}:{it}");
            assert_eq!(calls[&id].len(), expected_calls, "{id}");
            let key = sekali_schemas::IdempotencyKey::new(id.clone()).unwrap().uuid();
            let row = client.query_opt(sql, &[&key]).await.unwrap();
            assert_eq!(row.as_ref().map(|it| it.get::<_, i32>(0)), attempt, "{id}");
            if let Some(row) = row {
                assert!(calls[&id].last() == Some(&true), "{id}");
                references.insert(row.get::<_, String>(1));
            }
        }
    }
    assert_eq!(references.len(), EACH * (CASES.len() - 1), "every key has a reference of its own");
    let dead = group.dead_letters().await;
    assert!(dead.len() == EACH && dead.iter().all(|it| it.0.starts_with("bad:") && it.1 == "permanent"), "{dead:?}");
}
