//! Calls that bind the process to itself, and how the runtime leaves a process before a filter is set (see [`crate::bound`]).

use core::sync::atomic::Ordering;

use us_abi::{Cause, GroupState};

use crate::above::above;
use crate::bound::{BOUND, FOR_EVER, FREE, LEFT, bond};
use crate::call::Call;
use crate::door::refused::make_unlogged;
use crate::raw::{self, failed, nr};
use crate::signal::{self, death};
use crate::state::{self, Role};
use crate::sys::{milestones, program, trap, wall};
use crate::thread::{self, Thread};
use crate::{tls, turns};

/// A call in a process that the runtime has left.
#[cold]
#[inline(never)]
pub fn pass(call: &Call) -> i64 {
    use crate::raw::nr::FORK;
    if state::is_renumbered()
        && let Some(result) = renumbered(call)
    {
        return result;
    }
    // SAFETY: the calling thread's own block.
    let mut thread = unsafe { tls::current().as_mut() };
    if let Some(thread) = &mut thread {
        signal::cancellation_point(thread);
    }
    // SAFETY: the guest's own call. A child is as its parent: the runtime has left it as well.
    let result = unsafe { raw::call6(call.nr, call.args) };
    if result == raw::err::EINTR
        && let Some(thread) = &mut thread
    {
        signal::cancellation_point(thread);
    }
    if result == 0 && matches!(call.nr, nr::CLONE | FORK) {
        // It has the kernel's own number.
        state::REAL_PID.store(state::GUEST_PID.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    result
}

/// In a copy that has taken over: the numbers by which the program knows itself.
fn renumbered(call: &Call) -> Option<i64> {
    let thread = tls::shared()?;
    match call.nr {
        nr::GETPID => Some(i64::from(state::GUEST_PID.load(Ordering::Relaxed))),
        nr::GETTID => Some(i64::from(thread.guest_tid())),
        nr::KILL | nr::TGKILL | nr::RT_SIGQUEUEINFO | nr::RT_TGSIGQUEUEINFO => {
            let mut args = call.args;
            if args[0] as u32 == state::GUEST_PID.load(Ordering::Relaxed) {
                args[0] = u64::from(state::REAL_PID.load(Ordering::Relaxed));
            }
            if matches!(call.nr, nr::TGKILL | nr::RT_TGSIGQUEUEINFO) && args[1] as u32 == thread.guest_tid() {
                args[1] = u64::from(thread.kernel_tid());
            }
            // SAFETY: the guest's own call.
            Some(unsafe { raw::call6(call.nr, args) })
        }
        _ => None,
    }
}

/// Before a filter is set. What waits for the calling thread is delivered; other threads find the same at their next call.
fn leave(thread: &mut Thread) {
    while signal::has_deliverable(thread) {
        signal::deliver(thread);
    }
    if let Some(header) = state::header() {
        // Whoever asks this process for something asks by a signal that it has no handler for any more.
        thread::for_each(|other| other.entry().pending_signal.store(0, Ordering::Relaxed));
        above().await_quiet(header);
        above().await_no_poller();
    }
    death::hand_on(true);
    wall::abandon();
    trap::open_all();
    program::restore();
    milestones::leave();
    signal::hand_over(thread);
    turns::logical::stop();
    LEFT.store(true, Ordering::SeqCst);
}

/// The filter was not set after all.
fn come_back(thread: &mut Thread) {
    LEFT.store(false, Ordering::SeqCst);
    signal::take_back(thread);
    milestones::come_back();
    trap::close_all();
    wall::begin(thread);
    wall::raise();
    death::hand_on(false);
}

/// Makes such a call, in a primary or a child that has not joined. One that fails has bound nothing.
pub fn make(thread: &mut Thread, call: &Call, name: &str) -> i64 {
    let before = BOUND.fetch_max(bond(call), Ordering::SeqCst);
    if before == FREE {
        above().await_no_clone();
        thread.newborn = false;
        crate::members::is_not_asked();
        say(Cause::Bound, name);
    }
    let result = if bond(call) == FOR_EVER {
        leave(thread);
        // SAFETY: the guest's own call.
        let result = unsafe { raw::call6(call.nr, call.args) };
        if failed(result) {
            come_back(thread);
        } else {
            state::set_role(Role::Outside);
            state::set_header(core::ptr::null_mut());
        }
        result
    } else {
        loop {
            if let Some(result) = make_unlogged(thread, call) {
                break result;
            }
        }
    };
    if before == FREE && failed(result) {
        BOUND.store(FREE, Ordering::SeqCst);
        say(Cause::RefusedCall, name);
    }
    result
}

/// Gives the standby up, and says why there is none, whatever was said before.
fn say(cause: Cause, name: &str) {
    let Some(header) = state::header().filter(|_| state::role() == Role::Primary) else { return };
    let why: [&[u8]; 3] = [b"system call ", name.as_bytes(), b" cannot be replayed"];
    crate::seats::drop_spares(header, cause, &why);
    crate::recorder::stop(&why);
    crate::thread::stop_logging();
    state::overwrite_text(&header.why.0, cause as u32, &why);
    header.dropped.0.store(cause as u32, Ordering::Release);
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
}
