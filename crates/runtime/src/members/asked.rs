//! Whether the supervisor may ask a process that has not joined to do so, by a signal.
//!
//! Who computes passes no door at which it could join. But the signal is the end of an image without the runtime's handler. So a
//! process says that it may be asked; before an exec, or a filter of system calls, it takes that back, and nobody is about to ask.

use core::sync::atomic::Ordering;

use us_abi::asked::{MAY, NEVER};

use crate::raw::{self, nr};

/// How long the supervisor is waited for that is about to ask, ns. It may have ended there.
const ASKING_NS: u64 = 1_000_000_000;

/// The calling process, which has not joined, has a handler.
pub fn may_be_asked() {
    if let Some(own) = super::own() {
        own.asked.store(MAY, Ordering::Release);
    }
}

/// Nobody asks the calling process any more, and who has asked has been heard. False if nobody could anyway.
pub fn is_not_asked() -> bool {
    const PAUSE_NS: u64 = 20_000;
    let Some(own) = super::own() else { return false };
    let start = raw::now_ns();
    loop {
        match own.asked.compare_exchange(MAY, NEVER, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(NEVER) => return false,
            Err(_) if raw::now_ns() - start > ASKING_NS => {
                own.asked.store(NEVER, Ordering::Release);
                break;
            }
            Err(_) => raw::nap(PAUSE_NS),
        }
    }
    // A signal that waits comes before this returns.
    // SAFETY: asks for a number.
    unsafe { raw::call1(nr::GETPID, 0) };
    true
}
