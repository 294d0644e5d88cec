//! The end of a thread, as others wait for it: join in its four shapes, and detach.
//!
//! The wait is our own, so that nobody is ever left inside libc's; libc's function comes last and finds the thread gone.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::event::{EventKind, NO_TICKET, op};
use us_calls::Class;

use super::block::{Deadline, Wait};
use super::sync::{self, CLOCK_REALTIME, Caller, errno};
use super::thread::{DETACHED, JOINABLE, JOINED, has_ended, slot_of};
use crate::above::above;
use crate::log::Next;
use crate::raw::{self, Timespec};
use crate::thread::{Mode, Shared, Thread};
use crate::tls::end_word;
use crate::turns::On;
use crate::turns::doors::ordered_frame;
use crate::{real, signal, state, tls, turns};

type Result = *mut *mut c_void;

/// How a wait for a thread's end is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The thread is gone.
    Gone,
    /// It is not, and the time is over.
    TimedOut,
    /// Whether it is, the log says.
    Logged,
}

/// Waits for the end of the thread behind a handle. With a thread of ours, its signals are delivered meanwhile.
pub(super) fn wait_gone(handle: u64, waiter: Option<&mut Thread>) {
    await_gone(handle, waiter, Deadline::None, false);
}

/// As [`wait_gone`], not beyond a time. Where its outcome is `logged`, a standby does not wait here; and who waits as a primary may
/// be a standby's thread behind the wait, having been parked in it for a clone.
fn await_gone(handle: u64, mut waiter: Option<&mut Thread>, deadline: Deadline, logged: bool) -> End {
    let word = end_word(handle);
    loop {
        let tid = word.load(Ordering::Acquire);
        let follows = waiter.as_ref().is_some_and(|thread| thread.calls() == Mode::Replay);
        if follows && logged {
            return End::Logged;
        }
        if let Some(thread) = waiter.as_deref_mut().filter(|_| follows) {
            if follow_wait(thread, word, tid) {
                return End::Gone;
            }
            continue;
        }
        if tid == 0 && !lives_in_time(waiter.as_deref(), handle) {
            return End::Gone;
        }
        match waiter.as_deref_mut() {
            _ if deadline.is_negative() => return End::TimedOut,
            Some(thread) => {
                signal::cancellation_point(thread);
                if state::is_computed() && turns::logical::decides(thread) && thread.turn.is_own() {
                    if lives_in_time(Some(thread), handle) {
                        let result = turns::sleep_at_point(
                            thread,
                            On::alike(word.as_ptr() as u64),
                            deadline.until().as_ref(),
                        );
                        if result == Some(raw::err::EINTR) {
                            signal::deliver(thread);
                            above().stand_still(thread);
                            turns::take(thread);
                        } else if result == Some(raw::err::ETIMEDOUT) {
                            return End::TimedOut;
                        }
                    } else {
                        // It needs no turn for what it still does.
                        raw::futex_wait_shared(word, tid, 1_000_000);
                    }
                    continue;
                }
                // Shared, as the kernel's wake is.
                let args = deadline.futex(word, tid, true);
                turns::pause(thread);
                // SAFETY: a futex wait on a word of our own memory; the time outlives the call.
                let result = unsafe { raw::blocking(raw::nr::FUTEX, &args, &thread.pending) };
                turns::take(thread);
                if result == raw::err::EINTR {
                    signal::deliver(thread);
                    above().stand_still(thread);
                    turns::take(thread);
                } else if result == raw::err::ETIMEDOUT {
                    return End::TimedOut;
                }
            }
            None => {
                if sync::sleep_outside(word, tid, deadline, true) == Wait::TimedOut {
                    return End::TimedOut;
                }
            }
        }
    }
}

