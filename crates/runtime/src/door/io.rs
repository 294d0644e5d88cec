//! read, write and their kin.
//!
//! Input is read *into the ring* and copied out from there: bytes that the kernel has handed over cannot
//! die with the primary, also when it is killed before it has published them. A read with a buffer larger
//! than an event is made in pieces, so the guest sees no short read that it would not see natively.

use core::sync::atomic::AtomicU32;

use us_abi::PAYLOAD_BYTES_MAX;
use us_abi::event::{CallArgs, EventKind, RETURN_MORE, RETURN_PARTIAL, ReturnHead};
use us_calls::Row;

use crate::door::message;
use crate::fdtable::{self, Kind};
use crate::raw::{self, failed};
use crate::signal::{self, Plan};
use crate::sys::gate::Call;
use crate::sys::guest::{self, Digest};
use crate::sys::recorded::{
    begin, end, execute, log_outputs, recorded, return_ticket, take_begin, take_begin_with, take_end,
    take_outputs,
};
use crate::sys::spans::{self, MessageHeader, Vector};
use crate::sys::witness::{self, Shape};
use crate::thread::{Mode, Thread};

const EFAULT: i64 = -14;
const WRITEV: u64 = 20;
const SENDMSG: u64 = 46;
/// Longest piece of a read, bytes.
const PIECE: usize = PAYLOAD_BYTES_MAX - size_of::<ReturnHead>();

/// Position argument of pread and pwrite.
fn has_position(nr: u64) -> bool {
    matches!(nr, 17 | 18 | 295 | 296 | 327 | 328)
}

/// read, pread64, recvfrom.
pub fn read(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let args = &call.args;
    if row.nr as u64 == raw::nr::RECVFROM && args[4] != 0 {
        return gathered(thread, row, call, Shape::From([args[1], args[2], args[4], args[5]]), args[3]);
    }
    let fd = args[0] as i32;
    let wanted = args[2];
    loop {
        match thread.calls() {
            Mode::Solo => {
                let result = execute(thread, row, call.nr, args);
                if signal::solo_restart(thread, row, result) {
                    continue;
                }
                return result;
            }
            Mode::Record => {
                begin(thread, row, read_arguments(row, args));
                let (result, plan) = read_pieces(thread, row, call, wanted);
                if plan.carry_out(thread) {
                    continue;
                }
                return result;
            }
            Mode::Replay => {
                if !take_begin(thread, row, &read_arguments(row, args)) {
                    continue;
                }
                let counts = !has_position(call.nr) && !is_peek(row, args);
                let Some((result, flags)) = take_pieces(thread, row, args[1], fd, counts) else { continue };
                if flags & RETURN_PARTIAL != 0 {
                    let whole = wants_whole(row, fd, args);
                    let list = [Vector { base: args[1], len: wanted }];
                    return if whole { complete_input(thread, call, &list, result) } else { result };
                }
                if Plan::replay(thread, flags) {
                    continue;
                }
                return result;
            }
        }
    }
}

fn read_arguments(row: &Row, args: &[u64; 6]) -> CallArgs {
    let mut digest = Digest::new();
    if row.nr as u64 != raw::nr::READ {
        digest.number(args[3]);
    }
    CallArgs { fd: args[0] as i32, digest: digest.finish(), len: args[2] }
}

fn is_peek(row: &Row, args: &[u64; 6]) -> bool {
    const MSG_PEEK: u64 = 2;
    row.nr as u64 == raw::nr::RECVFROM && args[3] & MSG_PEEK != 0
}

/// Reads piece by piece into the ring and copies out; publishes every piece.
fn read_pieces(thread: &mut Thread, row: &'static Row, call: &Call, wanted: u64) -> (i64, Plan) {
    let mut total = 0i64;
    let mut args = call.args;
    loop {
        let piece = (wanted - total as u64).min(PIECE as u64) as usize;
        let room = size_of::<ReturnHead>() + piece + witness::tail_bytes(piece);
        let Some(place) = thread.reserve(room) else {
            // The standby was dropped: what remains is read as if there had never been a log.
            args[2] = wanted - total as u64;
            let result = if total == 0 { execute(thread, row, call.nr, &args) } else { 0 };
            return (if failed(result) { result } else { total + result }, signal::plan(thread, row, result));
        };
        // SAFETY: the payload lies behind the head, both reserved.
        let data = unsafe { place.add(size_of::<ReturnHead>()) };
        args[1] = data as u64;
        args[2] = piece as u64;
        let result = read_piece(thread, row, call, &args, place, total == 0);
        let got = if failed(result) { 0 } else { result as usize };
        let copied = guest::write(call.args[1] + total as u64, data, got);
        total += got as i64;
        let again = got == piece && (total as u64) < wanted && copied;
        if again {
            put_return(thread, row, place, RETURN_MORE, result, got);
            if has_position(call.nr) {
                args[3] += got as u64;
            }
            continue;
        }
        let result = match (copied, total) {
            (false, _) => EFAULT,
            (_, 0) => result,
            _ => total,
        };
        let plan = signal::plan(thread, row, result);
        put_return(thread, row, place, plan.flags(), result, got);
        return (result, plan);
    }
}

