//! read, write and their kin.
//!
//! Input is read *into the ring* and copied out from there: bytes that the kernel has handed over cannot
//! die with the primary, also when it is killed before it has published them. A read with a buffer larger
//! than an event is made in pieces, so the guest sees no short read that it would not see natively.

use us_abi::PAYLOAD_BYTES_MAX;
use us_abi::event::{CallArgs, EventKind, RETURN_MORE, RETURN_PARTIAL, ReturnHead};
use us_calls::Row;
use us_world::{Direction, Evidence, Transfer};

use crate::call::Call;
use crate::door::carry::{self, VECTORS};
use crate::door::recorded::{
    begin, end, execute, execute_marked, log_outputs, recorded, return_ticket, take_begin, take_begin_with,
    take_end, take_outputs,
};
use crate::door::transfer::{append_position, is_peek, taken_in, takes, word_of};
use crate::door::witness::{self, Shape};
use crate::door::{buffers, message, output as shown, pipe};
use crate::fdtable::{self, Kind};
use crate::guest::{self, Digest};
use crate::mapping::views;
use crate::raw::{self, failed};
use crate::signal::{self, Plan};
use crate::sys::spans::{self, MessageHeader, Source, Vector};
use crate::thread::{Mode, Thread};

const EFAULT: i64 = -14;
const WRITEV: u64 = 20;
/// System call number.
pub const SENDMSG: u64 = 46;
/// Longest piece of a read, bytes.
const PIECE: usize = PAYLOAD_BYTES_MAX - size_of::<ReturnHead>();

/// Position argument of pread and pwrite.
pub fn has_position(nr: u64) -> bool {
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
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => {
            let result = execute(thread, row, call.nr, args);
            taken_in(row, args, result);
            let plan = signal::plan(thread, row, result);
            if plan.carry_out(thread) {
                return None;
            }
            if !carry::is_read_cut(plan, row, call, result, wanted) {
                return Some(result);
            }
            carry::park(thread);
            Some(carry::input(thread, call, &[Vector { base: args[1], len: wanted }], result))
        }
        Mode::Record => {
            begin(thread, row, read_arguments(row, args));
            let (result, plan) = read_pieces(thread, row, call, wanted);
            if plan.carry_out(thread) {
                return None;
            }
            if thread.calls() == Mode::Record || !carry::is_read_cut(plan, row, call, result, wanted) {
                return Some(result);
            }
            // The log that this began in is given up.
            carry::park(thread);
            Some(carry::input(thread, call, &[Vector { base: args[1], len: wanted }], result))
        }
        Mode::Replay => {
            take_begin(thread, row, &read_arguments(row, args))?;
            let counts = !has_position(call.nr) && !is_peek(row, args);
            let to = (!is_thrown_away(row, args)).then_some(args[1]);
            let (result, flags) = take_pieces(thread, row, to, fd, counts)?;
            if flags & RETURN_PARTIAL != 0 {
                let list = [Vector { base: args[1], len: wanted }];
                return Some(carry::input_in_doubt(thread, row, call, &list, result));
            }
            if Plan::replay(thread, flags) {
                return None;
            }
            Some(result)
        }
    })
}

fn read_arguments(row: &Row, args: &[u64; 6]) -> CallArgs {
    let mut digest = Digest::new();
    if row.nr as u64 != raw::nr::READ {
        digest.number(args[3]);
    }
    CallArgs { fd: args[0] as i32, digest: digest.finish(), len: args[2] }
}

/// Whether the bytes are taken from the stream and written nowhere: the buffer may be none at all.
fn is_thrown_away(row: &Row, args: &[u64; 6]) -> bool {
    let kind = fdtable::get(args[0] as i32).map_or(Kind::None, fdtable::Shadow::kind);
    row.nr as u64 == raw::nr::RECVFROM && args[3] & witness::MSG_TRUNC != 0 && kind.is_tcp()
}

