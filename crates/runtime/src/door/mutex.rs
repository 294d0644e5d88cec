//! Mutexes of every kind but robust ones (see [`super::robust`]).
//!
//! The object has glibc's layout and initialisers, the algorithm is the runtime's: 0 free, 1 held, 2 held
//! and somebody may sleep. The clock lies in the mutex itself, in the eight bytes that glibc uses for
//! robust mutexes only: no line but the mutex's own is touched.
//!
//! Priority inheritance and protection are accepted and have no effect on scheduling.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI16, AtomicU32, AtomicU64, Ordering, fence};

use us_abi::event::{AFTER_WAIT, EventKind, LOCKED, MUTEX_HOW, NO_TICKET, mutex_call};
use us_calls::Class;
use us_order::ticket;

use super::block::{Deadline, Wait};
use super::common::{self, Note};
pub use super::mutex_object::{pthread_mutex_destroy, pthread_mutex_init};
use super::robust;
use super::sync::{self, CLOCK_REALTIME, Caller, Outcome, errno, op};
use crate::log::Next;
use crate::mapping::views;
use crate::raw::Timespec;
use crate::sys::allocator::opaque;
use crate::thread::{Mode, Thread};
use crate::turns::doors::ordered_frame;
use crate::{clock, tls};
use crate::{real, signal};

/// glibc's `pthread_mutex_t`.
#[repr(C)]
pub struct Mutex {
    /// 0 free, 1 held, 2 held with sleepers; of a robust mutex the owner's kernel id.
    pub lock: AtomicU32,
    /// How often its owner has locked a recursive one.
    pub count: AtomicU32,
    /// Guest id of its owner.
    pub owner: AtomicU32,
    /// glibc counts users here; we keep the mutex's name in the log, 0 while it has none.
    pub name: AtomicU32,
    /// Type, protocol and sharing; see [`kind`].
    pub kind: AtomicU32,
    /// glibc counts spins here; we keep a priority ceiling, which glibc keeps in the lock word.
    pub ceiling: AtomicI16,
    elision: AtomicI16,
    /// Ticket of the next acquisition; of a robust mutex the list's back link.
    pub clock: AtomicU64,
    /// The robust list's link.
    pub next: AtomicU64,
}

const _: () = {
    assert!(size_of::<Mutex>() == 40);
    assert!(core::mem::offset_of!(Mutex, kind) == 16);
    assert!(core::mem::offset_of!(Mutex, clock) == 24);
    assert!(core::mem::offset_of!(Mutex, next) == 32);
};

/// Bits of [`Mutex::kind`], as glibc's initialisers have them.
pub mod kind {
    /// The type: the low two bits.
    pub const TYPE: u32 = 3;
    /// Counts re-entries.
    pub const RECURSIVE: u32 = 1;
    /// Reports re-entries.
    pub const ERRORCHECK: u32 = 2;
    /// Spins a little before it sleeps.
    pub const ADAPTIVE: u32 = 3;
    /// Survives its owner.
    pub const ROBUST: u32 = 16;
    /// Priority inheritance.
    pub const INHERIT: u32 = 32;
    /// Priority protection.
    pub const PROTECT: u32 = 64;
    /// Shared between processes.
    pub const SHARED: u32 = 128;
    /// What destroy leaves.
    pub const DESTROYED: u32 = u32::MAX;
}

/// How long an acquisition may take.
#[derive(Clone, Copy)]
pub enum Patience {
    /// Not at all.
    Try,
    /// As long as it takes.
    Block,
    /// Until this time of this clock; checked only when the mutex is taken, as in glibc.
    Until(c_int, *const Timespec),
}

impl Patience {
    /// The deadline, or why there can be none.
    pub fn deadline(self) -> Result<Deadline, c_int> {
        match self {
            Patience::Try => Err(errno::EBUSY),
            Patience::Block => Ok(Deadline::None),
            // SAFETY: the guest's promise that its time is readable.
            Patience::Until(clock, time) => unsafe { sync::deadline(clock, time) },
        }
    }
}

