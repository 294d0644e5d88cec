//! Robust mutexes: they tell their next owner that the last one died.
//!
//! The kernel walks a dead thread's robust list and compares each lock word with the thread's id. So the
//! word holds the kernel's id of this copy's thread, in a standby its own, and the list has glibc's layout:
//! a node is the address of `__list.__next`, the back link lies eight bytes before it, the lock word 32.
//! The list takes the bytes of a mutex's own clock, so these have a hashed one.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use us_abi::{OWNER_DIED, TID_MASK, WAITERS};

use super::block::Wait;
use super::mutex::{Mutex, Patience, kind};
use super::sync::{self, Caller, Outcome, errno, op};
use crate::mapping::views;
use crate::{raw, twins};

/// `Mutex::owner` after the owner's death, until `pthread_mutex_consistent`.
const INCONSISTENT: u32 = 0x7fff_ffff;
/// `Mutex::owner` of a mutex that was unlocked while inconsistent.
const NOT_RECOVERABLE: u32 = 0x7fff_fffe;

/// The kernel's `robust_list_head`.
#[repr(C)]
struct Head {
    first: u64,
    offset: i64,
    pending: u64,
}

/// This thread's robust list.
struct List(*mut Head);

impl List {
    fn mine() -> List {
        let [head, _] = raw::robust_list().unwrap_or_default();
        List(head as *mut Head)
    }

    /// Announces an operation on `mutex`: a death in the middle of it is still noticed.
    fn begin(&self, mutex: &Mutex) {
        self.pend(mutex.next.as_ptr() as u64);
    }

    fn end(&self) {
        self.pend(0);
    }

    fn pend(&self, node: u64) {
        // SAFETY: null (a thread without a list) or the head inside this thread's control block. Volatile:
        // the reader is the kernel, at any instruction.
        unsafe {
            if let Some(head) = self.0.as_mut() {
                core::sync::atomic::compiler_fence(Ordering::SeqCst);
                (&raw mut head.pending).write_volatile(node);
                core::sync::atomic::compiler_fence(Ordering::SeqCst);
            }
        }
    }

    fn insert(&self, mutex: &Mutex) {
        let Some(head) = core::ptr::NonNull::new(self.0) else { return };
        let node = mutex.next.as_ptr() as u64;
        // SAFETY: the list is this thread's; its nodes are mutexes that the thread holds, and the head, before
        // which glibc keeps a back link as well.
        unsafe {
            let first = (*head.as_ptr()).first;
            mutex.next.store(first, Ordering::Relaxed);
            mutex.clock.store(self.0 as u64, Ordering::Relaxed);
            ((first & !1) as *mut u64).sub(1).write(node);
            core::sync::atomic::compiler_fence(Ordering::SeqCst);
            (&raw mut (*head.as_ptr()).first).write_volatile(node);
        }
    }

    fn remove(mutex: &Mutex) {
        let (next, back) = (mutex.next.load(Ordering::Relaxed), mutex.clock.load(Ordering::Relaxed) & !1);
        if back == 0 || next == 0 {
            return;
        }
        // SAFETY: both neighbours are held by this thread, or the list's head.
        unsafe {
            ((next & !1) as *mut u64).sub(1).write(back);
            (back as *mut u64).write_volatile(next);
        }
        mutex.next.store(0, Ordering::Relaxed);
        mutex.clock.store(0, Ordering::Relaxed);
    }
}

/// Takes the lock word. `EOWNERDEAD` is an acquisition; the caller owns what the dead one left.
fn acquire_word(mutex: &Mutex, patience: Patience) -> Outcome {
    let caller = Caller::get();
    // Once we have slept others may sleep as well, and nobody else remembers it.
    let mut waiters = 0;
    loop {
        let word = mutex.lock.load(Ordering::Relaxed);
        if word & TID_MASK == 0 || word & OWNER_DIED != 0 {
            // Asked for here: a thread that has slept may be another to the kernel now.
            let new = raw::gettid() | waiters | word & WAITERS;
            if mutex.lock.compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            let errno = if word & OWNER_DIED != 0 { errno::EOWNERDEAD } else { 0 };
            return Outcome { acquired: true, errno };
        }
        let deadline = match patience.deadline() {
            Ok(deadline) => deadline,
            Err(error) => return Outcome::failed(error),
        };
        let marked = word | WAITERS;
        if word != marked
            && mutex.lock.compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            continue;
        }
        match caller.sleep(&mutex.lock, marked, deadline, true) {
            Wait::TimedOut => return Outcome::failed(errno::ETIMEDOUT),
            Wait::Follow => return Outcome::FOLLOW,
            Wait::Again | Wait::Interrupted => {}
        }
        waiters = WAITERS;
    }
}

fn release_word(mutex: &Mutex) {
    let word = mutex.lock.as_ptr();
    sync::wake_next(word, 1, mutex.lock.swap(0, Ordering::Release) & WAITERS != 0, true);
}

