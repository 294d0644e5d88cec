//! The runtime's own restartable wait, under every blocking door of pthreads.
//!
//! No thread may be left inside a wait of glibc's: a copy that is promoted or re-cloned would keep ghost
//! waiters there. Here a thread sleeps on a futex word in the object's own bytes, comes back for signals,
//! and can always start over.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::{EventKind, NO_TICKET};

use crate::above::above;
use crate::call::Call;
use crate::door::patience::Patience;
use crate::door::turn_waits;
use crate::kernel::{FUTEX_CLOCK_REALTIME, FUTEX_WAIT_BITSET};
use crate::members::of_family;
use crate::raw::{self, Timespec};
use crate::thread::{Mode, Thread};
use crate::turns::On;
use crate::turns::live_turns::{self, Local};
use crate::turns::logical::Until;
use crate::{family, signal, state, turns, twins};

/// When a wait ends without having been woken.
#[derive(Clone, Copy, Debug)]
pub enum Deadline {
    /// Never.
    None,
    /// At this time of CLOCK_REALTIME.
    Realtime(Timespec),
    /// At this time of CLOCK_MONOTONIC.
    Monotonic(Timespec),
}

impl Deadline {
    /// Whether it has passed without a look at a clock: the kernel calls a negative time invalid.
    pub fn is_negative(&self) -> bool {
        matches!(self, Deadline::Realtime(time) | Deadline::Monotonic(time) if time.sec < 0)
    }

    /// The same for a sleep in logical time.
    pub fn until(&self) -> Option<Until> {
        match *self {
            Deadline::None => None,
            Deadline::Realtime(time) => Some(Until { clock: 0, time }),
            Deadline::Monotonic(time) => Some(Until { clock: 1, time }),
        }
    }

