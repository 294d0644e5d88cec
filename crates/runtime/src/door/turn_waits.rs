//! Futex waits where threads take turns, or where atomic instructions are ordered: how one ends is an event, and others have the turn
//! meanwhile.

use us_abi::ReturnHead;
use us_abi::event::{EventKind, NO_TICKET};

use crate::above::above;
use crate::call::Call;
use crate::door::futex;
use crate::door::patience::Patience;
use crate::log::Next;
use crate::raw::{self, nr};
use crate::signal::Plan;
use crate::sys::libc_text;
use crate::thread::{Mode, Thread};
use crate::turns::live_turns::{self, Local};
use crate::turns::{give, pause, take};
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
pub fn own_wake(thread: &mut Thread, call: &Call) -> i64 {
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

/// How a wait has ended whose end is in the log.
pub struct End {
    /// What the kernel has answered.
    pub result: i64,
    /// Of that event: the signals that have ended it, and whether it begins again behind them.
    flags: u8,
}

impl End {
    /// Whether signals have ended it.
    pub fn is_by_signals(&self) -> bool {
        self.result == raw::err::EINTR
    }
}

/// A futex wait of the program's own: its outcome is in the log, and the copies that stand still in it begin it again there. `None`
/// if it has stood still, or this copy is live.
pub fn own_wait(thread: &mut Thread, call: &Call, patience: &mut Patience) -> Option<i64> {
    let has_deadline = futex::waits(call) == Some(true);
    loop {
        let end = futex_by_log(thread, call, patience, has_deadline)?;
        if !end.is_by_signals() || !take_signals(thread, &end) {
            return Some(end.result);
        }
        // The kernel begins the wait again behind such a handler.
    }
}

/// One whose result is an event. `None` if the thread stood still in it and the door begins again, beside another log; or this
/// copy is live, and nobody follows.
pub fn futex_by_log(
    thread: &mut Thread,
    call: &Call,
    patience: &mut Patience,
    has_deadline: bool,
) -> Option<End> {
    let row = us_calls::row(nr::FUTEX)?;
    // In a standby as well, which may be promoted in the middle of it.
    patience.begin(call);
    give(thread);
    let end = loop {
        if thread.calls() == Mode::Replay {
            if let Next::Event(event) = thread.expect(EventKind::Call, row.nr) {
                let end = End { result: event.returned().0.result, flags: event.header.flags };
                thread.close();
                break end;
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
        let flags = if result == raw::err::EINTR { Plan::of_wait(thread, has_deadline).flags() } else { 0 };
        thread.append(EventKind::Call, flags, row.nr, NO_TICKET, &ReturnHead { result, identity: 0 });
        break End { result, flags };
    };
    take(thread);
    Some(end)
}

/// Behind such a wait that signals have ended: as many handlers as its end has announced run at the same place in every copy. What
/// comes meanwhile is for the next door: it would be delivered in this turn here, and in another one by whoever follows. Whether
/// the wait begins again: behind such handlers, or since the signals were lost with the primary that had announced them.
pub fn take_signals(thread: &mut Thread, end: &End) -> bool {
    // Whoever goes on elsewhere than behind the handler finds a call that was interrupted.
    thread.shown.result = end.result;
    if thread.calls() == Mode::Replay {
        return Plan::replay(thread, end.flags, end.result);
    }
    let plan = Plan::announced(end.flags);
    if signal::interrupts(thread, true) {
        return plan.carry_out(thread);
    }
    plan.none_came(thread);
    true
}
