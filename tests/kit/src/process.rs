//! A process tree that the kit started: spawn, wait with a limit, find every member, end them by pid.
//!
//! Members are found by an environment variable with a value unique to the run. It survives fork, exec,
//! new sessions and re-parenting (a standby's kernel parent is not the guest), where parent pids and
//! process groups do not. Of a program that overwrites its environment, those count that the events of the run name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::events;

const MARK: &str = "KIT_TREE";

/// Where a program's stdout goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// A file: its bytes are what was written, whatever happens to readers.
    File,
    /// A pipe that the kit drains: partial writes, SIGPIPE and a late end of file can show.
    Pipe,
}

/// What to start.
pub struct Launch {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Folder of the run: gets `stdout` and `stderr`; its `tmp` is the program's TMPDIR and current folder.
    pub dir: PathBuf,
    /// Bytes for its stdin; none is /dev/null.
    pub stdin: Option<Vec<u8>>,
    /// Where stdout goes.
    pub sink: Sink,
}

/// A started tree.
pub struct Tree {
    child: Child,
    /// Start of `child`, clock ticks since boot.
    start: u64,
    mark: String,
    dir: PathBuf,
    started: Instant,
    drain: Option<JoinHandle<std::io::Result<Vec<u8>>>>,
}

/// How a tree ended.
pub struct Ended {
    /// The status of the process that was started; none if it had to be killed at the limit.
    pub status: Option<ExitStatus>,
    /// From spawn to its end.
    pub elapsed: Duration,
    /// When it ended.
    pub at: Instant,
    /// All bytes of stdout.
    pub stdout: Vec<u8>,
    /// Processes of the tree that were still there after it (and were killed).
    pub left_behind: Vec<u32>,
}

impl Launch {
    /// Starts the program in a process group of its own. It is none of those that a `make` above the kit has started: it would
    /// say so in its output (a make of its own names the folder, which is another one in each run).
    pub fn spawn(self) -> Result<Tree> {
        let mark = format!("{}", self.dir.display());
        let (program, args) = self.command.split_first().context("a program to run")?;
        let mut command = Command::new(program);
        let stdout = match self.sink {
            Sink::File => Stdio::from(File::create(self.dir.join("stdout"))?),
            Sink::Pipe => Stdio::piped(),
        };
        command
            .args(args)
            .current_dir(self.dir.join("tmp"))
            .env("TMPDIR", self.dir.join("tmp"))
            .env(MARK, &mark)
            .env_remove("MAKELEVEL")
            .env_remove("MAKEFLAGS")
            .env_remove("MFLAGS")
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(stdout)
            .stderr(File::create(self.dir.join("stderr"))?)
            .process_group(0);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        if let (Some(bytes), Some(mut pipe)) = (self.stdin, child.stdin.take()) {
            // A thread, because a program need not read before it writes; a closed stdin is its right.
            thread::spawn(move || pipe.write_all(&bytes));
        }
        let drain = child.stdout.take().map(|mut pipe| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).map(|_| bytes)
            })
        });
        let start = start_of(child.id()).map_or(u64::MAX, |(start, _)| start);
        Ok(Tree { child, start, mark, dir: self.dir, started, drain })
    }
}

impl Tree {
    /// How long it has been running.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The process that was started.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process that was started has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the process that was started.
    pub fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// Waits for the end, at most until `limit` after the start. At the limit the watchdog writes back
    /// traces of every member into the run's folder and ends them.
    pub fn finish(mut self, limit: Duration) -> Result<Ended> {
        let status = wait_until(&mut self.child, self.started + limit)?;
        let at = Instant::now();
        let elapsed = at - self.started;
        let mut left_behind = Vec::new();
        if status.is_none() {
            autopsy(&self.members(), &self.dir);
            end(&self.members());
            self.child.wait()?;
        } else {
            // Standbys may follow their group's end a moment later; one that stays is a failure.
            left_behind = self.linger(Duration::from_secs(10));
            if !left_behind.is_empty() {
                autopsy(&left_behind, &self.dir);
                end(&left_behind);
            }
        }
        let stdout = match self.drain.take() {
            Some(drain) => {
                let bytes = drain.join().expect("the drain does not panic")?;
                fs::write(self.dir.join("stdout"), &bytes)?;
                bytes
            }
            None => fs::read(self.dir.join("stdout"))?,
        };
        Ok(Ended { status, elapsed, at, stdout, left_behind })
    }

