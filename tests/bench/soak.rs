//! Ten minutes under a steady load with failures: memory stays flat, and the oracle is content in the end.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sekali::private_postgres::free_port;
use sekali_consumer::admin::topics;
use sekali_tests::harness::{TestDatabase, eventually, target_dir, unique};
use sekali_worker::stock::create_tables;
use serde_json::json;

use crate::child::{Child, Program};
use crate::load::{Fault, Load};
use crate::servers::Servers;
use crate::{PARTITIONS, measure, oracle};

/// Events a second.
const RATE: usize = 2_000;
/// Share of the time after which caches and buffers have their size.
const WARM: f64 = 0.3;
/// Largest growth of resident memory from then on.
const GROWTH_MAX: f64 = 0.05;
const END_LIMIT: Duration = Duration::from_secs(120);

/// Runs for so long. Whether memory was flat and the oracle content.
pub(crate) async fn soak(duration: Duration) -> Result<bool, anyhow::Error> {
    let servers = Servers::start().await?;
    let load = Load::new(RATE * duration.as_secs() as usize, Some((Fault::Sql, 1)));
    let topic = servers.kafka().topic("soak", PARTITIONS).await;
    let database = TestDatabase::create_on(&servers.postgres()).await;
    let client = database.connect().await;
    create_tables(&client).await?;
    let child = Child {
        program: Program::Product,
        brokers: servers.kafka().bootstrap().to_owned(),
        postgres: database.url(),
        topic: topic.clone(),
        group: unique("soak"),
        admin_port: free_port()?,
    };
    topics::apply(&child.config()?).await?;
    let mut process = child.spawn()?;
    let (begin, mut samples) = (Instant::now(), Vec::new());
    let mut records = load.records();
    loop {
        let part: Vec<_> = records.by_ref().take(RATE).collect();
        if part.is_empty() {
            break;
        }
        servers.kafka().produce(&topic, part).await;
        ensure!(process.is_running(), "the program ended: {}", process.stderr());
        let second = samples.len() as u64 + 1;
        samples.push(measure::rss_mb(process.pid())?);
        tokio::time::sleep(Duration::from_secs(second).saturating_sub(begin.elapsed())).await;
    }
    let (good, dead) = load.expected();
    let sql = "SELECT (SELECT coalesce(sum(version), 0)::bigint FROM public.stock), (SELECT count(*) FROM sekali.dead_letter)";
    eventually("everything is decided", END_LIMIT, async || {
        let row = client.query_one(sql, &[]).await.expect("the tables are there");
        let found: (i64, i64) = (row.get(0), row.get(1));
        if found == (good as i64, dead as i64) { Ok(()) } else { Err(format!("{found:?} of {good} and {dead}")) }
    })
    .await;
    process.sigterm();
    ensure!(process.wait(END_LIMIT).await.success(), "the program failed: {}", process.stderr());
    let wrong = oracle::check(&client, &load).await?;
    let warm = &samples[(samples.len() as f64 * WARM) as usize..];
    let tenth = (warm.len() / 10).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&warm[..tenth]), mean(&warm[warm.len() - tenth..]));
    let growth = last / first - 1.0;
    let ok = growth < GROWTH_MAX && wrong.is_none();
    println!(
        "{} events in {} s, {dead} of them dead: resident memory {first:.1} MB, in the end {last:.1} MB ({:+.1} %); {}",
        load.events().len(),
        begin.elapsed().as_secs(),
        growth * 100.0,
        wrong.as_deref().unwrap_or("oracle ok"),
    );
    let path = target_dir().join("bench").join("soak.json");
    std::fs::create_dir_all(target_dir().join("bench"))?;
    let verdict = json!({"events": load.events().len(), "seconds": begin.elapsed().as_secs(), "dead": dead,
        "rss_mb_warm": first, "rss_mb_end": last, "growth": growth, "oracle_ok": wrong.is_none(), "ok": ok});
    std::fs::write(&path, serde_json::to_string_pretty(&verdict)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(ok)
}
