//! What the kernel says about processes and the machine. Linux alone: elsewhere there is no `/proc`.

use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

/// `USER_HZ`: the kernel counts CPU time for user space in hundredths of a second on every architecture Rust knows.
const TICK: Duration = Duration::from_millis(10);

/// User and system time of a process since its start.
///
/// # Errors
/// It has ended.
pub fn cpu(pid: u32) -> Result<Duration, anyhow::Error> {
    Ok(Stat::of(&pid.to_string()).context("the process has ended")?.own)
}

/// CPU time of a process, its present children and its ended ones.
///
/// # Errors
/// It has ended.
pub fn family_cpu(parent: u32) -> Result<Duration, anyhow::Error> {
    let stat = Stat::of(&parent.to_string()).context("the server has ended")?;
    let mut total = stat.own + stat.ended_children;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let child = entry.file_name().to_str().and_then(Stat::of);
        if let Some(child) = child.filter(|it| it.parent == parent) {
            total += child.own;
        }
    }
    Ok(total)
}

/// Largest resident set of a process so far, in MiB.
///
/// # Errors
/// It has ended.
pub fn peak_rss_mb(pid: i32) -> Result<f64, anyhow::Error> {
    status_mb(pid, "VmHWM:")
}

/// Resident memory now, in MiB.
///
/// # Errors
/// It has ended.
pub fn rss_mb(pid: i32) -> Result<f64, anyhow::Error> {
    status_mb(pid, "VmRSS:")
}

fn status_mb(pid: i32, name: &str) -> Result<f64, anyhow::Error> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|it| it.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} in the process's status"))?;
    let kb: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb / 1024.0)
}

/// The machine at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    at: Instant,
    busy: Duration,
    own: Duration,
}

impl Moment {
    /// Now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn now() -> Result<Moment, anyhow::Error> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        let ticks: Vec<u32> = line.split_whitespace().skip(1).filter_map(|it| it.parse().ok()).collect();
        // proc(5): user, nice, system, and what the host took. Interrupts are nobody's.
        let at = |index: usize| ticks.get(index).copied().unwrap_or_default();
        let busy = TICK * (at(0) + at(1) + at(2) + at(7));
        Ok(Moment { at: Instant::now(), busy, own: cpu(std::process::id())? })
    }

    /// Cores that somebody else used since an earlier moment: neither this process nor those whose time is given.
    pub fn others_since(&self, before: &Moment, known: Duration) -> f64 {
        let busy = self.busy.saturating_sub(before.busy);
        let known = known + self.own.saturating_sub(before.own);
        busy.saturating_sub(known).as_secs_f64() / (self.at - before.at).as_secs_f64()
    }
}

struct Stat {
    parent: u32,
    own: Duration,
    ended_children: Duration,
}

impl Stat {
    fn of(pid: &str) -> Option<Stat> {
        pid.parse::<u32>().ok()?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold spaces.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        // proc(5): field 3 is the first one here.
        let field = |number: usize| fields.get(number - 3)?.parse::<u32>().ok();
        let ticks = |number: usize| Some(TICK * (field(number)? + field(number + 1)?));
        Some(Stat { parent: field(4)?, own: ticks(14)?, ended_children: ticks(16)? })
    }
}
