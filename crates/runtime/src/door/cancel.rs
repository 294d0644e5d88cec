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
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use us_abi::Cause;
use us_abi::event::{EventKind, NO_TICKET, ReturnHead};

use super::thread as threads;
use crate::log::Next;
use crate::raw::{self, nr};
use crate::state::{self, Role};
use crate::thread::{Mode, Thread};
use crate::verdict::give_up_log;
use crate::{real, signal, tls};

/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
pub const ASYNCHRONOUS: c_int = 1;

const SIGCANCEL: u64 = 32;
/// Bits of libc's word: cancellation disabled, asynchronous, the thread is on its way out.
const DISABLED: u32 = 1;
const ANYWHERE: u32 = 2;
const EXITING: u32 = 16;

/// Distance of libc's word from the control block; 0 where it has not been found.
static WORD: AtomicUsize = AtomicUsize::new(0);

/// Where the gate is called for a cancellation point: the address behind the call in that site's stub. A newer libc makes all of
/// these calls at one place, whose signal handler looks where the thread is; it does not make the thread cancellable at any
/// instruction. Nowhere, while it has not been found.
static POINT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes that the stub at `at` is that of libc's cancellation points.
pub fn note_point(at: u64, stub: &[u8]) {
    const CALL: [u8; 2] = [0xff, 0x15];
    const CALL_LEN: u64 = 6;
    if let Some(call) = stub.windows(2).position(|bytes| bytes == CALL) {
        POINT.store(at + call as u64 + CALL_LEN, Ordering::Relaxed);
    }
}

/// Whether a call that came from there is a cancellation point of such a libc.
#[inline(always)]
pub fn is_point(caller: u64) -> bool {
    caller == POINT.load(Ordering::Relaxed)
}

/// Makes such a call as an older libc does: cancellable at any instruction.
#[cold]
pub fn at_point(call: impl FnOnce() -> i64) -> i64 {
    let Some(word) = place() else { return call() };
    let before = word.fetch_or(ANYWHERE, Ordering::SeqCst);
    let result = call();
    if before & ANYWHERE == 0 {
        word.fetch_and(!ANYWHERE, Ordering::SeqCst);
    }
    result
}

/// Finds libc's word: the only one of the control block that the type of cancellation changes, and changes by
/// its bit. In the constructor.
pub fn find_word() {
    const WORDS: usize = 576;
    let block = tls::thread_pointer() as *const u32;
    let mut before = [0u32; WORDS];
    for (at, word) in before.iter_mut().enumerate() {
        // SAFETY: glibc's control block is no smaller.
        *word = unsafe { block.add(at).read_volatile() };
    }
    // SAFETY: nobody has asked for this thread's cancellation: there is no other.
    let old = unsafe { set_libc_type(ASYNCHRONOUS) };
    for (at, word) in before.iter().enumerate() {
        // SAFETY: as above.
        let now = unsafe { block.add(at).read_volatile() };
        if now == word | ANYWHERE && now != *word {
            WORD.store(at * 4, Ordering::Relaxed);
        }
    }
    // SAFETY: as it was.
    unsafe { set_libc_type(old) };
}

/// libc's word of the calling thread, where it is known.
fn place() -> Option<&'static AtomicU32> {
    match WORD.load(Ordering::Relaxed) {
        0 => None,
        at => {
            let place = (tls::thread_pointer() as usize + at) as *const AtomicU32;
            // SAFETY: inside the calling thread's control block.
            Some(unsafe { &*place })
        }
    }
}

/// Its value; cancellation off where it is not known.
fn word() -> u32 {
    place().map_or(DISABLED, |word| word.load(Ordering::Relaxed))
}

/// Whether the calling thread can be cancelled at a cancellation point.
pub fn is_enabled() -> bool {
    word() & (DISABLED | EXITING) == 0
}

/// Whether the calling thread has been cancelled, and this is where it ends: at a cancellation point, or
/// anywhere if the guest has asked for that.
#[inline(always)]
pub fn is_due(thread: &Thread) -> bool {
    thread.cancel.load(Ordering::Relaxed) != 0 && word() & (DISABLED | ANYWHERE | EXITING) == ANYWHERE
}