/// Reads piece by piece into the ring and copies out; publishes every piece.
fn read_pieces(thread: &mut Thread, row: &'static Row, call: &Call, wanted: u64) -> (i64, Plan) {
    let mut total = 0i64;
    let mut args = call.args;
    if !buffers::is_there(thread, args[1], wanted) && !is_thrown_away(row, &args) {
        // What the kernel does not take out of a pipe or a stream for nobody it must not take for the log.
        return read_directly(thread, row, call);
    }
    let most = pipe::longest_piece(args[0] as i32).unwrap_or(PIECE);
    loop {
        let piece = (wanted - total as u64).min(most as u64) as usize;
        let room = size_of::<ReturnHead>() + piece + witness::tail_bytes(piece);
        let Some(place) = thread.reserve(room) else {
            // The standby was dropped: what remains is read as if there had never been a log.
            if total == 0 {
                let result = execute(thread, row, call.nr, &call.args);
                taken_in(row, &call.args, result);
                return (result, signal::plan(thread, row, result));
            }
            let list = [Vector { base: call.args[1], len: wanted }];
            let whole = carry::wants_whole(row, call.args[0] as i32, &call.args);
            let result = if whole { carry::input(thread, call, &list, total) } else { total };
            return (result, Plan::NOTHING);
        };
        // SAFETY: the payload lies behind the head, both reserved.
        let data = unsafe { place.add(size_of::<ReturnHead>()) };
        args[1] = data as u64;
        args[2] = piece as u64;
        let result = read_piece(thread, row, call, &args, place, total == 0);
        taken_in(row, &args, result);
        if result == raw::err::EINVAL && total == 0 && row.nr as u64 != raw::nr::RECVFROM {
            return read_directly(thread, row, call);
        }
        // With MSG_TRUNC the count of a datagram is its whole length, which may be more than there was room for.
        let got = if failed(result) { 0 } else { (result as usize).min(piece) };
        let copied = is_thrown_away(row, &call.args) || guest::write(call.args[1] + total as u64, data, got);
        total += result.max(0);
        let whole = result == piece as i64 && (total as u64) < wanted;
        if copied && whole {
            put_return(thread, row, place, RETURN_MORE, result, got);
            if has_position(call.nr) {
                args[3] += got as u64;
            }
            continue;
        }
        if copied && carry::is_read_cut_now(thread, row, call, result, piece as u64) {
            put_return(thread, row, place, RETURN_PARTIAL, total, got);
            carry::park(thread);
            let list = [Vector { base: call.args[1], len: wanted }];
            return (carry::input(thread, call, &list, total), Plan::NOTHING);
        }
        let result = match (copied, total) {
            (false, _) => EFAULT,
            (_, 0) => result,
            _ => total,
        };
        let plan = signal::plan(thread, row, result);
        if plan.is_abandoned() {
            return (result, plan);
        }
        put_return(thread, row, place, plan.flags(), result, got);
        return (result, plan);
    }
}

/// A read that must go to the guest's own buffer: with O_DIRECT the kernel wants addresses and lengths that are multiples
/// of a sector's. What it brings can be read again, so nothing is lost that dies with the primary.
fn read_directly(thread: &mut Thread, row: &'static Row, call: &Call) -> (i64, Plan) {
    /// Whole sectors: who has had some pieces asks for the rest.
    const SECTORS: usize = PIECE & !4095;
    let result = execute_marked(thread, row, call.nr, &call.args);
    taken_in(row, &call.args, result);
    let plan = signal::plan(thread, row, result);
    if plan.is_abandoned() {
        return (result, plan);
    }
    let bytes = if failed(result) { 0 } else { result as usize };
    let mut at = 0;
    loop {
        let piece = (bytes - at).min(SECTORS);
        let is_last = at + piece == bytes;
        let Some(place) = thread.reserve(size_of::<ReturnHead>() + piece) else {
            return (result, plan);
        };
        // SAFETY: the payload lies behind the head, both reserved.
        let data = unsafe { place.add(size_of::<ReturnHead>()) };
        guest::read(data, call.args[1] + at as u64, piece);
        let (flags, value) = if is_last { (plan.flags(), result) } else { (RETURN_MORE, piece as i64) };
        put_return(thread, row, place, flags, value, piece);
        at += piece;
        if is_last {
            return (result, plan);
        }
    }
}

