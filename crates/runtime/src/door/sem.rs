//! Semaphores, with glibc's layout: those of `sem_open` are made by libc and may be shared with programs
//! that are not under Understudy.
//!
//! A post releases: its ticket is taken and published before the value changes. A wait takes its ticket when
//! it has succeeded. So a standby that has applied all lower tickets finds the value it needs.
//!
//! A wait that is interrupted by a handler ends with EINTR where the kernel would end it so: programs stop their threads by
//! that. What the handler itself has posted is taken first.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::event::{EventKind, Header};
use us_calls::Class;

use super::block::{Deadline, Wait};
use super::cancel;
use super::common::{self, Note};
use super::mutex::Patience;
use super::sync::{self, CLOCK_REALTIME, Caller, Outcome, Value, as_errno, call_of, clock_of, errno, op};
use super::unwind;
use crate::clock;
use crate::log::Next;
use crate::mapping::views;
use crate::raw::Timespec;
use crate::signal::{self, cancellation};
use crate::thread::Mode;
use crate::turns::doors::{Scope, ordered_frame};

/// glibc's `sem_t`.
#[repr(C)]
pub struct Semaphore {
    value: AtomicU32,
    /// Threads that may sleep on the value.
    waiters: AtomicU32,
    /// Not zero for one that processes share.
    shared: AtomicU32,
}

const VALUE_MAX: u32 = i32::MAX as u32;
const SHARED: u32 = 128;

impl Semaphore {
    fn address(&self) -> usize {
        self.value.as_ptr() as usize
    }
    fn shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed) != 0
    }

    fn try_take(&self) -> bool {
        common::update(Note::Take, &self.value, |value| value.checked_sub(1)).is_ok()
    }

    #[inline(always)]
    fn add(&self) -> c_int {
        let add = |value: u32| (value < VALUE_MAX).then_some(value + 1);
        let (word, shared) = (self.value.as_ptr(), self.shared());
        if common::update(Note::Give, &self.value, add).is_err() {
            return errno::EOVERFLOW;
        }
        sync::wake_next(word, 1, self.waiters.load(Ordering::SeqCst) != 0, shared);
        0
    }

    fn take(&self, caller: Caller, patience: Patience) -> Outcome {
        if self.try_take() {
            return Outcome::OK;
        }
        match patience.deadline() {
            Ok(deadline) => self.block(caller, deadline),
            Err(error) => Outcome::failed(error),
        }
    }

    /// As a cancellation point: also when it need not block.
    fn take_cancellable(&self, caller: Caller, patience: Patience) -> Outcome {
        let mut taking = Taking { semaphore: self, caller, patience, outcome: Outcome::OK };
        // SAFETY: `taking` outlives the call.
        unsafe { unwind::guarded(take, left, (&raw mut taking).cast()) };
        taking.outcome
    }

    fn block(&self, caller: Caller, deadline: Deadline) -> Outcome {
        common::count_in(&self.waiters);
        let mut blocked = Blocked { semaphore: self, caller, deadline, outcome: Outcome::OK };
        // SAFETY: `blocked` outlives the call.
        unsafe { unwind::guarded(body, cancelled, (&raw mut blocked).cast()) };
        common::count_out(&self.waiters);
        blocked.outcome
    }

    fn sleep(&self, caller: Caller, deadline: Deadline) -> Outcome {
        if let Some(thread) = caller.thread()
            && (signal::is_due(thread) || thread.signals.resumed)
            && thread.locks() != Mode::Replay
        {
            // What is due came before this wait, and does not end it; unless the dead primary's thread was in it. That one
            // may have run the handler, too, and not have come to say how its wait ended.
            let has_deadline = !matches!(deadline, Deadline::None);
            let (any, breaking) = thread.signals.broken_off;
            let ends = core::mem::take(&mut thread.signals.resumed)
                && (breaking || has_deadline && any || signal::interrupts(thread, has_deadline));
            signal::deliver(thread);
            if thread.locks() == Mode::Replay {
                return Outcome::FOLLOW;
            }
            if ends && self.value.load(Ordering::SeqCst) == 0 {
                return Outcome::failed(errno::EINTR);
            }
        }
        while self.value.load(Ordering::SeqCst) == 0 {
            match caller.sleep(&self.value, 0, deadline, self.shared()) {
                Wait::TimedOut => return Outcome::failed(errno::ETIMEDOUT),
                Wait::Follow => return Outcome::FOLLOW,
                Wait::Interrupted if self.value.load(Ordering::SeqCst) == 0 => {
                    return Outcome::failed(errno::EINTR);
                }
                Wait::Again | Wait::Interrupted => {}
            }
        }
        Outcome::OK
    }
}

