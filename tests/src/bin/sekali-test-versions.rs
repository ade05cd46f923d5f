//! `make test-versions`: the integration tests on every supported version of PostgreSQL and Kafka, one after another.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use sekali::private_postgres::BINARIES_VARIABLE;
use sekali_tests::harness::servers::{CONTAINERS_VARIABLE, Server, fetch_kafka, fetch_postgres};
use sekali_tests::harness::versions::{KAFKA, KAFKA_BESIDE, KAFKA_VARIABLE, POSTGRES_BINARIES};
use sekali_tests::harness::{program, skips_file, target_dir, workspace_root};
use serde_json::Value;

const USAGE: &str = "usage: sekali-test-versions [--only TEXT] [-- ARGUMENTS-OF-THE-TESTS…]";

/// One run of the tests.
#[derive(Debug, Clone, Copy)]
struct Pair {
    postgres: &'static str,
    kafka: &'static str,
}

/// What came of it.
enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl Pair {
    /// Every PostgreSQL with the usual Kafka, and every other Kafka with the newest PostgreSQL.
    fn all() -> Vec<Pair> {
        let newest = POSTGRES_BINARIES[POSTGRES_BINARIES.len() - 1];
        let of_postgres = POSTGRES_BINARIES.map(|postgres| Pair { postgres, kafka: *KAFKA });
        let of_kafka = KAFKA_BESIDE.map(|kafka| Pair { postgres: newest, kafka });
        [&of_postgres[..], &of_kafka[..]].concat()
    }

    fn test(self, tests: &Path, arguments: &[String]) -> Outcome {
        let fetched = fetch_kafka(self.kafka).and_then(|()| fetch_postgres(self.postgres));
        match fetched {
            Err(reason) => Outcome::Skipped(format!("{reason:#}")),
            Ok(binaries) => {
                self.run(tests, &binaries, arguments).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
            }
        }
    }

    fn run(self, tests: &Path, binaries: &Path, arguments: &[String]) -> Result<Outcome, anyhow::Error> {
        let begin = Instant::now();
        let log = self.log();
        std::fs::create_dir_all(log.parent().context("the log lies in a directory")?)?;
        let output = File::create(&log)?;
        let _none = std::fs::remove_file(skips_file());
        let status = Command::new(program("sekali-test-servers"))
            .arg("run")
            .arg(tests)
            .args(arguments)
            .env(KAFKA_VARIABLE, self.kafka)
            .env(BINARIES_VARIABLE, binaries)
            .env(CONTAINERS_VARIABLE, "never")
            .env_remove(Server::Kafka.variable())
            .env_remove(Server::Postgres.variable())
            .current_dir(workspace_root().join("tests"))
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()
            .context("cannot run sekali-test-servers")?;
        let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        let seconds = begin.elapsed().as_secs();
        let skipped = std::fs::read_to_string(skips_file()).map_or(0, |it| it.lines().count());
        let result = text.lines().rev().find_map(|it| it.strip_prefix("test result: "));
        let counts = format!("{}; {skipped} skipped inside; {seconds} s", result.unwrap_or("no result"));
        if status.success() && result.is_some() {
            return Ok(Outcome::Passed(counts));
        }
        let failed: Vec<&str> =
            text.lines().filter_map(|it| it.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
        Ok(Outcome::Failed(format!("{counts}; {}; see {}", failed.join(", "), log.display())))
    }

    fn log(self) -> PathBuf {
        target_dir().join(format!("versions/postgres-{}-kafka-{}.log", self.postgres, self.kafka))
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL {:8} Kafka {}", self.postgres, self.kafka)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed(text) => write!(f, "passed   {text}"),
            Outcome::Failed(text) => write!(f, "FAILED   {text}"),
            Outcome::Skipped(reason) => write!(f, "SKIPPED  {reason}"),
        }
    }
}

/// Builds the program of the integration tests, once for all pairs, and returns its path.
fn integration_tests() -> Result<PathBuf, anyhow::Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // The whole workspace, though one crate alone has this test: with other features everything is compiled anew.
    build.args(["test", "--workspace", "--test", "it", "--no-run", "--message-format", "json"]);
    let output = build.current_dir(workspace_root()).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the integration tests do not compile");
    let messages = output.stdout.split(|it| *it == b'\n').filter_map(|it| serde_json::from_slice::<Value>(it).ok());
    let program = |it: Value| Some(PathBuf::from(it["executable"].as_str().filter(|_| it["target"]["name"] == "it")?));
    messages.filter_map(program).next_back().context("cargo names no program of the integration tests")
}

fn main() -> ExitCode {
    match versions(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Whether every pair passed; outside of CI a skipped one is only said aloud.
fn versions(mut arguments: impl Iterator<Item = String>) -> Result<bool, anyhow::Error> {
    let mut only = String::new();
    let mut of_tests = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only = arguments.next().context("--only needs a part of a line, such as \"Kafka 4.1\"")?,
            "--" => of_tests.extend(arguments.by_ref()),
            _ => bail!("unknown argument {argument}"),
        }
    }
    let pairs: Vec<Pair> = Pair::all().into_iter().filter(|it| it.to_string().contains(&only)).collect();
    if pairs.is_empty() {
        bail!("no pair of versions has \"{only}\" in its line");
    }
    let tests = integration_tests()?;
    let outcomes: Vec<(Pair, Outcome)> = pairs
        .into_iter()
        .map(|pair| {
            eprintln!("testing {pair}");
            let outcome = pair.test(&tests, &of_tests);
            eprintln!("{outcome}");
            (pair, outcome)
        })
        .collect();
    println!();
    for (pair, outcome) in &outcomes {
        println!("{pair}  {outcome}");
    }
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|it| wanted(&it.1)).count();
    let failed = count(|it| matches!(it, Outcome::Failed(_)));
    let skipped = count(|it| matches!(it, Outcome::Skipped(_)));
    println!("{} pairs of versions, {failed} failed, {skipped} skipped", outcomes.len());
    let is_ci = std::env::var("CI").as_deref() == Ok("true");
    Ok(failed == 0 && (skipped == 0 || !is_ci))
}