/// A step of a standby's wait, at most a sleep; true where the wait is over. That the thread is gone here is not enough: this copy
/// of it may be ahead, and the primary may have been cancelled, or have run a handler, while it waited. What it did next says so.
fn follow_wait(thread: &mut Thread, word: &AtomicU32, tid: u32) -> bool {
    let kind = thread.peek().map_or(0, |next| next.kind);
    if kind == EventKind::Signal as u8 {
        thread.take_signal();
    } else if kind == EventKind::Yield as u8 {
        turns::follow_pause(thread);
    } else if tid == 0 && kind != 0 {
        return true;
    } else if state::LIVE.load(Ordering::Acquire) {
        // Whoever waits here after a promotion has to be open for signals like any other.
        above().go_live(thread);
    } else if tid == 0 {
        thread.wait_more();
    } else {
        thread.stand_while(|| _ = raw::futex_wait_shared(word, tid, 1_000_000));
    }
    false
}

/// Waits, as a standby, until a thread is gone whose join the log has told of: what comes next in the log is behind the join.
fn stand_until_gone(handle: u64, thread: &mut Thread) {
    let word = end_word(handle);
    loop {
        match word.load(Ordering::Acquire) {
            0 => return,
            _ if state::LIVE.load(Ordering::Acquire) => return wait_gone(handle, Some(thread)),
            tid => thread.stand_while(|| _ = raw::futex_wait_shared(word, tid, 1_000_000)),
        }
    }
}

/// Whether that thread has not ended yet where the order is computed: what the kernel says of it is early or late.
fn lives_in_time(waiter: Option<&Thread>, handle: u64) -> bool {
    state::is_computed()
        && waiter.is_some_and(turns::logical::decides)
        && slot_of(handle).is_some_and(|other| turns::logical::lives(other.slot()))
}

/// Calls libc's join for a thread that is gone.
unsafe fn join_in_libc(handle: u64, result: Result) -> c_int {
    // SAFETY: libc's function with the guest's arguments.
    unsafe {
        let join: unsafe extern "C" fn(u64, Result) -> c_int = core::mem::transmute(real::PTHREAD_JOIN.get());
        join(handle, result)
    }
}

/// Whether a join of this thread is a wait for one of ours.
fn joinable(handle: u64) -> Option<&'static Shared> {
    slot_of(handle)
        .filter(|other| other.fate.load(Ordering::Acquire) == JOINABLE && handle != tls::thread_pointer())
}

/// `pthread_join(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(_handle: u64, _result: Result) -> c_int {
    ordered_frame!(CHANGES, join)
}

unsafe extern "C" fn join(handle: u64, result: Result) -> c_int {
    let block = slot_of(handle);
    if joinable(handle).is_some() {
        // SAFETY: the calling thread's own block.
        wait_gone(handle, unsafe { tls::current().as_mut() });
    }
    // SAFETY: passed on.
    let outcome = unsafe { join_in_libc(handle, result) };
    if outcome == 0
        && let Some(other) = block
    {
        joined(other.slot());
        // Behind what the log has of it: from here on the slot is another thread's, whose creation a copy does not apply before
        // it has come to this join.
        other.fate.store(JOINED, Ordering::Release);
    }
    outcome
}

fn event_of(slot: u32) -> u16 {
    op::JOIN << 12 | slot as u16
}

/// A thread has been joined. The log says so although nothing is ordered by it: where one copy has joined a thread and the
/// other has not, the slot is never free for the thread that is to have it next, and nothing else is compared.
fn joined(slot: u32) {
    let caller = Caller::get();
    if let Some(thread) = caller.replaying()
        && let Next::Event(_) = thread.expect(EventKind::Ordered, event_of(slot))
    {
        thread.close();
        return thread.count(Class::Thread);
    }
    say(caller, slot, 0);
}

/// Logs how a wait for a thread ended. Also where the log ended just here, and goes on.
fn say(caller: Caller, slot: u32, outcome: c_int) {
    if let Some(thread) = caller.recording() {
        thread.push(EventKind::Ordered, outcome as u8, event_of(slot), NO_TICKET);
    }
}