/// Reads one piece to `args[1]`, in the slot at `place`, such that its count survives the primary's end.
fn read_piece(
    thread: &mut Thread,
    row: &Row,
    call: &Call,
    args: &[u64; 6],
    place: *mut u8,
    first: bool,
) -> i64 {
    let piece = args[2] as usize;
    let socket_flags = if row.nr as u64 == raw::nr::RECVFROM { args[3] } else { 0 };
    let shadow = fdtable::get(args[0] as i32);
    let kind = shadow.map_or(Kind::None, fdtable::Shadow::kind);
    // A further piece takes what is there, unless the guest has asked to wait for all of it.
    let at_once = if first || socket_flags & MSG_WAITALL != 0 { 0 } else { MSG_DONTWAIT };
    let attempt = match kind.evidence(Direction::In, socket_flags == 0) {
        _ if piece == 0 || has_position(call.nr) => None,
        Evidence::Message => witness::receive(thread, args[0], place, piece, socket_flags | at_once),
        Evidence::Pattern => {
            let shared = shadow.filter(|shadow| pipe::is_shared_input(shadow));
            let taken = shared.and_then(|shadow| pipe::take(thread, shadow, args[0], place, piece, !first));
            // Of a further piece from anything but a pipe only what is there already is taken.
            if taken.is_none() && (first || kind == Kind::Pipe) {
                witness::lay_pattern(place, piece);
            }
            taken
        }
        Evidence::Position => {
            shadow.inspect(|shadow| witness::note_position(thread, args[0] as i32, shadow, false));
            None
        }
        Evidence::Totals => None,
    };
    match attempt {
        Some(result) if failed(result) && !first => 0,
        Some(result) => result,
        None if first => execute_marked(thread, row, call.nr, args),
        None => more(row, call, args, witness::mark_of(thread)),
    }
}

fn put_return(thread: &mut Thread, row: &Row, place: *mut u8, flags: u8, result: i64, bytes: usize) {
    let ticket = if flags & RETURN_MORE != 0 { us_abi::NO_TICKET } else { return_ticket(row) };
    // SAFETY: reserved by the caller.
    unsafe { place.cast::<ReturnHead>().write(ReturnHead { result, identity: 0 }) };
    thread.publish(EventKind::Return, flags, row.nr, ticket, size_of::<ReturnHead>() + bytes);
}

/// A further piece of the same read: only what is there already, as one large read would have taken it.
fn more(row: &Row, call: &Call, args: &[u64; 6], mark: *mut u64) -> i64 {
    const POLLIN: u64 = 1;
    let none = raw::Look::new();
    let mut args = *args;
    if row.nr as u64 == raw::nr::RECVFROM {
        if args[3] & MSG_WAITALL == 0 {
            args[3] |= MSG_DONTWAIT;
        }
    } else if !has_position(call.nr) {
        // A pipe or a stream may be empty now; a file is always readable.
        if raw::poll(args[0] as i32, POLLIN) & POLLIN as i64 == 0 {
            return 0;
        }
    }
    // SAFETY: into the reserved piece of our own ring.
    let result = unsafe { raw::marked(call.nr, &args, &none, mark) };
    if failed(result) { 0 } else { result }
}

