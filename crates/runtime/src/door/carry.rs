//! A transfer that was cut off and goes on.
//!
//! Natively it would have come back whole: a write to a stream that blocks, a read of a file or with MSG_WAITALL. It
//! is cut off when the primary is killed in the middle of it, and when its thread is asked to park. What is left is
//! made of calls in their own right, which pass the doors like any other: the log may begin again while one waits.

use core::sync::atomic::Ordering;

use us_calls::Row;

use crate::above::above;
use crate::call::Call;
use crate::door::io::{MSG_DONTWAIT, MSG_WAITALL, RECVMSG, SENDMSG, has_position};
use crate::door::witness::Shape;
use crate::fdtable;
use crate::guest::GuestPtr;
use crate::raw::{self, failed};
use crate::signal::{self, Plan};
use crate::sys::spans::{self, MessageHeader, Source, Vector};
use crate::thread::{Mode, Thread};

/// Whether a read that was cut off goes on: natively it would have come back whole.
pub fn wants_whole(row: &Row, fd: i32, args: &[u64; 6]) -> bool {
    match row.nr as u64 {
        raw::nr::RECVFROM | RECVMSG => args[if row.nr as u64 == RECVMSG { 2 } else { 3 }] & MSG_WAITALL != 0,
        _ => fdtable::get(fd).is_some_and(|shadow| shadow.kind().is_file()),
    }
}

/// Reads on behind the `done` bytes that have been got of a read that comes back whole.
#[cold]
#[inline(never)]
pub fn input(thread: &mut Thread, call: &Call, list: &[Vector], done: i64) -> i64 {
    let position = if has_position(call.nr) { Some(call.args[3]) } else { None };
    let flags = match call.nr {
        raw::nr::RECVFROM => Some(call.args[3]),
        RECVMSG => Some(call.args[2]),
        _ => None,
    };
    carry_on(thread, list, done, |span, done| match (position, flags) {
        (Some(start), _) => (17, [call.args[0], span.base, span.len, start + done as u64, 0, 0]),
        (_, Some(flags)) => (raw::nr::RECVFROM, [call.args[0], span.base, span.len, flags, 0, 0]),
        _ => (raw::nr::READ, [call.args[0], span.base, span.len, 0, 0, 0]),
    })
}

/// Makes a transfer go on, vector by vector, from where it stopped. A further piece that fails or comes back short ends it, as it would have ended the one large call.
fn carry_on(
    thread: &mut Thread,
    list: &[Vector],
    mut done: i64,
    piece: impl Fn(Vector, i64) -> (u64, [u64; 6]),
) -> i64 {
    let mut skip = done as u64;
    for vector in list {
        let passed = skip.min(vector.len);
        skip -= passed;
        let mut span = Vector { base: vector.base + passed, len: vector.len - passed };
        while span.len > 0 {
            let (nr, args) = piece(span, done);
            // A call in its own right: the log may begin again while it waits.
            let call = Call { nr, args, caller: 0 };
            let result = above().serve(thread, &call);
            if failed(result) || result == 0 {
                return done;
            }
            done += result;
            span.base += result as u64;
            span.len -= result as u64;
        }
    }
    done
}

/// Vectors of a transfer that is carried on after a promotion; one with more ends short.
pub const VECTORS: usize = 64;

/// The places of a gathered input, as many as are carried on.
pub fn shape_vectors(shape: Shape, vectors: &mut [Vector; VECTORS]) -> &[Vector] {
    let (list, count) = match shape {
        Shape::Vectors(list, count) => (list.address(), count),
        Shape::From([base, len, ..]) => {
            vectors[0] = Vector { base, len };
            return &vectors[..1];
        }
        Shape::Message(at) => {
            let header = at.written().unwrap_or_default();
            (header.vectors, header.vector_count)
        }
    };
    copy_vectors(list, count, vectors)
}

fn copy_vectors(list: u64, count: u64, vectors: &mut [Vector; VECTORS]) -> &[Vector] {
    let count = (count as usize).min(VECTORS);
    for (index, vector) in vectors.iter_mut().enumerate().take(count) {
        *vector = spans::vector(list, index as u64);
    }
    &vectors[..count]
}

