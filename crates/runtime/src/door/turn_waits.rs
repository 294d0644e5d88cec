//! Futex waits where threads take turns, or where atomic instructions are ordered: how one ends is an event, and others have the turn
//! meanwhile.

use us_abi::ReturnHead;
use us_abi::event::{EventKind, NO_TICKET};

use crate::above::above;
use crate::call::Call;
use crate::door::futex;
use crate::door::patience::Patience;
use crate::guest::GuestPtr;
use crate::log::Next;
use crate::raw::{self, Timespec, nr};
use crate::signal::Plan;
use crate::sys::libc_text;
use crate::thread::{Mode, Thread};
use crate::turns::live_turns::{self, Local};
use crate::turns::logical::Until;
use crate::turns::{self, On, give, logical, pause, take};
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
        if let Some(result) = sleep_for_libc(thread, call) {
            thread.takes_libc_lock = takes;
            return Some(result);
        }
        pause(thread);
        // Several threads may stand still here, and a wake meets one of them: in a copy another one than in its primary.
        patience.goes_by_log = true;
        let result = futex::futex_with(thread, call, patience);
        take(thread);
        thread.takes_libc_lock = takes;
        return Some(result);
    }
    own_wait(thread, call, patience)
}

/// A wait for a lock of libc's, where the order is computed.
fn sleep_for_libc(thread: &mut Thread, call: &Call) -> Option<i64> {
    if !logical::decides(thread) {
        return None;
    }
    let local = Local::of(call);
    if !local.is_to_wait() {
        return Some(raw::err::EAGAIN);
    }
    // A thread that libc has just made says so before its first turn, and one of an allocator's never has any.
    let on = On { key: call.args[0], is_alike: false };
    turns::sleep_while(thread, on, local.until().as_ref(), || local.is_to_wait())
}

/// A wake of the program's own: how many it has met is for the log to say. Those who wait in a standby wait for the log, and
/// relatives wait for the primary.
pub fn own_wake(thread: &mut Thread, call: &Call) -> i64 {
    if thread.calls() == Mode::Replay
        && let Next::Event(event) = thread.expect(EventKind::Call, call.nr as u16)
    {
        // Who waits here for the kernel only: whoever waits for the log goes on by it.
        // SAFETY: the guest's own call, which does not wait.
        let met = unsafe { raw::call6(call.nr, call.args) };
        let result = event.returned().0.result;
        thread.close();
        if logical::applies(thread) && !raw::failed(met) {
            wake_in_time(call, met);
        }
        return result;
    }
    // Also where this copy has been promoted while it looked for the end of this call: those who sleep are its own to wake then.
    // SAFETY: as above.
    let mut result = unsafe { raw::call6(call.nr, call.args) };
    if logical::decides(thread) && !raw::failed(result) {
        result += i64::from(wake_in_time(call, result));
    }
    if thread.calls() == Mode::Record {
        thread.append(EventKind::Call, 0, call.nr as u16, NO_TICKET, &ReturnHead { result, identity: 0 });
    }
    result
}