/// Reads one piece to `args[1]`, in the slot at `place`, such that its count survives the primary's end.
fn read_piece(thread: &Thread, row: &Row, call: &Call, args: &[u64; 6], place: *mut u8, first: bool) -> i64 {
    let piece = args[2] as usize;
    let socket_flags = if row.nr as u64 == raw::nr::RECVFROM { args[3] } else { 0 };
    let kind = fdtable::get(args[0] as i32).map_or(Kind::None, fdtable::Shadow::kind);
    let tcp = matches!(kind, Kind::Tcp | Kind::TcpAccepted);
    // A further piece takes what is there, unless the guest has asked to wait for all of it.
    let at_once = if first || socket_flags & MSG_WAITALL != 0 { 0 } else { MSG_DONTWAIT };
    let attempt = match kind {
        _ if piece == 0 || has_position(call.nr) => None,
        _ if kind == Kind::Socket || tcp && socket_flags != 0 => {
            witness::receive(thread, args[0], place, piece, socket_flags | at_once)
        }
        Kind::Pipe | Kind::Other if first => {
            witness::lay_pattern(place, piece);
            None
        }
        _ => None,
    };
    match attempt {
        Some(result) if failed(result) && !first => 0,
        Some(result) => result,
        None if first => execute(thread, row, call.nr, args),
        None => more(row, call, args),
    }
}

/// Whether a read that was cut off goes on: natively it would have come back whole.
fn wants_whole(row: &Row, fd: i32, args: &[u64; 6]) -> bool {
    match row.nr as u64 {
        raw::nr::RECVFROM | RECVMSG => args[if row.nr as u64 == RECVMSG { 2 } else { 3 }] & MSG_WAITALL != 0,
        _ => fdtable::get(fd).is_some_and(|shadow| matches!(shadow.kind(), Kind::File | Kind::Append)),
    }
}

