//! Condition variables.
//!
//! A sequence word that every signal moves on, and a count of those who may sleep on it. That a signal must
//! wake somebody who waited *before* it holds because the kernel wakes the sleepers of a word in the order in
//! which they came (realtime priorities first), and one who has not yet fallen asleep sees the new sequence.
//!
//! Waking logs nothing: what a waiter does next is its re-acquisition of the mutex, and that is logged. A
//! standby's thread never sleeps here at all. It releases the mutex, waits for the event of the
//! re-acquisition, and returns what the primary's thread returned. It does not count itself as a waiter
//! either: its local re-acquisition comes later than the primary's thread left the object, and a guest that
//! broadcasts and destroys while it holds the mutex would wait for it in vain.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use super::block::{Deadline, Wait};
use super::cancel;
use super::mutex::{self, Mutex};
use super::sync::{self, ALL, CLOCK_MONOTONIC, CLOCK_REALTIME, Caller, errno};
use super::unwind;
use crate::raw::Timespec;
use crate::thread::Mode;

/// In the bytes of glibc's `pthread_cond_t`; all zero is `PTHREAD_COND_INITIALIZER`.
#[repr(C)]
pub struct Cond {
    /// Moved on by every signal: what the waiters sleep on.
    sequence: AtomicU32,
    /// Threads between their arrival and their waking, and [`DESTROYING`].
    waiters: AtomicU32,
    flags: AtomicU32,
}

/// Somebody waits in destroy for the last waiter to leave.
const DESTROYING: u32 = 1 << 31;
/// The object is shared between processes. The bits are those of glibc's attribute object.
const SHARED: u32 = 1;
/// `timedwait` means CLOCK_MONOTONIC.
const MONOTONIC: u32 = 2;

impl Cond {
    fn shared(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SHARED != 0
    }

    /// A waiter's last touch of the object.
    fn leave(&self) {
        let (word, shared) = (self.waiters.as_ptr(), self.shared());
        if self.waiters.fetch_sub(1, Ordering::AcqRel) == DESTROYING | 1 {
            sync::wake(word, ALL, shared);
        }
    }

    fn notify(&self, count: u32) {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.sequence.fetch_add(1, Ordering::SeqCst);
        sync::wake(self.sequence.as_ptr(), count, self.shared());
    }
}

/// One wait. Lives in the frame of [`wait`], for the clean-up as well.
struct Waiting<'a> {
    caller: Caller,
    cond: &'a Cond,
    mutex: &'a Mutex,
    sequence: u32,
    deadline: Deadline,
    /// How often the caller had locked the mutex.
    depth: u32,
    result: c_int,
}

impl Waiting<'_> {
    fn sleep(&self) -> c_int {
        let shared = self.cond.shared();
        while self.cond.sequence.load(Ordering::Acquire) == self.sequence {
            let wait = self.caller.sleep(&self.cond.sequence, self.sequence, self.deadline, shared);
            match wait {
                Wait::TimedOut => return errno::ETIMEDOUT,
                // The event of the re-acquisition says what this wait comes to.
                Wait::Follow => return 0,
                Wait::Again => {}
            }
        }
        0
    }
}

/// The part of a wait that may be left by cancellation: asleep, the mutex released.
unsafe extern "C" fn body(waiting: *mut c_void) {
    // SAFETY: `wait` passes its own.
    let waiting = unsafe { &mut *waiting.cast::<Waiting>() };
    // SAFETY: the clean-up is in place.
    let old = unsafe { cancel::set_type(cancel::ASYNCHRONOUS) };
    waiting.result = waiting.sleep();
    // SAFETY: as it was.
    unsafe { cancel::set_type(old) };
}

/// Cancelled: the guest's clean-up handlers find the mutex locked. A signal that was meant for this thread
/// is passed on.
unsafe extern "C" fn cancelled(waiting: *mut c_void) {
    // SAFETY: `wait` passes its own.
    let waiting = unsafe { &mut *waiting.cast::<Waiting>() };
    waiting.cond.notify(1);
    waiting.cond.leave();
    mutex::reacquire_after_wait(waiting.mutex, waiting.caller, waiting.depth, errno::ECANCELED);
}

