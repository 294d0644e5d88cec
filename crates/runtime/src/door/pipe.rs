//! Output to, and input from, a pipe that other processes have as well.
//!
//! The kernel keeps no count of what went through a pipe. A writer of a pipeline spends its life waiting for room, and one
//! that is killed while it waits must not be taken for one that has written. So the wait is made apart, by `poll`, and
//! the write itself never waits, and is such that all of it is done: into a pipe that is empty as much as one takes, into any
//! other that has room what comes whole or not at all. Once the kernel was entered with it, it was done. The slot of the
//! call's `Return` says how far the pieces before it came.
//!
//! Input is made the same way: the wait is apart, and what is read then is no more than what waits in the pipe, so all of it
//! comes. A pattern in the slot alone would not tell a last byte that is like its own.
//!
//! A named pipe has no transfer that does not wait. There too what is asked for is done at once; only where nothing waits in one
//! for some time the read itself waits.
//!
//! Where several processes write to one pipe at the same moment, another one may take the room in between.

use core::sync::atomic::Ordering;

use us_abi::event::ReturnHead;
use us_calls::Row;

use crate::above::above;
use crate::door::carry;
use crate::door::recorded::execute_marked;
use crate::door::{pattern, witness};
use crate::fdtable::{self, Kind, Shadow, queued};
use crate::guest::GuestPtr;
use crate::kernel::{POLLIN, POLLOUT, RWF_NOWAIT};
use crate::raw::err::EOPNOTSUPP;
use crate::raw::nr::{PREADV2, PWRITEV2, READV, WRITEV};
use crate::raw::{self, err, failed};
use crate::sys::spans::{self, Source, Vector};
use crate::thread::Thread;

/// What a pipe takes whole or not at all, bytes.
const PIPE_BUF: u64 = crate::kernel::PIPE_BUF;
/// What one call moves at most, bytes: the kernel's own limit.
const MOST: u64 = 0x7fff_f000;

/// Whether this is the way for an output to `shadow`.
pub fn is_shared(shadow: &Shadow, row: &Row, wanted: u64) -> bool {
    shadow.kind() == Kind::Pipe
        && !shadow.is_private()
        && matches!(row.nr, 1 | 20)
        && (1..=MOST).contains(&wanted)
}

/// Makes the call. `None`: in the plain way, with nothing done.
pub fn put_out(thread: &mut Thread, shadow: &Shadow, fd: u64, source: Source) -> Option<i64> {
    let result = piece_by_piece(thread, shadow, fd, source)?;
    // Its `Return` is about to be written over the mark that says how far it came.
    witness::is_laid_out(thread);
    Some(result)
}

fn piece_by_piece(thread: &mut Thread, shadow: &Shadow, fd: u64, source: Source) -> Option<i64> {
    let wanted = source.wanted();
    let place = thread.reserve(size_of::<ReturnHead>())?;
    let mut done = 0;
    loop {
        let sure = taken_at_once(fd, wanted - done);
        if sure == 0 {
            match fdtable::status_flags(fd as i32) {
                // Not one to write to, and no room will ever be there.
                flags if failed(flags) || flags & O_ACCMODE == 0 => return Some(so_far(done, err::EBADF)),
                flags if flags & carry::O_NONBLOCK != 0 => return Some(so_far(done, err::EAGAIN)),
                _ => {}
            }
            if await_event(thread, fd, POLLOUT, u64::MAX) == Event::Signal
                && (stands_still(source) || !goes_on(thread, done))
            {
                return Some(so_far(done, err::EINTR));
            }
            continue;
        }
        // At first as much of it as there is, since a reader may count on what a pipe has room for coming at once.
        let (one, waits) = (piece(source, done, sure), shadow.waits.load(Ordering::Relaxed));
        let (vectors, count, len) = match source {
            Source::Vectors(list, count) if done == 0 && sure > PIPE_BUF && !waits => (list, count, sure),
            Source::Message(_) => return None,
            _ => (&raw const one as u64, 1, one.len),
        };
        witness::begin_piece(thread, place, done, len);
        // At no place of its own: where a pipe's next byte goes.
        let args = [fd, vectors, count, u64::MAX, u64::MAX, RWF_NOWAIT];
        let nr = if waits { WRITEV } else { PWRITEV2 };
        // SAFETY: the guest's own bytes; the list is its own, or lives in this frame.
        let result = unsafe { raw::marked(nr, &args, &thread.pending, witness::mark_of(thread)) };
        done += result.max(0) as u64;
        witness::end_piece(thread, place, done);
        match result {
            // Another writer has taken the room.
            err::EAGAIN => {}
            result if !waits && is_unknown(result) => shadow.waits.store(true, Ordering::Relaxed),
            err::EINTR if goes_on(thread, done) => {}
            result if failed(result) => return Some(so_far(done, result)),
            _ if done >= wanted || result == 0 => return Some(done as i64),
            _ => {}
        }
    }
}

