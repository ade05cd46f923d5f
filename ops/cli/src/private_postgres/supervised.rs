//! A server process that cannot outlive the process that started it.
//!
//! A small shell stands between the two and reads a pipe whose other end only the parent holds. When the parent ends,
//! in whatever way, the kernel closes the pipe, and the shell ends the server and deletes its directory.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};

/// `$1` log, `$2` directory, `$3` signal for an orphan, then the command. The first line out is the server's process id.
/// The inner shell gets a word when the parent has its own plans, and end-of-file when the parent is gone.
const SHELL: &str = r#"
log=$1 dir=$2 signal=$3
shift 3
exec 3<&0
"$@" < /dev/null >> "$log" 2>&1 3<&- &
server=$!
echo "$server"
exec > /dev/null
(
    if ! read -r word <&3; then
        trap '' TERM
        kill -s "$signal" "$server"
        while kill -0 "$server"; do sleep 0.05; done
        rm -rf "$dir"
    fi
) 2> /dev/null &
watch=$!
wait "$server"
status=$?
kill "$watch" 2> /dev/null
exit "$status"
"#;

/// What to start, and as whom.
#[derive(Debug)]
pub struct Start<'a> {
    /// Program and arguments.
    pub command: &'a [OsString],
    /// File that gets its output, appended.
    pub log: &'a Path,
    /// Working directory. It is deleted when the parent is gone.
    pub dir: &'a Path,
    /// User to run as; `None` keeps the present one.
    pub user: Option<&'a User>,
    /// Signal for a server whose parent is gone.
    pub on_orphaned: Signal,
}

/// A running server. Dropping it without [`Supervised::stop`] ends the server as an orphan.
#[derive(Debug)]
pub struct Supervised {
    shell: Child,
    pipe: Option<ChildStdin>,
    server: Pid,
}

impl Start<'_> {
    /// Starts the server in a process group of its own, so that Ctrl-C in a terminal reaches the parent alone.
    ///
    /// # Errors
    /// The shell cannot be run. A server that ends at once is no error here: see [`Supervised::has_ended`].
    pub fn spawn(&self) -> Result<Supervised, anyhow::Error> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SHELL, "supervised"])
            .args([self.log, self.dir])
            .arg(self.on_orphaned.as_str().trim_start_matches("SIG"))
            .args(self.command)
            .current_dir(self.dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        run_as(&mut command, self.user);
        let mut shell = command.spawn().context("cannot run /bin/sh")?;
        let pipe = shell.stdin.take();
        let mut line = String::new();
        if let Some(output) = shell.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let server = line.trim().parse().context("the shell did not name the server's process")?;
        Ok(Supervised { shell, pipe, server: Pid::from_raw(server) })
    }
}

impl Supervised {
    /// Process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.as_raw().unsigned_abs()
    }

    /// Whether the server is gone.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.shell.try_wait()?.is_some())
    }

    /// Sends a signal, such as SIGSTOP, to the server alone.
    ///
    /// # Errors
    /// The server is gone.
    pub fn signal(&mut self, signal: Signal) -> Result<(), anyhow::Error> {
        ensure!(self.send(signal)?, "the server has ended");
        Ok(())
    }

    /// Ends the server with a signal and waits for it. Its directory stays.
    ///
    /// # Errors
    /// It did not end in `timeout`; then it was killed.
    pub fn stop(mut self, signal: Signal, timeout: Duration) -> Result<(), anyhow::Error> {
        if let Some(pipe) = &mut self.pipe {
            // A shell that is gone needs no word.
            let _ = pipe.write_all(b"parent\n");
        }
        self.send(signal)?;
        let begin = Instant::now();
        while !self.has_ended()? {
            if begin.elapsed() > timeout {
                self.send(Signal::SIGKILL)?;
                self.shell.wait()?;
                bail!("the server ignored {signal} for {timeout:?} and was killed");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether there still was a server to signal.
    fn send(&mut self, signal: Signal) -> Result<bool, anyhow::Error> {
        // The process id of an ended server may belong to somebody else by now.
        if self.has_ended()? {
            return Ok(false);
        }
        match kill(self.server, signal) {
            Ok(()) => Ok(true),
            Err(Errno::ESRCH) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot send {signal}")),
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.shell.wait();
    }
}

/// Makes a command run as another user, without root's supplementary groups.
pub(super) fn run_as(command: &mut Command, user: Option<&User>) {
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
}
