//! The one site of newer C libraries through which every call goes that a thread may be cancelled in.

use core::sync::atomic::{AtomicU64, Ordering};

/// Where the gate goes back to from a cancellation point, in that site's stub. A newer libc makes all of these calls at one
/// place, whose signal handler looks where the thread is; it does not make the thread cancellable at any instruction.
/// Nowhere, while it has not been found.
static POINT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes that the gate goes back there from libc's cancellation points.
pub fn note_point(behind: u64) {
    POINT.store(behind, Ordering::Relaxed);
}

/// Whether a call that came from there is a cancellation point of such a libc.
#[inline(always)]
pub fn is_point(caller: u64) -> bool {
    caller == POINT.load(Ordering::Relaxed)
}