fn wait(cond: &Cond, mutex: &Mutex, deadline: Deadline) -> c_int {
    let caller = Caller::get();
    if caller.mode() == Mode::Replay {
        return wait_by_log(mutex, caller);
    }
    cond.waiters.fetch_add(1, Ordering::SeqCst);
    // Read before the mutex is released: every later signal moves it on.
    let sequence = cond.sequence.load(Ordering::SeqCst);
    let mut waiting = Waiting { caller, cond, mutex, sequence, deadline, depth: 0, result: 0 };
    match mutex::release_for_wait(mutex, caller) {
        Ok(depth) => waiting.depth = depth,
        Err(error) => {
            cond.leave();
            return error;
        }
    }
    // SAFETY: `waiting` outlives the call.
    unsafe { unwind::guarded(body, cancelled, (&raw mut waiting).cast()) };
    cond.leave();
    let result = mutex::reacquire_after_wait(mutex, caller, waiting.depth, waiting.result);
    if result == errno::ECANCELED {
        // A standby's thread by now, and its primary's was cancelled in this wait.
        cancel::end_thread();
    }
    result
}

/// As a standby. Promoted meanwhile, it returns 0: a spurious wake-up, which POSIX allows.
fn wait_by_log(mutex: &Mutex, caller: Caller) -> c_int {
    let depth = match mutex::release_for_wait(mutex, caller) {
        Ok(depth) => depth,
        Err(error) => return error,
    };
    let result = mutex::reacquire_after_wait(mutex, caller, depth, 0);
    if result == errno::ECANCELED {
        cancel::end_thread();
    }
    result
}

/// `pthread_cond_init`, from glibc's attribute object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_init(cond: *mut Cond, attribute: *const u32) -> c_int {
    // SAFETY: null or the guest's attribute.
    let attribute = unsafe { attribute.as_ref() }.copied().unwrap_or(0);
    // SAFETY: the guest's bytes, of which nobody else knows yet.
    unsafe {
        cond.cast::<u8>().write_bytes(0, 48);
        (*cond).flags.store(attribute & (SHARED | MONOTONIC), Ordering::Release);
    }
    0
}

/// `pthread_cond_destroy`: returns when every thread that was woken has left the object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_destroy(cond: *const Cond) -> c_int {
    // SAFETY: the guest's condition variable.
    let cond = unsafe { &*cond };
    let caller = Caller::get();
    let mut waiters = cond.waiters.fetch_or(DESTROYING, Ordering::AcqRel) | DESTROYING;
    while waiters != DESTROYING {
        caller.sleep(&cond.waiters, waiters, Deadline::None, cond.shared());
        waiters = cond.waiters.load(Ordering::Acquire);
    }
    0
}

/// `pthread_cond_signal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(cond: *const Cond) -> c_int {
    // SAFETY: the guest's condition variable.
    unsafe { &*cond }.notify(1);
    0
}

/// `pthread_cond_broadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(cond: *const Cond) -> c_int {
    // SAFETY: the guest's condition variable.
    unsafe { &*cond }.notify(ALL);
    0
}

/// `pthread_cond_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(cond: *const Cond, mutex: *const Mutex) -> c_int {
    // SAFETY: the guest's objects.
    let (cond, mutex) = unsafe { (&*cond, &*mutex) };
    wait(cond, mutex, Deadline::None)
}

/// `pthread_cond_timedwait`: until a time of the clock that the attributes named.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    cond: *const Cond,
    mutex: *const Mutex,
    time: *const Timespec,
) -> c_int {
    // SAFETY: the guest's condition variable.
    let flags = unsafe { &*cond }.flags.load(Ordering::Relaxed);
    let clock = if flags & MONOTONIC != 0 { CLOCK_MONOTONIC } else { CLOCK_REALTIME };
    // SAFETY: the guest's objects.
    unsafe { pthread_cond_clockwait(cond, mutex, clock, time) }
}

/// `pthread_cond_clockwait`: what C++ waits with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_clockwait(
    cond: *const Cond,
    mutex: *const Mutex,
    clock: c_int,
    time: *const Timespec,
) -> c_int {
    // SAFETY: the guest's objects.
    let (cond, mutex) = unsafe { (&*cond, &*mutex) };
    // SAFETY: the guest's time.
    match unsafe { sync::deadline(clock, time) } {
        Ok(deadline) => wait(cond, mutex, deadline),
        Err(error) => error,
    }
}
