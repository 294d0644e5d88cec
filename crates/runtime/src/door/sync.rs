//! What the synchronisation doors share: who calls, how to sleep and wake, and the order of hashed clocks.
//!
//! # Safety
//! The objects are the guest's own bytes: a door gets a pointer that the guest promises to be valid, and
//! works on its words with atomics only.

use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub use us_abi::event::op;
use us_abi::event::{EventKind, NO_TICKET};
use us_calls::Class;

use crate::door::block::{self, Deadline, Wait};
use crate::door::common;
use crate::kernel::FUTEX_WAKE;
use crate::log::Next;
use crate::mapping::views;
use crate::raw::{self, Timespec};
use crate::signal;
use crate::thread::{Mode, Thread};
use crate::tls::{TID_OFFSET, tid_of};
use crate::turns::logical;
use crate::{clock, real, tls};

/// Payload of an event that carries a value; events with payload are multiples of 16 bytes anyway.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    /// The value.
    pub value: u64,
    /// Zero.
    pub zero: u64,
}

/// errno values that the doors return.
pub mod errno {
    #![allow(missing_docs)]
    use core::ffi::c_int;
    pub const EPERM: c_int = linux_raw_sys::errno::EPERM as c_int;
    pub const ESRCH: c_int = linux_raw_sys::errno::ESRCH as c_int;
    pub const EINTR: c_int = linux_raw_sys::errno::EINTR as c_int;
    pub const EAGAIN: c_int = linux_raw_sys::errno::EAGAIN as c_int;
    pub const EBUSY: c_int = linux_raw_sys::errno::EBUSY as c_int;
    pub const EINVAL: c_int = linux_raw_sys::errno::EINVAL as c_int;
    pub const EDEADLK: c_int = linux_raw_sys::errno::EDEADLK as c_int;
    pub const EOVERFLOW: c_int = linux_raw_sys::errno::EOVERFLOW as c_int;
    pub const ENOTSUP: c_int = 95;
    pub const ETIMEDOUT: c_int = linux_raw_sys::errno::ETIMEDOUT as c_int;
    /// In the log only: the operation was left by cancellation.
    pub const ECANCELED: c_int = linux_raw_sys::errno::ECANCELED as c_int;
    pub const EOWNERDEAD: c_int = linux_raw_sys::errno::EOWNERDEAD as c_int;
    pub const ENOTRECOVERABLE: c_int = linux_raw_sys::errno::ENOTRECOVERABLE as c_int;
}

/// The thread that came to a door; null for one that the runtime has not met or that is outside a group.
#[derive(Clone, Copy)]
pub struct Caller(*mut Thread);

impl Caller {
    /// The calling thread.
    #[inline(always)]
    pub fn get() -> Caller {
        Caller(tls::current())
    }

    /// Its block, if it has one.
    #[inline(always)]
    pub fn thread(self) -> Option<&'static mut Thread> {
        // SAFETY: the slot is null or holds this thread's own block, which is never freed. No two references
        // of one door live at once: each is dropped before the next is asked for.
        unsafe { self.0.as_mut() }
    }

    /// What its doors do with the log.
    #[inline(always)]
    pub fn mode(self) -> Mode {
        self.thread().map_or(Mode::Solo, |thread| thread.locks())
    }

    /// The block of a thread that records.
    #[inline(always)]
    pub fn recording(self) -> Option<&'static mut Thread> {
        self.thread().filter(|thread| thread.locks() == Mode::Record)
    }

    /// The log of a thread that records has room for the event of what it is about to take, see [`Thread::is_ready`].
    #[inline(always)]
    pub fn make_ready(self) {
        if let Some(thread) = self.recording() {
            thread.is_ready();
        }
    }

    /// The block of a thread that replays.
    #[inline(always)]
    pub fn replaying(self) -> Option<&'static mut Thread> {
        self.thread().filter(|thread| thread.locks() == Mode::Replay)
    }

    /// Delivers what has come: a thread that passes no other doors must get its signals, too. Only where the log, if there is
    /// one, has the event that follows.
    #[inline(always)]
    pub fn deliver(self) {
        if let Some(thread) = self.thread()
            && thread.pending.load(Ordering::Relaxed) != 0
        {
            signal::deliver_at_lock(thread);
        }
    }

    /// The number that libc keeps of the calling thread: what locks name as their owner. In a process made by a bare clone that is
    /// its parent's until the program corrects it, and sandboxes look at a lock to learn whether they have to.
    #[inline]
    pub fn tid(self) -> u32 {
        match TID_OFFSET.load(Ordering::Relaxed) {
            // Before the runtime has begun.
            0 => raw::gettid(),
            _ => tid_of(tls::thread_pointer()),
        }
    }

    /// Sleeps while `word` holds `value`; see [`block::sleep`].
    pub fn sleep(self, word: &AtomicU32, value: u32, deadline: Deadline, shared: bool) -> Wait {
        if deadline.is_negative() {
            return Wait::TimedOut;
        }
        match self.thread() {
            Some(thread) => block::sleep(thread, word, value, deadline, shared),
            None => sleep_outside(word, value, deadline, shared),
        }
    }
}

