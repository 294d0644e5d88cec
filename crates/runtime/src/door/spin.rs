//! Spin locks, with glibc's encoding: 1 is free.
//!
//! Like the read-write locks: a ticket at acquisition, none at release.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::common::{self, Note};
use super::sync::{self, Caller, Outcome, errno, op};
use crate::above::above;
use crate::thread::Mode;
use crate::turns::doors::Scope;
use crate::{raw, signal, turns};

const FREE: i32 = 1;
const HELD: i32 = 0;

/// The same word, as the doors to memory that processes share want it.
fn word(lock: &AtomicI32) -> &AtomicU32 {
    // SAFETY: the two types have one layout, and both are atomics.
    unsafe { &*core::ptr::from_ref(lock).cast() }
}

fn try_take(lock: &AtomicI32) -> bool {
    common::exchange(Note::Take, word(lock), FREE as u32, HELD as u32).is_ok()
}

/// False if this has become a standby's thread meanwhile.
fn take(lock: &AtomicI32) -> bool {
    let mut turns = 0u32;
    let follows = || Caller::get().mode() == Mode::Replay || common::follows(lock.as_ptr() as usize);
    while !try_take(lock) {
        core::hint::spin_loop();
        turns += 1;
        // The holder may be waiting for this very processor: a standby's threads often share one.
        if turns.is_multiple_of(1000) {
            // SAFETY: the calling thread's own block; no reference to it is held here.
            let mut thread = unsafe { crate::tls::current().as_mut() };
            thread.as_deref_mut().map(turns::pause);
            // SAFETY: gives the processor away, nothing else.
            unsafe { raw::call1(raw::nr::SCHED_YIELD, 0) };
            let stops = thread.as_ref().map(|thread| thread.stops);
            thread.as_deref_mut().map(turns::take);
            let has_stood = thread.map(|thread| thread.stops) != stops;
            if has_stood && follows() || deliver() {
                return false;
            }
        }
        if above().stand_still_spinning() && follows() {
            return false;
        }
    }
    true
}

/// Runs the handlers of what has come meanwhile, which may be what the lock waits for. True if this has become a standby's
/// thread meanwhile.
fn deliver() -> bool {
    let caller = Caller::get();
    let followed = caller.mode() == Mode::Replay;
    let Some(thread) = caller.thread().filter(|thread| signal::is_due(thread)) else { return false };
    if thread.locks() == Mode::Solo {
        // Nothing of a lock is in the log of a program with one thread.
        signal::deliver_late(thread);
    } else {
        signal::deliver_at_lock(thread);
    }
    !followed && caller.mode() == Mode::Replay
}

fn acquire(lock: &AtomicI32, attempt: impl Fn(Caller) -> Outcome) -> c_int {
    let _door = Scope::begin(lock.as_ptr() as usize);
    sync::acquire(op::SPIN, lock.as_ptr() as usize, attempt, |_| while !take(lock) {})
}

/// `pthread_spin_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_init(lock: *const AtomicI32, _shared: c_int) -> c_int {
    // SAFETY: the guest's lock.
    unsafe { &*lock }.store(FREE, Ordering::Release);
    0
}

/// `pthread_spin_destroy`: nothing to free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_destroy(_lock: *const AtomicI32) -> c_int {
    0
}

/// `pthread_spin_lock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_lock(lock: *const AtomicI32) -> c_int {
    // SAFETY: the guest's lock.
    let lock = unsafe { &*lock };
    acquire(lock, |_| if take(lock) { Outcome::OK } else { Outcome::FOLLOW })
}

/// `pthread_spin_trylock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_trylock(lock: *const AtomicI32) -> c_int {
    // SAFETY: the guest's lock.
    let lock = unsafe { &*lock };
    acquire(lock, |_| if try_take(lock) { Outcome::OK } else { Outcome::failed(errno::EBUSY) })
}

/// `pthread_spin_unlock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_unlock(lock: *const AtomicI32) -> c_int {
    // SAFETY: the guest's lock.
    let lock = unsafe { &*lock };
    let address = lock.as_ptr() as usize;
    let _door = Scope::begin(address);
    if common::releases(Caller::get(), op::RELEASE, address, finish_unlock, || {}) {
        finish_unlock(address, false);
    }
    0
}

/// An unlock, or at a promotion one that the log has.
fn finish_unlock(address: usize, made: bool) {
    if !made {
        // SAFETY: the guest's lock, which its thread gives back.
        unsafe { &*(address as *const AtomicI32) }.store(FREE, Ordering::Release);
    }
}