/// Acquires and keeps the books; the mutex is not the caller's.
fn acquire(mutex: &Mutex, patience: Patience, depth: u32) -> Outcome {
    let list = List::mine();
    list.begin(mutex);
    let outcome = acquire_word(mutex, patience);
    let outcome = settle(mutex, &list, outcome, depth);
    list.end();
    outcome
}

fn settle(mutex: &Mutex, list: &List, outcome: Outcome, depth: u32) -> Outcome {
    if !outcome.acquired {
        return outcome;
    }
    if mutex.owner.load(Ordering::Relaxed) == NOT_RECOVERABLE {
        release_word(mutex);
        return Outcome::failed(errno::ENOTRECOVERABLE);
    }
    let dead = outcome.errno == errno::EOWNERDEAD;
    let owner = if dead { INCONSISTENT } else { Caller::get().tid() };
    mutex.owner.store(owner, Ordering::Relaxed);
    mutex.count.store(if dead { 1 } else { depth }, Ordering::Relaxed);
    list.insert(mutex);
    outcome
}

fn mine(mutex: &Mutex) -> bool {
    let word = mutex.lock.load(Ordering::Relaxed);
    word & TID_MASK != 0 && word & TID_MASK == raw::gettid() && word & OWNER_DIED == 0
}

fn take(mutex: &Mutex, patience: Patience, say: c_int, depth: u32) -> c_int {
    let attempt = |_| {
        let outcome = acquire(mutex, patience, depth);
        if outcome == Outcome::OK { Outcome { acquired: true, errno: say } } else { outcome }
    };
    let force = |_| {
        acquire(mutex, Patience::Block, depth);
    };
    sync::acquire(op::ROBUST, mutex.lock.as_ptr() as usize, attempt, force)
}

/// Locks in any mode.
pub fn lock(mutex: &Mutex, patience: Patience) -> c_int {
    if twins::contains(mutex.lock.as_ptr() as usize) {
        // Its word is the kernel's as well, which knows its owner by another number in each copy.
        twins::stop();
    }
    let kind = mutex.kind.load(Ordering::Relaxed) & kind::TYPE;
    if mine(mutex) {
        match (kind, patience) {
            (kind::RECURSIVE, _) => return mutex.deepen(),
            (kind::ERRORCHECK, Patience::Try) => {}
            (kind::ERRORCHECK, _) => return errno::EDEADLK,
            _ => {}
        }
    }
    take(mutex, patience, 0, 1)
}

/// Whether the caller is a standby that has never taken the mutex: its state here is that of other processes.
fn is_anothers(mutex: &Mutex) -> bool {
    views::is_elsewhere(mutex.lock.as_ptr() as usize) && Caller::get().replaying().is_some()
}

/// Unlocks; like every unlock it takes no ticket.
pub fn unlock(mutex: &Mutex) -> c_int {
    if is_anothers(mutex) {
        return 0;
    }
    if !mine(mutex) {
        return errno::EPERM;
    }
    if mutex.kind.load(Ordering::Relaxed) & kind::TYPE == kind::RECURSIVE {
        let count = mutex.count.load(Ordering::Relaxed) - 1;
        mutex.count.store(count, Ordering::Relaxed);
        if count != 0 {
            return 0;
        }
    }
    release(mutex);
    0
}

fn release(mutex: &Mutex) {
    let list = List::mine();
    let inconsistent = mutex.owner.load(Ordering::Relaxed) == INCONSISTENT;
    list.begin(mutex);
    List::remove(mutex);
    mutex.owner.store(if inconsistent { NOT_RECOVERABLE } else { 0 }, Ordering::Relaxed);
    let word = mutex.lock.as_ptr();
    let old = mutex.lock.swap(0, Ordering::Release);
    // A mutex that nobody can ever own again: all of its waiters must learn that.
    let count = if inconsistent { sync::ALL } else { 1 };
    sync::wake_next(word, count, old & WAITERS != 0, true);
    list.end();
}

/// See [`super::mutex::release_for_wait`].
pub fn release_for_wait(mutex: &Mutex) -> Result<(), c_int> {
    if is_anothers(mutex) {
        return Ok(());
    }
    if !mine(mutex) {
        return Err(errno::EPERM);
    }
    release(mutex);
    Ok(())
}

/// See [`super::mutex::reacquire_after_wait`].
pub fn reacquire_after_wait(mutex: &Mutex, depth: u32, say: c_int) -> c_int {
    take(mutex, Patience::Block, say, depth)
}

/// See [`super::mutex::reacquire_by_log`].
pub fn reacquire_by_log(mutex: &Mutex, caller: Caller, depth: u32) -> Option<c_int> {
    let force = || {
        if !views::is_elsewhere(mutex.lock.as_ptr() as usize) {
            acquire(mutex, Patience::Block, depth);
        }
    };
    sync::replay(caller, op::ROBUST, force).map(|outcome| outcome.errno)
}

/// `pthread_mutex_consistent`.
pub fn consistent(mutex: &Mutex) -> c_int {
    if !mutex.robust() || mutex.owner.load(Ordering::Relaxed) != INCONSISTENT {
        return errno::EINVAL;
    }
    mutex.owner.store(Caller::get().tid(), Ordering::Relaxed);
    0
}