/// Sleeps while `word` holds `value`, as a thread without a block, whose handlers run in place.
pub(super) fn sleep_outside(word: &AtomicU32, value: u32, deadline: Deadline, shared: bool) -> Wait {
    let args = deadline.futex(word, value, shared);
    // SAFETY: the word and the time outlive the call; a futex wait changes no memory.
    let result = unsafe { raw::call6(raw::nr::FUTEX, args) };
    match result {
        raw::err::ETIMEDOUT => Wait::TimedOut,
        raw::err::EINTR => Wait::Interrupted,
        _ => Wait::Again,
    }
}

/// Whether locks are logged: set before libc begins to make the second thread.
static THREADED: AtomicBool = AtomicBool::new(false);

/// Whether this process has, or is about to have, threads that locks keep in order. libc's word comes later: a clone in between
/// would begin a log in which the second thread takes its locks without it.
pub fn is_threaded() -> bool {
    THREADED.load(Ordering::Relaxed) || !real::single_threaded()
}

/// By a lone thread that is about to make another.
pub fn becomes_threaded() {
    THREADED.store(true, Ordering::Relaxed);
}

const FUTEX_PRIVATE: u64 = linux_raw_sys::general::FUTEX_PRIVATE_FLAG as u64;

/// Wakes up to `count` sleepers of the word at `address`. An address, not a reference: once a lock is
/// released its next owner may free it, and a wake of an address that is gone is harmless.
#[cold]
pub fn wake(address: *const u32, count: u32, shared: bool) {
    logical::wake(address as u64, count);
    let op = FUTEX_WAKE | if shared { 0 } else { FUTEX_PRIVATE };
    // SAFETY: a wake touches no memory.
    unsafe { raw::call3(raw::nr::FUTEX, address as u64, op, u64::from(count)) };
}

/// The same in logical time alone, by one who gives an object back that says nothing of sleepers: in a copy that follows, and in
/// one that has followed, nobody has marked it.
#[inline(always)]
pub fn wake_in_order(address: *const u32, count: u32) {
    if logical::somebody_sleeps() {
        wake_asleep(address, count);
    }
}

/// By one who has given an object back: wakes up to `count` of those who sleep, whether the object says that there are any or not.
#[inline(always)]
pub fn wake_next(address: *const u32, count: u32, is_marked: bool, shared: bool) {
    if is_marked {
        wake(address, count, shared);
    } else {
        wake_in_order(address, count);
    }
}

#[cold]
#[inline(never)]
fn wake_asleep(address: *const u32, count: u32) {
    logical::wake(address as u64, count);
}

/// Every sleeper, as a count for [`wake`].
pub const ALL: u32 = i32::MAX as u32;

/// Reads the deadline that a timed function was given. `Err` is the errno for a clock or a time that is
/// not one.
///
/// # Safety
/// `time` must be readable.
pub unsafe fn deadline(clock: c_int, time: *const Timespec) -> Result<Deadline, c_int> {
    // SAFETY: the caller's promise.
    let time = unsafe { time.read() };
    if !(0..1_000_000_000).contains(&(time.nsec as c_long)) {
        return Err(errno::EINVAL);
    }
    match clock {
        CLOCK_REALTIME => Ok(Deadline::Realtime(time)),
        CLOCK_MONOTONIC => Ok(Deadline::Monotonic(time)),
        _ => Err(errno::EINVAL),
    }
}

/// Number of the clock of that name.
pub const CLOCK_REALTIME: c_int = linux_raw_sys::general::CLOCK_REALTIME as c_int;
/// Number of the clock of that name.
pub const CLOCK_MONOTONIC: c_int = linux_raw_sys::general::CLOCK_MONOTONIC as c_int;

