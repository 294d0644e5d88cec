//! What a thread knows of the milestones that it passes, see [`crate::turns::milestones`].

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Milestones until the second look.
const STEP_FIRST: u64 = 64;

/// Whether there are any milestones.
static ARE_SOME: AtomicBool = AtomicBool::new(false);

/// Whether threads count nothing.
#[inline(always)]
pub fn are_none() -> bool {
    !ARE_SOME.load(Ordering::Relaxed)
}

/// Sets that. Whether there were any before.
pub fn set_some(are_some: bool) -> bool {
    ARE_SOME.swap(are_some, Ordering::SeqCst)
}

/// What a thread knows of the milestones that it has passed since the log began.
pub struct Passed {
    /// At how many it looks again. What is left of them lies in its own storage.
    pub until: AtomicU64,
    /// Milestones between two looks, as a primary, and when it looked last, ns.
    pub step: AtomicU64,
    /// See `step`.
    pub looked_ns: AtomicU64,
    /// As a primary: so many a copy is to have passed, since when that is so, ns, and where it stood when it did not move.
    pub awaited: AtomicU64,
    /// See `awaited`.
    pub since_ns: AtomicU64,
    /// See `awaited`.
    pub still: AtomicU64,
    /// The log that it counts in.
    pub log: AtomicU32,
    /// What was left when it began to lend its storage to a child.
    pub lent: AtomicU64,
    /// It is led through its code, and stops behind each instruction.
    pub is_led: AtomicBool,
    /// It is on its way out of a milestone's door, behind which a signal is delivered.
    pub delivers: AtomicBool,
}

impl Passed {
    /// None.
    pub const fn none() -> Passed {
        Passed {
            until: AtomicU64::new(0),
            step: AtomicU64::new(0),
            looked_ns: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            still: AtomicU64::new(0),
            log: AtomicU32::new(0),
            lent: AtomicU64::new(0),
            is_led: AtomicBool::new(false),
            delivers: AtomicBool::new(false),
        }
    }

    /// A log begins: it looks at its first one.
    pub fn begin(&self) {
        self.until.store(1, Ordering::Relaxed);
        self.step.store(STEP_FIRST, Ordering::Relaxed);
        self.awaited.store(0, Ordering::Relaxed);
        self.still.store(u64::MAX, Ordering::Relaxed);
        self.log.fetch_add(1, Ordering::Relaxed);
    }
}
