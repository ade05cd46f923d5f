//! How many effects are performed where each takes a while: beside what the limit allows, and with one key that is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use sekali_consumer::admin::topics;
use sekali_consumer::{Config, Consumer, Effect, Failure, Lease, Message, Reply, Transaction};
use sekali_tests::harness::{Outgoing, TestDatabase, eventually, target_dir, unique};
use serde_json::json;
use tokio::sync::oneshot;

use crate::servers::Servers;

const KEYS: usize = 64;
/// Of each key.
const MESSAGES: usize = 300;
const CALL: Duration = Duration::from_millis(20);
const SLOW_CALL: Duration = Duration::from_secs(2);
/// Of one key, beside the others.
const SLOW_MESSAGES: usize = 2;
/// Share of the limit's rate that is to be reached.
const GOAL: f64 = 0.80;
/// Limits beside the slow key's own place. With as many places as keys nothing is performed while a key's outcome is
/// written and its next message leased: that shows what a cycle costs, and has no goal.
const LIMITS: [(usize, Option<f64>); 2] = [(KEYS / 2, Some(GOAL)), (KEYS, None)];
const LIMIT: Duration = Duration::from_secs(120);

/// Takes its time, and counts.
struct Calls {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Effect for Calls {
    type Outcome = ();

    async fn perform(&self, message: &Message, _: &Lease) -> Result<(), Failure> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let slow = message.idempotency_key().as_str().starts_with("slow");
        tokio::time::sleep(if slow { SLOW_CALL } else { CALL }).await;
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn record(&self, _: &Message, (): &(), _: &Transaction<'_>) -> Result<Reply, Failure> {
        Ok(Reply::done())
    }
}

/// Whether the goal was reached and the oracle is content.
pub(crate) async fn bench() -> Result<bool, anyhow::Error> {
    let servers = Servers::start().await?;
    let (mut ok, mut results) = (true, Vec::new());
    for (limit, goal) in LIMITS {
        let (rate, oracle_ok) = run(&servers, limit).await?;
        let value = rate / (limit as f64 / CALL.as_secs_f64());
        let reached = goal.is_none_or(|it| it <= value) && oracle_ok;
        ok &= reached;
        let verdict = match goal {
            Some(goal) => format!(", goal {goal:.2}: {}", if reached { "ok" } else { "MISSED" }),
            None => String::new(),
        };
        println!("{rate:.0} effects a second on {KEYS} keys, {value:.2} of what {limit} at once allow{verdict}");
        results.push(json!({"at_once": limit, "effects_per_second": rate, "share_of_limit": value, "goal": goal,
            "oracle_ok": oracle_ok, "ok": reached}));
    }
    let path = target_dir().join("bench").join("effects.json");
    std::fs::create_dir_all(target_dir().join("bench"))?;
    let verdict = json!({"keys": KEYS, "results": results, "ok": ok});
    std::fs::write(&path, serde_json::to_string_pretty(&verdict)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(ok)
}

/// Effects a second, and whether the oracle is content.
async fn run(servers: &Servers, limit: usize) -> Result<(f64, bool), anyhow::Error> {
    let topic = servers.kafka().topic("effects", 1).await;
    let database = TestDatabase::create_on(&servers.postgres()).await;
    let (brokers, url, group) = (servers.kafka().bootstrap().to_owned(), database.url(), unique("effects"));
    let config = Config::from_toml(&format!(
        "[kafka]\nbrokers = \"{brokers}\"\n[postgres]\nurl = \"{url}\"\n[consumer]\ngroup = \"{group}\"\n\
         topics = [\"{topic}\"]\n[admin]\nlisten = \"none\"\n[effects]\nconcurrent_max = {}\n",
        limit + 1
    ))?;
    topics::apply(&config).await?;
    // The slow key's first message is in progress all the time: nobody waits for it.
    let slow = (0..SLOW_MESSAGES).map(|it| ("slow".to_owned(), format!("slow-{it}")));
    let others = (0..KEYS * MESSAGES).map(|it| (format!("k-{}", it % KEYS), format!("m-{it}")));
    servers.kafka().produce(&topic, slow.chain(others).map(|(key, id)| Outgoing::new(key, "{}").id(&id))).await;

    let calls = Calls { begun: Arc::default(), ended: Arc::default() };
    let (begun, ended) = (calls.begun.clone(), calls.ended.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(Consumer::connect_effect(config, calls).await?.run(async {
        let _dropped = stopped.await;
    }));
    let all = KEYS * MESSAGES;
    let reached = async |count: usize| {
        eventually("so many have ended", LIMIT, async || count <= ended.load(Ordering::Relaxed)).await;
    };
    reached(all / 10).await;
    let (before, started) = (ended.load(Ordering::Relaxed), Instant::now());
    reached(all * 9 / 10).await;
    let rate = (ended.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64();
    let client = database.connect().await;
    const WRITTEN: &str =
        "SELECT (SELECT count(*) FROM sekali.inbox WHERE state = 1), (SELECT count(*) FROM sekali.lease)";
    let total = all + SLOW_MESSAGES;
    eventually("all are recorded", LIMIT, async || {
        let row = client.query_one(WRITTEN, &[]).await.expect("the tables are there");
        let found: (i64, i64) = (row.get(0), row.get(1));
        if found == (total as i64, 0) { Ok(()) } else { Err(format!("{found:?} of {total}")) }
    })
    .await;
    let _gone = stop.send(());
    running.await?.context("the consumer ended")?;
    let oracle_ok = begun.load(Ordering::Relaxed) == total && ended.load(Ordering::Relaxed) == total;
    Ok((rate, oracle_ok))
}