impl Mutex {
    /// Whether processes share it.
    pub fn shared(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & kind::SHARED != 0
    }
    /// Whether it is a robust one.
    pub fn robust(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & kind::ROBUST != 0
    }
    fn kind_is(&self, wanted: u32) -> bool {
        self.kind.load(Ordering::Relaxed) & kind::TYPE == wanted
    }
    #[inline(always)]
    fn try_word(&self) -> bool {
        if self.shared() {
            return common::exchange(Note::Take, &self.lock, 0, 1).is_ok();
        }
        self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn lock_solo(&self, caller: Caller) -> bool {
        if real::single_threaded() {
            if self.lock.load(Ordering::Relaxed) != 0 {
                return false;
            }
            self.lock.store(1, Ordering::Relaxed);
        } else if !self.try_word() {
            return false;
        }
        self.owner.store(caller.tid(), Ordering::Relaxed);
        true
    }

    /// Logs the acquisition, as a primary. Nobody else has the mutex: its clock needs no atomic add.
    #[inline(always)]
    fn push_ticket(&self, thread: &mut Thread, errno: c_int, how: u16) {
        let ticket = self.clock.load(Ordering::Relaxed);
        self.clock.store(ticket::after(ticket), Ordering::Relaxed);
        let mut name = self.known_name();
        if name == 0 {
            name = self.give_name();
        }
        thread.push(EventKind::Mutex, errno as u8, mutex_call(how, name), ticket);
    }

    /// Takes the lock word, waiting if need be and allowed.
    fn acquire(&self, caller: Caller, patience: Patience) -> Outcome {
        if self.try_word() {
            return Outcome::OK;
        }
        let deadline = match patience.deadline() {
            Ok(deadline) => deadline,
            Err(error) => return Outcome::failed(error),
        };
        if self.kind_is(kind::ADAPTIVE) && self.spin() {
            return Outcome::OK;
        }
        let shared = self.shared();
        // Whoever has slept takes the word as 2: it cannot know whether it was the last sleeper.
        while !self.take_as_sleeper(shared) {
            match caller.sleep(&self.lock, 2, deadline, shared) {
                Wait::TimedOut => return Outcome::failed(errno::ETIMEDOUT),
                Wait::Follow => return Outcome::FOLLOW,
                Wait::Again | Wait::Interrupted => {}
            }
        }
        Outcome::OK
    }

    /// Takes the word if it is free, and marks it as one on which somebody sleeps.
    fn take_as_sleeper(&self, shared: bool) -> bool {
        if !shared {
            return self.lock.swap(2, Ordering::Acquire) == 0;
        }
        // Two steps, of which only the one that takes it is noted.
        common::exchange(Note::Take, &self.lock, 0, 2).is_ok()
            || (self.lock.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst) == Err(0)
                && common::exchange(Note::Take, &self.lock, 0, 2).is_ok())
    }

