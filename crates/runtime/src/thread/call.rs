//! The system call whose door a thread is in, as a handler is shown it.

use crate::call::Entry;
use crate::siginfo::Info;

/// The call.
pub struct Shown {
    /// The guest's registers at the call, null outside.
    pub entry: *mut Entry,
    /// The result of the call that a handler has interrupted, or that has ended before it.
    pub result: i64,
    /// Whether a filter of the guest's has trapped the call.
    pub is_trapped: bool,
    /// What the kernel said of that.
    pub trap: Info,
}

impl Shown {
    /// No call.
    pub(super) const fn unused() -> Shown {
        Shown { entry: core::ptr::null_mut(), result: 0, is_trapped: false, trap: Info([0; 16]) }
    }

    /// The slot's next thread is in no call.
    pub(super) fn stop_short(&mut self) {
        self.entry = core::ptr::null_mut();
        self.is_trapped = false;
    }
}