/// A wait that has to sleep.
struct Blocked<'a> {
    semaphore: &'a Semaphore,
    caller: Caller,
    deadline: Deadline,
    outcome: Outcome,
}

/// Sleeps and takes. Cancellable only while it sleeps: a thread that has taken one is not cancelled.
unsafe extern "C" fn body(blocked: *mut c_void) {
    // SAFETY: `block` passes its own.
    let this = unsafe { &mut *blocked.cast::<Blocked>() };
    loop {
        // SAFETY: the clean-up is in place.
        let old = unsafe { cancel::begin_point() };
        this.outcome = this.semaphore.sleep(this.caller, this.deadline);
        // SAFETY: as it was.
        unsafe { cancel::end_point(old) };
        if !this.outcome.acquired || this.semaphore.try_take() {
            return;
        }
    }
}

unsafe extern "C" fn cancelled(blocked: *mut c_void) {
    // SAFETY: `block` passes its own.
    let semaphore = unsafe { (*blocked.cast::<Blocked>()).semaphore };
    common::count_out(&semaphore.waiters);
    // The wake that this thread may have swallowed was for somebody.
    if semaphore.value.load(Ordering::SeqCst) != 0 {
        sync::wake(semaphore.value.as_ptr(), 1, semaphore.shared());
    }
}

/// One `sem_wait`.
struct Taking<'a> {
    semaphore: &'a Semaphore,
    caller: Caller,
    patience: Patience,
    outcome: Outcome,
}

unsafe extern "C" fn take(taking: *mut c_void) {
    // SAFETY: `take_cancellable` passes its own.
    let this = unsafe { &mut *taking.cast::<Taking>() };
    // SAFETY: the clean-up is in place.
    unsafe { cancel::test() };
    this.outcome = this.semaphore.take(this.caller, this.patience);
}

/// Cancelled: that is how the operation ended, and the standby's thread ends here as well.
unsafe extern "C" fn left(taking: *mut c_void) {
    // SAFETY: `take_cancellable` passes its own.
    let this = unsafe { &*taking.cast::<Taking>() };
    if let Some(thread) = this.caller.recording() {
        let outcome = Outcome::failed(errno::ECANCELED);
        sync::record(thread, op::SEM_WAIT, this.semaphore.address(), outcome);
    }
}

fn wait(semaphore: &Semaphore, patience: Patience) -> c_int {
    let attempt = |caller| match patience {
        Patience::Try if semaphore.try_take() => Outcome::OK,
        Patience::Try => Outcome::failed(errno::EAGAIN),
        _ => semaphore.take_cancellable(caller, patience),
    };
    // Lower tickets hold all the posts that this take needs: it does not block.
    let force = |caller| while !semaphore.take(caller, Patience::Block).acquired {};
    if let Some(thread) = Caller::get().thread() {
        // Of this wait, not of one before.
        (thread.signals.resumed, thread.signals.broken_off) = (false, (false, false));
    }
    let result = sync::acquire(op::SEM_WAIT, semaphore.address(), attempt, force);
    if result == errno::ECANCELED {
        cancellation::end_thread();
    }
    as_errno(result)
}

/// `sem_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_init(semaphore: *mut Semaphore, shared: c_int, value: u32) -> c_int {
    if value > VALUE_MAX {
        return as_errno(errno::EINVAL);
    }
    // SAFETY: the guest's bytes, of which nobody else knows yet.
    let this = unsafe { &*semaphore };
    this.shared.store(if shared == 0 { 0 } else { SHARED }, Ordering::Relaxed);
    this.waiters.store(0, Ordering::Relaxed);
    this.value.store(value, Ordering::Release);
    0
}

/// `sem_destroy`: nothing to free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_destroy(_semaphore: *const Semaphore) -> c_int {
    0
}

/// `sem_wait`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_wait(_semaphore: *const Semaphore) -> c_int {
    ordered_frame!(ACQUIRES, block)
}

unsafe extern "C" fn block(semaphore: *const Semaphore) -> c_int {
    // SAFETY: the guest's semaphore.
    wait(unsafe { &*semaphore }, Patience::Block)
}

/// `sem_trywait`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_trywait(_semaphore: *const Semaphore) -> c_int {
    ordered_frame!(ACQUIRES, try_now)
}

unsafe extern "C" fn try_now(semaphore: *const Semaphore) -> c_int {
    // SAFETY: the guest's semaphore.
    wait(unsafe { &*semaphore }, Patience::Try)
}

