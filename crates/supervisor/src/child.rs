//! A process of the group as its supervisor holds it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::proc;

/// A copy: a primary or a standby. The descriptor names it even when its pid is used again.
#[derive(Clone, Debug)]
pub struct Child {
    /// Kernel's pid.
    pub pid: u32,
    /// Readable once the process has ended.
    pub pidfd: Arc<OwnedFd>,
}

impl Child {
    /// The child `pid`, or `None` when it is not (or no longer) one: a segment is written by its guest, and
    /// must not lead us to end somebody else's process.
    pub fn of_child(pid: u32) -> Option<Child> {
        let ours = || proc::read(pid).is_some_and(|process| process.parent == std::process::id());
        Child::open(pid).filter(|_| ours())
    }

    /// The child, or the child's child, and so on: what has been made by a process of the group may take a moment to
    /// become ours, and most processes of a group never do.
    pub fn of_descendant(pid: u32) -> Option<Child> {
        Child::open(pid).filter(|_| proc::is_descendant(pid, std::process::id()))
    }

    fn open(pid: u32) -> Option<Child> {
        let pidfd = rustix::process::pidfd_open(raw(pid)?, PidfdFlags::empty()).ok()?;
        Some(Child { pid, pidfd: Arc::new(pidfd) })
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        proc::read(self.pid).is_some_and(|process| process.alive())
    }

    /// Ends it at once.
    pub fn kill(&self) {
        // The only failure is that it has ended already.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Sends it a signal by number.
    pub fn signal(&self, number: i32) {
        let _ = crate::spawn::pidfd_signal(&self.pidfd, number);
    }
}

/// A pid in the type of the system call wrappers.
pub fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