/// Ends the calling thread, which may act, if it is to be cancelled here. Doors that are cancellation points say so in their
/// outcome; of any other the log has an event, for a thread that can be cancelled anywhere.
pub fn leave_if_due(thread: &mut Thread) {
    if is_due(thread) && !state::is_standby() {
        if !thread.outcome_says {
            signal::log_cancellation(thread);
        }
        end_thread();
    }
}

unsafe fn set_libc_type(kind: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    let mut old = 0;
    let function = real::PTHREAD_SETCANCELTYPE.get();
    if !function.is_null() {
        // SAFETY: libc's function of that name has this type.
        unsafe { core::mem::transmute::<*mut c_void, Function>(function)(kind, &raw mut old) };
    }
    old
}

fn current() -> Option<&'static mut Thread> {
    // SAFETY: the calling thread's own block.
    unsafe { tls::current().as_mut() }
}

/// Makes this thread cancellable at any instruction, in a door whose clean-up says in the log that it was; tells how it was.
///
/// # Safety
/// The thread may unwind from here on; its clean-up must be in place.
pub unsafe fn begin_point() -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set_type(ASYNCHRONOUS, true) }
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
    let old = unsafe { set_libc_type(kind) };
    if let Some(thread) = current() {
        thread.outcome_says = begins;
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
    let function = real::PTHREAD_TESTCANCEL.get();
    if !function.is_null() {
        // SAFETY: libc's function of that name has this type.
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(function)() };
    }
    if let Some(thread) = current()
        && thread.cancel.load(Ordering::Acquire) != 0
        && is_enabled()
        && !state::is_standby()
    {
        end_thread();
    }
}

/// Ends this thread as cancelled, because the primary's was.
pub fn end_thread() -> ! {
    const CANCELED: u64 = u64::MAX;
    if let Some(thread) = current() {
        thread.cancel.store(0, Ordering::Relaxed);
        // Out of a call in which others had theirs; what follows is guest code.
        thread.gives_turn = false;
        thread.outcome_says = false;
        crate::turns::take(thread);
        thread.shared_with_guest();
    }
    let function = real::PTHREAD_EXIT.get();
    // SAFETY: libc's function of that name has this type; it unwinds through frames without clean-up.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> !>(function)(CANCELED) }
}

/// A cancellation point whose outcome is an event of its own: what is due is decided by the copy that acts.
fn point(due: impl Fn(&Thread) -> bool) {
    const NUMBER: u16 = nr::TGKILL as u16;
    let Some(thread) = current() else { return };
    loop {
        match thread.calls() {
            Mode::Solo => break,
            Mode::Record => {
                let head = ReturnHead { result: i64::from(due(thread)), identity: 0 };
                thread.append(EventKind::Call, 0, NUMBER, NO_TICKET, &head);
                if head.result != 0 {
                    end_thread();
                }
                return;
            }
            Mode::Replay => match thread.expect(EventKind::Call, NUMBER) {
                Next::Live => continue,
                Next::Event(event) => {
                    let (head, _) = event.returned();
                    thread.close();
                    if head.result != 0 {
                        end_thread();
                    }
                    return;
                }
            },
        }
    }
    if due(thread) {
        end_thread();
    }
}

/// Asks the thread of a block to look whether it has been cancelled.
fn ask(thread: &Thread, handle: u64) {
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
    let known = WORD.load(Ordering::Relaxed) != 0 && state::role() != Role::Outside;
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
    let function = real::PTHREAD_TESTCANCEL.get();
    // SAFETY: libc's function of that name has this type.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(function)() };
    if is_enabled() {
        point(|thread| thread.cancel.load(Ordering::Acquire) != 0);
    }
}

/// After the guest has changed how it can be cancelled: at any instruction now, so also at this one.
fn changed() {
    if word() & (DISABLED | ANYWHERE | EXITING) == ANYWHERE {
        point(is_due);
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
