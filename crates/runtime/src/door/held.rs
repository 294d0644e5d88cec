//! The error of a stream that the kernel has told in front of the bytes that had come there.
//!
//! A read of a stream brings what has come, and tells how the connection has ended once there is no more: a peer that closes with
//! unread bytes resets the connection behind its answer. recvmmsg, by which the runtime receives, tells the socket's error
//! first, and the kernel has forgotten it then. So the bytes are looked for once more, and the error is kept until the
//! input that finds their end.

use core::sync::atomic::Ordering;

use crate::door::witness;
use crate::fdtable::{self, Shadow};
use crate::kernel::MSG_DONTWAIT;
use crate::raw;
use crate::raw::nr::RECVMMSG;
use crate::thread::Thread;

/// A recvmmsg of one message has failed: the count of what had come before the error, or that error. `moved`: where the
/// kernel puts the message's count.
///
/// # Safety
/// `args` are those of that call, made in the thread's slot, and `moved` lies in its message.
#[cold]
#[inline(never)]
pub unsafe fn what_came_first(thread: &Thread, args: &[u64; 6], moved: *const u32, error: i64) -> i64 {
    let fd = args[0] as i32;
    if !fdtable::is_stream(fd) {
        return error;
    }
    let (nothing, mut args) = (raw::Look::new(), *args);
    args[3] |= MSG_DONTWAIT;
    // SAFETY: the caller's; the same call again.
    let bytes = unsafe {
        match raw::marked(RECVMMSG, &args, &nothing, witness::mark_of(thread)) {
            1 => moved.read_volatile(),
            _ => 0,
        }
    };
    if bytes == 0 {
        return error;
    }
    if let Some(held) = fdtable::get(fd).and_then(Shadow::held_error) {
        held.store(-error as u32, Ordering::Relaxed);
    }
    i64::from(bytes)
}

/// The result of an input of `wanted` bytes: in place of the end, once, the error that is kept.
#[inline(always)]
pub fn at_the_end(fd: i32, wanted: u64, result: i64) -> i64 {
    if result == 0 && wanted != 0 { kept(fd) } else { result }
}

#[cold]
#[inline(never)]
fn kept(fd: i32) -> i64 {
    let held = fdtable::get(fd).and_then(Shadow::held_error);
    -i64::from(held.map_or(0, |held| held.swap(0, Ordering::Relaxed)))
}

/// A standby applies this result of an input: what it has of its primary's memory may still hold an error that has been told.
pub fn is_told(shadow: &Shadow, result: i64) {
    if raw::failed(result)
        && let Some(held) = shadow.held_error()
        && i64::from(held.load(Ordering::Relaxed)) == -result
    {
        held.store(0, Ordering::Relaxed);
    }
}
