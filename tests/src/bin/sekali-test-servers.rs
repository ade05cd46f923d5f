//! Starts the servers of the test suite, and stops them when the suite has ended.
//!
//! * `sekali-test-servers run COMMAND…` starts one Kafka and one PostgreSQL, runs the command with their addresses in
//!   the environment, and ends with the command's exit status.
//! * `sekali-test-servers hold kafka|postgres` starts one of them, prints its address, and stops it when its standard
//!   input ends: with the test program that started it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Instant;

use anyhow::{Context, bail};
use sekali_tests::harness::servers::{Running, Server, start};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["run", command, arguments @ ..] => run(command, arguments).await,
        ["hold", "kafka"] => hold(Server::Kafka).await,
        ["hold", "postgres"] => hold(Server::Postgres).await,
        _ => {
            eprintln!("usage: sekali-test-servers run COMMAND…, or: sekali-test-servers hold kafka|postgres");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("sekali-test-servers: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(program: &str, arguments: &[&str]) -> Result<ExitCode, anyhow::Error> {
    let (kafka, postgres) = tokio::try_join!(provide(Server::Kafka), provide(Server::Postgres))?;
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    for (server, running) in [(Server::Kafka, &kafka), (Server::Postgres, &postgres)] {
        if let Some(running) = running {
            command.env(server.variable(), &running.address);
        }
    }
    // A terminal sends Ctrl-C to the command as well; the servers must outlive it. SIGTERM comes to this process alone.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = interrupted.recv() => {}
            _ = terminated.recv() => bail!("stopped by SIGTERM"),
        }
    };
    Ok(ExitCode::from(code(status)))
}

/// Starts a server unless the environment names one.
async fn provide(server: Server) -> Result<Option<Running>, anyhow::Error> {
    if server.given().is_some() {
        eprintln!("{server}: the one that {} names", server.variable());
        return Ok(None);
    }
    let begin = Instant::now();
    let running = start(server).await.with_context(|| format!("cannot start {server}"))?;
    eprintln!("{server}: {} ({:.1} s)", running.origin, begin.elapsed().as_secs_f32());
    Ok(Some(running))
}

async fn hold(server: Server) -> Result<ExitCode, anyhow::Error> {
    let running = start(server).await.with_context(|| format!("cannot start {server}"))?;
    println!("{}", running.address);
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    drop(running);
    Ok(ExitCode::SUCCESS)
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|it| 128 + it)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
