//! A program of the workspace as a process that a test can watch, freeze and kill.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::eventually::eventually;
use super::kafka::unique;
use super::paths::{program, target_dir};
use super::servers::say;

/// Lines of a failed test's processes to show.
const SHOWN_LINES: usize = 20;

/// What to run. Inherits the environment, apart from `SEKALI_*`, which would change the program's configuration.
pub struct Program {
    name: String,
    command: Command,
}

/// A running program; killed when dropped. Its output goes into files, which a failing test shows and keeps.
pub struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Program {
    /// A binary of the workspace, such as `sekali` or `sekali-worker`.
    ///
    /// # Panics
    /// It has not been built.
    pub fn of_workspace(name: &str) -> Program {
        Program::at(&program(name))
    }

    /// Any program.
    ///
    /// # Panics
    /// The path has no file name.
    pub fn at(path: &Path) -> Program {
        let name = path.file_name().expect("a program has a file name").to_string_lossy().into_owned();
        let mut command = Command::new(path);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("SEKALI_") {
                command.env_remove(variable);
            }
        }
        Program { name, command }
    }

    /// Appends an argument.
    pub fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Program {
        self.command.arg(argument);
        self
    }

    /// Appends arguments.
    pub fn args<A: AsRef<std::ffi::OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Program {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Program {
        self.command.env(name, value);
        self
    }

    /// Starts it with an empty standard input.
    ///
    /// # Panics
    /// It cannot be run.
    pub fn spawn(mut self) -> Process {
        let dir = target_dir().join("test-logs");
        std::fs::create_dir_all(&dir).expect("the target directory can be written");
        let id = unique(&self.name);
        let (stdout, stderr) = (dir.join(format!("{id}.out")), dir.join(format!("{id}.err")));
        let file = |path: &Path| Stdio::from(File::create(path).expect("the target directory can be written"));
        self.command.stdin(Stdio::null()).stdout(file(&stdout)).stderr(file(&stderr)).kill_on_drop(true);
        let child = self.command.spawn().unwrap_or_else(|error| panic!("cannot run {}: {error}", self.name));
        Process { name: self.name, child, stdout, stderr }
    }
}

impl Process {
    /// Process id.
    ///
    /// # Panics
    /// It has ended and was waited for.
    pub fn pid(&self) -> i32 {
        self.child.id().and_then(|it| it.try_into().ok()).unwrap_or_else(|| panic!("{} has ended", self.name))
    }

    /// Standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// Standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// The system cannot tell.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be asked for its state").is_none()
    }

    /// Kills it as a crash would, and waits until it is gone.
    ///
    /// # Panics
    /// It has ended before.
    pub async fn sigkill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait(Duration::from_secs(10)).await;
    }

    /// Asks it to end.
    ///
    /// # Panics
    /// It has ended before.
    pub fn sigterm(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Interrupts it, as ctrl-c does.
    ///
    /// # Panics
    /// It has ended before.
    pub fn signal_interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Freezes it.
    ///
    /// # Panics
    /// It has ended before.
    pub fn sigstop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Thaws it.
    ///
    /// # Panics
    /// It has ended before.
    pub fn sigcont(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends any signal.
    ///
    /// # Panics
    /// It has ended before.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap_or_else(|error| panic!("{signal} to {}: {error}", self.name));
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It still runs after `timeout`.
    pub async fn wait(&mut self, timeout: Duration) -> ExitStatus {
        match tokio::time::timeout(timeout, self.child.wait()).await {
            Ok(status) => status.expect("a child can be waited for"),
            Err(_) => panic!("{} still runs after {timeout:?}", self.name),
        }
    }

    /// Waits until its output, on either stream, contains a text.
    ///
    /// # Panics
    /// It does not within `timeout`, or ends without.
    pub async fn wait_for_output(&mut self, text: &str, timeout: Duration) {
        let what = format!("{} says {text:?}", self.name);
        eventually(&what, timeout, async || {
            let running = self.is_running();
            if self.stdout().contains(text) || self.stderr().contains(text) {
                return Ok(());
            }
            assert!(running, "{} ended without saying {text:?}", self.name);
            Err("other output")
        })
        .await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        if std::thread::panicking() {
            for path in [&self.stdout, &self.stderr] {
                let text = read(path);
                let lines: Vec<&str> = text.lines().collect();
                say(&format!("--- last lines of {}:", path.display()));
                for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
                    say(line);
                }
            }
        } else {
            for path in [&self.stdout, &self.stderr] {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read(path).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default()
}
