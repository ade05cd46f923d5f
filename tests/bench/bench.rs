//! All workloads, one after another, into one report.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use sekali_benchmark::Program;
use sekali_benchmark::load::Load;
use sekali_benchmark::produce::fill;
use sekali_benchmark::report::Report;
use sekali_benchmark::run::{Measured, Run};
use sekali_benchmark::stage::Stage;
use sekali_benchmark::targets::number;
use sekali_tests::harness::target_dir;
use serde_json::json;

use crate::PARTITIONS;
use crate::options::Options;
use crate::servers::{Servers, fsync_us};
use crate::workloads;

pub(crate) struct Bench {
    pub(crate) servers: Servers,
    pub(crate) options: Options,
    pub(crate) report: Report,
}

impl Bench {
    pub(crate) async fn start(options: Options) -> Result<Bench, anyhow::Error> {
        Ok(Bench { servers: Servers::start().await?, options, report: Report::default() })
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.servers.stage
    }

    /// Runs what is asked for. Whether every oracle is content and every target reached.
    pub(crate) async fn run(mut self) -> Result<bool, anyhow::Error> {
        let begin = Instant::now();
        self.report.fsync_us.push(fsync_us()?);
        self.warm_up().await.context("warm-up")?;
        for (name, title) in workloads::ALL.into_iter().filter(|it| self.options.wants(it.0)).collect::<Vec<_>>() {
            println!("{name}: {title}");
            Box::pin(workloads::run(name, &mut self)).await.with_context(|| format!("workload {name}"))?;
        }
        self.report.fsync_us.push(fsync_us()?);
        let seconds = begin.elapsed().as_secs();
        self.report.extra.insert("events".to_owned(), json!(self.options.events));
        self.report.extra.insert("seconds".to_owned(), json!(seconds));
        let path = target_dir().join("bench").join("results.json");
        self.report.write(&path)?;
        println!("\n{}results: {} ({seconds} s)", self.report.text(), path.display());
        Ok(self.report.ok())
    }

    /// The first run pays for a cold broker and cold caches, and is thrown away.
    async fn warm_up(&mut self) -> Result<(), anyhow::Error> {
        let load = Load::new(sekali_benchmark::load::Shape::new(self.options.events.min(50_000)));
        let topic = self.topic(&load, PARTITIONS).await?;
        Run::new(Program::P1x, &load, &topic, PARTITIONS).once(self.stage()).await?;
        self.stage().delete_topics(&[&topic]).await
    }

    /// Creates a topic and fills it.
    pub(crate) async fn topic(&self, load: &Arc<Load>, partitions: NonZeroU16) -> Result<String, anyhow::Error> {
        let topic = self.stage().topic(partitions).await?;
        fill(&self.stage().config.kafka, &topic, load.records()).await?;
        Ok(topic)
    }

    /// One run, again while somebody disturbs it.
    pub(crate) async fn measure(&mut self, case: &str, run: &Run<'_>) -> Result<Measured, anyhow::Error> {
        let result = run.quietly(self.stage()).await;
        let (measured, disturbed) = result.with_context(|| format!("{} {case}", run.program.name()))?;
        self.report.disturbed += disturbed;
        say(case, run.program, &measured);
        Ok(measured)
    }
}

pub(crate) fn say(case: &str, program: Program, measured: &Measured) {
    println!(
        "  {case} {}: {} events/s, CPU {} us, PostgreSQL {} us an event{}",
        program.name(),
        number(measured.events_per_second),
        number(measured.own_cpu_us_per_event),
        measured.postgres_cpu_us_per_event.map(number).unwrap_or_default(),
        measured.wrong.as_deref().map(|it| format!("; WRONG: {it}")).unwrap_or_default(),
    );
}