    fn spin(&self) -> bool {
        for _ in 0..100 {
            if self.lock.load(Ordering::Relaxed) == 0 && self.try_word() {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// Applies the thread's next mutex event, as a standby. `None`: live, act for real.
    fn replay(&self, caller: Caller, call: u16) -> Option<Outcome> {
        let (thread, event) = loop {
            let thread = caller.replaying()?;
            match thread.expect_in(EventKind::Mutex, call, MUTEX_HOW) {
                Next::Event(event) => break (thread, event),
                Next::Live => signal::deliver_promoted(thread),
            }
        };
        let header = event.header;
        let acquired = header.ticket != NO_TICKET;
        let name = header.call >> 1;
        // Its word and its clock are moved by other processes, of which this log says nothing.
        if acquired && !views::is_elsewhere(self as *const Mutex as usize) {
            if !self.is_named(name) {
                crate::verdict::report_divergence(
                    thread,
                    &[b"the standby was at another mutex than the log says"],
                );
            }
            clock::wait(thread, &self.clock, header.ticket);
            // Its last holder's ticket has been applied, its unlock perhaps not yet. This may sleep and borrows
            // the block for that: ours ends here.
            self.acquire(caller, Patience::Block);
            self.clock.store(ticket::after(header.ticket), Ordering::Release);
            self.take_name(name);
        }
        // Closed only now: once a ring is empty its thread counts as caught up.
        if let Some(thread) = caller.thread() {
            thread.close();
            thread.count(Class::of_event(EventKind::Mutex, header.call));
        }
        Some(Outcome { acquired, errno: c_int::from(header.flags) })
    }

    fn held(&self, caller: Caller, depth: u32) {
        self.owner.store(caller.tid(), Ordering::Relaxed);
        self.count.store(depth, Ordering::Relaxed);
    }

    #[inline(always)]
    fn release(&self) {
        // Read before the release: the next owner may free the mutex.
        let shared = self.shared();
        let pass = || [&self.lock, &self.owner].into_iter().for_each(common::pass_over);
        if shared && !common::releases(Caller::get(), op::RELEASE, self.address(), finish_release, pass) {
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        if shared {
            return self.release_shared();
        }
        if real::single_threaded() && self.lock.load(Ordering::Relaxed) == 1 {
            return self.lock.store(0, Ordering::Release);
        }
        let word = self.lock.as_ptr();
        self.tell_next();
        sync::wake_next(word, 1, self.lock.swap(0, Ordering::Release) == 2, false);
    }

    /// In a standby, the event of this thread's acquisition has been applied: the next one is due.
    #[inline(always)]
    fn tell_next(&self) {
        let thread = tls::current();
        // SAFETY: null or this thread's own block.
        if !thread.is_null() && unsafe { (*thread).locks() } == Mode::Replay {
            self.announce();
        }
    }

    /// Of a mutex that processes may share. Where its memory is not kept alike, its clock orders the threads of this one.
    fn release_shared(&self) {
        let word = self.lock.as_ptr();
        self.tell_next();
        sync::wake_next(word, 1, common::give_up(&self.lock) == 2, true);
    }

    fn address(&self) -> usize {
        self.lock.as_ptr() as usize
    }

    /// Tells those who wait for the next ticket. Before the release, and so with a fence of its own, because
    /// afterwards the clock may be in memory that is gone; who is woken needs longer than the release.
    #[cold]
    fn announce(&self) {
        fence(Ordering::SeqCst);
        clock::announce(&self.clock);
    }

    /// What a lock by its own owner comes to, if it is one.
    fn reentered(&self, caller: Caller, patience: Patience) -> Option<c_int> {
        let kind = self.kind.load(Ordering::Relaxed) & kind::TYPE;
        let checks = kind == kind::RECURSIVE || kind == kind::ERRORCHECK;
        if !checks || self.owner.load(Ordering::Relaxed) != caller.tid() {
            return None;
        }
        match (kind, patience) {
            (kind::RECURSIVE, _) => Some(self.deepen()),
            // Falls through to the word, which is taken: EBUSY like for anybody else.
            (_, Patience::Try) => None,
            _ => Some(errno::EDEADLK),
        }
    }

    /// One more lock by the owner of a recursive mutex.
    pub fn deepen(&self) -> c_int {
        let count = self.count.load(Ordering::Relaxed);
        if count == u32::MAX {
            return errno::EAGAIN;
        }
        self.count.store(count + 1, Ordering::Relaxed);
        0
    }

    /// Unlocks in any mode.
    pub fn unlock(&self, caller: Caller) -> c_int {
        let kind = self.kind.load(Ordering::Relaxed);
        if kind == kind::DESTROYED {
            return errno::EINVAL;
        }
        if kind & kind::ROBUST != 0 {
            return robust::unlock(self);
        }
        if !self.may_release(caller) {
            return errno::EPERM;
        }
        if kind & kind::TYPE == kind::RECURSIVE {
            let count = self.count.load(Ordering::Relaxed) - 1;
            self.count.store(count, Ordering::Relaxed);
            if count != 0 {
                return 0;
            }
        }
        self.release();
        0
    }

    fn may_release(&self, caller: Caller) -> bool {
        let kind = self.kind.load(Ordering::Relaxed) & kind::TYPE;
        let checks = kind == kind::RECURSIVE || kind == kind::ERRORCHECK;
        !checks || self.owner.load(Ordering::Relaxed) == caller.tid()
    }
}

/// At a promotion: a release that the log has.
fn finish_release(address: usize, made: bool) {
    // SAFETY: the guest's mutex, which its thread has just given back.
    let mutex = unsafe { &*(address as *const Mutex) };
    if made {
        return sync::wake(mutex.lock.as_ptr(), 1, true);
    }
    mutex.owner.store(0, Ordering::Relaxed);
    mutex.release_shared();
}

/// Locks in any mode.
#[inline(never)]
pub fn lock(mutex: &Mutex, opaque: bool, patience: Patience) -> c_int {
    let caller = Caller::get();
    let kind = mutex.kind.load(Ordering::Relaxed);
    if kind == kind::DESTROYED {
        return errno::EINVAL;
    }
    if kind & kind::ROBUST != 0 {
        return robust::lock(mutex, patience);
    }
    if let Some(result) = mutex.reentered(caller, patience) {
        return result;
    }
    if opaque {
        let mut outcome = mutex.acquire(caller, patience);
        while outcome == Outcome::FOLLOW {
            outcome = mutex.acquire(caller, patience);
        }
        if outcome.acquired {
            mutex.held(caller, 1);
        }
        return outcome.errno;
    }
    caller.deliver();
    take(mutex, caller, patience, 0, 1, LOCKED)
}

/// Acquires a mutex that is not the caller's, logged or by the log. `say` is what the guest is told when it
/// is acquired: a wait that has timed out still re-acquires.
fn take(mutex: &Mutex, caller: Caller, patience: Patience, say: c_int, depth: u32, call: u16) -> c_int {
    if mutex.shared() {
        let attempt = |caller| {
            let outcome = mutex.acquire(caller, patience);
            if outcome.acquired {
                // Before it is logged, together with the lock.
                mutex.held(caller, depth);
            }
            outcome
        };
        let taken = |caller| mutex.held(caller, depth);
        if let Some(result) = common::acquire(caller, op::MUTEX, mutex.address(), say, attempt, taken) {
            return result;
        }
    }
    if let Some(outcome) = mutex.replay(caller, call) {
        if outcome.acquired {
            mutex.held(caller, depth);
        }
        return outcome.errno;
    }
    caller.make_ready();
    let outcome = mutex.acquire(caller, patience);
    if outcome == Outcome::FOLLOW {
        return take(mutex, caller, patience, say, depth, call);
    }
    if outcome.acquired {
        mutex.held(caller, depth);
    }
    if let Some(thread) = caller.recording() {
        match outcome.acquired {
            true => mutex.push_ticket(thread, say, call),
            false => thread.push(EventKind::Mutex, outcome.errno as u8, mutex_call(call, 0), NO_TICKET),
        }
    } else if mutex.shared() {
        common::tell(caller, op::MUTEX, mutex.address(), if outcome.acquired { say } else { outcome.errno });
    }
    if outcome.acquired { say } else { outcome.errno }
}

/// Releases the mutex for a wait on a condition variable: all of a recursive one. `Err`: not the caller's.
pub fn release_for_wait(mutex: &Mutex, caller: Caller) -> Result<u32, c_int> {
    if mutex.kind.load(Ordering::Relaxed) == kind::DESTROYED {
        return Err(errno::EINVAL);
    }
    let depth = mutex.count.load(Ordering::Relaxed);
    if mutex.robust() {
        return robust::release_for_wait(mutex).map(|()| depth);
    }
    if !mutex.may_release(caller) {
        return Err(errno::EPERM);
    }
    mutex.release();
    Ok(depth)
}

/// Re-acquires after a wait that ended with `say`, logged or by the log (then the log says what to say).
pub fn reacquire_after_wait(mutex: &Mutex, caller: Caller, depth: u32, say: c_int) -> c_int {
    if mutex.robust() {
        return robust::reacquire_after_wait(mutex, depth, say);
    }
    take(mutex, caller, Patience::Block, say, depth, AFTER_WAIT)
}

/// Whether the calling thread is a standby's, in memory that is kept alike.
pub fn follows_log(mutex: &Mutex) -> bool {
    common::follows(mutex.address())
}

/// Re-acquires as a standby when the log says so, and tells what it says. `None`: the log ends in the wait, and the
/// caller acts for real from here on.
pub fn reacquire_by_log(mutex: &Mutex, caller: Caller, depth: u32) -> Option<c_int> {
    if mutex.robust() {
        return robust::reacquire_by_log(mutex, caller, depth);
    }
    if common::follows(mutex.address()) {
        return common::followed(caller, op::MUTEX);
    }
    let outcome = mutex.replay(caller, AFTER_WAIT)?;
    if outcome.acquired {
        mutex.held(caller, depth);
    }
    Some(outcome.errno)
}

/// The short way: an ordinary free mutex of this process, not in a standby. False: the long way.
#[inline(always)]
fn lock_short(mutex: &Mutex, opaque: bool) -> bool {
    const SPECIAL: u32 = kind::TYPE | kind::ROBUST | kind::INHERIT | kind::PROTECT | kind::SHARED;
    if mutex.kind.load(Ordering::Relaxed) & SPECIAL != 0 {
        return false;
    }
    let caller = Caller::get();
    let Some(thread) = caller.thread() else { return mutex.lock_solo(caller) };
    // A signal that waits is delivered the long way, before the lock.
    if thread.pending.load(Ordering::Relaxed) != 0 {
        return false;
    }
    match thread.locks() {
        Mode::Record if thread.is_ready() && mutex.try_word() => {}
        Mode::Solo => return mutex.lock_solo(caller),
        _ => return false,
    }
    mutex.owner.store(caller.tid(), Ordering::Relaxed);
    if !opaque {
        mutex.push_ticket(thread, 0, LOCKED);
    }
    true
}

unsafe extern "C" fn mutex_lock(mutex: *const Mutex, caller: usize) -> c_int {
    // SAFETY: the guest's mutex.
    let mutex = unsafe { &*mutex };
    let opaque = opaque(caller);
    if lock_short(mutex, opaque) {
        return 0;
    }
    lock(mutex, opaque, Patience::Block)
}

unsafe extern "C" fn mutex_trylock(mutex: *const Mutex, caller: usize) -> c_int {
    // SAFETY: the guest's mutex.
    let mutex = unsafe { &*mutex };
    let opaque = opaque(caller);
    if lock_short(mutex, opaque) {
        return 0;
    }
    lock(mutex, opaque, Patience::Try)
}

unsafe extern "C" fn mutex_timedlock(mutex: *const Mutex, time: *const Timespec, caller: usize) -> c_int {
    // SAFETY: the guest's mutex.
    lock(unsafe { &*mutex }, opaque(caller), Patience::Until(CLOCK_REALTIME, time))
}

unsafe extern "C" fn mutex_clocklock(
    mutex: *const Mutex,
    clock: c_int,
    time: *const Timespec,
    caller: usize,
) -> c_int {
    if !(0..=1).contains(&clock) {
        return errno::EINVAL;
    }
    // SAFETY: the guest's mutex.
    lock(unsafe { &*mutex }, opaque(caller), Patience::Until(clock, time))
}

/// `pthread_mutex_lock`: passes the caller's address on.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(_mutex: *const Mutex) -> c_int {
    ordered_frame!(ACQUIRES, mutex_lock, "rsi")
}

/// `pthread_mutex_trylock`: passes the caller's address on.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(_mutex: *const Mutex) -> c_int {
    ordered_frame!(ACQUIRES, mutex_trylock, "rsi")
}

/// `pthread_mutex_timedlock`: passes the caller's address on.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_timedlock(_mutex: *const Mutex, _time: *const Timespec) -> c_int {
    ordered_frame!(ACQUIRES, mutex_timedlock, "rdx")
}

/// `pthread_mutex_clocklock`: passes the caller's address on.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_clocklock() {
    ordered_frame!(ACQUIRES, mutex_clocklock, "rcx")
}

/// `pthread_mutex_unlock`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(_mutex: *const Mutex) -> c_int {
    ordered_frame!(CHANGES, mutex_unlock)
}

unsafe extern "C" fn mutex_unlock(mutex: *const Mutex) -> c_int {
    // SAFETY: the guest's mutex.
    let mutex = unsafe { &*mutex };
    if mutex.kind.load(Ordering::Relaxed) & (kind::TYPE | kind::ROBUST) == 0 {
        mutex.release();
        return 0;
    }
    mutex.unlock(Caller::get())
}

old_names! {
    __pthread_mutex_lock = pthread_mutex_lock;
    __pthread_mutex_trylock = pthread_mutex_trylock;
    __pthread_mutex_unlock = pthread_mutex_unlock;
    __pthread_mutex_init = pthread_mutex_init;
    __pthread_mutex_destroy = pthread_mutex_destroy;
}
