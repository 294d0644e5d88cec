//! What a thread knows of its turn: where the threads of a scope take turns.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The thread's turn. Its own to change; a promotion looks who has had the last one.
pub struct Turn {
    is_own: AtomicBool,
    gives: AtomicBool,
    heard: AtomicBool,
    number: AtomicU64,
    doors: AtomicU32,
}

impl Turn {
    /// Another thread's.
    pub(super) const fn unused() -> Turn {
        Turn {
            is_own: AtomicBool::new(false),
            gives: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            number: AtomicU64::new(0),
            doors: AtomicU32::new(0),
        }
    }

    /// Whether it is this thread's turn.
    #[inline(always)]
    pub fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_own(&self, is_own: bool) {
        self.is_own.store(is_own, Ordering::Relaxed);
    }

    /// To be given back once the call that begins has been logged, or found in the log.
    #[inline(always)]
    pub fn gives(&self) -> bool {
        self.gives.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_gives(&self, gives: bool) {
        self.gives.store(gives, Ordering::Relaxed);
    }

    /// A handler has run at the beginning of this call: the log has its signal before all that it says of the call.
    pub fn set_heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether one has; not any more.
    pub fn take_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed) && self.heard.swap(false, Ordering::Relaxed)
    }

    /// The turn's number.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Counts a door passed in it, and says how many they were.
    pub fn count_door(&self) -> u32 {
        let doors = self.doors.load(Ordering::Relaxed).wrapping_add(1);
        self.doors.store(doors, Ordering::Relaxed);
        doors
    }

    /// It is not this thread's any more, and it is not going to give it.
    pub fn leave(&self) {
        self.set_own(false);
        self.set_gives(false);
    }
}
