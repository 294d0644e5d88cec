//! A process of the group as its supervisor holds it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::proc;

/// A child of ours: the primary or the standby. The descriptor names it even when its pid is used again.
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
        let pidfd = rustix::process::pidfd_open(raw(pid)?, PidfdFlags::empty()).ok()?;
        let ours = proc::read(pid).is_some_and(|process| process.parent == std::process::id());
        ours.then(|| Child { pid, pidfd: Arc::new(pidfd) })
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
