//! Futex calls that come through no pthread door.

use core::sync::atomic::Ordering;

use us_abi::event::EventKind;

use crate::above::above;
use crate::call::Call;
use crate::door::patience::Patience;
use crate::door::refused::unnoticed;
use crate::door::turn_waits;
use crate::log::Next;
use crate::raw::{self, call6, nr};
use crate::sys::{atomics, libc_text};
use crate::thread::{Mode, Thread};
use crate::turns::live_turns::{self, Local};
use crate::{signal, state};

/// A futex call that did not come through a pthread door: a lock inside the C library, or the guest's own.
/// Both copies execute it on their own memory.
pub fn futex(thread: &mut Thread, call: &Call) -> i64 {
    futex_with(thread, call, &mut Patience::default())
}

/// The same of one that may have waited already.
pub fn futex_with(thread: &mut Thread, call: &Call, patience: &mut Patience) -> i64 {
    let is_own = !libc_text::is_own(call);
    // Whom a wake meets depends on the moment, and whose instruction comes next does not: what the kernel answers is in the log.
    let is_logged = |thread: &Thread| {
        is_own && atomics::are_ordered() && !state::is_serial() && thread.calls() != Mode::Solo
    };
    let Some(has_deadline) = waits(call) else {
        if is_logged(thread) {
            return turn_waits::own_wake(thread, call);
        }
        // One that wakes: broken off for a signal it would leave those asleep whom it was to wake, and Go ends the
        // program of an EINTR here.
        // SAFETY: the guest's own call.
        let result = unsafe { call6(call.nr, call.args) };
        if state::is_computed() && !raw::failed(result) {
            return result + i64::from(turn_waits::wake_in_time(call, result));
        }
        return result;
    };
    if !state::is_serial() && is_own {
        live_turns::waits_by_itself(thread);
    }
    loop {
        let is_ordered = is_logged(thread);
        if is_ordered && has_not_waited(thread) {
            return raw::err::EAGAIN;
        }
        // It has stood still here, and goes on beside a log of turns: whether the wait ends at its time is for that to say.
        let in_turns = (state::takes_live_turns() || patience.goes_by_log) && Local::is_one(call);
        if is_ordered || in_turns && is_own && thread.calls() != Mode::Solo {
            match turn_waits::own_wait(thread, call, patience) {
                Some(result) => return result,
                // It has stood still, and goes on beside another log or none: a copy that slept by itself here would not hear of
                // the end in that.
                None => continue,
            }
        }
        if in_turns && !is_own && thread.locks() == Mode::Replay {
            return live_turns::wait_by_log(thread, &Local::of(call));
        }
        if is_own && thread.calls() == Mode::Record && signal::has_deliverable(thread) {
            live_turns::is_interrupted_by_itself(thread);
        }
        let in_time = if is_own && state::is_computed() {
            turn_waits::wait_on_in_time(thread, call, patience)
        } else {
            None
        };
        // A log has no event at which a handler could run here: until it is late, and the log given up for it, the wait goes on.
        // Whoever looks for late signals breaks it off.
        let held_up = thread.calls() == Mode::Record && signal::has_deliverable(thread);
        let result = if let Some(result) = in_time {
            result
        } else {
            let args = patience.args(call);
            // SAFETY: the guest's own call.
            unsafe {
                if held_up { call6(call.nr, *args) } else { raw::blocking(call.nr, args, &thread.pending) }
            }
        };
        if result != raw::err::EINTR {
            return result;
        }
        if thread.calls() == Mode::Replay {
            take_over(thread);
            continue;
        }
        if !signal::has_deliverable(thread) {
            unnoticed(thread);
            continue;
        }
        let ends = signal::interrupts(thread, has_deadline);
        if signal::deliver_late(thread) && ends {
            return result;
        }
    }
}

/// Whether the log goes on with an atomic instruction where a standby's thread comes to a wait: it has looked so many times in vain,
/// by plain loads, and its primary's saw the word change before. As if it had changed here just now.
fn has_not_waited(thread: &mut Thread) -> bool {
    if thread.calls() != Mode::Replay {
        return false;
    }
    let Next::Event(event) = thread.next() else { return false };
    // It stays where it is.
    thread.ends.open = 0;
    let has_not = event.header.kind == EventKind::Atomic as u8;
    if has_not {
        // Whoever changes the word may wait for this processor.
        // SAFETY: gives the processor away, nothing else.
        unsafe { raw::call1(nr::SCHED_YIELD, 0) };
    }
    has_not
}

/// A standby's thread was roused from such a wait. Nobody wakes it there when its copy takes over, and until it is live it has no
/// signals.
#[cold]
fn take_over(thread: &mut Thread) {
    signal::look_again(thread);
    if state::LIVE.load(Ordering::Acquire) && thread.peek().is_none() {
        above().go_live(thread);
    }
}

/// Whether a futex call may wait, and if so whether every handler ends it, as one that has a time to end at.
pub fn waits(call: &Call) -> Option<bool> {
    const WAIT: u64 = 0;
    const LOCK_PI: u64 = 6;
    const WAIT_BITSET: u64 = 9;
    const WAIT_REQUEUE_PI: u64 = 11;
    const LOCK_PI2: u64 = 13;
    use crate::raw::nr::{FUTEX_WAIT, FUTEX_WAITV};
    match (call.nr, call.args[1] & 0x7f) {
        (nr::FUTEX, WAIT | WAIT_BITSET | WAIT_REQUEUE_PI) => Some(call.args[3] != 0),
        // The kernel begins such a lock again behind any handler, and the young calls as any other.
        (nr::FUTEX, LOCK_PI | LOCK_PI2) | (FUTEX_WAITV | FUTEX_WAIT, _) => Some(false),
        _ => None,
    }
}
