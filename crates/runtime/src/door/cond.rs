//! Condition variables.
//!
//! Of one process: a queue of those who wait ([`super::waiters`]), kept alike in every copy. Waking logs nothing: what
//! a waiter does next is its re-acquisition of the mutex, and that is logged. A standby's thread releases the mutex
//! and waits for that event. Promoted before it has come, it sleeps on unless it has been woken: nobody returns from
//! a wait who was not signalled.
//!
//! Shared between processes: a sequence word that every signal moves on, and a count of those who may sleep on it.
//! That a signal must wake somebody who waited *before* it holds because the kernel wakes the sleepers of a word in
//! the order in which they came, and one who has not yet fallen asleep sees the new sequence. Who is
//! promoted there in a wait returns from it, which POSIX allows.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use us_order::wait;

use super::block::{Deadline, Wait};
use super::cancel;
use super::common;
use super::mutex::{self, Mutex};
use super::sync::{self, ALL, CLOCK_MONOTONIC, CLOCK_REALTIME, Caller, errno};
use super::unwind;
use crate::door::waiters;
use crate::raw::Timespec;
use crate::signal::cancellation;
use crate::state;
use crate::thread::Mode;
use crate::thread::waiter::Waiter;
use crate::turns::doors::ordered_frame;
use crate::turns::live_turns;

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

    /// What the queue knows it by.
    fn key(&self) -> usize {
        self as *const Cond as usize
    }

    fn notify(&self, count: u32) {
        match self.shared() {
            true => self.notify_shared(count),
            false => waiters::notify(self.key(), count),
        }
    }

    /// A waiter's last touch of a shared object.
    fn leave_shared(&self) {
        let word = self.waiters.as_ptr();
        if common::count_out(&self.waiters) == Some(DESTROYING | 1) {
            sync::wake(word, ALL, true);
        }
    }

    fn notify_shared(&self, count: u32) {
        if common::follows(self.key()) && common::note_signal(Caller::get(), self.key()) {
            return;
        }
        self.wake_shared(count);
    }

    /// The signal itself, by a copy that acts.
    fn wake_shared(&self, count: u32) {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.sequence.fetch_add(1, Ordering::SeqCst);
        sync::wake(self.sequence.as_ptr(), count, true);
    }
}

/// What a thread sleeps on.
#[derive(Clone, Copy)]
enum Place {
    /// Its own place in the queue.
    Queue(*mut Waiter),
    /// A shared object's sequence, and its value at the beginning.
    Shared(u32),
    /// Nothing: a standby's thread at a shared object. It comes to its re-acquisition later than the primary's thread
    /// left the object, and a guest that broadcasts and destroys while it holds the mutex would wait for it in vain.
    Nowhere,
}

/// One wait. Lives in the frame of [`wait`], for the clean-up as well.
struct Waiting<'a> {
    caller: Caller,
    cond: &'a Cond,
    mutex: &'a Mutex,
    place: Place,
    deadline: Deadline,
    /// How often the caller had locked the mutex.
    depth: u32,
    /// What the guest is told; `None` if the log says it.
    result: Option<c_int>,
}

