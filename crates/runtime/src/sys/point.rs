//! The one site of newer C libraries through which every call goes that a thread may be cancelled in.

use core::sync::atomic::{AtomicU64, Ordering};

/// Where the gate is called for a cancellation point: the address behind the call in that site's stub. A newer libc makes all of
/// these calls at one place, whose signal handler looks where the thread is; it does not make the thread cancellable at any
/// instruction. Nowhere, while it has not been found.
static POINT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes that the stub at `at` is that of libc's cancellation points.
pub fn note_point(at: u64, stub: &[u8]) {
    const CALL: [u8; 2] = [0xff, 0x15];
    const CALL_LEN: u64 = 6;
    if let Some(call) = stub.windows(2).position(|bytes| bytes == CALL) {
        POINT.store(at + call as u64 + CALL_LEN, Ordering::Relaxed);
    }
}

/// Whether a call that came from there is a cancellation point of such a libc.
#[inline(always)]
pub fn is_point(caller: u64) -> bool {
    caller == POINT.load(Ordering::Relaxed)
}
