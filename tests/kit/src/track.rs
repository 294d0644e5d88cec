//! Who is protected, by which two copies, as an events file says while it grows.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::events::{Event, Reader};

/// The process that is the program itself, as key of a process. Others have the pid that they know as their own.
pub const ROOT: u32 = 0;

/// Which copy is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one whose effects are real: the standby takes over.
    Primary,
    /// The one that follows: a new one is made of the primary.
    Standby,
}

/// Two copies, as an event named them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Pid of the primary.
    pub primary: u32,
    /// Pid of the standby; 0 if the event does not say.
    pub standby: u32,
}

impl Pair {
    /// The pid of one of them.
    pub fn of(self, target: Target) -> u32 {
        match target {
            Target::Primary => self.primary,
            Target::Standby => self.standby,
        }
    }
}

/// A copy that is held by a descriptor: when it has ended, its number may name a stranger.
pub struct Copy {
    pidfd: Option<OwnedFd>,
}

impl Copy {
    /// The process that has this pid now.
    fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self { pidfd: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) }
    }

    fn is_alive(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A pidfd is readable once its process has ended, reaped or not.
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready == 0)
    }

    /// Ends it at once. False if it has ended.
    pub fn kill(&self) -> bool {
        self.pidfd.as_ref().is_some_and(|pidfd| pidfd_send_signal(pidfd, Signal::KILL).is_ok())
    }
}

/// The two copies of one process.
struct Copies {
    pair: Pair,
    primary: Copy,
    standby: Copy,
    /// Further standbys that follow.
    spares: Vec<u32>,
}

impl Copies {
    fn of(pair: Pair) -> Self {
        Self { pair, primary: Copy::of(pair.primary), standby: Copy::of(pair.standby), spares: Vec::new() }
    }

    /// A process that ends, or that execs, ends its standby first: one that has none is not to be killed.
    fn are_alive(&self) -> bool {
        self.primary.is_alive() && (self.pair.standby == 0 || self.standby.is_alive())
    }
}

/// Follows an events file: which processes of the group are protected, and by whom?
pub struct Tracker<'a> {
    reader: Reader,
    understudy: &'a Path,
    group: &'a str,
    /// The pid that the program itself knows as its own.
    root: Option<u64>,
    processes: BTreeMap<u32, Copies>,
    /// Spares of processes that have no heir at this moment.
    spares: BTreeMap<u32, Vec<u32>>,
    /// An event has spoken of another process than the program itself.
    is_tree: bool,
}

impl<'a> Tracker<'a> {
    /// A tracker that has seen nothing yet.
    pub fn new(events: &Path, understudy: &'a Path, group: &'a str) -> Self {
        Self {
            reader: Reader::new(events),
            understudy,
            group,
            root: None,
            processes: BTreeMap::new(),
            spares: BTreeMap::new(),
            is_tree: false,
        }
    }

    /// The program's own two copies, if the last word on them is that there are two.
    pub fn pair(&mut self) -> Option<Pair> {
        self.read();
        self.processes.get(&ROOT).map(|copies| copies.pair)
    }

    /// Every process that has two living copies, the program itself first.
    pub fn protected(&mut self) -> Vec<(u32, Pair)> {
        self.read();
        if self.is_tree {
            // No event tells of a child's end.
            self.processes.retain(|_, copies| copies.are_alive());
        }
        self.processes.iter().map(|(process, copies)| (*process, copies.pair)).collect()
    }

    /// Whether the group has, or had, a child process that was protected.
    pub fn is_tree(&self) -> bool {
        self.is_tree
    }

    /// Kills one copy of a process, of one of several only if both live at this moment: its pid.
    pub fn kill(&self, process: u32, target: Target) -> Option<u32> {
        let copies = self.processes.get(&process).filter(|copies| !self.is_tree || copies.are_alive())?;
        let copy = match target {
            Target::Primary => &copies.primary,
            Target::Standby => &copies.standby,
        };
        copy.kill().then_some(copies.pair.of(target))
    }

    /// The copy `pid` of a process, if the process can do without it and its primary: another standby follows.
    pub fn spared(&mut self, process: u32, pid: u32) -> Option<Copy> {
        self.read();
        let followed = self.processes.get(&process).map(|copies| &copies.spares);
        let spares = followed.or(self.spares.get(&process))?;
        let others = spares.iter().filter(|other| **other != pid);
        let is_one_left = others.map(|other| Copy::of(*other)).any(|copy| copy.is_alive());
        is_one_left.then(|| Copy::of(pid))
    }

