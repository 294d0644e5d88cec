//! Ending a copy of this process: the one place where the runtime ends another process by a number.
//!
//! A number outlives its process, and one in a segment has been written by whoever has that mapped. So the process is held first,
//! by a pidfd, and then the kernel has to say that it is a copy: it shares our table of descriptors, as nobody else does.

use core::sync::atomic::Ordering;

use us_abi::{SegmentHeader, command};

use crate::kernel::SIGKILL;
use crate::raw::{self, failed};
use crate::{members, state};

/// A process that was held, and ended if it was a copy.
struct Held {
    /// Below zero where the kernel gives none: the table is full, or a filter does not let the call pass.
    pidfd: i64,
    is_copy: bool,
    /// The kernel does not let us: it is behind, and has still the user that we had.
    is_refused: bool,
}

/// Ends the process `pid` if it has the table of our thread `own`, or of our first one: either may have none of it any more.
fn kill_held(pid: u32, own: u32) -> Held {
    use crate::raw::nr::PIDFD_SEND_SIGNAL;
    // SAFETY: a descriptor that its caller closes, and a signal to a copy of ours.
    unsafe {
        let pidfd = raw::call2(raw::nr::PIDFD_OPEN, u64::from(pid), 0);
        let first = raw::call1(raw::nr::GETPID, 0) as u32;
        let is_copy = shares_table(pid, own) || shares_table(pid, first);
        let mut is_refused = false;
        if is_copy && (failed(pidfd) || failed(raw::call4(PIDFD_SEND_SIGNAL, pidfd as u64, SIGKILL, 0, 0))) {
            is_refused = raw::call2(raw::nr::KILL, u64::from(pid), SIGKILL) == raw::err::EPERM;
        }
        Held { pidfd, is_copy, is_refused }
    }
}

fn close(held: &Held) {
    if !failed(held.pidfd) {
        // SAFETY: opened by us a moment ago.
        unsafe { raw::call1(raw::nr::CLOSE, held.pidfd as u64) };
    }
}

/// Ends a copy that a thread with a table of its own has had made. `own` is a thread of the guest's.
pub fn kill(pid: u32, own: u32) {
    close(&kill_held(pid, own));
}

/// Ends a standby and waits until it is gone.
pub fn end(pid: u32) {
    use crate::kernel::POLLIN;
    let held = kill_held(pid, raw::gettid());
    if let Some(header) = state::header().filter(|_| held.is_refused) {
        header.command.0.store(command::END, Ordering::SeqCst);
        raw::futex_wake_shared(&header.command.0);
    }
    // A pidfd becomes readable when the whole process is gone: only then are its references to the shared table released. One
    // that is about to end has given the table back already, and looks like a stranger.
    let patience_ms = if held.is_copy { 2000 } else { 100 };
    let mut poll = held.pidfd as u64 & 0xffff_ffff | POLLIN << 32;
    let is_to_be_buried = match failed(held.pidfd) {
        true => held.is_copy,
        // SAFETY: one descriptor, which we have opened.
        false => unsafe { raw::call3(raw::nr::POLL, &raw mut poll as u64, 1, patience_ms) == 1 },
    };
    // The number is free again before the guest sees the table.
    close(&held);
    if is_to_be_buried && members::header().is_some() {
        await_burial(pid);
    }
}

/// The process goes on, and may have another standby, which is not to end.
pub fn ended_in_vain(header: &SegmentHeader) {
    let (end, follow) = (command::END, command::FOLLOW);
    let _ = header.command.0.compare_exchange(end, follow, Ordering::SeqCst, Ordering::SeqCst);
}

/// Whether the process of this number shares the table of descriptors that our thread has. Where the kernel may not say, the
/// number has to do.
fn shares_table(pid: u32, own: u32) -> bool {
    use crate::raw::nr::KCMP;
    const KCMP_FILES: u64 = 2;
    // SAFETY: asks about two processes.
    let order = unsafe { raw::call6(KCMP, [u64::from(own), u64::from(pid), KCMP_FILES, 0, 0, 0]) };
    order == 0 || failed(order)
}

/// Waits until the supervisor has reaped an ended standby: a zombie still counts as one of its process group, which a
/// parent that has waited for us may ask for. Not for long, since the supervisor may be stopped.
fn await_burial(pid: u32) {
    const LOOKS: u32 = 500;
    const PAUSE_NS: u64 = 200_000;
    for look in 0..LOOKS {
        // SAFETY: signal 0 only asks.
        if unsafe { raw::call2(raw::nr::KILL, u64::from(pid), 0) } == raw::err::ESRCH {
            return;
        }
        raw::nap(if look < 10 { PAUSE_NS / 10 } else { PAUSE_NS });
    }
}