impl Waiting<'_> {
    /// Takes the caller's place among those who wait, the mutex still held: every later signal finds it.
    fn begin<'a>(cond: &'a Cond, mutex: &'a Mutex, deadline: Deadline, own: *mut Waiter) -> Waiting<'a> {
        let caller = Caller::get();
        let place = if cond.shared() && (caller.mode() == Mode::Replay || common::follows(cond.key())) {
            Place::Nowhere
        } else if cond.shared() {
            common::count_in(&cond.waiters);
            Place::Shared(cond.sequence.load(Ordering::SeqCst))
        } else {
            let waiter = caller.thread().map_or(own, |thread| (&raw const thread.shared().waiter).cast_mut());
            // SAFETY: in the caller's block, or in the frame of its door.
            unsafe { waiters::join(cond.key(), waiter) };
            Place::Queue(waiter)
        };
        Waiting { caller, cond, mutex, place, deadline, depth: 0, result: None }
    }

    /// Waits no more. Whether it was woken; then the object may be gone, and if `declines` somebody else is woken in
    /// its place.
    fn end(&self, declines: bool) -> bool {
        match self.place {
            Place::Nowhere => true,
            Place::Queue(waiter) => {
                // SAFETY: the caller's own.
                let woken = unsafe { waiters::leave(waiter) };
                if wait::passes_on(woken, declines) {
                    waiters::notify(self.cond.key(), 1);
                }
                woken
            }
            Place::Shared(sequence) => {
                let woken = self.cond.sequence.load(Ordering::Acquire) != sequence;
                if wait::passes_on(woken, declines) {
                    self.cond.notify_shared(1);
                }
                self.cond.leave_shared();
                woken
            }
        }
    }

    fn sleep(&self) -> Option<c_int> {
        let (word, asleep, shared) = match self.place {
            // SAFETY: the caller's own.
            Place::Queue(waiter) => (unsafe { &(*waiter).woken }, 0, false),
            Place::Shared(sequence) => (&self.cond.sequence, sequence, true),
            Place::Nowhere => return Some(0),
        };
        // A handler that has waited as well has taken this thread's place with it: nobody would find it any more.
        // SAFETY: the caller's own.
        let is_lost = || matches!(self.place, Place::Queue(waiter) if !unsafe { &*waiter }.is_queued());
        while word.load(Ordering::Acquire) == asleep && !is_lost() {
            match self.caller.sleep(word, asleep, self.deadline, shared) {
                Wait::TimedOut => return Some(errno::ETIMEDOUT),
                Wait::Follow => return None,
                Wait::Again | Wait::Interrupted => {}
            }
        }
        // Woken before it slept: what was sent before that is delivered before that.
        self.caller.deliver();
        (self.caller.mode() != Mode::Replay).then_some(0)
    }

    /// Sleeps, acting, or follows the log. Comes back with the mutex held.
    fn wait(&mut self) -> c_int {
        loop {
            if (self.caller.mode() == Mode::Replay || mutex::follows_log(self.mutex))
                && let Some(result) = mutex::reacquire_by_log(self.mutex, self.caller, self.depth)
            {
                // Then the primary's thread may not have been woken, and whom the signal was meant for still waits. A robust
                // mutex says EOWNERDEAD in place of the timeout.
                self.end(result != 0);
                return result;
            }
            // SAFETY: `self` outlives the call.
            unsafe { unwind::guarded(body, cancelled, (&raw mut *self).cast()) };
            if let Some(result) = self.result {
                let result = wait::told(self.end(false), result);
                return mutex::reacquire_after_wait(self.mutex, self.caller, self.depth, result);
            }
            if matches!(self.place, Place::Shared(_)) {
                self.cond.leave_shared();
                self.place = Place::Nowhere;
            }
        }
    }
}

/// The part of a wait that may be left by cancellation: asleep, the mutex released.
unsafe extern "C" fn body(waiting: *mut c_void) {
    // SAFETY: `Waiting::wait` passes its own.
    let waiting = unsafe { &mut *waiting.cast::<Waiting>() };
    // SAFETY: the clean-up is in place.
    let old = unsafe { cancel::begin_point() };
    waiting.result = waiting.sleep();
    // SAFETY: as it was.
    unsafe { cancel::end_point(old) };
}

/// Cancelled: the guest's clean-up handlers find the mutex locked. A signal that was meant for this thread
/// is passed on.
unsafe extern "C" fn cancelled(waiting: *mut c_void) {
    // SAFETY: `Waiting::wait` passes its own.
    let waiting = unsafe { &mut *waiting.cast::<Waiting>() };
    waiting.end(true);
    mutex::reacquire_after_wait(waiting.mutex, waiting.caller, waiting.depth, errno::ECANCELED);
}

fn wait(cond: &Cond, mutex: &Mutex, deadline: Deadline) -> c_int {
    // For a thread without a block.
    let mut own = Waiter::new();
    let mut waiting = Waiting::begin(cond, mutex, deadline, &raw mut own);
    if state::is_computed()
        && let Some(thread) = waiting.caller.thread()
    {
        // What it sleeps on is in the thread's own block, and then in the mutex.
        thread.turn.set_object(ptr::from_ref(mutex) as u64);
    }
    match mutex::release_for_wait(mutex, waiting.caller) {
        Ok(depth) => waiting.depth = depth,
        Err(error) => {
            waiting.end(true);
            return error;
        }
    }
    let result = waiting.wait();
    if result == errno::ECANCELED {
        // A standby's thread by now, and its primary's was cancelled in this wait.
        cancellation::end_thread();
    }
    result
}