/// A join that need not succeed: whether the thread had ended by then is not the same in all copies, so the log says it.
///
/// # Safety
/// As the C functions.
unsafe fn join_until(other: &Shared, handle: u64, result: Result, deadline: Option<Deadline>) -> c_int {
    let slot = other.slot();
    let outcome = loop {
        let caller = Caller::get();
        if let Some(thread) = caller.replaying() {
            let Next::Event(event) = thread.expect(EventKind::Ordered, event_of(slot)) else { continue };
            let outcome = c_int::from(event.header.flags);
            thread.close();
            thread.count(Class::Thread);
            if outcome == 0 {
                stand_until_gone(handle, thread);
            }
            break outcome;
        }
        let outcome = match deadline {
            None if has_ended(handle) && !lives_in_time(caller.thread().as_deref(), handle) => 0,
            None => errno::EBUSY,
            Some(deadline) => match await_gone(handle, caller.thread(), deadline, true) {
                End::Gone => 0,
                End::TimedOut => errno::ETIMEDOUT,
                End::Logged => continue,
            },
        };
        if caller.replaying().is_some() {
            // Parked, and now a standby's.
            continue;
        }
        say(caller, slot, outcome);
        break outcome;
    };
    if outcome != 0 {
        return outcome;
    }
    // SAFETY: passed on; the thread is gone.
    let outcome = unsafe { join_in_libc(handle, result) };
    other.fate.store(JOINED, Ordering::Release);
    outcome
}

/// `pthread_tryjoin_np(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_tryjoin_np(_handle: u64, _result: Result) -> c_int {
    ordered_frame!(CHANGES, try_join)
}

unsafe extern "C" fn try_join(handle: u64, result: Result) -> c_int {
    match joinable(handle) {
        // SAFETY: passed on.
        Some(other) => unsafe { join_until(other, handle, result, None) },
        // SAFETY: libc's function with the guest's arguments.
        None => unsafe {
            let join: unsafe extern "C" fn(u64, Result) -> c_int =
                core::mem::transmute(real::PTHREAD_TRYJOIN_NP.get());
            join(handle, result)
        },
    }
}

/// `pthread_timedjoin_np(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_timedjoin_np(
    _handle: u64,
    _result: Result,
    _time: *const Timespec,
) -> c_int {
    ordered_frame!(CHANGES, timed_join)
}

unsafe extern "C" fn timed_join(handle: u64, result: Result, time: *const Timespec) -> c_int {
    // SAFETY: passed on.
    unsafe { clock_join(handle, result, CLOCK_REALTIME, time) }
}

/// `pthread_clockjoin_np(3)`. Without a time it is a join.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_clockjoin_np(
    _handle: u64,
    _result: Result,
    _clock: c_int,
    _time: *const Timespec,
) -> c_int {
    ordered_frame!(CHANGES, clock_join)
}

unsafe extern "C" fn clock_join(handle: u64, result: Result, clock: c_int, time: *const Timespec) -> c_int {
    let Some(other) = joinable(handle) else {
        // SAFETY: libc's function with the guest's arguments.
        return unsafe {
            let join: unsafe extern "C" fn(u64, Result, c_int, *const Timespec) -> c_int =
                core::mem::transmute(real::PTHREAD_CLOCKJOIN_NP.get());
            join(handle, result, clock, time)
        };
    };
    if !(0..=1).contains(&clock) {
        return errno::EINVAL;
    }
    if time.is_null() {
        // SAFETY: passed on.
        return unsafe { join(handle, result) };
    }
    // SAFETY: the guest's promise that its time is readable.
    let deadline = unsafe { sync::deadline(clock, time) };
    // SAFETY: passed on.
    let outcome = unsafe { join_until(other, handle, result, deadline.ok()) };
    match deadline {
        // That a time is none is told to those alone who have to wait.
        Err(error) if outcome == errno::EBUSY => error,
        _ => outcome,
    }
}

/// `pthread_detach(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(_handle: u64) -> c_int {
    ordered_frame!(CHANGES, detach)
}

unsafe extern "C" fn detach(handle: u64) -> c_int {
    let block = slot_of(handle);
    // SAFETY: libc's function with the guest's argument.
    let outcome = unsafe {
        let detach: unsafe extern "C" fn(u64) -> c_int = core::mem::transmute(real::PTHREAD_DETACH.get());
        detach(handle)
    };
    if outcome == 0
        && let Some(other) = block
    {
        other.fate.store(DETACHED, Ordering::Release);
    }
    outcome
}
