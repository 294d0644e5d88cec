//! Memory that is scarce: whom the kernel is to end first, and whether there is room for another copy.
//!
//! A standby is what a group can do without. So the kernel's score of it is the highest there is, as long as it follows; before
//! it takes over it gets the program's own back, which the program can read.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::proc;

/// The score of a process that the kernel ends before all others.
const FIRST: i32 = 1000;

/// What a copy needs besides all that it shares with its primary at first, for stacks, page tables and rings, bytes.
const BESIDES: u64 = 8 << 20;

/// On a whole machine the standby's end is relief enough, and most of large memory is only read: one part in so many is asked for.
const MACHINE_PART: u64 = 4;

/// The raised score of a standby.
#[derive(Debug)]
pub struct Raised {
    pid: u32,
    /// Its primary's, when it was last seen.
    own: AtomicI32,
}

impl Raised {
    /// Raises the score of `standby`, of the primary `primary`. `None` where that is not allowed: the kernel then chooses between
    /// two that are alike.
    pub fn new(standby: u32, primary: u32) -> Option<Raised> {
        let raised = Raised { pid: standby, own: proc::oom_score(primary)?.into() };
        raised.write(FIRST).then_some(raised)
    }

    /// Whether this is the standby `standby`, and still one.
    pub fn is_of(&self, standby: u32) -> bool {
        self.pid == standby && self.is_of_use()
    }

    /// Whether its standby is still there.
    pub fn is_of_use(&self) -> bool {
        proc::oom_score(self.pid).is_some_and(|score| score == FIRST)
    }

    fn write(&self, score: i32) -> bool {
        // Whoever is allowed to lower any score sets, with each of his, the lowest that others may go to.
        without_resources(|| proc::set_oom_score(self.pid, score))
    }

    /// Gives `standby` its primary's score, as it is now if the dead `primary` still shows it.
    pub fn restore(&self, standby: u32, primary: Option<u32>) {
        if self.pid == standby {
            self.write(primary.and_then(proc::oom_score).unwrap_or_else(|| self.own.load(Ordering::Relaxed)));
        }
    }

    /// Looks at its primary's score, which is about to be reaped, or once more.
    pub fn keep(&self, primary: u32) {
        if let Some(score) = proc::oom_score(primary) {
            self.own.store(score, Ordering::Relaxed);
        }
    }
}

/// Runs `act` without CAP_SYS_RESOURCE in force, in this thread.
fn without_resources<T>(act: impl FnOnce() -> T) -> T {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Ok(before) = capabilities(None).map_err(|_| ()) else { return act() };
    let without = rustix::thread::CapabilitySets {
        effective: before.effective - CapabilitySet::SYS_RESOURCE,
        ..before
    };
    let lowered = without.effective != before.effective && set_capabilities(None, without).is_ok();
    let done = act();
    if lowered {
        let _ = set_capabilities(None, before);
    }
    done
}

/// Whether there is too little room for a copy of the process `pid`: below the limit of a group of processes that it is in, where
/// the kernel may have ended both before it has got a standby's memory back, or on the machine.
pub fn is_scarce(pid: u32) -> bool {
    let needed = needed_for(pid);
    proc::available_bytes().is_some_and(|free| free < needed / MACHINE_PART)
        || room(pid).is_some_and(|room| room < needed)
}

/// What a copy of the process may come to have, bytes.
fn needed_for(pid: u32) -> u64 {
    proc::status(pid, "RssAnon:").and_then(|size| proc::text::kib(&size)).unwrap_or(0) + BESIDES
}

/// Why a standby is ended before the kernel has to choose.
pub const RELIEF: &str = "its cgroup has nearly reached its memory limit";

/// How soon to look again whether the process `pid` still leaves room for its standby, below the limit of a group. Zero: it does
/// not. `None` without a limit.
///
/// The kernel takes a victim's memory for free before it is counted as free, and may then end the primary as well: of sixty
/// programs that filled 200 MB ten ended with their standbys, at half of that.
pub fn relief(pid: u32) -> Option<Duration> {
    const MARGIN_MAX: u64 = 64 << 20;
    /// What two copies use up in a millisecond at the most, bytes.
    const RUSH: u64 = 8 << 20;
    let left = room(pid)?.saturating_sub((needed_for(pid) / 4).min(MARGIN_MAX));
    Some(if left == 0 { Duration::ZERO } else { Duration::from_millis((left / RUSH).clamp(1, 100)) })
}

/// Bytes that the limits of the process's groups leave, if there are any.
pub fn room(pid: u32) -> Option<u64> {
    let groups = proc::lossy(pid, "cgroup");
    let rooms = proc::text::groups(&groups).filter_map(|(controllers, path)| match controllers {
        "" => Some(room_below(Path::new("/sys/fs/cgroup"), path, &V2)),
        _ if controllers.split(',').any(|name| name == "memory") => {
            Some(room_below(Path::new("/sys/fs/cgroup/memory"), path, &V1))
        }
        _ => None,
    });
    rooms.flatten().min()
}

/// The names of the files that say it.
struct Names {
    limits: &'static [&'static str],
    used: &'static str,
    idle: &'static str,
}

const V2: Names =
    Names { limits: &["memory.max", "memory.high"], used: "memory.current", idle: "inactive_file " };
const V1: Names =
    Names { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", idle: "total_inactive_file " };

/// What the group at `path`, and each above it, leaves. One that cannot be seen from here says nothing.
fn room_below(mount: &Path, path: &str, names: &Names) -> Option<u64> {
    let at = mount.join(path.trim_start_matches('/'));
    let levels = at.ancestors().take_while(|level| level.starts_with(mount));
    levels.filter_map(|level| room_at(level, names)).min()
}

fn room_at(level: &Path, names: &Names) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(level.join(name)).ok()?.trim().parse::<u64>().ok();
    // Of a group without a limit the first version of groups tells a number that no machine has.
    let limit = names.limits.iter().filter_map(|name| number(name)).min().filter(|limit| *limit < 1 << 60)?;
    let stat = fs::read_to_string(level.join("memory.stat")).unwrap_or_default();
    let idle = stat.lines().find_map(|line| line.strip_prefix(names.idle)?.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(number(names.used)?.saturating_sub(idle.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_leaves_its_limit_less_what_is_used_and_not_idle() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("memory.max", "max\n");
        put("memory.current", "700\n");
        assert_eq!(room_at(folder.path(), &V2), None);
        put("memory.high", "1000\n");
        put("memory.stat", "anon 500\ninactive_file 200\n");
        assert_eq!(room_at(folder.path(), &V2), Some(500));
        put("memory.max", "600\n");
        assert_eq!(room_below(folder.path(), "/", &V2), Some(100));
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("memory.max"), "50").unwrap();
        fs::write(inner.join("memory.current"), "20").unwrap();
        assert_eq!(room_below(folder.path(), "/inner", &V2), Some(30));
        assert_eq!(room_below(folder.path(), "/unseen/deeper", &V2), Some(100));
    }

    #[test]
    fn a_score_is_raised_and_given_back() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let own = proc::oom_score(std::process::id()).unwrap();
        let raised = Raised::new(child.id(), std::process::id()).unwrap();
        assert_eq!(proc::oom_score(child.id()), Some(FIRST));
        raised.restore(child.id() + 1, None);
        assert_eq!(proc::oom_score(child.id()), Some(FIRST));
        raised.restore(child.id(), Some(std::process::id()));
        assert_eq!(proc::oom_score(child.id()), Some(own));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
