//! `--probe`: a command that says whether the primary is well.
//!
//! The kernel tells of a death; of a primary that is alive and does nothing only its users can tell, and a
//! probe is one of them. It runs in a process group of its own, and one that has not ended in time is ended.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::reap::End;
use crate::spawn;

/// Failures in a row that fence the primary.
pub const FAILURES_MAX: u32 = 3;

/// The reason of such a failover.
pub const REASON: &str = "probe failed 3 times";

/// What is asked for by `--probe` and `--probe-interval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// For `sh -c`.
    pub command: OsString,
    /// Milliseconds between two probes.
    pub interval_ms: u32,
}

/// A probe at work.
#[derive(Clone, Copy, Debug)]
struct Running {
    pid: u32,
    /// When it counts as failed, CLOCK_MONOTONIC ns.
    until_ns: u64,
}

/// What a look at the probe brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing new.
    Nothing,
    /// It failed, for the first or the second time in a row.
    Failed(String),
    /// It failed once too often.
    Fence,
}

/// The probe of one group.
#[derive(Debug)]
pub struct Probe {
    order: Order,
    running: Option<Running>,
    /// When the next one is to start; `None` while nobody could take over anyway.
    next_ns: Option<u64>,
    failures: u32,
}

impl Probe {
    /// A probe that waits for a standby.
    pub fn new(order: Order) -> Probe {
        Probe { order, running: None, next_ns: None, failures: 0 }
    }

    /// Whether it is in use.
    pub fn is_on(&self) -> bool {
        self.next_ns.is_some()
    }

    /// There is a standby that could take over: the first probe comes after one interval.
    pub fn begin(&mut self, now_ns: u64) {
        self.failures = 0;
        self.next_ns = Some(now_ns + self.interval_ns());
    }

    /// There is none. What is under way is ended, and says nothing about the next primary.
    pub fn pause(&mut self) {
        self.stop();
        self.next_ns = None;
    }

    /// When to look again, CLOCK_MONOTONIC ns.
    pub fn look_at_ns(&self) -> Option<u64> {
        self.running.map(|running| running.until_ns).or(self.next_ns)
    }

    /// Starts what is due and ends what takes too long.
    pub fn look(&mut self, now_ns: u64) -> Finding {
        if self.running.is_some_and(|running| now_ns >= running.until_ns) {
            self.stop();
            // Its interval is over: a stopped primary is to be found out within four.
            self.next_ns = self.next_ns.map(|_| now_ns);
            return self.failed("it did not end in time".into());
        }
        match self.next_ns {
            Some(due) if now_ns >= due && self.running.is_none() => self.start(now_ns),
            _ => Finding::Nothing,
        }
    }

    /// Whether `pid` is the one that runs.
    pub fn is(&self, pid: u32) -> bool {
        self.running.is_some_and(|running| running.pid == pid)
    }

    /// The child `pid` of ours has ended: `None` when it is not the probe.
    pub fn ended(&mut self, pid: u32, end: End) -> Option<Finding> {
        self.running.take_if(|running| running.pid == pid)?;
        Some(match end {
            End::Exited(0) => {
                self.failures = 0;
                Finding::Nothing
            }
            _ => self.failed(end.words()),
        })
    }

    fn start(&mut self, now_ns: u64) -> Finding {
        self.next_ns = Some(now_ns + self.interval_ns());
        let started = Command::new("sh")
            .arg("-c")
            .arg(&self.order.command)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            // Reaped with every other child of the supervisor's.
            Ok(child) => {
                // A little less than the interval: what it takes to start and end three of them must fit in as well.
                let until_ns = now_ns + self.interval_ns() / 10 * 9;
                self.running = Some(Running { pid: child.id(), until_ns });
                Finding::Nothing
            }
            // The machine is short of something: that is no word on the primary.
            Err(_) => Finding::Nothing,
        }
    }

    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            spawn::kill_group(running.pid);
        }
    }

    fn failed(&mut self, why: String) -> Finding {
        self.failures += 1;
        if self.failures < FAILURES_MAX {
            return Finding::Failed(format!("{why} ({} of {FAILURES_MAX})", self.failures));
        }
        self.failures = 0;
        Finding::Fence
    }

    fn interval_ns(&self) -> u64 {
        u64::from(self.order.interval_ms) * 1_000_000
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reap;

    const MS: u64 = 1_000_000;

    /// With a command that the tests of this file leave running until it is stopped.
    fn probe() -> Probe {
        let mut probe = Probe::new(Order { command: "sleep 1000".into(), interval_ms: 100 });
        probe.begin(0);
        probe
    }

    fn ended(probe: &mut Probe, end: End) -> Option<Finding> {
        let pid = probe.running.expect("one runs").pid;
        spawn::kill_group(pid);
        assert_eq!(reap::reap(pid), Some(End::Killed(libc::SIGKILL)));
        probe.ended(pid, end)
    }

    #[test]
    fn three_failures_in_a_row_fence() {
        let mut probe = probe();
        let mut now = 0;
        let mut next = |probe: &mut Probe, code| {
            now += 100 * MS;
            assert_eq!(probe.look(now - 1), Finding::Nothing);
            assert!(probe.running.is_none());
            assert_eq!(probe.look(now), Finding::Nothing);
            assert_eq!(probe.ended(1, End::Exited(9)), None);
            ended(probe, End::Exited(code)).unwrap()
        };
        assert_eq!(next(&mut probe, 1), Finding::Failed("exit code 1 (1 of 3)".into()));
        assert_eq!(next(&mut probe, 1), Finding::Failed("exit code 1 (2 of 3)".into()));
        assert_eq!(next(&mut probe, 0), Finding::Nothing);
        assert_eq!(next(&mut probe, 2), Finding::Failed("exit code 2 (1 of 3)".into()));
        assert_eq!(next(&mut probe, 2), Finding::Failed("exit code 2 (2 of 3)".into()));
        assert_eq!(next(&mut probe, 2), Finding::Fence);
    }

    #[test]
    fn three_that_hang_fence_within_four_intervals() {
        let mut probe = probe();
        let mut hung = Vec::new();
        for (round, expected) in [
            Finding::Failed("it did not end in time (1 of 3)".into()),
            Finding::Failed("it did not end in time (2 of 3)".into()),
            Finding::Fence,
        ]
        .into_iter()
        .enumerate()
        {
            let start = 100 * MS + round as u64 * 90 * MS;
            assert_eq!(probe.look(start), Finding::Nothing);
            hung.push(probe.running.unwrap().pid);
            assert_eq!(probe.look_at_ns(), Some(start + 90 * MS));
            assert_eq!(probe.look(start + 90 * MS), expected);
            assert_eq!(probe.look_at_ns(), Some(start + 90 * MS));
        }
        for pid in hung {
            assert_eq!(reap::reap(pid), Some(End::Killed(libc::SIGKILL)));
        }
    }

    #[test]
    fn a_pause_ends_what_is_under_way_and_forgets_failures() {
        let mut probe = probe();
        assert_eq!(probe.look(100 * MS), Finding::Nothing);
        let pid = probe.running.unwrap().pid;
        probe.pause();
        assert_eq!((probe.is_on(), probe.look_at_ns()), (false, None));
        assert_eq!(reap::reap(pid), Some(End::Killed(libc::SIGKILL)));
        assert_eq!(probe.look(1000 * MS), Finding::Nothing);
        probe.begin(1000 * MS);
        assert_eq!(probe.look_at_ns(), Some(1100 * MS));
    }
}
