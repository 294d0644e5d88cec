//! Futex waits where threads take turns: how one ends is an event, and others have the turn meanwhile.

use us_abi::ReturnHead;
use us_abi::event::{EventKind, NO_TICKET};

use crate::above::above;
use crate::call::Call;
use crate::door::futex;
use crate::door::patience::Patience;
use crate::log::Next;
use crate::raw::{self, nr};
use crate::sys::libc_text;
use crate::thread::{Mode, Thread};
use crate::turns::live_turns::{self, Local};
use crate::turns::{awaited, give, pause, take};
use crate::{recorder, signal, state};

/// A futex wait of the guest's own, or of libc's: its result is an event here.
pub fn futex(thread: &mut Thread, call: &Call, patience: &mut Patience) -> Option<i64> {
    if !thread.turn.is_own() {
        return None;
    }
    if !Local::is_one(call) {
        return if libc_text::is_own(call) { None } else { Some(own_wake(thread, call)) };
    }
    if (thread.takes_libc_lock || state::takes_live_turns()) && libc_text::is_own(call) {
        // A lock inside libc, behind a door that orders it: whether it waits depends on the moment.
        if thread.calls() == Mode::Replay {
            return Some(live_turns::wait_by_log(thread, &Local::of(call)));
        }
        // A handler that runs meanwhile is behind no such door.
        let takes = core::mem::take(&mut thread.takes_libc_lock);
        pause(thread);
        let result = futex::futex_with(thread, call, patience);
        take(thread);
        thread.takes_libc_lock = takes;
        return Some(result);
    }
    own_wait(thread, call, patience)
}

/// A wake of the program's own: how many it has met is for the log to say. Those who wait in a standby wait for the log, and
/// relatives wait for the primary.
fn own_wake(thread: &mut Thread, call: &Call) -> i64 {
    // SAFETY: the guest's own call, which does not wait.
    let mut result = unsafe { raw::call6(call.nr, call.args) };
    if thread.calls() == Mode::Replay
        && let Next::Event(event) = thread.expect(EventKind::Call, call.nr as u16)
    {
        result = event.returned().0.result;
        thread.close();
        return result;
    }
    if thread.calls() == Mode::Record {
        thread.append(EventKind::Call, 0, call.nr as u16, NO_TICKET, &ReturnHead { result, identity: 0 });
    }
    result
}

/// A futex wait of the program's own: its outcome is in the log, and the copies that stand still in it begin it again there. `None`
/// if it has stood still, or this copy is live.
pub fn own_wait(thread: &mut Thread, call: &Call, patience: &mut Patience) -> Option<i64> {
    let has_deadline = futex::waits(call) == Some(true);
    loop {
        let result = futex_by_log(thread, call, patience)?;
        if result != raw::err::EINTR || take_signals(thread, has_deadline) != Some(false) {
            return Some(result);
        }
        // The kernel begins the wait again behind such a handler.
    }
}

/// One whose result is an event. `None` if the thread stood still in it and the door begins again, beside another log; or this
/// copy is live, and nobody follows.
pub fn futex_by_log(thread: &mut Thread, call: &Call, patience: &mut Patience) -> Option<i64> {
    let row = us_calls::row(nr::FUTEX)?;
    // In a standby as well, which may be promoted in the middle of it.
    patience.begin(call);
    give(thread);
    let result = loop {
        if thread.calls() == Mode::Replay {
            if let Next::Event(event) = thread.expect(EventKind::Call, row.nr) {
                let result = event.returned().0.result;
                thread.close();
                break result;
            }
            if thread.calls() != Mode::Record {
                return None;
            }
        }
        // SAFETY: the guest's own call.
        let result = unsafe { raw::blocking(call.nr, patience.args(call), &thread.pending) };
        if result == raw::err::EINTR && !signal::interrupts(thread, true) {
            if above().stand_still(thread) {
                if recorder::went_on_at_clone() {
                    // The log is the same, and does not say yet how the wait ends.
                    continue;
                }
                return None;
            }
            // Somebody wanted this thread to park, and does no longer. Told of that, a program that waits until a time would ask
            // again and again, and be told so each time.
            signal::sleep_on(thread);
            continue;
        }
        thread.append(EventKind::Call, 0, row.nr, NO_TICKET, &ReturnHead { result, identity: 0 });
        break result;
    };
    take(thread);
    Some(result)
}

/// Behind such a wait that a signal has ended: its handler runs, at the same place in every copy. Whether the wait ends with
/// EINTR; `None` if there was none.
pub fn take_signals(thread: &mut Thread, has_deadline: bool) -> Option<bool> {
    if let Some(next) = awaited(thread) {
        let is_signal = next.kind == EventKind::Signal as u8;
        return is_signal.then(|| {
            let interrupts = has_deadline || !signal::is_restarting(i32::from(next.call));
            thread.take_signal();
            interrupts
        });
    }
    let interrupts = signal::interrupts(thread, has_deadline);
    signal::deliver(thread);
    Some(interrupts)
}