/// Whether an error says that there is no such transfer through this pipe, or that a filter of system calls does not let the call pass.
fn is_unknown(result: i64) -> bool {
    matches!(result, EOPNOTSUPP | err::ENOSYS | err::EPERM)
}

/// Bytes of a read from a pipe in which nothing waits: it may have come meanwhile.
const LATE_MAX: usize = 4096;
/// How long something is waited for in a named pipe apart from the read, ms.
const LATE_MS: u64 = 2;

/// Whether this is the way for an input from `shadow`.
pub fn is_shared_input(shadow: &Shadow) -> bool {
    shadow.kind() == Kind::Pipe && !shadow.is_private()
}

/// Reads into the slot at `place`, behind its head, at most `most` bytes: the result. With `at_once` what is there, and 0 for
/// nothing. `None`: in the plain way, with nothing done.
pub fn take(
    thread: &mut Thread,
    shadow: &Shadow,
    fd: u64,
    place: *mut u8,
    most: usize,
    at_once: bool,
) -> Option<i64> {
    loop {
        let waiting = (queued(fd as i32).unwrap_or(0) as usize).min(most);
        let waits = shadow.waits.load(Ordering::Relaxed);
        match waiting {
            0 if at_once => return Some(0),
            0 if waits && carry::is_nonblocking(fd) => return None,
            // A named pipe that nobody has opened to write yet is at its end, which only a read tells.
            0 if waits => match await_event(thread, fd, POLLIN, LATE_MS) {
                Event::There if queued(fd as i32) != Some(0) => continue,
                Event::There | Event::None => return None,
                Event::Signal => return Some(err::EINTR),
            },
            0 => pattern::lay_late(place, most.min(LATE_MAX)),
            _ => pattern::lay_count(place, waiting),
        }
        let len = if waiting == 0 { most.min(LATE_MAX) } else { waiting } as u64;
        // SAFETY: the caller has reserved head and bytes.
        let span = Vector { base: unsafe { place.add(size_of::<ReturnHead>()) } as u64, len };
        let args = [fd, &raw const span as u64, 1, u64::MAX, u64::MAX, RWF_NOWAIT];
        let nr = if waits { READV } else { PREADV2 };
        // SAFETY: into the reserved slot; the list lives in this frame.
        let result = unsafe { raw::marked(nr, &args, &thread.pending, witness::mark_of(thread)) };
        match result {
            result if !waits && is_unknown(result) => shadow.waits.store(true, Ordering::Relaxed),
            err::EAGAIN if at_once => return Some(0),
            err::EAGAIN if carry::is_nonblocking(fd) => return Some(result),
            // Another reader has it, or nothing has come yet.
            err::EAGAIN if await_event(thread, fd, POLLIN, u64::MAX) != Event::Signal => {}
            err::EAGAIN => return Some(err::EINTR),
            _ => return Some(result),
        }
    }
}

