//! Cancellation.
//!
//! libc marks a cancelled thread in its control block, at a moment that differs from copy to copy, and acts
//! on the mark wherever it comes by. So the mark is kept here instead, and the thread acts on it at a door:
//! where its primary was cancelled is in the log, as a signal or as the outcome `ECANCELED` of an operation,
//! and a standby's thread ends there, whether or not its copy of the canceller has come so far.
//!
//! Whether a call is a cancellation point is libc's business: it makes a thread cancellable at any
//! instruction around each of them, as the doors that sleep do, and that is what is asked here. Since 2.41 it makes
//! them all at one place instead, and what it did before is done here.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering, fence};

use us_abi::Cause;
use us_abi::event::{EventKind, NO_TICKET, ReturnHead};

use super::thread as threads;
use crate::raw::{self, nr};
use crate::signal::{self, cancellation};
use crate::state::{self, Role};
use crate::thread::{Mode, Shared, Thread};
use crate::verdict::give_up_log;
use crate::{real, tls};

const SIGCANCEL: u64 = 32;

/// Ends the calling thread, which may act, if it is to be cancelled here. Doors that are cancellation points say so in their
/// outcome; of any other the log has an event, for a thread that can be cancelled anywhere.
pub fn leave_if_due(thread: &mut Thread) {
    if cancellation::is_due(thread) && !state::is_standby() {
        if !thread.signals.outcome_says {
            signal::log_cancellation(thread);
        }
        cancellation::end_thread();
    }
}

/// Makes this thread cancellable at any instruction, in a door whose clean-up says in the log that it was; tells how it was.
///
/// # Safety
/// The thread may unwind from here on; its clean-up must be in place.
pub unsafe fn begin_point() -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set_type(cancellation::ASYNCHRONOUS, true) }
}

/// Makes it as it was.
///
/// # Safety
/// As [`begin_point`].
pub unsafe fn end_point(before: c_int) {
    // SAFETY: the caller's promise.
    unsafe { set_type(before, false) };
}

unsafe fn set_type(kind: c_int, begins: bool) -> c_int {
    // SAFETY: the caller's promise.
    let old = unsafe { cancellation::set_type(kind) };
    if let Some(thread) = cancellation::current() {
        thread.signals.outcome_says = begins;
        if begins {
            leave_if_due(thread);
        }
    }
    old
}

/// Ends this thread if it has been cancelled.
///
/// # Safety
/// The thread may unwind; its clean-up must be in place.
pub unsafe fn test() {
    // SAFETY: the caller's promise.
    unsafe { cancellation::test_libc() };
    if let Some(thread) = cancellation::current()
        && thread.cancel.load(Ordering::Acquire) != 0
        && cancellation::is_enabled()
        && !state::is_standby()
    {
        cancellation::end_thread();
    }
}

/// A cancellation point whose outcome is an event of its own: what is due is decided by the copy that acts.
fn point(due: impl Fn(&Thread) -> bool) {
    const NUMBER: u16 = nr::TGKILL as u16;
    let Some(thread) = cancellation::current() else { return };
    let ends = thread.attempt(|thread, mode| match mode {
        Mode::Solo => Some(due(thread)),
        Mode::Record => {
            let head = ReturnHead { result: i64::from(due(thread)), identity: 0 };
            thread.append(EventKind::Call, 0, NUMBER, NO_TICKET, &head);
            Some(head.result != 0)
        }
        Mode::Replay => {
            let event = thread.expect(EventKind::Call, NUMBER).event()?;
            let (head, _) = event.returned();
            thread.close();
            Some(head.result != 0)
        }
    });
    if ends {
        cancellation::end_thread();
    }
}

/// Asks the thread of a block to look whether it has been cancelled.
fn ask(thread: &Shared, handle: u64) {
    thread.cancel.store(1, Ordering::SeqCst);
    // Pairs with the fence of a thread that goes live.
    fence(Ordering::SeqCst);
    if state::is_standby() {
        // It ends where the log says so, or finds the request when it goes live.
        return;
    }
    let tid = match thread.real_tid.load(Ordering::Relaxed) {
        0 => crate::tls::tid_of(handle),
        tid => tid,
    };
    // SAFETY: a signal that the runtime handles, to a thread of this process.
    unsafe {
        let pid = raw::call1(nr::GETPID, 0) as u64;
        raw::call3(nr::TGKILL, pid, u64::from(tid), SIGCANCEL);
    }
}

/// `pthread_cancel(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(handle: u64) -> c_int {
    let known = cancellation::is_known() && state::role() != Role::Outside;
    if known
        && handle != tls::thread_pointer()
        && let Some(thread) = threads::slot_of(handle)
    {
        if !threads::has_ended(handle) {
            ask(thread, handle);
        }
        return 0;
    }
    if handle != tls::thread_pointer() && state::role() == Role::Primary {
        give_up_log(Cause::CannotReplay, &[b"a thread that the runtime does not know was cancelled"]);
    }
    // Oneself: libc's mark is then as much a matter of the thread's own code as its variables are.
    // SAFETY: libc's function of that name has this type.
    unsafe {
        core::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> c_int>(real::PTHREAD_CANCEL.get())(
            handle,
        )
    }
}

/// `pthread_testcancel(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_testcancel() {
    // SAFETY: the guest asks for it here.
    unsafe { cancellation::test_libc() };
    if cancellation::is_enabled() {
        point(|thread| thread.cancel.load(Ordering::Acquire) != 0);
    }
}

/// After the guest has changed how it can be cancelled: at any instruction now, so also at this one.
fn changed() {
    if cancellation::word() & (cancellation::DISABLED | cancellation::ANYWHERE | cancellation::EXITING)
        == cancellation::ANYWHERE
    {
        point(cancellation::is_due);
    }
}

/// `pthread_setcanceltype(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    let function = real::PTHREAD_SETCANCELTYPE.get();
    // SAFETY: libc's function of that name has this type.
    let result = unsafe { core::mem::transmute::<*mut c_void, Function>(function)(kind, old) };
    changed();
    result
}

/// `pthread_setcancelstate(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    let function = real::PTHREAD_SETCANCELSTATE.get();
    // SAFETY: libc's function of that name has this type.
    let result = unsafe { core::mem::transmute::<*mut c_void, Function>(function)(state, old) };
    changed();
    result
}
