//! Futex calls that come through no pthread door.

use crate::call::Call;
use crate::door::refused::unnoticed;
use crate::door::turn_waits;
use crate::raw::{self, call6};
use crate::sys::libc_text;
use crate::thread::{Mode, Thread};
use crate::turns::live_turns::{self, Local};
use crate::{signal, state};

/// A futex call that did not come through a pthread door: a lock inside the C library, or the guest's own.
/// Both copies execute it on their own memory.
pub fn futex(thread: &mut Thread, call: &Call) -> i64 {
    let Some(has_deadline) = futex_waits(call) else {
        // One that wakes: broken off for a signal it would leave those asleep whom it was to wake, and Go ends the
        // program of an EINTR here.
        // SAFETY: the guest's own call.
        return unsafe { call6(call.nr, call.args) };
    };
    if !state::is_serial() && !libc_text::is_own(call) {
        live_turns::waits_by_itself(thread);
    }
    loop {
        if state::takes_live_turns() && Local::is_one(call) {
            if !libc_text::is_own(call) {
                // It has stood still here, and goes on beside a log of turns: whether the wait ends at its time is for that to say.
                if thread.calls() != Mode::Solo
                    && let Some(result) = turn_waits::own_wait(thread, call)
                {
                    return result;
                }
            } else if thread.locks() == Mode::Replay {
                return live_turns::wait_by_log(thread, &Local::of(call));
            }
        }
        // A log has no event at which a handler could run here: until it is late, and the log given up for it, the wait goes on.
        // Whoever looks for late signals breaks it off.
        let held_up = thread.calls() == Mode::Record && signal::has_deliverable(thread);
        // SAFETY: the guest's own call.
        let result = unsafe {
            if held_up {
                call6(call.nr, call.args)
            } else {
                raw::blocking(call.nr, &call.args, &thread.pending)
            }
        };
        if result != raw::err::EINTR {
            return result;
        }
        if !signal::has_deliverable(thread) {
            unnoticed(thread);
            continue;
        }
        let ends = signal::interrupts(thread, has_deadline);
        signal::deliver_late(thread);
        if ends && !signal::has_deliverable(thread) {
            return result;
        }
    }
}

/// Whether a futex call may wait, and if so whether for a time only.
fn futex_waits(call: &Call) -> Option<bool> {
    const WAIT: u64 = 0;
    const LOCK_PI: u64 = 6;
    const WAIT_BITSET: u64 = 9;
    const WAIT_REQUEUE_PI: u64 = 11;
    const LOCK_PI2: u64 = 13;
    match call.args[1] & 0x7f {
        WAIT | WAIT_BITSET | WAIT_REQUEUE_PI => Some(call.args[3] != 0),
        // The kernel begins such a lock again behind any handler.
        LOCK_PI | LOCK_PI2 => Some(false),
        _ => None,
    }
}