/// How an attempt at a blocking operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the object was acquired.
    pub acquired: bool,
    /// What the guest is told. Not always zero when acquired: a robust mutex says `EOWNERDEAD`.
    pub errno: c_int,
}

impl Outcome {
    /// Not acquired: the thread stood still meanwhile and is a standby's now, so the log says how it ends.
    pub const FOLLOW: Outcome = Outcome { acquired: false, errno: -1 };
    /// Acquired, nothing to say.
    pub const OK: Outcome = Outcome { acquired: true, errno: 0 };
    /// Not acquired, for this reason.
    pub const fn failed(errno: c_int) -> Outcome {
        Outcome { acquired: false, errno }
    }
}

/// The `call` of an operation on the object at `address`, as a primary.
#[inline(always)]
pub fn call_of(op: u16, address: usize) -> u16 {
    op << 12 | clock::number(address)
}

/// The clock that an event's `call` names. Always the logged number, never one computed here: the object
/// may lie at another address in this copy.
#[inline(always)]
pub fn clock_of(call: u16) -> &'static AtomicU64 {
    clock::hashed(call & 0xfff)
}

/// Logs the outcome of an acquisition, as a primary, while the object is still held.
pub fn record(thread: &mut Thread, op: u16, address: usize, outcome: Outcome) {
    let call = call_of(op, address);
    let ticket = if outcome.acquired { clock_of(call).fetch_add(1, Ordering::AcqRel) } else { NO_TICKET };
    thread.push(EventKind::Ordered, outcome.errno as u8, call, ticket);
}

/// Applies the next event, as a standby: waits for its ticket, lets `act` do the operation on the local
/// object, moves the clock on. `None` when there are no more events and the caller acts for real.
pub fn replay(caller: Caller, op: u16, act: impl FnOnce()) -> Option<Outcome> {
    let (thread, event) = loop {
        let thread = caller.replaying()?;
        match thread.next() {
            Next::Event(event) => break (thread, event),
            Next::Live => signal::deliver_promoted(thread),
        }
    };
    let header = event.header;
    if header.kind != EventKind::Ordered as u8 || header.call >> 12 != op {
        crate::verdict::diverge(thread, EventKind::Ordered, op << 12, &event);
    }
    let acquired = header.ticket != NO_TICKET;
    if acquired {
        let clock = clock_of(header.call);
        clock::wait(thread, clock, header.ticket);
        // `act` may sleep, and borrows the block for that: ours ends here.
        act();
        clock::pass(clock, header.ticket);
    }
    if let Some(thread) = caller.thread() {
        thread.close();
        thread.count(Class::of_event(EventKind::Ordered, header.call));
    }
    Some(Outcome { acquired, errno: c_int::from(header.flags) })
}

/// An acquisition on a hashed clock in whatever mode the caller is in. `attempt` may fail (busy, timed
/// out); `force` blocks until it has the object: the last holder's ticket does not say that its release
/// has happened in this copy.
pub fn acquire(
    op: u16,
    address: usize,
    attempt: impl Fn(Caller) -> Outcome,
    force: impl Fn(Caller),
) -> c_int {
    acquire_as(op, address, attempt, force, |_| {})
}

/// The same of an object that says whose it is: `taken` writes that where a dead primary has acquired it and not come so far.
pub fn acquire_as(
    op: u16,
    address: usize,
    attempt: impl Fn(Caller) -> Outcome,
    force: impl Fn(Caller),
    taken: impl Fn(Caller),
) -> c_int {
    let caller = Caller::get();
    caller.deliver();
    loop {
        if op != op::ROBUST
            && let Some(result) = common::acquire(caller, op, address, 0, &attempt, &taken)
        {
            return result;
        }
        let force = || {
            // Another process may hold it here for ever: what it does is in no log of ours.
            if !views::is_elsewhere(address) {
                force(caller);
            }
        };
        if let Some(outcome) = replay(caller, op, force) {
            return outcome.errno;
        }
        caller.make_ready();
        let outcome = attempt(caller);
        if outcome == Outcome::FOLLOW {
            continue;
        }
        if let Some(thread) = caller.recording() {
            record(thread, op, address, outcome);
        } else if op != op::ROBUST {
            common::tell(caller, op, address, outcome.errno);
        }
        return outcome.errno;
    }
}

/// Sets the guest's errno and returns -1, as the semaphore functions do; 0 stays 0.
pub fn as_errno(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    // SAFETY: libc's errno of this thread is always there.
    unsafe { crate::real::__errno_location().write(error) };
    -1
}