/// How many of `left` bytes a pipe takes now, all of them for sure if nobody else writes; 0 for none. Where that is an error,
/// they are the kernel's to say.
fn taken_at_once(fd: u64, left: u64) -> u64 {
    use crate::kernel::F_GETPIPE_SZ;
    if left > PIPE_BUF && queued(fd as i32) == Some(0) {
        // SAFETY: asks for a number.
        let size = unsafe { raw::call3(raw::nr::FCNTL, fd, F_GETPIPE_SZ, 0) };
        if size > PIPE_BUF as i64 {
            return left.min(size as u64);
        }
    }
    // Or it has no reader any more.
    if raw::poll(fd as i32, POLLOUT) != 0 { left.min(PIPE_BUF) } else { 0 }
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

/// Whether a thread that waits for room is to stand still: it comes back with what it has done, and goes on behind that, which it
/// can with so many vectors.
fn stands_still(source: Source) -> bool {
    let is_carried = !matches!(source, Source::Vectors(_, count) if count > carry::VECTORS as u64);
    is_carried && above().is_to_stand_still()
}

/// The next span behind `done` bytes, at most so long.
fn piece(source: Source, done: u64, most: u64) -> Vector {
    let (list, count) = match source {
        Source::Span(span) => return cut(span, done, most),
        Source::Vectors(list, count) => (list, count),
        Source::Message(_) => return Vector::default(),
    };
    let mut skip = done;
    for index in 0..count {
        let vector = spans::vector(list, index);
        if skip < vector.len {
            return cut(vector, skip, most);
        }
        skip -= vector.len;
    }
    Vector::default()
}

fn cut(span: Vector, skip: u64, most: u64) -> Vector {
    Vector { base: span.base + skip, len: (span.len - skip).min(most) }
}

const O_ACCMODE: i64 = linux_raw_sys::general::O_ACCMODE as i64;

/// What a wait came to.
#[derive(PartialEq, Eq)]
enum Event {
    /// The pipe takes or has something, or its other end is gone.
    There,
    /// Nothing of that in the time.
    None,
    /// A signal came first.
    Signal,
}

/// Waits, at most so many milliseconds.
fn await_event(thread: &Thread, fd: u64, event: u64, limit_ms: u64) -> Event {
    let mut poll = fd & 0xffff_ffff | event << 32;
    let args = [&raw mut poll as u64, 1, limit_ms, 0, 0, 0];
    // SAFETY: the kernel reads and writes one struct pollfd.
    match unsafe { raw::blocking(raw::nr::POLL, &args, &thread.pending) } {
        err::EINTR => Event::Signal,
        0 => Event::None,
        _ => Event::There,
    }
}

/// readv from a pipe or an eventfd: into the slot, and from there to where the guest wants it. `None`: make the call in the plain way.
pub fn scatter(
    thread: &mut Thread,
    row: &Row,
    shadow: &Shadow,
    fd: i32,
    list: GuestPtr<Vector>,
    count: u64,
) -> Option<i64> {
    let wanted = spans::vector_bytes(list.address(), count).min(pattern::PATTERN_MAX as u64);
    if wanted == 0 {
        return None;
    }
    let place = thread.reserve(size_of::<ReturnHead>() + wanted as usize)?;
    // SAFETY: reserved.
    let data = unsafe { place.add(size_of::<ReturnHead>()) } as u64;
    let attempt = match is_shared_input(shadow) {
        true => take(thread, shadow, fd as u64, place, wanted as usize, false),
        false => None,
    };
    let result = attempt.unwrap_or_else(|| {
        pattern::lay_pattern(place, wanted as usize);
        execute_marked(thread, row, raw::nr::READ, &[fd as u64, data, wanted, 0, 0, 0])
    });
    if !failed(result) {
        witness::scatter_bytes(data, list.address(), count, result as u64);
    }
    Some(result)
}
