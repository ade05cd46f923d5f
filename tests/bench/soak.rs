//! W11: a long time under a steady load with failures. Memory stays flat, and the oracle is content in the end.

use std::time::{Duration, Instant};

use anyhow::Context;
use sekali_benchmark::load::{Load, Shape};
use sekali_benchmark::run::{Run, wait_until_drained};
use sekali_benchmark::{Fault, Program, machine, oracle};
use sekali_tests::harness::target_dir;
use serde_json::json;

use crate::PARTITIONS;
use crate::servers::Servers;
use crate::workloads::steady;

/// Events a second.
const RATE: f64 = 2_000.0;
/// Share of the time after which caches and buffers have their size.
const WARM: f64 = 0.3;
/// Largest growth of resident memory from then on.
const GROWTH_MAX: f64 = 0.05;
const END_LIMIT: Duration = Duration::from_secs(120);

/// Runs for so long. Whether memory was flat and the oracle content.
pub(crate) async fn soak(duration: Duration) -> Result<bool, anyhow::Error> {
    let servers = Servers::start().await?;
    let stage = &servers.stage;
    let records = (RATE * duration.as_secs_f64()) as usize;
    let load = Load::new(Shape { fault: Some((Fault::Sql, 1)), ..Shape::new(records) });
    let topic = stage.topic(PARTITIONS).await?;
    let scratch = stage.scratch().await?;
    let child = Run::new(Program::M1, &load, &topic, PARTITIONS).child(stage, &scratch)?;
    stage.apply_topics(&child).await?;
    let mut process = child.spawn()?;
    let (begin, mut samples) = (Instant::now(), Vec::new());
    let (_, sending) = steady::send(stage, &topic, &load, 0, RATE, Duration::from_millis(5))?;
    while !sending.is_finished() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        process.require_running()?;
        samples.push(machine::rss_mb(process.pid())?);
    }
    sending.await??;
    wait_until_drained(&scratch.client, &mut process, load.expected()).await?;
    process.sigterm(END_LIMIT).await?;
    let wrong = oracle::check(&scratch.client, &load).await?;
    let warm = &samples[(samples.len() as f64 * WARM) as usize..];
    let tenth = (warm.len() / 10).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&warm[..tenth]), mean(&warm[warm.len() - tenth..]));
    let growth = last / first - 1.0;
    let ok = growth < GROWTH_MAX && wrong.is_none();
    let (seconds, dead) = (begin.elapsed().as_secs(), load.expected().1);
    println!(
        "{records} events in {seconds} s, {dead} of them dead: resident memory {first:.1} MB, in the end {last:.1} MB \
         ({:+.1} %); {}",
        growth * 100.0,
        wrong.as_deref().unwrap_or("oracle ok"),
    );
    let path = target_dir().join("bench").join("soak.json");
    std::fs::create_dir_all(target_dir().join("bench"))?;
    let verdict = json!({"events": records, "seconds": seconds, "dead": dead, "rss_mb_warm": first, "rss_mb_end": last,
        "growth": growth, "oracle_ok": wrong.is_none(), "ok": ok});
    std::fs::write(&path, serde_json::to_string_pretty(&verdict)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(ok)
}
