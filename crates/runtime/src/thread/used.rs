//! The processor time that a thread, or a process, has been told of.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::state;

/// One count that never goes back.
#[derive(Debug)]
pub struct Count {
    /// The most that was told.
    last: AtomicU64,
    /// By how much that was ahead of what the kernel said of this process, when it had been promoted.
    ahead: AtomicU64,
    /// The promotion that `ahead` is of, CLOCK_MONOTONIC ns.
    since: AtomicU64,
}

impl Count {
    /// Nothing has been told yet.
    pub const fn new() -> Count {
        Count { last: AtomicU64::new(0), ahead: AtomicU64::new(0), since: AtomicU64::new(0) }
    }

    /// What to tell where the kernel says `own`.
    pub fn tell(&self, own: u64) -> u64 {
        let promoted = state::promoted_ns();
        // At the first look only: later, a thread that has read before another and tells after it is no promotion, and
        // would move the count on each time.
        if self.since.load(Ordering::Relaxed) != promoted
            && self.since.swap(promoted, Ordering::AcqRel) != promoted
        {
            let last = self.last.load(Ordering::Relaxed);
            self.ahead.store(last.saturating_sub(own), Ordering::Relaxed);
        }
        let told = own + self.ahead.load(Ordering::Relaxed);
        self.told(told);
        told
    }

    /// By how much what is told is ahead of the kernel, which says `own`.
    pub fn ahead_of(&self, own: u64) -> u64 {
        self.tell(own) - own
    }

    /// Somebody has been told this much.
    pub fn told(&self, value: u64) {
        self.last.fetch_max(value, Ordering::Relaxed);
    }

    /// It counts for another thread from here on.
    pub fn reset(&self) {
        self.last.store(0, Ordering::Relaxed);
        self.ahead.store(0, Ordering::Relaxed);
    }
}

/// Of a process, its children, or a thread: the clock, ns; in user mode and in the kernel, us; the same two in ticks, which
/// are counts of their own: rounded from sums, they could be less than was told before. Then two clocks that tick, ns: of both,
/// and of user mode.
#[derive(Debug)]
pub struct Used {
    /// The counts themselves.
    pub counts: [Count; 7],
    /// Which of its slot's threads.
    pub generation: AtomicU32,
}

impl Used {
    /// Nothing has been told yet.
    pub const fn new() -> Used {
        Used { counts: [const { Count::new() }; 7], generation: AtomicU32::new(0) }
    }
}
