//! What failing events cost: the product on loads of which a share fails, beside itself on one of which none does.

use anyhow::Context;
use sekali_tests::harness::target_dir;
use serde_json::{Value, json};

use crate::PARTITIONS;
use crate::child::Program;
use crate::load::{Fault, Load};
use crate::run;
use crate::servers::Servers;

/// Kind, failing events in a thousand, and the share of the clean rate that is to be reached.
const CASES: [(Fault, u64, f64); 5] = [
    (Fault::Reject, 10, 0.95),
    (Fault::Reject, 100, 0.80),
    (Fault::Sql, 1, 0.75),
    (Fault::Sql, 10, 0.45),
    (Fault::Sql, 100, 0.20),
];

/// Runs every case beside a clean run, in turns. Whether every oracle is content and every goal reached.
pub(crate) async fn bench(events: usize, rounds: usize) -> Result<bool, anyhow::Error> {
    let servers = Servers::start().await?;
    let mut loads = vec![(Load::new(events, None), servers.kafka().topic("bench", PARTITIONS).await)];
    for (fault, share, _) in CASES {
        loads.push((Load::new(events, Some((fault, share))), servers.kafka().topic("bench", PARTITIONS).await));
    }
    for (load, topic) in &loads {
        servers.kafka().produce(topic, load.records()).await;
    }
    let (clean, topic) = &loads[0];
    run::run(Program::Product, &servers, clean, topic).await.context("warm-up")?;
    let mut ratios = vec![Vec::new(); CASES.len()];
    let mut oracle_ok = true;
    for _ in 0..rounds {
        let base = run::run(Program::Product, &servers, clean, topic).await?;
        for (case, (load, topic)) in loads[1..].iter().enumerate() {
            let measured = run::run(Program::Product, &servers, load, topic).await?;
            oracle_ok &= base.wrong.is_none() && measured.wrong.is_none();
            ratios[case].push(measured.events_per_second / base.events_per_second);
        }
    }
    let mut targets = serde_json::Map::new();
    let mut ok = oracle_ok;
    for ((fault, share, goal), mut ratios) in CASES.into_iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        let value = ratios[ratios.len() / 2];
        let (reached, percent) = (goal <= value, share as f64 / 10.0);
        println!(
            "{} {percent} %: {value:.2} of the clean rate, goal {goal:.2}: {}",
            fault.name(),
            if reached { "ok" } else { "MISSED" }
        );
        let target: Value = json!({"value": value, "goal": goal, "ok": reached});
        targets.insert(format!("T11_{}_{percent}", fault.name()), target);
        ok &= reached;
    }
    let path = target_dir().join("bench").join("failures.json");
    std::fs::create_dir_all(target_dir().join("bench"))?;
    let text = serde_json::to_string_pretty(&json!({"events": events, "targets": targets, "oracle_ok": oracle_ok}))?;
    std::fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    println!("results: {}", path.display());
    Ok(ok)
}
