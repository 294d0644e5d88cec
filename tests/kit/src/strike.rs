//! The kill: wait until the group is protected, wait a chosen moment longer, SIGKILL the primary.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::events::{Event, Reader};

/// What became of one planned kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The guest, or its primary, was gone before the moment came, or there never was a new standby.
    TooLate,
    /// SIGKILL was delivered to this pid.
    Sent(u32),
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
pub struct Account {
    /// When the group was first seen to be protected.
    pub protected_at: Option<Instant>,
    /// One entry for each kill that was tried.
    pub strikes: Vec<Strike>,
}

impl Account {
    /// How many kills were delivered.
    pub fn sent(&self) -> usize {
        self.strikes.iter().filter(|strike| matches!(strike, Strike::Sent(_))).count()
    }
}

impl Assassin<'_> {
    /// Kills the primary once for every delay; each delay counts from a `protected` event, the second and
    /// later ones from that of the new standby. Without delays it only notes when protection began.
    pub fn strike_each(&self, delays: &[Duration]) -> Account {
        let mut reader = Reader::new(self.events);
        let mut killed = Vec::new();
        let mut strikes = Vec::new();
        let mut next = self.wait_for_primary(&mut reader, &killed);
        let protected_at = next.map(|_| Instant::now());
        for delay in delays {
            if !killed.is_empty() {
                next = self.wait_for_primary(&mut reader, &killed);
            }
            let strike = next.map_or(Strike::TooLate, |pid| self.kill_after(pid, *delay));
            strikes.push(strike);
            match strike {
                Strike::Sent(pid) => killed.push(pid),
                _ => break,
            }
        }
        Account { protected_at, strikes }
    }

    fn wait_for_primary(&self, reader: &mut Reader, killed: &[u32]) -> Option<u32> {
        loop {
            // Looked at before the events: what was written until the end is still seen.
            let over = self.over.load(Ordering::Acquire);
            for event in reader.fresh().iter().filter(|event| event.name == "protected") {
                match primary_of(event, self.understudy, self.group) {
                    Some(pid) if !killed.contains(&pid) => return Some(pid),
                    _ => {}
                }
            }
            if over {
                return None;
            }
            thread::sleep(Duration::from_micros(500));
        }
    }

    fn kill_after(&self, pid: u32, delay: Duration) -> Strike {
        let moment = Instant::now() + delay;
        // The pidfd is opened first: if the primary ends meanwhile, the number may name a stranger.
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
        match pidfd_send_signal(&pidfd, Signal::KILL) {
            Ok(()) => Strike::Sent(pid),
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
    let output = Command::new(understudy).args(["status", group, "--json"]).output().ok()?;
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    let pid = status.pointer("/groups/0/processes/0/primary/pid")?.as_u64()?;
    u32::try_from(pid).ok()
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
