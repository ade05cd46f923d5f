//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use sekali_benchmark::Program;

pub(crate) const USAGE: &str = "usage: sekali-bench [--quick] [--only W3]... [--programs M1,P1x] [--events N] [--rounds N] \
     [--large] [--data FILE] [--effects] [--relay-size] [--soak SECONDS] [--crash] [--compare BASELINE]";

/// Real events, if they are there: JSON lines, plain or packed with gzip.
const DATA_VARIABLE: &str = "SEKALI_BENCH_DATA";

/// What to measure.
pub(crate) struct Options {
    /// Records of a fast program's run.
    pub(crate) events: usize,
    /// Pairs.
    pub(crate) rounds: usize,
    /// Less of everything, for two minutes.
    pub(crate) quick: bool,
    /// Also what takes long: an inbox of ten million rows, 96 partitions.
    pub(crate) large: bool,
    /// Workloads, by name; all when empty.
    pub(crate) only: Vec<String>,
    /// Programs of W1; all when empty.
    pub(crate) programs: Vec<Program>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) instead: Option<Instead>,
}

/// What to do instead of the workloads.
pub(crate) enum Instead {
    /// Measure how many effects outside the database are performed.
    Effects,
    /// Watch the size of the outbox.
    RelaySize,
    /// Run under a steady load for so long, and look at memory.
    Soak(Duration),
    /// Kill everything at every point of a message's life.
    Crash,
    /// Compare the last results with recorded ones.
    Compare(PathBuf),
}

impl Options {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, anyhow::Error> {
        let data = std::env::var_os(DATA_VARIABLE).map(PathBuf::from);
        let mut options = Options {
            events: 200_000,
            rounds: 5,
            quick: false,
            large: false,
            only: Vec::new(),
            programs: Vec::new(),
            data: data.filter(|it| it.is_file()),
            instead: None,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => options = Options { events: 60_000, rounds: 1, quick: true, ..options },
                "--large" => options.large = true,
                "--only" => options.only.push(workload(&value()?)?),
                "--programs" => options.programs = programs(&value()?)?,
                "--events" => options.events = number(&argument, &value()?)?,
                "--rounds" => options.rounds = number(&argument, &value()?)?,
                "--data" => options.data = Some(value()?.into()),
                "--effects" => options.instead = Some(Instead::Effects),
                "--relay-size" => options.instead = Some(Instead::RelaySize),
                "--soak" => {
                    let seconds = number(&argument, &value()?)?;
                    options.instead = Some(Instead::Soak(Duration::from_secs(seconds as u64)));
                }
                "--crash" => options.instead = Some(Instead::Crash),
                "--compare" => options.instead = Some(Instead::Compare(value()?.into())),
                _ => bail!("unknown argument {argument}"),
            }
        }
        Ok(options)
    }

    /// Whether a workload is asked for.
    pub(crate) fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|it| it == workload)
    }

    /// Pairs of a workload that needs no more than so many.
    pub(crate) fn rounds_at_most(&self, most: usize) -> usize {
        self.rounds.min(most)
    }
}

fn number(argument: &str, value: &str) -> Result<usize, anyhow::Error> {
    let number = value.parse().ok().filter(|it| 0 < *it);
    number.with_context(|| format!("{argument} {value}: not a number above zero"))
}

fn workload(name: &str) -> Result<String, anyhow::Error> {
    let number: Option<u32> = name.strip_prefix('W').and_then(|it| it.parse().ok());
    match number.filter(|it| (1..=10).contains(it)) {
        Some(_) => Ok(name.to_owned()),
        None => bail!("--only {name}: there are W1 to W10; --soak is W11, --crash is W12"),
    }
}

fn programs(names: &str) -> Result<Vec<Program>, anyhow::Error> {
    let all = Program::ALL.map(Program::name).join(", ");
    let named = |it: &str| Program::named(it).with_context(|| format!("--programs {it}: there are {all}"));
    names.split(',').map(named).collect()
}
