//! Kills at chosen moments: wait until the group is protected, wait a while longer, SIGKILL a copy of one of its
//! processes.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use crate::track::{Pair, ROOT, Target, Tracker, primary_of, status};

/// A kill that is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of whom.
    pub target: Target,
    /// How long after the group was seen to be protected.
    pub delay: Duration,
    /// Which of several processes: this number modulo theirs.
    pub choice: u64,
    /// Behind a kill of a primary with several standbys the one that is to take over is killed as well, so much later.
    pub again: Option<Duration>,
}

/// A kill that was delivered.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// To which copy.
    pub target: Target,
    /// Of which process: [`ROOT`], or the pid that it knows as its own.
    pub process: u32,
    /// Pid of the copy.
    pub pid: u32,
    /// How long after the group was seen to be protected.
    pub delay: Duration,
}

/// What became of one planned kill.
#[derive(Clone, Copy, Debug)]
pub enum Strike {
    /// The guest, or the copy, was gone before the moment came, or there never was a new standby.
    TooLate,
    /// SIGKILL was delivered.
    Sent(Hit),
}

/// Whom to kill, and when to give up.
pub struct Assassin<'a> {
    /// The events file of the run.
    pub events: &'a Path,
    /// For `status`, when the event carries no pid.
    pub understudy: &'a Path,
    /// The group's name.
    pub group: &'a str,
    /// Nobody is struck before a child process is protected.
    pub tree: bool,
    /// A standby's end is that of all standbys, and who is killed before that has been noticed is rightly lost.
    pub primaries_only: bool,
    /// Set by the caller when the run is over.
    pub over: &'a AtomicBool,
}

/// What the assassin saw and did.
#[derive(Default)]
pub struct Account {
    /// When the group, in a tree with a child, was first seen to be protected.
    pub protected_at: Option<Instant>,
    /// One entry for each kill that was tried.
    pub strikes: Vec<Strike>,
    /// Of these, kills of one that was to take over, or just had.
    pub again: usize,
}

impl Account {
    /// The kills that were delivered.
    pub fn hits(&self) -> impl Iterator<Item = &Hit> {
        self.strikes.iter().filter_map(|strike| match strike {
            Strike::Sent(hit) => Some(hit),
            Strike::TooLate => None,
        })
    }

    /// How many kills were delivered to copies of this kind.
    pub fn sent(&self, whom: Target) -> usize {
        self.hits().filter(|hit| hit.target == whom).count()
    }
}

/// For example `primary 1.2ms, standby of 4711 300.0µs`: each after protection had begun or come back.
impl fmt::Display for Account {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        for (at, strike) in self.strikes.iter().enumerate() {
            out.write_str(if at == 0 { "" } else { ", " })?;
            let Strike::Sent(hit) = strike else {
                out.write_str("one too late")?;
                continue;
            };
            out.write_str(match hit.target {
                Target::Primary => "primary ",
                Target::Standby => "standby ",
            })?;
            if hit.process != ROOT {
                write!(out, "of {} ", hit.process)?;
            }
            write!(out, "{:.1?}", hit.delay)?;
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
        let mut next = self.wait_for_pair(&mut tracker, &killed, self.tree);
        account.protected_at = next.map(|_| Instant::now());
        for (at, plan) in plans.iter().enumerate() {
            if at > 0 {
                next = self.wait_for_pair(&mut tracker, &killed, false);
            }
            let strike = next.map_or(Strike::TooLate, |(process, pair)| {
                let target = if self.primaries_only { Target::Primary } else { plan.target };
                let plan = Plan { target, ..*plan };
                let hit = self.kill_after(&mut tracker, &killed, (process, pair), plan);
                hit.map_or(Strike::TooLate, Strike::Sent)
            });
            account.strikes.push(strike);
            match strike {
                Strike::Sent(hit) => {
                    killed.push(hit.pid);
                    if let Some((seen, gap)) = next.zip(plan.again)
                        && let Some(hit) = Self::kill_heir(&mut tracker, hit, seen, gap)
                    {
                        killed.push(hit.pid);
                        account.strikes.push(Strike::Sent(hit));
                        account.again += 1;
                    }
                }
                Strike::TooLate if self.over.load(Ordering::Acquire) || next.is_none() => break,
                Strike::TooLate => {}
            }
        }
        account
    }

    /// The primary has just been killed: kills the one that takes over, or has taken over, if another standby follows.
    fn kill_heir(tracker: &mut Tracker, hit: Hit, seen: (u32, Pair), gap: Duration) -> Option<Hit> {
        let (process, pair) = seen;
        let spared = tracker.spared(process, pair.standby)?;
        if hit.target != Target::Primary || hit.process != process {
            return None;
        }
        thread::sleep(gap);
        // Its spares may have been given up meanwhile, for a call that no log carries.
        tracker.spared(process, pair.standby)?;
        let killed = spared.kill();
        killed.then_some(Hit { target: Target::Standby, process, pid: pair.standby, delay: gap })
    }

    /// Waits for two copies that have not been killed; with `child`, until a child process has them too.
    fn wait_for_pair(&self, tracker: &mut Tracker, killed: &[u32], child: bool) -> Option<(u32, Pair)> {
        loop {
            // Looked at before the events: what was written until the end is still seen.
            let over = self.over.load(Ordering::Acquire);
            let found = candidates(tracker, killed);
            let enough = !child || found.iter().any(|(process, _)| *process != ROOT);
            if let Some(first) = found.first().filter(|_| enough) {
                return Some(*first);
            }
            if over {
                return None;
            }
            thread::sleep(Duration::from_micros(500));
        }
    }

    fn kill_after(
        &self,
        tracker: &mut Tracker,
        killed: &[u32],
        seen: (u32, Pair),
        plan: Plan,
    ) -> Option<Hit> {
        let moment = Instant::now() + plan.delay;
        loop {
            if self.over.load(Ordering::Acquire) {
                return None;
            }
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        // A primary without a standby is rightly lost: a kill then would be our mistake. So who is to be struck is
        // chosen among those that are protected now; in a group of one process by whichever standby it has now.
        let mut found = candidates(tracker, killed);
        if !tracker.is_tree() {
            found.retain(|candidate| candidate.0 == seen.0);
        }
        let process = choose(&found, plan.choice)?;
        let pid = tracker.kill(process, plan.target)?;
        Some(Hit { target: plan.target, process, pid, delay: plan.delay })
    }
}

/// Processes of whose two copies none has been killed.
fn candidates(tracker: &mut Tracker, killed: &[u32]) -> Vec<(u32, Pair)> {
    let mut found = tracker.protected();
    found.retain(|(_, pair)| !killed.contains(&pair.primary) && !killed.contains(&pair.standby));
    found
}

/// The process that a seeded number means.
pub fn choose(found: &[(u32, Pair)], choice: u64) -> Option<u32> {
    let at = choice.checked_rem(found.len() as u64)?;
    found.get(at as usize).map(|(process, _)| *process)
}

/// The command line that runs `program` under protection.
pub fn protected_command(
    understudy: &Path,
    standbys: u32,
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
    if standbys != 1 {
        command.extend(["--standbys".into(), standbys.to_string().into()]);
    }
    command.push("--".into());
    command.extend(program);
    command
}
