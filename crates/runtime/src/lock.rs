//! The runtime's own locks, and what becomes of them in a forked child.
//!
//! A child has one thread. A lock that another of its parent's threads held would stay held for ever: with the word of a
//! lock goes the *age* of the process, and the word of another age is a free lock. So there is no list to walk and no
//! lock that could be missing from it; `tests/tidy` sees to it that the runtime has no locks of another kind.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::raw;

/// Counts the forks between this process and the first one, in steps of [`STATES`].
static AGE: AtomicU32 = AtomicU32::new(0);

const STATES: u32 = 4;
const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const SLEPT_ON: u32 = 2;

fn age() -> u32 {
    AGE.load(Ordering::Relaxed)
}

/// In a forked child: nobody holds a lock.
pub fn in_child() {
    AGE.fetch_add(STATES, Ordering::Relaxed);
}

/// A lock of the runtime's own.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Lock {
    /// A free one.
    #[allow(clippy::new_without_default, reason = "const only")]
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// What those who wait for it sleep on.
    pub fn word(&self) -> *const u32 {
        self.0.as_ptr()
    }

    /// Whether somebody holds it.
    pub fn is_held(&self) -> bool {
        let (word, age) = (self.0.load(Ordering::Relaxed), age());
        word == age | HELD || word == age | SLEPT_ON
    }

    /// Takes it unless it is held.
    pub fn try_take(&self) -> bool {
        self.take_as(HELD)
    }

    fn take_as(&self, how: u32) -> bool {
        let (mut seen, age) = (self.0.load(Ordering::Relaxed), age());
        while seen != age | HELD && seen != age | SLEPT_ON {
            match self.0.compare_exchange_weak(seen, age | how, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Takes it. Where it is held, `sleep` is called to wait while the word has the value; it may give up with `false`.
    pub fn take_with(&self, mut sleep: impl FnMut(&AtomicU32, u32) -> bool) -> bool {
        if self.try_take() {
            return true;
        }
        let value = age() | SLEPT_ON;
        // As one that others may sleep on, because others may.
        while !self.take_as(SLEPT_ON) {
            let held = age() | HELD;
            let marked = self.0.compare_exchange(held, value, Ordering::Relaxed, Ordering::Relaxed);
            if marked.is_err_and(|now| now != value) {
                continue;
            }
            if !sleep(&self.0, value) {
                return false;
            }
        }
        true
    }

    /// Takes it.
    pub fn take(&self) {
        self.take_with(|word, value| {
            raw::futex_wait(word, value, 0);
            true
        });
    }

    /// Gives it back. True if somebody may sleep on the word: who is to be woken.
    pub fn free(&self) -> bool {
        let age = age();
        self.0.swap(age | FREE, Ordering::Release) == age | SLEPT_ON
    }

    /// Gives it back.
    pub fn give(&self) {
        if self.free() {
            raw::futex_wake(&self.0, 1);
        }
    }

    /// Runs `act` with the lock held.
    pub fn with<T>(&self, act: impl FnOnce() -> T) -> T {
        self.take();
        let result = act();
        self.give();
        result
    }
}
