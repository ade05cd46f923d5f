//! Breaks the core on purpose, one way at a time, and sees the simulation notice: `sekali-mutants`, or `MUTANT=text` for
//! those whose file or change contains a text. A mutant that survives is a missing invariant.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod list;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use list::{FILES, MUTANTS, Mutant};
use serde_json::json;

/// What a mutant needs is copied aside, so that nobody's work is touched.
const COPIED: [&str; 5] = ["Cargo.lock", "schemas", "consumer/src/core.rs", "consumer/src/core", "tests/simulation"];
const WORK: &str = "target/mutants/work";
const CORE: &str = "consumer/src/core";
/// Seconds after which a run is taken to be lost in a loop.
const PATIENCE: &str = "60";
/// Kibibytes that a run may use: a core that forgets to stop fills every memory.
const MEMORY: &str = "3000000";

/// What noticed a mutant.
enum Verdict {
    Simulation(String),
    UnitTests,
    Nothing,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, String> {
    let started = Instant::now();
    let wanted = std::env::var("MUTANT").unwrap_or_default();
    let is_wanted = |it: &&Mutant| it.file.contains(&wanted) || it.from.contains(&wanted) || it.to.contains(&wanted);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(is_wanted).collect();
    let originals = copy()?;
    build()?;
    if let Some(noticed) = simulate()? {
        return Err(format!("the simulation fails without a mutant: {noticed}"));
    }
    let (mut by_simulation, mut by_unit_tests, mut survivors) = (0, 0, Vec::new());
    for mutant in &mutants {
        let what = format!("{}: {:?} -> {:?}", mutant.file, mutant.from, mutant.to);
        match judge(mutant, &originals[mutant.file])? {
            Verdict::Simulation(how) => {
                by_simulation += 1;
                println!("killed    {what}\n          {how}");
            }
            Verdict::UnitTests => {
                by_unit_tests += 1;
                println!("killed    {what}\n          by unit tests alone");
            }
            Verdict::Nothing => {
                eprintln!("survived  {what}");
                survivors.push(what);
            }
        }
    }
    let ok = survivors.is_empty();
    let verdict = json!({
        "mutants": mutants.len(),
        "killed": by_simulation + by_unit_tests,
        "by_simulation": by_simulation,
        "by_unit_tests": by_unit_tests,
        "survived": survivors.len(),
        "survivors": survivors,
        "seconds": started.elapsed().as_secs_f64(),
        "ok": ok,
    });
    let text = format!("{verdict:#}\n");
    println!("{text}");
    std::fs::write("target/mutants/verdict.json", text).map_err(|error| format!("no verdict: {error}"))?;
    Ok(ok)
}

/// Copies the sources as they are now, and returns those that mutants change. What a mutant of an earlier run left behind
/// is newer than its original, so that they are written anew.
fn copy() -> Result<BTreeMap<&'static str, String>, String> {
    for name in COPIED {
        let into = Path::new(WORK).join(name);
        let into = into.parent().unwrap_or(Path::new(WORK));
        std::fs::create_dir_all(into).map_err(|error| format!("{}: {error}", into.display()))?;
        let copied = Command::new("cp").args(["-a", "--update", name]).arg(into).status();
        if !copied.is_ok_and(|it| it.success()) {
            return Err(format!("{name} cannot be copied to {}", into.display()));
        }
    }
    write_manifests()?;
    let mut originals = BTreeMap::new();
    for file in FILES {
        let path = Path::new(CORE).join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        write(file, &text)?;
        originals.insert(file, text);
    }
    Ok(originals)
}

/// The core needs nothing of its crate: without the clients of Kafka and PostgreSQL a mutant compiles in seconds.
fn write_manifests() -> Result<(), String> {
    let read = |name: &str| std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"));
    let manifest = read("Cargo.toml")?;
    let others = manifest.lines().filter(|it| !it.starts_with("default-members"));
    let members = r#"members = ["schemas", "consumer", "tests/simulation"]"#;
    let lines: Vec<&str> = others.map(|it| if it.starts_with("members = ") { members } else { it }).collect();
    let consumer = read("consumer/Cargo.toml")?;
    let head = consumer.split("[dependencies]").next().unwrap_or_default();
    let consumer = format!(
        "{head}[dependencies]\nsekali-schemas.workspace = true\n\n[dev-dependencies]\nproptest.workspace = true\n"
    );
    let core_alone = "//! The core alone.\n\npub mod core;\n".to_owned();
    let written =
        [("Cargo.toml", lines.join("\n")), ("consumer/Cargo.toml", consumer), ("consumer/src/lib.rs", core_alone)];
    for (name, text) in written {
        let path = Path::new(WORK).join(name);
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn write(file: &str, text: &str) -> Result<(), String> {
    let path = PathBuf::from(WORK).join(CORE).join(file);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn judge(mutant: &Mutant, text: &str) -> Result<Verdict, String> {
    if text.matches(mutant.from).count() != 1 {
        let Mutant { file, from, .. } = mutant;
        return Err(format!("{file} does not read {from:?} once: adapt the list of mutants"));
    }
    write(mutant.file, &text.replacen(mutant.from, mutant.to, 1))?;
    build()?;
    let verdict = match simulate()? {
        Some(noticed) => Verdict::Simulation(noticed),
        None if unit_tests_pass() => Verdict::Nothing,
        None => Verdict::UnitTests,
    };
    write(mutant.file, text)?;
    Ok(verdict)
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(WORK).env("CARGO_TARGET_DIR", "../target");
    command
}

/// What does not compile is no mutant.
fn build() -> Result<(), String> {
    let built = cargo().args(["build", "--quiet", "-p", "sekali-simulation", "--bin", "sekali-sim"]).output();
    let built = built.map_err(|error| format!("cargo: {error}"))?;
    if built.status.success() {
        return Ok(());
    }
    Err(format!("does not compile:\n{}", String::from_utf8_lossy(&built.stderr)))
}

/// What a short simulation noticed.
fn simulate() -> Result<Option<String>, String> {
    // In this order: most mutants show within some seeds.
    let settings = [("QUICK", "1"), ("SEEDS", "3000"), ("HOURS", "2")];
    let limited = format!("ulimit -v {MEMORY}; exec timeout {PATIENCE} ../target/debug/sekali-sim");
    let mut simulation = Command::new("sh");
    simulation.args(["-c", &limited]).envs(settings).current_dir(WORK).stdout(Stdio::null());
    let ended = simulation.output().map_err(|error| format!("the simulation does not start: {error}"))?;
    if ended.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let lines: Vec<&str> = said.lines().filter(|it| !it.trim().is_empty()).take(2).collect();
    let line = if lines.is_empty() { format!("{}", ended.status) } else { lines.join(" ") };
    Ok(Some(line.chars().take(160).collect()))
}

fn unit_tests_pass() -> bool {
    let mut tests = cargo();
    tests.args(["test", "--quiet", "-p", "sekali-consumer", "--lib", "core::"]);
    tests.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_finds_its_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(CORE);
        for Mutant { file, from, to } in MUTANTS {
            assert!(FILES.contains(file), "{file} is not written back");
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            assert_eq!(text.matches(from).count(), 1, "{file} does not read {from:?} once: adapt the list of mutants");
            assert_ne!(from, to);
        }
    }
}