/// Reads on, live, behind the `done` bytes that the dead primary had got of a read that comes back whole.
fn complete_input(thread: &mut Thread, call: &Call, list: &[Vector], done: i64) -> i64 {
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

/// Makes a transfer that the dead primary had done in part go on, live, vector by vector, from where it stopped. A
/// further piece that fails or comes back short ends it, as it would have ended the one large call.
fn carry_on(
    thread: &mut Thread,
    list: &[Vector],
    mut done: i64,
    piece: impl Fn(Vector, i64) -> (u64, [u64; 6]),
) -> i64 {
    crate::standby::promote::await_live(thread);
    let mut skip = done as u64;
    for vector in list {
        let passed = skip.min(vector.len);
        skip -= passed;
        let mut span = Vector { base: vector.base + passed, len: vector.len - passed };
        while span.len > 0 {
            let (nr, args) = piece(span, done);
            // SAFETY: the guest's own transfer, a part of it.
            let result = unsafe { raw::blocking(nr, &args, &thread.pending) };
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

fn put_return(thread: &mut Thread, row: &Row, place: *mut u8, flags: u8, result: i64, bytes: usize) {
    let ticket = if flags & RETURN_MORE != 0 { us_abi::NO_TICKET } else { return_ticket(row) };
    // SAFETY: reserved by the caller.
    unsafe { place.cast::<ReturnHead>().write(ReturnHead { result, identity: 0 }) };
    thread.publish(EventKind::Return, flags, row.nr, ticket, size_of::<ReturnHead>() + bytes);
}

/// A further piece of the same read: only what is there already, as one large read would have taken it.
fn more(row: &Row, call: &Call, args: &[u64; 6]) -> i64 {
    const POLLIN: u64 = 1;
    let none = AtomicU32::new(0);
    let mut args = *args;
    if row.nr as u64 == raw::nr::RECVFROM {
        if args[3] & MSG_WAITALL == 0 {
            args[3] |= MSG_DONTWAIT;
        }
    } else if !has_position(call.nr) {
        // A pipe or a stream may be empty now; a file is always readable.
        let mut poll = (args[0] & 0xffff_ffff) | POLLIN << 32;
        // SAFETY: the kernel reads and writes one struct pollfd; a zero timeout does not block.
        if unsafe { raw::call3(raw::nr::POLL, &raw mut poll as u64, 1, 0) } != 1 || poll >> 48 & POLLIN == 0 {
            return 0;
        }
    }
    // SAFETY: into the reserved piece of our own ring.
    let result = unsafe { raw::blocking(call.nr, &args, &none) };
    if failed(result) { 0 } else { result }
}

/// Copies the pieces of a read to the guest's buffer, as a standby.
fn take_pieces(thread: &mut Thread, row: &'static Row, to: u64, fd: i32, counts: bool) -> Option<(i64, u8)> {
    let mut at = 0u64;
    loop {
        let (result, flags, got) = take_end(thread, row, |_, head, bytes, flags| {
            guest::write(to + at, bytes.as_ptr(), bytes.len());
            if counts && let Some(shadow) = fdtable::get(fd) {
                shadow.count_read(bytes.len() as u64);
            }
            (head.result, flags, bytes.len() as u64)
        })?;
        at += got;
        thread.pieces = at;
        if flags & RETURN_MORE == 0 {
            thread.pieces = 0;
            return Some((result, flags));
        }
    }
}

/// readv, preadv, preadv2: one read into the ring, scattered from there.
pub fn readv(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    const READV: u64 = 19;
    if call.nr == READV {
        return gathered(thread, row, call, Shape::Vectors(call.args[1], call.args[2]), 0);
    }
    recorded(thread, row, call)
}

const RECVMSG: u64 = 47;
const MSG_PEEK: u64 = 2;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_WAITALL: u64 = 0x100;

/// recvmsg, recvfrom with an address, readv: outputs in several places. From a socket they are received into the
/// ring, where they outlive the primary.
pub fn gathered(thread: &mut Thread, row: &'static Row, call: &Call, shape: Shape, flags: u64) -> i64 {
    let fd = call.args[0] as i32;
    let counts = flags & MSG_PEEK == 0;
    loop {
        let before = spans::Before::new(row, &call.args);
        match thread.calls() {
            Mode::Solo => {
                let result = execute(thread, row, call.nr, &call.args);
                if signal::solo_restart(thread, row, result) {
                    continue;
                }
                message::received(thread, row, call, result);
                return result;
            }
            Mode::Record => {
                let mut arguments = spans::arguments(row, call, thread.verify);
                arguments.len = shape.wanted();
                begin(thread, row, arguments);
                let socket = fdtable::get(fd).is_some_and(|shadow| shadow.kind().is_socket());
                let attempt = if socket { witness::gather(thread, call.args[0], shape, flags) } else { None };
                let result = attempt.unwrap_or_else(|| execute(thread, row, call.nr, &call.args));
                message::received(thread, row, call, result);
                let plan = signal::plan(thread, row, result);
                log_outputs(thread, row, call, &before, plan.flags(), ReturnHead { result, identity: 0 });
                if plan.carry_out(thread) {
                    continue;
                }
                return result;
            }
            Mode::Replay => {
                let ours = spans::arguments(row, call, thread.verify);
                if take_begin_with(thread, row, fd, ours.digest, |_| ()).is_none() {
                    continue;
                }
                let taken = take_outputs(thread, row, call, &before, |thread, head| {
                    if counts
                        && head.result > 0
                        && let Some(shadow) = fdtable::get(fd)
                    {
                        shadow.count_read(head.result as u64);
                    }
                    message::received(thread, row, call, head.result);
                });
                let Some((head, flags)) = taken else { continue };
                if flags & RETURN_PARTIAL != 0 {
                    let mut vectors = [Vector::default(); VECTORS];
                    let whole = wants_whole(row, fd, &call.args);
                    let list = shape_vectors(shape, &mut vectors);
                    return if whole { complete_input(thread, call, list, head.result) } else { head.result };
                }
                if Plan::replay(thread, flags) {
                    continue;
                }
                return head.result;
            }
        }
    }
}

/// Vectors of a transfer that is carried on after a promotion; one with more ends short.
const VECTORS: usize = 64;

fn shape_vectors(shape: Shape, vectors: &mut [Vector; VECTORS]) -> &[Vector] {
    let (list, count) = match shape {
        Shape::Vectors(list, count) => (list, count),
        Shape::From([base, len, ..]) => {
            vectors[0] = Vector { base, len };
            return &vectors[..1];
        }
        Shape::Message(at) => {
            let header = guest::load::<spans::MessageHeader>(at).unwrap_or_default();
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

/// write, pwrite64, sendto.
pub fn write(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let arguments = |thread: &Thread| {
        let mut digest = Digest::new();
        if thread.verify {
            digest.bytes(call.args[1], call.args[2] as usize);
        }
        CallArgs { fd: call.args[0] as i32, digest: digest.finish(), len: call.args[2] }
    };
    output(thread, row, call, arguments, Source::Span(Vector { base: call.args[1], len: call.args[2] }))
}

/// writev, pwritev, pwritev2.
pub fn writev(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let arguments = |thread: &Thread| {
        let mut digest = Digest::new();
        let (list, count) = (call.args[1], call.args[2]);
        if thread.verify {
            spans::for_vectors(list, count, u64::MAX, &mut |base, bytes| digest.bytes(base, bytes));
        }
        CallArgs { fd: call.args[0] as i32, digest: digest.finish(), len: spans::vector_bytes(list, count) }
    };
    output(thread, row, call, arguments, Source::Vectors(call.args[1], call.args[2]))
}

/// Where the bytes of an output lie.
#[derive(Clone, Copy)]
pub enum Source {
    /// In one place.
    Span(Vector),
    /// In several: list and count.
    Vectors(u64, u64),
    /// In a message, whose header lies here.
    Message(u64),
}

/// Executes an output for real; on a socket whose own figures do not tell how far it came, with a witness.
fn put_out(thread: &mut Thread, row: &Row, call: &Call, source: Source) -> i64 {
    let args = &call.args;
    let kind = fdtable::get(args[0] as i32).map_or(Kind::None, fdtable::Shadow::kind);
    let attempt = match source {
        _ if has_position(call.nr) || !kind.is_socket() => None,
        // Plain output on TCP is the most frequent of all, and the socket's figures tell as much.
        Source::Span(_) if kind != Kind::Socket => None,
        Source::Span(span) if span.len == 0 && call.nr == raw::nr::WRITE => None,
        Source::Span(span) => {
            let to = call.nr == raw::nr::SENDTO;
            let name = if to { (args[4], args[5] as u32) } else { (0, 0) };
            witness::send_span(thread, args[0], span, name, if to { args[3] } else { 0 })
        }
        Source::Vectors(vectors, vector_count) if call.nr == WRITEV => {
            let header = MessageHeader { vectors, vector_count, ..MessageHeader::default() };
            witness::send(thread, args[0], header, 0)
        }
        Source::Message(at) => match guest::load::<MessageHeader>(at) {
            Some(header) => witness::send(thread, args[0], header, args[2]),
            None => None,
        },
        Source::Vectors(..) => None,
    };
    attempt.unwrap_or_else(|| execute(thread, row, call.nr, args))
}

/// Sends on, live, behind the `done` bytes that the dead primary had put out.
fn complete_output(thread: &mut Thread, call: &Call, source: Source, done: i64) -> i64 {
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
            let header = guest::load::<MessageHeader>(at).unwrap_or_default();
            copy_vectors(header.vectors, header.vector_count, &mut vectors)
        }
    };
    carry_on(thread, list, done, |span, done| match flags {
        Some(flags) => (raw::nr::SENDTO, [args[0], span.base, span.len, flags, 0, 0]),
        None if call.nr == PWRITE => (PWRITE, [args[0], span.base, span.len, args[3] + done as u64, 0, 0]),
        None => (raw::nr::WRITE, [args[0], span.base, span.len, 0, 0, 0]),
    })
}

/// A call that puts bytes out. What the dead primary had done a part of is carried on.
pub fn output(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    arguments: impl Fn(&Thread) -> CallArgs,
    source: Source,
) -> i64 {
    loop {
        match thread.calls() {
            Mode::Solo => {
                let result = execute(thread, row, call.nr, &call.args);
                if signal::solo_restart(thread, row, result) {
                    continue;
                }
                return result;
            }
            Mode::Record => {
                let logged = arguments(thread);
                begin(thread, row, logged);
                let result = put_out(thread, row, call, source);
                let plan = signal::plan(thread, row, result);
                let identity = append_position(call, result);
                end(thread, row, plan.flags(), ReturnHead { result, identity });
                if plan.carry_out(thread) {
                    continue;
                }
                return result;
            }
            Mode::Replay => {
                let ours = arguments(thread);
                if !take_begin(thread, row, &ours) {
                    continue;
                }
                let fd = call.args[0] as i32;
                let taken = take_end(thread, row, |_, head, _, flags| {
                    if head.result > 0
                        && !has_position(call.nr)
                        && let Some(shadow) = fdtable::get(fd)
                    {
                        shadow.count_written(head.result as u64, head.identity);
                    }
                    (head.result, flags)
                });
                let Some((result, flags)) = taken else { continue };
                if flags & RETURN_PARTIAL != 0 {
                    return complete_output(thread, call, source, result);
                }
                if Plan::replay(thread, flags) {
                    continue;
                }
                return result;
            }
        }
    }
}

/// Where an appending write has ended: the one thing about it that a standby cannot compute.
fn append_position(call: &Call, result: i64) -> u64 {
    let fd = call.args[0] as i32;
    match fdtable::get(fd) {
        Some(shadow) if result > 0 && shadow.kind() == fdtable::Kind::Append => {
            fdtable::position(fd).unwrap_or(0)
        }
        _ => 0,
    }
}