    fn read(&mut self) {
        for event in self.reader.fresh() {
            let process = self.process_of(&event);
            let standby = || event.number("standby").and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
            let is_spare = event.fields.get("reason").is_some_and(|reason| reason == "spare");
            match event.name.as_str() {
                "spare_standby" | "recloned" if is_spare || event.name == "spare_standby" => {
                    if let Some(copies) = self.processes.get_mut(&process) {
                        copies.spares.push(standby());
                    }
                }
                "spare_lost" => {
                    if let Some(copies) = self.processes.get_mut(&process) {
                        copies.spares.retain(|pid| *pid != standby());
                    }
                }
                "started" => self.root = event.number("primary"),
                "protected" | "recloned" | "moved_up" => {
                    self.is_tree |= process != ROOT;
                    let mut spares = self.spares.remove(&process).unwrap_or_default();
                    match self.pair_of(&event, process) {
                        Some(pair) => {
                            spares.retain(|pid| *pid != pair.standby && *pid != pair.primary);
                            self.processes.insert(process, Copies { spares, ..Copies::of(pair) })
                        }
                        None => self.processes.remove(&process),
                    };
                }
                "ended" if process == ROOT => self.processes.clear(),
                "promoted" | "diverged" | "standby_lost" | "unprotected" | "ended" => {
                    // The spares are told of again when one of them is heir.
                    let gone = self.processes.remove(&process);
                    if let Some(copies) = gone.filter(|copies| !copies.spares.is_empty()) {
                        self.spares.insert(process, copies.spares);
                    }
                }
                _ => {}
            }
        }
    }

    fn process_of(&self, event: &Event) -> u32 {
        let process = event.number("process").filter(|pid| Some(*pid) != self.root);
        process.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(ROOT)
    }

    fn pair_of(&self, event: &Event, process: u32) -> Option<Pair> {
        let standby = event.number("standby").and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let primary = match process {
            ROOT => primary_of(event, self.understudy, self.group)?,
            _ => u32::try_from(event.number("primary")?).ok()?,
        };
        Some(Pair { primary, standby })
    }
}

/// The primary's pid: from the event itself, or by asking for the group's status.
pub fn primary_of(event: &Event, understudy: &Path, group: &str) -> Option<u32> {
    let pid = event.number("primary").and_then(|pid| u32::try_from(pid).ok());
    pid.or_else(|| primary_by_status(understudy, group))
}

fn primary_by_status(understudy: &Path, group: &str) -> Option<u32> {
    let pid = status(understudy, group)?.pointer("/processes/0/primary/pid")?.as_u64()?;
    u32::try_from(pid).ok()
}

/// The group's part of `status --json`.
pub fn status(understudy: &Path, group: &str) -> Option<Value> {
    let output = Command::new(understudy).args(["status", group, "--json"]).output().ok()?;
    let mut status: Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(status.pointer_mut("/groups/0")?.take())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command};

    use super::{Pair, ROOT, Target, Tracker};

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().expect("sleep starts")
    }

    /// An events file of these lines.
    fn told(name: &str, lines: &[String]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("kit-track-{}-{name}", std::process::id()));
        fs::write(&path, lines.join("\n") + "\n").expect("a temporary file");
        path
    }

    fn end(mut child: Child) {
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    #[test]
    fn one_process_needs_no_more_than_its_events() {
        let lines = [
            r#"{"event":"started","primary":5}"#,
            r#"{"event":"protected","primary":5,"standby":6,"process":5}"#,
            r#"{"event":"promoted","primary":6,"process":5}"#,
            r#"{"event":"recloned","primary":6,"standby":7}"#,
        ];
        let seen = |count: usize| {
            let path = told("one", &lines[..count].iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
            let mut tracker = Tracker::new(&path, Path::new("none"), "none");
            let seen = (tracker.pair(), tracker.protected(), tracker.is_tree());
            fs::remove_file(path).expect("removed");
            seen
        };
        let (first, second) = (Pair { primary: 5, standby: 6 }, Pair { primary: 6, standby: 7 });
        assert_eq!(seen(1), (None, vec![], false));
        assert_eq!(seen(2), (Some(first), vec![(ROOT, first)], false));
        assert_eq!(seen(3), (None, vec![], false));
        assert_eq!(seen(4), (Some(second), vec![(ROOT, second)], false));
    }

    #[test]
    fn of_several_processes_only_those_with_two_living_copies_count() {
        let copies: Vec<Child> = (0..6).map(|_| sleeper()).collect();
        let pid = |n: usize| copies[n].id();
        let line = |event: &str, primary: usize, standby: usize, process: u32| {
            format!(
                r#"{{"event":"{event}","primary":{},"standby":{},"process":{process}}}"#,
                pid(primary),
                pid(standby)
            )
        };
        let lines = [
            format!(r#"{{"event":"started","primary":{}}}"#, pid(0)),
            line("protected", 0, 1, pid(0)),
            line("protected", 2, 3, pid(2)),
            line("protected", 4, 5, pid(4)),
            format!(r#"{{"event":"diverged","process":{}}}"#, pid(4)),
        ];
        let path = told("tree", &lines);
        let mut tracker = Tracker::new(&path, Path::new("none"), "none");
        let child = Pair { primary: pid(2), standby: pid(3) };
        assert_eq!(tracker.protected(), [(ROOT, Pair { primary: pid(0), standby: pid(1) }), (pid(2), child)]);
        assert!(tracker.is_tree());
        assert_eq!(tracker.kill(pid(4), Target::Primary), None);
        assert_eq!(tracker.kill(pid(2), Target::Standby), Some(pid(3)));
        // Killed and not reaped yet: it counts no more, once the kernel has ended it.
        while tracker.protected().len() == 2 {
            std::thread::yield_now();
        }
        assert_eq!(tracker.kill(pid(2), Target::Primary), None);
        copies.into_iter().for_each(end);
        fs::remove_file(path).expect("removed");
    }
}