    /// Every living member of the tree.
    pub fn members(&self) -> Vec<u32> {
        let wanted = format!("{MARK}={}", self.mark);
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| has_variable(*pid, wanted.as_bytes()))
            .chain(self.named())
            .collect::<BTreeSet<u32>>()
            .into_iter()
            .collect()
    }

    /// Copies that the run's events name and that are alive. A number may have a new owner: older than the tree, it
    /// is a stranger.
    fn named(&self) -> Vec<u32> {
        let told = events::read_all(&self.dir.join("events"));
        let pids = told.iter().flat_map(|event| [event.number("primary"), event.number("standby")]);
        pids.flatten()
            .filter_map(|pid| u32::try_from(pid).ok())
            .filter(|pid| start_of(*pid).is_some_and(|(start, is_alive)| is_alive && start >= self.start))
            .collect()
    }

    fn linger(&self, limit: Duration) -> Vec<u32> {
        let until = Instant::now() + limit;
        loop {
            let members = self.members();
            if members.is_empty() || Instant::now() >= until {
                return members;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A tree that is dropped on the way of an error must not live on.
impl Drop for Tree {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            end(&self.members());
            let _ = self.child.wait();
        }
    }
}

/// When a process began, clock ticks since boot, and whether it is more than the memory of its end.
fn start_of(pid: u32) -> Option<(u64, bool)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything: the state, and the start as the twentieth.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    Some((fields.nth(18)?.parse().ok()?, is_alive))
}

fn has_variable(pid: u32, wanted: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|variable| variable == wanted))
}

fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    // Somebody may have looked already; its number is nobody's then.
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("watching a child")?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for a child"),
        }
    }
}

/// Sends `signal` to one process through a pidfd. False if it is gone.
pub fn send(pid: u32, signal: Signal) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    pidfd_open(pid, PidfdFlags::empty()).and_then(|fd| pidfd_send_signal(fd, signal)).is_ok()
}

/// Kills processes that the kit started, each by its pid.
fn end(pids: &[u32]) {
    for pid in pids {
        send(*pid, Signal::KILL);
    }
}

/// Writes what each process was doing into `dir/autopsy`.
fn autopsy(pids: &[u32], dir: &Path) {
    let mut text = format!("processes: {pids:?}\n");
    for pid in pids {
        text += &format!("\n== {pid} ==\n{}\n", describe(*pid));
        if let Some(gdb) = crate::place::installed("gdb") {
            let output = Command::new("timeout")
                .arg("20")
                .arg(gdb)
                .args(["-p", &pid.to_string(), "-batch", "-ex", "thread apply all bt"])
                .stdin(Stdio::null())
                .output();
            if let Ok(output) = output {
                text += &String::from_utf8_lossy(&output.stdout);
            }
        }
    }
    // The autopsy serves the reader of a failure; the failure itself is reported either way.
    let _ = fs::write(dir.join("autopsy"), text);
}

fn describe(pid: u32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map(|tasks| tasks.flatten().collect::<Vec<_>>());
    let mut text = format!("{command}\n");
    for task in tasks.unwrap_or_default() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        text += &format!(
            "task {} {}: wchan {}, syscall {}",
            task.file_name().display(),
            read("comm").trim(),
            read("wchan").trim(),
            read("syscall")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::{Launch, Sink};

    fn shell(name: &str, script: &str, sink: Sink) -> (super::Tree, PathBuf) {
        let dir = std::env::temp_dir().join(format!("kit-test-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("tmp")).expect("a temporary folder");
        let command = ["sh", "-c", script].map(Into::into).to_vec();
        let launch = Launch { command, dir: dir.clone(), stdin: Some(b"in".to_vec()), sink };
        (launch.spawn().expect("sh starts"), dir)
    }

    #[test]
    fn both_sinks_give_the_bytes_and_the_status() {
        for (name, sink) in [("file", Sink::File), ("pipe", Sink::Pipe)] {
            let (tree, dir) = shell(name, "cat; echo out; exit 3", sink);
            let ended = tree.finish(Duration::from_secs(600)).expect("it ends");
            assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
            assert_eq!(ended.stdout, b"inout\n");
            assert!(ended.left_behind.is_empty());
            fs::remove_dir_all(dir).expect("removed");
        }
    }

    #[test]
    fn a_process_that_only_an_event_names_is_of_the_tree() {
        let script = "env -i sleep 1000 >/dev/null 2>&1 & exec 9>../events; \
                      printf '{\"event\":\"protected\",\"primary\":%s}\\n' $! >&9";
        let (mut tree, dir) = shell("named", script, Sink::File);
        while !tree.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let members = tree.members();
        assert_eq!(members.len(), 1);
        super::end(&members);
        let ended = tree.finish(Duration::from_secs(600)).expect("it has ended");
        assert!(ended.left_behind.is_empty());
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn the_limit_ends_the_whole_tree() {
        let (tree, dir) = shell("limit", "sleep 1000 & setsid sleep 1000", Sink::Pipe);
        while tree.members().len() < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = tree.finish(Duration::ZERO).expect("it is ended");
        assert!(ended.status.is_none());
        assert!(fs::read_to_string(dir.join("autopsy")).expect("an autopsy").contains("sleep"));
        fs::remove_dir_all(dir).expect("removed");
    }
}