/// Sends on behind the `done` bytes that have been put out.
#[cold]
#[inline(never)]
pub fn output(thread: &mut Thread, call: &Call, source: Source, done: i64) -> i64 {
    const PWRITE: u64 = 18;
    let args = &call.args;
    let flags = match call.nr {
        raw::nr::SENDTO => Some(args[3]),
        SENDMSG => Some(args[2]),
        _ => None,
    };
    if flags.is_some_and(|flags| flags & MSG_DONTWAIT != 0) {
        return done;
    }
    let mut vectors = [Vector::default(); VECTORS];
    let list = match source {
        Source::Span(span) => {
            vectors[0] = span;
            &vectors[..1]
        }
        Source::Vectors(list, count) => copy_vectors(list, count, &mut vectors),
        Source::Message(at) => {
            let header = GuestPtr::<MessageHeader>::at(at).load().unwrap_or_default();
            copy_vectors(header.vectors, header.vector_count, &mut vectors)
        }
    };
    carry_on(thread, list, done, |span, done| match flags {
        Some(flags) => (raw::nr::SENDTO, [args[0], span.base, span.len, flags, 0, 0]),
        None if call.nr == PWRITE => (PWRITE, [args[0], span.base, span.len, args[3] + done as u64, 0, 0]),
        None => (raw::nr::WRITE, [args[0], span.base, span.len, 0, 0, 0]),
    })
}

/// Whether a transfer has just been interrupted for the runtime's own sake alone. Asked before the plan is made.
pub fn is_spurious(thread: &Thread) -> bool {
    thread.pending.load(Ordering::Relaxed) != 0 && !signal::has_deliverable(thread)
}

/// The rest of a read in doubt of which the dead primary had got a part. It is for whoever acts to get: this copy once it is
/// promoted, or the primary; where that has cut the transfer off itself, the calls of the rest follow in the log.
#[cold]
#[inline(never)]
pub fn input_in_doubt(thread: &mut Thread, row: &Row, call: &Call, list: &[Vector], done: i64) -> i64 {
    if !wants_whole(row, call.args[0] as i32, &call.args) {
        return done;
    }
    thread.await_live();
    input(thread, call, list, done)
}

/// The same of an output.
#[cold]
#[inline(never)]
pub fn output_in_doubt(thread: &mut Thread, call: &Call, source: Source, done: i64) -> i64 {
    thread.await_live();
    output(thread, call, source, done)
}

/// Whether a read of `wanted` bytes came back short for the runtime's own sake alone, and goes on.
pub fn is_read_cut(plan: Plan, row: &Row, call: &Call, result: i64, wanted: u64) -> bool {
    plan.is_spurious() && is_short(result, wanted) && wants_whole(row, call.args[0] as i32, &call.args)
}

/// Whether an output came back short for the runtime's own sake alone, and goes on.
pub fn is_write_cut(plan: Plan, call: &Call, result: i64, wanted: u64) -> bool {
    plan.is_spurious() && is_short(result, wanted) && !is_nonblocking(call.args[0])
}

/// As [`is_read_cut`], before the plan is made, while the log that the call began in goes on: that has what has been got up to
/// here. To read on within the call would be to leave what comes behind to no witness: whoever takes over would do it again.
#[inline(always)]
pub fn is_read_cut_now(thread: &Thread, row: &Row, call: &Call, result: i64, wanted: u64) -> bool {
    // First what is seldom so.
    is_short(result, wanted)
        && is_spurious(thread)
        && thread.calls() == Mode::Record
        && wants_whole(row, call.args[0] as i32, &call.args)
}

/// The same for an output, as [`is_write_cut`].
#[inline(always)]
pub fn is_write_cut_now(thread: &Thread, call: &Call, result: i64, wanted: u64) -> bool {
    is_short(result, wanted)
        && is_spurious(thread)
        && thread.calls() == Mode::Record
        && !is_nonblocking(call.args[0])
}

fn is_short(result: i64, wanted: u64) -> bool {
    result >= 0 && (result as u64) < wanted
}

/// Whether a call on this descriptor would not wait.
pub fn is_nonblocking(fd: u64) -> bool {
    let flags = fdtable::status_flags(fd as i32);
    failed(flags) || flags & O_NONBLOCK != 0
}

/// The kernel's flag of that name.
pub const O_NONBLOCK: i64 = linux_raw_sys::general::O_NONBLOCK as i64;

/// Parks, if that was what the transfer was cut off for.
pub fn park(thread: &mut Thread) {
    // The next call is not to be broken off for what this one was.
    signal::look_again(thread);
    if thread.calls() != Mode::Replay {
        above().stand_still(thread);
    }
}
