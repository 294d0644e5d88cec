//! Output to a pipe that other processes have as well.
//!
//! The kernel keeps no count of what went through a pipe. A writer of a pipeline spends its life waiting for room, and one
//! that is killed while it waits must not be taken for one that has written. So the wait is made apart, by `poll`, and
//! the write itself never waits: once the kernel was entered with it, it was done. The slot of the call's `Return` says
//! how far the pieces before it came.

use core::sync::atomic::{AtomicBool, Ordering};

use us_abi::event::ReturnHead;
use us_calls::Row;

use crate::door::carry::{self, Source};
use crate::fdtable::{Kind, Shadow};
use crate::raw::{self, err, failed};
use crate::sys::spans::{self, Vector};
use crate::sys::witness;
use crate::thread::Thread;

/// What a pipe takes whole or not at all, bytes.
const PIPE_BUF: u64 = 4096;
const PWRITEV2: u64 = 328;
const RWF_NOWAIT: u64 = 8;
const EOPNOTSUPP: i64 = -95;
/// What one call moves at most, bytes: the kernel's own limit.
const MOST: u64 = 0x7fff_f000;

/// Set where the kernel has no write to a pipe that does not wait.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Whether this is the way for an output to `shadow`.
pub fn is_shared(shadow: &Shadow, row: &Row, wanted: u64) -> bool {
    shadow.kind() == Kind::Pipe
        && !shadow.is_private()
        && matches!(row.nr, 1 | 20)
        && (1..=MOST).contains(&wanted)
        && !WAITS.load(Ordering::Relaxed)
}

/// Makes the call. `None`: in the plain way, with nothing done.
pub fn put_out(thread: &mut Thread, fd: u64, source: Source) -> Option<i64> {
    let result = piece_by_piece(thread, fd, source)?;
    // Its `Return` is about to be written over the mark that says how far it came.
    witness::is_laid_out(thread);
    Some(result)
}

fn piece_by_piece(thread: &mut Thread, fd: u64, source: Source) -> Option<i64> {
    let wanted = source.wanted();
    let place = thread.reserve(size_of::<ReturnHead>())?;
    let mut done = 0;
    loop {
        // At first all of it, since a reader may count on what a pipe has room for coming at once. Then as there is room.
        let (list, len) = if done == 0 { (None, wanted) } else { (Some(piece(source, done)), PIPE_BUF) };
        let (vectors, count, len) = match (&list, source) {
            (Some(span), _) => (&raw const *span as u64, 1, span.len.min(len)),
            (None, Source::Span(ref span)) => (&raw const *span as u64, 1, len),
            (None, Source::Vectors(list, count)) => (list, count, len),
            (None, Source::Message(_)) => return None,
        };
        witness::begin_piece(thread, place, done, len);
        // At no place of its own: where a pipe's next byte goes.
        let args = [fd, vectors, count, u64::MAX, u64::MAX, RWF_NOWAIT];
        // SAFETY: the guest's own bytes; the list is its own, or lives in this frame.
        let result = unsafe { raw::marked(PWRITEV2, &args, &thread.pending, witness::mark_of(thread)) };
        done += result.max(0) as u64;
        witness::end_piece(thread, place, done);
        if result == EOPNOTSUPP && done == 0 {
            WAITS.store(true, Ordering::Relaxed);
            return None;
        }
        if result == err::EAGAIN && !carry::is_nonblocking(fd) {
            if !await_room(thread, fd) && !goes_on(thread, done) {
                return Some(so_far(done, err::EINTR));
            }
            continue;
        }
        match result {
            err::EINTR if goes_on(thread, done) => {}
            result if failed(result) => return Some(so_far(done, result)),
            _ if done >= wanted || result == 0 || carry::is_nonblocking(fd) => return Some(done as i64),
            _ => {}
        }
    }
}

fn so_far(done: u64, error: i64) -> i64 {
    if done > 0 { done as i64 } else { error }
}

/// Whether an interruption in the middle of a transfer was for the runtime's own sake alone.
fn goes_on(thread: &Thread, done: u64) -> bool {
    let goes_on = done > 0 && carry::is_spurious(thread);
    if goes_on {
        thread.pending.store(0, Ordering::SeqCst);
    }
    goes_on
}

/// The next span behind `done` bytes, as long as it takes to be moved as a whole.
fn piece(source: Source, done: u64) -> Vector {
    let (list, count) = match source {
        Source::Span(span) => return cut(span, done),
        Source::Vectors(list, count) => (list, count),
        Source::Message(_) => return Vector::default(),
    };
    let mut skip = done;
    for index in 0..count {
        let vector = spans::vector(list, index);
        if skip < vector.len {
            return cut(vector, skip);
        }
        skip -= vector.len;
    }
    Vector::default()
}

fn cut(span: Vector, skip: u64) -> Vector {
    Vector { base: span.base + skip, len: (span.len - skip).min(PIPE_BUF) }
}

/// Waits until the pipe takes something, or has no reader any more. `false`: a signal has come first.
fn await_room(thread: &Thread, fd: u64) -> bool {
    const POLLOUT: u64 = 4;
    let mut poll = fd & 0xffff_ffff | POLLOUT << 32;
    let args = [&raw mut poll as u64, 1, u64::MAX, 0, 0, 0];
    // SAFETY: the kernel reads and writes one struct pollfd.
    unsafe { raw::blocking(raw::nr::POLL, &args, &thread.pending) != err::EINTR }
}