    /// Arguments of the futex call that waits until then while `word` holds `value`. They point at the word and at this
    /// deadline, and both must outlive the call.
    #[inline(always)]
    pub fn futex(&self, word: &AtomicU32, value: u32, shared: bool) -> [u64; 6] {
        let (clock, time) = match self {
            Deadline::None => (0, core::ptr::null()),
            Deadline::Monotonic(time) => (0, &raw const *time),
            Deadline::Realtime(time) => (FUTEX_CLOCK_REALTIME, &raw const *time),
        };
        let op = FUTEX_WAIT_BITSET | clock | if shared { 0 } else { FUTEX_PRIVATE };
        [word.as_ptr() as u64, op, u64::from(value), time as u64, 0, u64::from(u32::MAX)]
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The word changed, somebody woke us, or a signal handler has run: look at the object again.
    Again,
    /// The same, and a handler has run for which the kernel would have ended this wait with EINTR.
    Interrupted,
    /// The deadline has passed.
    TimedOut,
    /// The thread stood still, and this is now a standby's: what the operation comes to, the log says.
    Follow,
}

const FUTEX_PRIVATE: u64 = linux_raw_sys::general::FUTEX_PRIVATE_FLAG as u64;

/// Sleeps while `word` holds `value`. Guest signals that arrive meanwhile are delivered here, before the
/// return: a thread that blocks in a door is at a door. `shared` is for process-shared objects.
#[inline]
pub fn sleep(thread: &mut Thread, word: &AtomicU32, value: u32, deadline: Deadline, shared: bool) -> Wait {
    if thread.newborn && shared {
        // It waits for others: it will live for a while.
        above().join(thread);
    }
    if shared && of_family::is_member() && thread.turn.is_own() {
        let end = sleep_in_family(thread, word, value, deadline);
        family::tidy_up();
        return end;
    }
    let has_deadline = !matches!(deadline, Deadline::None);
    if turns::is_followed(thread) && thread.locks() == Mode::Solo {
        turns::follow_pause(thread);
        return Wait::Again;
    }
    if thread.locks() == Mode::Solo
        && thread.calls() == Mode::Replay
        && let Some(end) = follow_alone(thread, has_deadline)
    {
        return end;
    }
    if state::takes_live_turns() && thread.turn.is_own() && thread.locks() == Mode::Replay {
        live_turns::wait_by_log(thread, &Local::new(word, value, shared));
        return Wait::Again;
    }
    // A standby's thread that is promoted meanwhile goes on by itself: only the other way leads back to the door.
    let followed = is_followed(thread, word, shared);
    let result = if state::is_computed()
        && let Some(result) = turns::sleep(
            thread,
            On { key: word.as_ptr() as u64, is_alike: !shared },
            deadline.until().as_ref(),
        ) {
        result
    } else {
        let args = deadline.futex(word, value, shared);
        turns::pause(thread);
        // SAFETY: the word and the time outlive the call; a futex wait changes no memory.
        let result = unsafe { raw::blocking(raw::nr::FUTEX, &args, &thread.pending) };
        turns::take(thread);
        result
    };
    let mut interrupted = false;
    if result == raw::err::EINTR {
        // The door's own outcome says it, not an event of the signal's.
        interrupted = !followed && deliver(thread, has_deadline);
        above().stand_still(thread);
        // Where it has stood still another log has begun, and with it other turns.
        turns::take(thread);
    }
    if thread.pending.load(Ordering::Relaxed) != 0 {
        // Sent before we were woken, or while we stood still, perhaps by the very thread that woke us: the guest must not
        // go on as if that were still to come. A cancellation as well: a thread that sleeps again would not hear of it.
        // It ends this wait like any other: in the log of a lone thread there is the signal alone, and whoever follows ends
        // its wait there.
        interrupted |= deliver(thread, has_deadline) && !followed;
    }
    // Parked here, or in a handler that has just run.
    if !followed && is_followed(thread, word, shared) {
        return Wait::Follow;
    }
    match result {
        _ if interrupted => Wait::Interrupted,
        raw::err::ETIMEDOUT => Wait::TimedOut,
        _ => Wait::Again,
    }
}

/// Delivers what is due in a wait. Whether the kernel would have ended the wait with EINTR for it.
fn deliver(thread: &mut Thread, has_deadline: bool) -> bool {
    super::cancel::leave_if_due(thread);
    let (any, breaking) = (signal::interrupts(thread, true), signal::interrupts(thread, false));
    // A copy that is made below has run the handler, and is promoted perhaps before the log has this wait's end.
    thread.signals.broken_off.0 |= any;
    thread.signals.broken_off.1 |= breaking;
    signal::deliver(thread);
    if has_deadline { any } else { breaking }
}

/// The wait for an object that the processes of a family share: given up to the others like a futex call of the program's own,
/// whose answer is in the log. The object itself is in each copy what the turns have made of it.
#[cold]
fn sleep_in_family(thread: &mut Thread, word: &AtomicU32, value: u32, deadline: Deadline) -> Wait {
    if thread.calls() == Mode::Record {
        thread.push(EventKind::Yield, 0, 0, NO_TICKET);
    }
    // What the primary had delivered before it slept came in its turn, and the log says where that ended: a standby that waited
    // here for the outcome, which may be another one's to bring about, would keep the turn.
    while thread.calls() == Mode::Replay {
        match thread.peek() {
            Some(next) if next.kind == EventKind::Signal as u8 => {
                thread.take_signal();
                return Wait::Again;
            }
            Some(next) => {
                if next.kind == EventKind::Yield as u8 {
                    thread.take_front(&next);
                }
                break;
            }
            None => thread.wait_more(),
        }
    }
    let args = deadline.futex(word, value, true);
    let call = Call { nr: raw::nr::FUTEX, args, caller: 0 };
    let has_deadline = !matches!(deadline, Deadline::None);
    let patience = &mut Patience::default();
    let Some(end) = turn_waits::futex_by_log(thread, &call, patience, has_deadline) else {
        // The thread stood still, and another log has begun; or this copy is live.
        turns::take(thread);
        return Wait::Again;
    };
    match end.result {
        _ if end.is_by_signals() && !turn_waits::take_signals(thread, &end) => Wait::Interrupted,
        raw::err::ETIMEDOUT => Wait::TimedOut,
        _ => Wait::Again,
    }
}

/// The wait of a standby's only thread. Locks of a program with one thread are in no log, its signals are: without looking
/// there, a handler that ends the wait would never run here, and a promotion would wait for it for ever. `None` when the
/// thread is to wait by itself.
#[cold]
fn follow_alone(thread: &mut Thread, has_deadline: bool) -> Option<Wait> {
    loop {
        match thread.peek() {
            Some(next) if next.kind == EventKind::Signal as u8 => {
                let interrupts = has_deadline || !signal::is_restarting(i32::from(next.call));
                thread.take_signal();
                return Some(if interrupts { Wait::Interrupted } else { Wait::Again });
            }
            // The primary has left its wait and done something else.
            Some(_) => return has_deadline.then_some(Wait::TimedOut),
            None if state::LIVE.load(Ordering::Acquire) => {
                above().go_live(thread);
                return None;
            }
            None => thread.wait_more(),
        }
    }
}

/// Whether the log says how this thread's wait ends.
fn is_followed(thread: &Thread, word: &AtomicU32, shared: bool) -> bool {
    thread.locks() == Mode::Replay
        || (shared && thread.calls() == Mode::Replay && twins::contains(word.as_ptr() as usize))
}