/// At a promotion: the dead primary may have signalled it or not. Who is woken for nothing looks again. By the poller, which has the
/// block of a thread that follows: it is not to be taken for that one.
///
/// # Safety
/// The address of the guest's condition variable, shared between processes.
pub unsafe fn wake_all(address: usize) {
    // SAFETY: the caller's promise.
    unsafe { &*(address as *const Cond) }.wake_shared(ALL);
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

/// `pthread_cond_destroy`: returns when every thread that was woken has left the object. Only a shared one is
/// touched by them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_destroy(cond: *const Cond) -> c_int {
    // SAFETY: the guest's condition variable.
    let cond = unsafe { &*cond };
    if !cond.shared() {
        return 0;
    }
    let caller = Caller::get();
    if common::follows(cond.key()) {
        return 0;
    }
    let mut waiters = cond.waiters.fetch_or(DESTROYING, Ordering::AcqRel) | DESTROYING;
    while waiters != DESTROYING {
        caller.sleep(&cond.waiters, waiters, Deadline::None, true);
        waiters = cond.waiters.load(Ordering::Acquire);
    }
    0
}

/// `pthread_cond_signal`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(_cond: *const Cond) -> c_int {
    ordered_frame!(CHANGES, cond_signal)
}

unsafe extern "C" fn cond_signal(cond: *const Cond) -> c_int {
    // SAFETY: the guest's condition variable.
    unsafe { &*cond }.notify(1);
    0
}

/// `pthread_cond_broadcast`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(_cond: *const Cond) -> c_int {
    ordered_frame!(CHANGES, cond_broadcast)
}

unsafe extern "C" fn cond_broadcast(cond: *const Cond) -> c_int {
    // SAFETY: the guest's condition variable.
    unsafe { &*cond }.notify(ALL);
    0
}

/// `pthread_cond_wait`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(_cond: *const Cond, _mutex: *const Mutex) -> c_int {
    ordered_frame!(CHANGES, cond_wait)
}

unsafe extern "C" fn cond_wait(cond: *const Cond, mutex: *const Mutex) -> c_int {
    // SAFETY: the guest's objects.
    let (cond, mutex) = unsafe { (&*cond, &*mutex) };
    wait(cond, mutex, Deadline::None)
}

/// `pthread_cond_timedwait`: until a time of the clock that the attributes named.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    _cond: *const Cond,
    _mutex: *const Mutex,
    _time: *const Timespec,
) -> c_int {
    ordered_frame!(CHANGES, cond_timedwait)
}

unsafe extern "C" fn cond_timedwait(cond: *const Cond, mutex: *const Mutex, time: *const Timespec) -> c_int {
    // SAFETY: the guest's condition variable.
    let flags = unsafe { &*cond }.flags.load(Ordering::Relaxed);
    let clock = if flags & MONOTONIC != 0 { CLOCK_MONOTONIC } else { CLOCK_REALTIME };
    // SAFETY: the guest's objects.
    unsafe { cond_clockwait(cond, mutex, clock, time) }
}

/// `pthread_cond_clockwait`: what C++ waits with.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_clockwait(
    _cond: *const Cond,
    _mutex: *const Mutex,
    _clock: c_int,
    _time: *const Timespec,
) -> c_int {
    ordered_frame!(CHANGES, cond_clockwait)
}

unsafe extern "C" fn cond_clockwait(
    cond: *const Cond,
    mutex: *const Mutex,
    clock: c_int,
    time: *const Timespec,
) -> c_int {
    // SAFETY: the guest's objects.
    let (cond, mutex) = unsafe { (&*cond, &*mutex) };
    // SAFETY: the guest's time.
    let deadline = match unsafe { sync::deadline(clock, time) } {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    let ticket = || mutex.clock.load(Ordering::Relaxed);
    let thread = Caller::get().thread();
    let timed = thread.and_then(|thread| live_turns::begins_timed_wait(thread, cond.key(), ticket()));
    let result = wait(cond, mutex, deadline);
    if result == errno::ETIMEDOUT
        && let Some((timed, thread)) = timed.zip(Caller::get().thread())
    {
        timed.timed_out(thread, ticket());
    }
    result
}
