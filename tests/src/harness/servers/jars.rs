//! Kafka's jars, resolved by Maven into a cache, and the Java that runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail, ensure};

use crate::harness::paths::{target_dir, workspace_root};
use crate::harness::versions;

const OLDEST_JAVA: u32 = 17;

/// What a broker is started from.
#[derive(Debug, Clone)]
pub(crate) struct Runnable {
    /// The `java` program.
    pub(crate) java: PathBuf,
    /// Directory of the jars.
    pub(crate) jars: PathBuf,
}

/// Kafka's jars of the version that this run uses.
pub(crate) fn kafka_jars() -> Result<Runnable, anyhow::Error> {
    kafka_jars_of(&versions::kafka())
}

/// Finds Java, and Kafka's jars in `target/kafka/<version>/jars`; Maven fetches them the first time.
pub(super) fn kafka_jars_of(version: &str) -> Result<Runnable, anyhow::Error> {
    let java = java()?;
    let cache = target_dir().join("kafka").join(version);
    let jars = cache.join("jars");
    if !jars.is_dir() {
        super::say(&format!("fetching Apache Kafka {version} with Maven into {}", jars.display()));
        std::fs::create_dir_all(&cache)?;
        // Complete or not there at all: a fetch that is cut short must not pass for a cache.
        let fetched = tempfile::tempdir_in(&cache)?;
        let directory = fetched.path().join("jars");
        let pom = workspace_root().join("tests/kafka/pom.xml");
        maven(&[
            "-f".as_ref(),
            pom.as_ref(),
            "dependency:copy-dependencies".as_ref(),
            "-DincludeScope=runtime".as_ref(),
            format!("-Dkafka.version={version}").as_ref(),
            format!("-DoutputDirectory={}", directory.display()).as_ref(),
        ])?;
        match std::fs::rename(&directory, &jars) {
            // Another test program was faster.
            Err(_) if jars.is_dir() => {}
            outcome => outcome?,
        }
    }
    Ok(Runnable { java, jars })
}

/// Runs Maven quietly.
pub(super) fn maven(arguments: &[&Path]) -> Result<(), anyhow::Error> {
    let mut command = Command::new("mvn");
    command.args(["-q", "-B"]).args(arguments).stdin(Stdio::null());
    let output = command.output().context("cannot run mvn; install maven (Debian, Ubuntu: apt-get install maven)")?;
    ensure!(output.status.success(), "mvn failed: {}", last_line(&output));
    Ok(())
}

fn java() -> Result<PathBuf, anyhow::Error> {
    let home = std::env::var_os("JAVA_HOME").map(|it| Path::new(&it).join("bin/java"));
    let java = home.filter(|it| it.is_file()).unwrap_or_else(|| PathBuf::from("java"));
    let remedy = "install Java 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)";
    let output = Command::new(&java).arg("-version").output().with_context(|| format!("cannot run java; {remedy}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    match major_version(&text) {
        Some(major) if major >= OLDEST_JAVA => Ok(java),
        Some(major) => bail!("java is version {major}; {remedy}"),
        None => bail!("java -version cannot be read; {remedy}"),
    }
}

/// Of `openjdk version "17.0.15" 2025-04-15`; the versions before 9 call themselves 1.8.
fn major_version(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("version \"")?;
    let first = rest.split(['.', '"', '-', '+']).next()?;
    first.parse().ok()
}

fn last_line(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().find(|it| it.contains("ERROR")).or(text.lines().last()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::major_version;

    #[test]
    fn reads_old_and_new_version_lines() {
        let cases = [
            ("openjdk version \"17.0.15\" 2025-04-15", Some(17)),
            ("java version \"1.8.0_392\"", Some(1)),
            ("openjdk version \"25\" 2025-09-16", Some(25)),
            ("openjdk version \"22-ea\" 2024-03-19", Some(22)),
            ("nothing of the kind", None),
        ];
        for (text, expected) in cases {
            assert_eq!(major_version(text), expected, "{text}");
        }
    }
}