/// Wakes those who sleep in logical time, besides `met` of the kernel's. More of them are woken than the call says where it
/// would have put them to sleep elsewhere: each looks again.
pub fn wake_in_time(call: &Call, met: i64) -> u32 {
    const WAKE: u64 = 1;
    const REQUEUE: u64 = 3;
    const CMP_REQUEUE: u64 = 4;
    const WAKE_OP: u64 = 5;
    const WAKE_BITSET: u64 = 10;
    let left = (call.args[2] as u32).saturating_sub(met as u32);
    match call.args[1] & 127 {
        WAKE | WAKE_BITSET => logical::wake(call.args[0], left),
        REQUEUE | CMP_REQUEUE => logical::wake(call.args[0], u32::MAX),
        WAKE_OP => logical::wake(call.args[0], u32::MAX) + logical::wake(call.args[4], u32::MAX),
        _ => 0,
    }
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
    let mut in_time =
        thread.turn.is_own() && logical::applies(thread) && call.nr == nr::FUTEX && is_plain(call);
    if in_time && thread.calls() == Mode::Replay {
        // In every copy by its own memory: who changes the word wakes behind that, in a turn of its own.
        in_time = false;
        follow_in_time(thread, call, patience);
    } else if !in_time {
        give(thread);
    }
    let end = loop {
        if thread.calls() == Mode::Replay {
            if let Next::Event(event) = thread.expect(EventKind::Call, row.nr) {
                let end = End { result: event.returned().0.result, flags: event.header.flags };
                thread.close();
                break end;
            }
            if thread.calls() != Mode::Record && !is_in_time(thread, call) {
                return None;
            }
        }
        let result = if core::mem::take(&mut in_time) {
            wait_in_time(thread, call, patience)
        } else if let Some(result) = wait_on_in_time(thread, call, patience) {
            result
        } else {
            // SAFETY: the guest's own call.
            unsafe { raw::blocking(call.nr, patience.args(call), &thread.pending) }
        };
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

/// Whether a wait that has begun goes on in logical time: its primary was in it, and this copy took over, or gave its log up. Those
/// who wake find the thread there, and others wait for it once it is woken. In the kernel it would need one wake more.
fn is_in_time(thread: &Thread, call: &Call) -> bool {
    call.nr == nr::FUTEX && is_plain(call) && !thread.turn.is_own() && logical::is_in_race(thread)
}

/// Such a wait, to its end; of one that was woken meanwhile that is here, as of one that has found another value.
pub fn wait_on_in_time(thread: &mut Thread, call: &Call, patience: &mut Patience) -> Option<i64> {
    if !is_in_time(thread, call) {
        return None;
    }
    if patience.has_not_slept {
        return Some(raw::err::EAGAIN);
    }
    let until = until(call, patience);
    Some(turns::sleep_on(thread, until.as_ref()))
}

/// Whether a call is a wait that ends by a wake of that address alone.
fn is_plain(call: &Call) -> bool {
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    matches!(call.args[1] & 127, WAIT | WAIT_BITSET)
}

/// When a wait ends by itself; a time that cannot be read is none.
fn until(call: &Call, patience: &mut Patience) -> Option<Until> {
    const CLOCK_REALTIME: u64 = 256;
    let is_relative = call.args[1] & 127 == 0;
    let time =
        GuestPtr::<Timespec>::at(if is_relative { patience.args(call)[3] } else { call.args[3] }).load()?;
    if !is_relative {
        return Some(Until { clock: u64::from(call.args[1] & CLOCK_REALTIME == 0), time });
    }
    Some(Until { clock: 1, time: Timespec::from_ns(raw::now_ns() + time.ns()) })
}

/// What such a wait is in logical time, in a copy that waits for the log to say how it ends.
fn follow_in_time(thread: &mut Thread, call: &Call, patience: &mut Patience) {
    match GuestPtr::<u32>::at(call.args[0]).load() {
        Some(now) if now == call.args[2] as u32 => {
            let until = until(call, patience);
            _ = turns::sleep_apart(thread, call.args[0], until.as_ref());
        }
        Some(_) => {
            patience.has_not_slept = true;
            turns::let_others(thread);
        }
        None => give(thread),
    }
}

/// The wait itself, in logical time, out of this thread's turn. What cannot be read is the kernel's to refuse.
fn wait_in_time(thread: &mut Thread, call: &Call, patience: &mut Patience) -> i64 {
    let until = until(call, patience);
    match GuestPtr::<u32>::at(call.args[0]).load() {
        Some(now) if now == call.args[2] as u32 => turns::sleep_apart(thread, call.args[0], until.as_ref()),
        Some(_) => {
            patience.has_not_slept = true;
            turns::let_others(thread);
            raw::err::EAGAIN
        }
        None => {
            give(thread);
            // SAFETY: the guest's own call.
            unsafe { raw::blocking(call.nr, patience.args(call), &thread.pending) }
        }
    }
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
