//! W8, second half: members that come, go and die under a steady load.
//!
//! A partition that stays with its member should notice nothing: its longest delay is the pause. After a kill, the time
//! counts until nothing is behind any more.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::ops::Range;
use std::time::Duration;

use anyhow::ensure;
use sekali_benchmark::load::{Load, Shape, Skus};
use sekali_benchmark::process::Process;
use sekali_benchmark::run::Run;
use sekali_benchmark::stage::{Scratch, Stage};
use sekali_benchmark::targets::{Target, number};
use sekali_benchmark::{Program, child::Child, oracle};
use tokio::time::{Instant, sleep_until};

use crate::bench::Bench;
use crate::workloads::steady::{self, Arrived, Pace};

const PARTITIONS: NonZeroU16 = NonZeroU16::new(24).unwrap();
const RATE: f64 = 3_000.0;
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
const FIRST: usize = 500;
/// Seconds: two members come, both go again, one comes, it dies, the end.
const TWO_COME: f64 = 4.0;
const TWO_GO: f64 = 14.0;
const ONE_COMES: f64 = 22.0;
const ONE_DIES: f64 = 30.0;
const END: f64 = 44.0;
/// Events later than this are behind.
const BEHIND_MS: f64 = 250.0;
const END_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let stage = bench.stage();
    let load = Load::new(Shape { skus: Skus::Uniform, ..Shape::new(FIRST + (RATE * END) as usize) });
    let topic = stage.topic(PARTITIONS).await?;
    let scratch = stage.scratch().await?;
    // Whose transaction it was.
    let sql = "ALTER TABLE public.stock_movement ADD COLUMN backend int NOT NULL DEFAULT pg_backend_pid()";
    scratch.client.batch_execute(sql).await?;
    let mut run = Run::new(Program::M1, &load, &topic, PARTITIONS);
    run.settings.session_timeout = Some(SESSION_TIMEOUT);
    let mut child = run.child(stage, &scratch)?;
    // All members are started from this: they cannot share a port.
    child.admin_port = None;
    stage.apply_topics(&child).await?;
    let played = play(stage, &scratch, &child, &topic, &load).await;
    stage.forget(&child).await?;
    let pace = played?;
    let arrived = steady::arrived(&scratch.client, &load, pace, "backend").await?;
    let wrong = oracle::check(&scratch.client, &load).await?;
    scratch.remove(stage).await?;
    ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    targets(bench, &arrived);
    Ok(())
}

/// Lets members come and go. Ends when all events took effect.
async fn play(
    stage: &Stage,
    scratch: &Scratch,
    child: &Child,
    topic: &str,
    load: &std::sync::Arc<Load>,
) -> Result<Pace, anyhow::Error> {
    let mut stays = child.spawn()?;
    steady::begin_with(stage, topic, load, FIRST, &scratch.client).await?;
    let begin = Instant::now();
    let at = async |seconds: f64| sleep_until(begin + Duration::from_secs_f64(seconds)).await;
    let (pace, sending) = steady::send(stage, topic, load, FIRST, RATE, Duration::from_millis(5))?;
    at(TWO_COME).await;
    let mut two: [Process; 2] = [child.spawn()?, child.spawn()?];
    at(TWO_GO).await;
    for it in &mut two {
        it.sigterm(END_LIMIT).await?;
    }
    at(ONE_COMES).await;
    let mut dies = child.spawn()?;
    at(ONE_DIES).await;
    dies.require_running()?;
    dies.sigkill().await?;
    sending.await??;
    steady::applied(&scratch.client, load.len()).await?;
    stays.sigterm(END_LIMIT).await?;
    Ok(pace)
}

/// Longest delay on the partitions that stayed with the first member all the time; `None` when there are none.
fn pause_ms(arrived: &[Arrived], first: &BTreeSet<i32>, window: &Range<f64>) -> Option<f64> {
    let mut partitions: BTreeMap<i32, (bool, f64)> = BTreeMap::new();
    for it in arrived.iter().filter(|it| window.contains(&it.sent)) {
        let (stayed, longest) = partitions.entry(it.partition).or_insert((true, 0.0));
        *stayed &= it.backend.is_some_and(|it| first.contains(&it));
        *longest = longest.max(it.delay_ms());
    }
    partitions.into_values().filter(|it| it.0).map(|it| it.1).reduce(f64::max)
}

fn targets(bench: &mut Bench, arrived: &[Arrived]) {
    let alone = arrived.iter().filter(|it| it.committed < TWO_COME);
    let first: BTreeSet<i32> = alone.filter_map(|it| it.backend).collect();
    for (what, window) in [
        ("two members come", TWO_COME..TWO_GO),
        ("two members go", TWO_GO..ONE_COMES),
        ("a member comes", ONE_COMES..ONE_DIES),
    ] {
        // Where members go, the first one takes all: what it has had before is what stays.
        let kept: BTreeSet<i32> = kept(arrived, &first, &window);
        let of_kept: Vec<&Arrived> = arrived.iter().filter(|it| kept.contains(&it.partition)).collect();
        let delay = of_kept.iter().filter(|it| window.contains(&it.sent)).map(|it| it.delay_ms());
        let longest = delay.reduce(f64::max).unwrap_or(f64::NAN);
        let all = arrived.iter().filter(|it| window.contains(&it.sent)).map(Arrived::delay_ms).fold(0.0, f64::max);
        let text = format!(
            "  {what}: {} partitions stay, longest delay {} ms; of all partitions {} ms",
            kept.len(),
            number(longest),
            number(all)
        );
        println!("{text}");
        bench.report.notes.push(format!("W8{text}"));
        let what = format!("{what}: longest delay in ms on a partition that stays");
        bench.report.targets.push(Target::at_most("T21", what, longest, 50.0));
    }
    let behind = arrived.iter().filter(|it| ONE_DIES - 1.0 <= it.sent && BEHIND_MS < it.delay_ms());
    let last = behind.map(|it| it.committed).fold(f64::NAN, f64::max);
    let goal = SESSION_TIMEOUT.as_secs_f64() + 2.0;
    let what = "SIGKILL to full rate in s, session timeout 6 s";
    bench.report.targets.push(Target::at_most("T21", what, last - ONE_DIES, goal));
    let stays = pause_ms(arrived, &first, &(ONE_DIES..ONE_DIES + SESSION_TIMEOUT.as_secs_f64() - 1.0));
    let what = "a member dies: longest delay in ms on a partition that stays";
    bench.report.targets.push(Target::at_most("T21", what, stays.unwrap_or(f64::NAN), 50.0));
}

/// Partitions of the first member both right before the window and all through it.
fn kept(arrived: &[Arrived], first: &BTreeSet<i32>, window: &Range<f64>) -> BTreeSet<i32> {
    let is_first = |it: &&Arrived| it.backend.is_some_and(|it| first.contains(&it));
    let before = (window.start - 1.0)..window.start;
    let of = |range: Range<f64>, ours: bool| -> BTreeSet<i32> {
        let within = arrived.iter().filter(|it| range.contains(&it.sent));
        within.filter(|it| is_first(it) == ours).map(|it| it.partition).collect()
    };
    let had = of(before, true);
    let others = of(window.clone(), false);
    had.difference(&others).copied().collect()
}
