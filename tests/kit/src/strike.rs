//! Kills at chosen moments: wait until the group is protected, wait a while longer, SIGKILL one of its copies.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::events::{Event, Reader};

/// Which copy is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one whose effects are real: the standby takes over.
    Primary,
    /// The one that follows: a new one is made of the primary.
    Standby,
}

/// A kill that is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of whom.
    pub target: Target,
    /// How long after the group was seen to be protected.
    pub delay: Duration,
}

/// What became of one planned kill.
#[derive(Clone, Copy, Debug)]
pub enum Strike {
    /// The guest, or the copy, was gone before the moment came, or there never was a new standby.
    TooLate,
    /// SIGKILL was delivered to this process.
    Sent(Target, u32, Duration),
}

/// Two copies, as an event named them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Pid of the primary.
    pub primary: u32,
    /// Pid of the standby; 0 if the event does not say.
    pub standby: u32,
}

/// Follows an events file: is the group protected, and by whom?
pub struct Tracker<'a> {
    reader: Reader,
    understudy: &'a Path,
    group: &'a str,
    pair: Option<Pair>,
}

impl<'a> Tracker<'a> {
    /// A tracker that has seen nothing yet.
    pub fn new(events: &Path, understudy: &'a Path, group: &'a str) -> Self {
        Self { reader: Reader::new(events), understudy, group, pair: None }
    }

    /// The two copies, if the last word on them is that there are two.
    pub fn pair(&mut self) -> Option<Pair> {
        for event in self.reader.fresh() {
            match event.name.as_str() {
                "protected" | "recloned" => {
                    let standby = event.number("standby").and_then(|pid| u32::try_from(pid).ok());
                    self.pair = primary_of(&event, self.understudy, self.group)
                        .map(|primary| Pair { primary, standby: standby.unwrap_or(0) });
                }
                "promoted" | "diverged" | "standby_lost" | "unprotected" | "ended" => self.pair = None,
                _ => {}
            }
        }
        self.pair
    }
}

/// Whom to kill, and when to give up.
pub struct Assassin<'a> {
    /// The events file of the run.
    pub events: &'a Path,
    /// For `status`, when the event carries no pid.
    pub understudy: &'a Path,
    /// The group's name.
    pub group: &'a str,
    /// Set by the caller when the run is over.
    pub over: &'a AtomicBool,
}

/// What the assassin saw and did.
#[derive(Default)]
pub struct Account {
    /// When the group was first seen to be protected.
    pub protected_at: Option<Instant>,
    /// One entry for each kill that was tried.
    pub strikes: Vec<Strike>,
}

impl Account {
    /// How many kills were delivered to copies of this kind.
    pub fn sent(&self, whom: Target) -> usize {
        let hit = |strike: &&Strike| matches!(strike, Strike::Sent(target, ..) if *target == whom);
        self.strikes.iter().filter(hit).count()
    }
}

/// For example `primary 1.2ms, standby 300.0µs`: each after protection had begun or come back.
impl fmt::Display for Account {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        for (at, strike) in self.strikes.iter().enumerate() {
            out.write_str(if at == 0 { "" } else { ", " })?;
            match strike {
                Strike::TooLate => out.write_str("one too late")?,
                Strike::Sent(Target::Primary, _, delay) => write!(out, "primary {delay:.1?}")?,
                Strike::Sent(Target::Standby, _, delay) => write!(out, "standby {delay:.1?}")?,
            }
        }
        Ok(())
    }
}

impl Assassin<'_> {
    /// Carries the plans out, one after the other; each delay counts from the event that says that there are
    /// two copies, for the second and later plans two that include none that has been killed. Without plans
    /// it only notes when protection began.
    pub fn strike_each(&self, plans: &[Plan]) -> Account {
        let mut tracker = Tracker::new(self.events, self.understudy, self.group);
        let mut killed = Vec::new();
        let mut account = Account::default();
        let mut next = self.wait_for_pair(&mut tracker, &killed);
        account.protected_at = next.map(|_| Instant::now());
        for (at, plan) in plans.iter().enumerate() {
            if at > 0 {
                next = self.wait_for_pair(&mut tracker, &killed);
            }
            let strike = next.map_or(Strike::TooLate, |pair| self.kill_after(&mut tracker, pair, *plan));
            account.strikes.push(strike);
            match strike {
                Strike::Sent(_, pid, _) => killed.push(pid),
                Strike::TooLate if self.over.load(Ordering::Acquire) || next.is_none() => break,
                Strike::TooLate => {}
            }
        }
        account
    }

    fn wait_for_pair(&self, tracker: &mut Tracker, killed: &[u32]) -> Option<Pair> {
        loop {
            // Looked at before the events: what was written until the end is still seen.
            let over = self.over.load(Ordering::Acquire);
            if let Some(pair) = tracker.pair()
                && !killed.contains(&pair.primary)
                && !killed.contains(&pair.standby)
            {
                return Some(pair);
            }
            if over {
                return None;
            }
            thread::sleep(Duration::from_micros(500));
        }
    }

    fn kill_after(&self, tracker: &mut Tracker, pair: Pair, plan: Plan) -> Strike {
        let moment = Instant::now() + plan.delay;
        let pid = match plan.target {
            Target::Primary => pair.primary,
            Target::Standby => pair.standby,
        };
        // The pidfd is opened first: if the copy ends meanwhile, the number may name a stranger.
        let Some(pidfd) = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            return Strike::TooLate;
        };
        loop {
            if self.over.load(Ordering::Acquire) {
                return Strike::TooLate;
            }
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        // A primary without a standby is rightly lost: a kill then would be our mistake.
        if tracker.pair() != Some(pair) {
            return Strike::TooLate;
        }
        match pidfd_send_signal(&pidfd, Signal::KILL) {
            Ok(()) => Strike::Sent(plan.target, pid, plan.delay),
            Err(_) => Strike::TooLate,
        }
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

/// The command line that runs `program` under protection.
pub fn protected_command(
    understudy: &Path,
    group: &str,
    events: &Path,
    program: Vec<OsString>,
) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec![understudy.into()];
    command.extend(
        ["run", "-q", "--verify", "full", "--lag-timeout", "20000", "--name", group, "--events"]
            .map(Into::into),
    );
    command.push(events.into());
    command.push("--".into());
    command.extend(program);
    command
}