/// Copies the pieces of a read to the guest's buffer, as a standby; `None` for one that throws them away.
fn take_pieces(
    thread: &mut Thread,
    row: &'static Row,
    to: Option<u64>,
    fd: i32,
    counts: bool,
) -> Option<(i64, u8)> {
    let mut at = 0u64;
    loop {
        let (result, flags, got) = take_end(thread, row, |thread, head, bytes, flags| {
            if let Some(to) = to {
                guest::write(to + at, bytes.as_ptr(), bytes.len());
            }
            if counts && let Some(shadow) = fdtable::get(fd) {
                let word = bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
                shadow.count(Direction::In, Transfer { bytes: bytes.len() as u64, word, position: 0 });
                shadow.note_error(head.result);
            }
            // Before the event is given back: settling reads it as soon as the ring is empty.
            thread.begun_mut().pieces = at + bytes.len() as u64;
            (head.result, flags, bytes.len() as u64)
        })?;
        at += got;
        if flags & RETURN_MORE == 0 {
            thread.begun_mut().pieces = 0;
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

/// System call number.
pub const RECVMSG: u64 = 47;
/// The kernel's flag of that name.
pub const MSG_DONTWAIT: u64 = 0x40;
/// The kernel's flag of that name.
pub const MSG_WAITALL: u64 = 0x100;

/// recvmsg, recvfrom with an address, readv: outputs in several places. From a socket they are received into the
/// ring, where they outlive the primary.
pub fn gathered(thread: &mut Thread, row: &'static Row, call: &Call, shape: Shape, flags: u64) -> i64 {
    let fd = call.args[0] as i32;
    let counts = takes(flags);
    let count_now = |result| {
        if counts {
            fdtable::moved(fd, Direction::In, result);
        }
    };
    thread.attempt(|thread, mode| {
        let mut before = spans::Before::nothing();
        before.look(row, &call.args);
        match mode {
            Mode::Solo => {
                let result = execute(thread, row, call.nr, &call.args);
                count_now(result);
                let plan = signal::plan(thread, row, result);
                if plan.carry_out(thread) {
                    return None;
                }
                message::received(thread, row, call, result);
                Some(whole_input(thread, row, call, shape, plan, result))
            }
            Mode::Record => {
                let mut arguments = spans::arguments(row, call, thread.verify);
                arguments.len = shape.wanted();
                begin(thread, row, arguments);
                let is_placed = buffers::are_there(thread, shape);
                // For nobody nothing is taken: see `read_pieces`.
                let shadow = fdtable::get(fd).filter(|_| is_placed);
                let evidence = shadow.map(|shadow| shadow.kind().evidence(Direction::In, false));
                let attempt = match (evidence, shadow, shape) {
                    (Some(Evidence::Message), ..) => witness::gather(thread, call.args[0], shape, flags),
                    (Some(Evidence::Pattern), Some(shadow), Shape::Vectors(list, count)) => {
                        witness::scatter(thread, row, shadow, fd, list, count)
                    }
                    _ => None,
                };
                let result = attempt.unwrap_or_else(|| execute_marked(thread, row, call.nr, &call.args));
                count_now(result);
                message::received(thread, row, call, result);
                if carry::is_read_cut_now(thread, row, call, result, shape.wanted()) {
                    let head = ReturnHead { result, identity: 0 };
                    log_outputs(thread, row, call, &before, RETURN_PARTIAL, head);
                    return Some(rest_of_input(thread, call, shape, result));
                }
                let plan = signal::plan(thread, row, result);
                if plan.is_abandoned() {
                    return None;
                }
                log_outputs(thread, row, call, &before, plan.flags(), ReturnHead { result, identity: 0 });
                if plan.carry_out(thread) {
                    return None;
                }
                Some(whole_input(thread, row, call, shape, plan, result))
            }
            Mode::Replay => {
                let ours = spans::arguments(row, call, thread.verify);
                take_begin_with(thread, row, fd, ours.digest, |_, _| ())?;
                let taken = take_outputs(thread, row, call, &before, |thread, head| {
                    if counts && let Some(shadow) = fdtable::get(fd) {
                        let word = match shape {
                            Shape::Vectors(list, count) => word_of(shadow, Source::Vectors(list, count)),
                            _ => 0,
                        };
                        let bytes = head.result.max(0) as u64;
                        shadow.count(Direction::In, Transfer { bytes, word, position: 0 });
                        shadow.note_error(head.result);
                    }
                    message::received(thread, row, call, head.result);
                });
                let (head, flags) = taken?;
                if flags & RETURN_PARTIAL != 0 {
                    let mut vectors = [Vector::default(); VECTORS];
                    let list = carry::shape_vectors(shape, &mut vectors);
                    return Some(carry::input_in_doubt(thread, row, call, list, head.result));
                }
                if Plan::replay(thread, flags) {
                    return None;
                }
                Some(head.result)
            }
        }
    })
}

/// What a gathered input comes to, in a copy that acts: the rest is got where the runtime alone has cut it off.
fn whole_input(thread: &mut Thread, row: &Row, call: &Call, shape: Shape, plan: Plan, result: i64) -> i64 {
    if thread.calls() == Mode::Record || !carry::is_read_cut(plan, row, call, result, shape.wanted()) {
        return result;
    }
    rest_of_input(thread, call, shape, result)
}

fn rest_of_input(thread: &mut Thread, call: &Call, shape: Shape, done: i64) -> i64 {
    carry::park(thread);
    let mut vectors = [Vector::default(); VECTORS];
    carry::input(thread, call, carry::shape_vectors(shape, &mut vectors), done)
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

/// Executes an output for real; on a socket whose own figures do not tell how far it came, with a witness.
fn put_out(thread: &mut Thread, row: &Row, call: &Call, source: Source) -> i64 {
    let args = &call.args;
    let shadow = fdtable::get(args[0] as i32);
    let kind = shadow.map_or(Kind::None, fdtable::Shadow::kind);
    if let Some(shadow) = shadow
        && pipe::is_shared(shadow, row, source.wanted())
        && let Some(result) = pipe::put_out(thread, shadow, args[0], source)
    {
        return result;
    }
    let evidence = kind.evidence(Direction::Out, matches!(source, Source::Span(_)));
    let attempt = match source {
        _ if has_position(call.nr) || evidence != Evidence::Message => None,
        Source::Span(span) if span.len == 0 && call.nr == raw::nr::WRITE => None,
        Source::Span(span) if span.len > buffers::BYTES_MAX => None,
        Source::Span(span) => {
            let to = call.nr == raw::nr::SENDTO;
            let name = if to { (args[4], args[5] as u32) } else { (0, 0) };
            witness::send_span(thread, args[0], span, name, if to { args[3] } else { 0 })
        }
        // Without a byte nothing is sent, not even an empty message.
        Source::Vectors(_, vector_count) if vector_count > buffers::VECTORS_MAX || source.wanted() == 0 => {
            None
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
    attempt.unwrap_or_else(|| {
        if let Some(shadow) = shadow.filter(|_| !has_position(call.nr)) {
            witness::note_position(thread, args[0] as i32, shadow, true);
        }
        execute_marked(thread, row, call.nr, args)
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
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => {
            let result = execute(thread, row, call.nr, &call.args);
            fdtable::moved(call.args[0] as i32, Direction::Out, result);
            let plan = signal::plan(thread, row, result);
            if plan.carry_out(thread) {
                return None;
            }
            Some(whole_output(thread, call, source, plan, result))
        }
        Mode::Record => {
            let logged = arguments(thread);
            begin(thread, row, logged);
            let result = put_out(thread, row, call, source);
            fdtable::moved(call.args[0] as i32, Direction::Out, result);
            let is_cut = carry::is_write_cut_now(thread, call, result, source.wanted());
            let plan = if is_cut { Plan::NOTHING } else { signal::plan(thread, row, result) };
            if plan.is_abandoned() {
                return None;
            }
            let identity = append_position(call, result);
            let shown_at = shown::shown_at(call.args[0] as i32, result);
            let cut = if is_cut { RETURN_PARTIAL } else { 0 };
            let flags = plan.flags() | shown::flag(shown_at) | cut;
            end(thread, row, flags, ReturnHead { result, identity });
            shown::log(thread, shown_at);
            if is_cut {
                carry::park(thread);
                return Some(carry::output(thread, call, source, result));
            }
            if plan.carry_out(thread) {
                return None;
            }
            Some(whole_output(thread, call, source, plan, result))
        }
        Mode::Replay => {
            let ours = arguments(thread);
            take_begin(thread, row, &ours)?;
            let fd = call.args[0] as i32;
            let taken = take_end(thread, row, |_, head, _, flags| {
                if let Some(shadow) = fdtable::get(fd) {
                    shadow.note_error(head.result);
                }
                let at = has_position(call.nr).then_some(call.args[3]);
                views::written(fd, at, head.identity, source, head.result);
                if head.result > 0
                    && !has_position(call.nr)
                    && let Some(shadow) = fdtable::get(fd)
                {
                    let word = word_of(shadow, source);
                    let bytes = head.result as u64;
                    shadow.count(Direction::Out, Transfer { bytes, word, position: head.identity });
                }
                (head.result, flags)
            });
            let (result, flags) = taken?;
            shown::replay(thread, fd, source, result, flags);
            if flags & RETURN_PARTIAL != 0 {
                return Some(carry::output_in_doubt(thread, call, source, result));
            }
            if Plan::replay(thread, flags) {
                return None;
            }
            Some(result)
        }
    })
}

/// What an output comes to, in a copy that acts: the rest is put out where the runtime alone has cut it off.
#[inline(always)]
fn whole_output(thread: &mut Thread, call: &Call, source: Source, plan: Plan, result: i64) -> i64 {
    if thread.calls() == Mode::Record || !carry::is_write_cut(plan, call, result, source.wanted()) {
        return result;
    }
    carry::park(thread);
    carry::output(thread, call, source, result)
}
