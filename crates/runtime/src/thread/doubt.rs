//! The call that a thread has begun, as a copy that takes over has to know it.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use us_abi::event::CallArgs;

/// What settling asks the kernel about.
#[derive(Clone, Copy)]
pub struct Begun {
    /// Arguments of the call whose door the thread is in.
    pub asked: [u64; 6],
    /// The call of the `Enter` that was taken last: a long read fills the ring several times over before it returns.
    pub call: (u16, CallArgs),
    /// The kernel clock's ticket that the thread took last, as a standby.
    pub ticket: u64,
    /// Bytes of a read in pieces that have been applied so far.
    pub pieces: u64,
    /// Pieces of a `Call` have been applied, and its last one has not: nothing is in doubt, and who takes over begins with the first.
    pub is_in_pieces: bool,
    /// Whether the `Enter` is that of a fork whose own door is still to come.
    pub is_fork: bool,
    /// Whether the dead primary had entered the kernel with that call, in a copy that has gone live.
    pub was_entered: bool,
}

/// A call in doubt: written by its thread, and read by whoever settles while the thread stands still.
pub struct Doubt {
    /// An `Enter` has been taken, and its `Return` has not.
    is_open: AtomicBool,
    begun: UnsafeCell<Begun>,
}

// SAFETY: what is no atomic is written by the thread, through `begun_mut`, and read by another one as `of_standing` says.
unsafe impl Sync for Doubt {}

impl Doubt {
    /// Nothing has begun.
    pub const fn new() -> Doubt {
        let call = (0, CallArgs { fd: 0, digest: 0, len: 0 });
        let begun = Begun {
            asked: [0; 6],
            call,
            ticket: 0,
            pieces: 0,
            is_in_pieces: false,
            is_fork: false,
            was_entered: false,
        };
        Doubt { is_open: AtomicBool::new(false), begun: UnsafeCell::new(begun) }
    }

    /// Whether the thread has taken an `Enter` whose `Return` it has not taken.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Sets that.
    #[inline(always)]
    pub fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// What has begun. For the thread itself, which hands it out for no longer than its own block is borrowed.
    pub(super) fn begun(&self) -> *mut Begun {
        self.begun.get()
    }

    /// What the thread has begun, for another one.
    ///
    /// # Safety
    /// The thread stands still: it waits for its next event, with everything applied that its ring holds. The caller has
    /// acquired its head, which the thread has released behind the last of these words, and the thread has no reference to
    /// them across a wait: what `begun_mut` gives borrows the whole block, and a wait needs the whole block.
    pub unsafe fn of_standing(&self) -> Begun {
        // SAFETY: the caller's.
        unsafe { *self.begun.get() }
    }
}