/// `sem_timedwait`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_timedwait(_semaphore: *const Semaphore, _time: *const Timespec) -> c_int {
    ordered_frame!(ACQUIRES, timed_wait)
}

unsafe extern "C" fn timed_wait(semaphore: *const Semaphore, time: *const Timespec) -> c_int {
    // SAFETY: the guest's semaphore and time.
    unsafe { clock_wait(semaphore, CLOCK_REALTIME, time) }
}

/// `sem_clockwait`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_clockwait(
    _semaphore: *const Semaphore,
    _clock: c_int,
    _time: *const Timespec,
) -> c_int {
    ordered_frame!(ACQUIRES, clock_wait)
}

unsafe extern "C" fn clock_wait(semaphore: *const Semaphore, clock: c_int, time: *const Timespec) -> c_int {
    // SAFETY: the guest's time. Checked first, as in glibc: it says so also when nobody would have waited.
    if let Err(error) = unsafe { sync::deadline(clock, time) } {
        return as_errno(error);
    }
    // SAFETY: the guest's semaphore.
    wait(unsafe { &*semaphore }, Patience::Until(clock, time))
}

/// `sem_post`. It may be called in a signal handler.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_post(_semaphore: *const Semaphore) -> c_int {
    ordered_frame!(CHANGES, post)
}

unsafe extern "C" fn post(semaphore: *const Semaphore) -> c_int {
    // SAFETY: the guest's semaphore.
    let semaphore = unsafe { &*semaphore };
    let caller = Caller::get();
    let mut result = 0;
    let add = || {
        if !views::is_elsewhere(semaphore.address()) {
            result = semaphore.add();
        }
    };
    if common::mode(caller, semaphore.address()).is_some() {
        let acts = common::releases(caller, op::SEM_POST, semaphore.address(), finish_post, || {});
        return if acts { as_errno(semaphore.add()) } else { 0 };
    }
    if sync::replay(caller, op::SEM_POST, add).is_some() {
        return as_errno(result);
    }
    if let Some(thread) = caller.recording() {
        sync::record(thread, op::SEM_POST, semaphore.address(), Outcome::OK);
    }
    as_errno(semaphore.add())
}

/// At a promotion: a post that the log has.
fn finish_post(address: usize, made: bool) {
    // SAFETY: the guest's semaphore, which its thread has just posted.
    let semaphore = unsafe { &*(address as *const Semaphore) };
    match made {
        true => sync::wake(semaphore.value.as_ptr(), 1, true),
        false => {
            semaphore.add();
        }
    }
}

/// `sem_getvalue`: the value travels in the log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_getvalue(semaphore: *const Semaphore, value: *mut c_int) -> c_int {
    // SAFETY: the guest's semaphore and result.
    let (semaphore, value) = unsafe { (&*semaphore, &mut *value) };
    let _door = Scope::begin(semaphore.address());
    let caller = Caller::get();
    if common::mode(caller, semaphore.address()).is_some() {
        // What a standby sees is what the log has last told of.
        *value = common::look(caller, op::SEM_VALUE, semaphore.address()) as c_int;
        return 0;
    }
    if let Some(logged) = logged_value(caller) {
        *value = logged;
        return 0;
    }
    let now = semaphore.value.load(Ordering::Acquire);
    if let Some(thread) = caller.recording() {
        let call = call_of(op::SEM_VALUE, semaphore.address());
        let ticket = clock_of(call).fetch_add(1, Ordering::AcqRel);
        thread.append(EventKind::Ordered, 0, call, ticket, &Value { value: u64::from(now), zero: 0 });
    }
    *value = now as c_int;
    0
}

fn logged_value(caller: Caller) -> Option<c_int> {
    let thread = caller.replaying()?;
    let Next::Event(event) = thread.next() else { return None };
    let Header { kind, call, ticket, .. } = event.header;
    let payload = event.payload().first_chunk::<8>();
    let (true, Some(payload)) = (kind == EventKind::Ordered as u8 && call >> 12 == op::SEM_VALUE, payload)
    else {
        crate::verdict::diverge(thread, EventKind::Ordered, op::SEM_VALUE << 12, &event);
    };
    let value = u64::from_le_bytes(*payload) as c_int;
    let clock = clock_of(call);
    clock::wait(thread, clock, ticket);
    clock::pass(clock, ticket);
    thread.close();
    thread.count(Class::of_event(EventKind::Ordered, call));
    Some(value)
}
