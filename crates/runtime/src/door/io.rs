//! read, write and their kin.
//!
//! Input is read *into the ring* and copied out from there: bytes that the kernel has handed over cannot
//! die with the primary, also when it is killed before it has published them. A read with a buffer larger
//! than an event is made in pieces, so the guest sees no short read that it would not see natively.

use core::sync::atomic::Ordering;

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
use crate::door::transfer::{append_position, taken_in, takes, word_of};
use crate::door::witness::{self, Shape};
use crate::door::{buffers, message, output as shown, pipe};
use crate::fdtable::{self, Kind, Shadow};
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
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => {
            let result = execute(thread, row, call.nr, args);
            taken_in(row, args, result);
            let plan = signal::plan(thread, row, result);
            if plan.carry_out(thread) {
                return None;
            }
            if !carry::is_read_cut(plan, row, call, result, args[2]) {
                return Some(result);
            }
            Some(rest_of_read(thread, call, result))
        }
        Mode::Record => record_read(thread, row, call),
        Mode::Replay => {
            take_begin(thread, row, &read_arguments(row, args))?;
            let input = Input::of(row, call);
            let counts = !input.is_positioned && takes(input.flags);
            let to = (!input.is_thrown_away).then_some(args[1]);
            let (result, flags) = take_pieces(thread, row, to, args[0] as i32, counts)?;
            if flags & RETURN_PARTIAL != 0 {
                let list = [Vector { base: args[1], len: args[2] }];
                return Some(carry::input_in_doubt(thread, row, call, &list, result));
            }
            if Plan::replay(thread, flags) {
                return None;
            }
            Some(result)
        }
    })
}

/// As [`read`], of a primary that logs, in the frame of its caller: see `raw::blocking`. `None`: nothing is done, or the call is
/// to be made again; [`read`] does it.
#[inline(always)]
pub fn read_here(thread: &mut Thread, row: &'static Row, call: &Call) -> Option<i64> {
    if thread.calls() != Mode::Record || row.nr as u64 == raw::nr::RECVFROM && call.args[4] != 0 {
        return None;
    }
    record_read(thread, row, call)
}

#[inline(always)]
fn record_read(thread: &mut Thread, row: &'static Row, call: &Call) -> Option<i64> {
    begin(thread, row, read_arguments(row, &call.args));
    let (result, plan) = read_pieces(thread, row, call);
    if plan.carry_out(thread) {
        return None;
    }
    if !plan.is_spurious()
        || thread.calls() == Mode::Record
        || !carry::is_read_cut(plan, row, call, result, call.args[2])
    {
        return Some(result);
    }
    // The log that this began in is given up.
    Some(rest_of_read(thread, call, result))
}

#[cold]
#[inline(never)]
fn rest_of_read(thread: &mut Thread, call: &Call, done: i64) -> i64 {
    carry::park(thread);
    carry::input(thread, call, &[Vector { base: call.args[1], len: call.args[2] }], done)
}

fn read_arguments(row: &Row, args: &[u64; 6]) -> CallArgs {
    let mut digest = Digest::new();
    if row.nr as u64 != raw::nr::READ {
        digest.number(args[3]);
    }
    CallArgs { fd: args[0] as i32, digest: digest.finish(), len: args[2] }
}

/// What a read reads from, and how: looked up once a call.
#[derive(Clone, Copy)]
struct Input {
    shadow: Option<&'static Shadow>,
    kind: Kind,
    /// Of recv; 0 of any other.
    flags: u64,
    /// It says from where in the file.
    is_positioned: bool,
    /// The bytes are taken from the stream and written nowhere: the buffer may be none at all.
    is_thrown_away: bool,
}

impl Input {
    #[inline(always)]
    fn of(row: &Row, call: &Call) -> Input {
        let shadow = fdtable::get(call.args[0] as i32);
        let kind = shadow.map_or(Kind::None, Shadow::kind);
        let flags = if row.nr as u64 == raw::nr::RECVFROM { call.args[3] } else { 0 };
        let is_thrown_away = flags & witness::MSG_TRUNC != 0 && kind.is_tcp();
        Input { shadow, kind, flags, is_positioned: has_position(call.nr), is_thrown_away }
    }

    /// What the copy that acts counts.
    #[inline(always)]
    fn has_given(&self, result: i64) {
        if self.kind.is_counted()
            && takes(self.flags)
            && let Some(shadow) = self.shadow
        {
            shadow.moved(Direction::In, result);
        }
    }
}

/// Reads piece by piece into the ring and copies out; publishes every piece.
#[inline(always)]
fn read_pieces(thread: &mut Thread, row: &'static Row, call: &Call) -> (i64, Plan) {
    let mut total = 0i64;
    let mut args = call.args;
    let wanted = args[2];
    let input = Input::of(row, call);
    if !buffers::is_there(thread, args[1], wanted) && !input.is_thrown_away {
        // What the kernel does not take out of a pipe or a stream for nobody it must not take for the log.
        return read_directly(thread, row, call);
    }
    let most = if input.kind == Kind::Pipe { witness::PATTERN_MAX } else { PIECE };
    loop {
        let piece = (wanted - total as u64).min(most as u64) as usize;
        let room = size_of::<ReturnHead>() + piece + witness::tail_bytes(piece);
        let Some(place) = thread.reserve(room) else { return read_unlogged(thread, row, call, total) };
        // SAFETY: the payload lies behind the head, both reserved.
        let data = unsafe { place.add(size_of::<ReturnHead>()) };
        args[1] = data as u64;
        args[2] = piece as u64;
        let result = read_piece(thread, row, &input, &args, place, total == 0);
        input.has_given(result);
        if result == raw::err::EINVAL && total == 0 && row.nr as u64 != raw::nr::RECVFROM {
            return read_directly(thread, row, call);
        }
        // With MSG_TRUNC the count of a datagram is its whole length, which may be more than there was room for.
        let got = if failed(result) { 0 } else { (result as usize).min(piece) };
        let copied = input.is_thrown_away || guest::write(call.args[1] + total as u64, data, got);
        total += result.max(0);
        let whole = result == piece as i64 && (total as u64) < wanted;
        if copied && whole {
            put_return(thread, row, place, RETURN_MORE, result, got);
            if input.is_positioned {
                args[3] += got as u64;
            }
            continue;
        }
        if copied && carry::is_read_cut_now(thread, row, call, result, piece as u64) {
            put_return(thread, row, place, RETURN_PARTIAL, total, got);
            return (rest_of_read(thread, call, total), Plan::NOTHING);
        }
        let result = match (copied, total) {
            (false, _) => EFAULT,
            (_, 0) => result,
            _ => total,
        };
        let plan = signal::plan(thread, row, result);
        if !plan.is_abandoned() {
            put_return(thread, row, place, plan.flags(), result, got);
        }
        return (result, plan);
    }
}

/// The standby was dropped: what remains is read as if there had never been a log.
#[cold]
#[inline(never)]
fn read_unlogged(thread: &mut Thread, row: &'static Row, call: &Call, done: i64) -> (i64, Plan) {
    if done == 0 {
        let result = execute(thread, row, call.nr, &call.args);
        taken_in(row, &call.args, result);
        return (result, signal::plan(thread, row, result));
    }
    let list = [Vector { base: call.args[1], len: call.args[2] }];
    let whole = carry::wants_whole(row, call.args[0] as i32, &call.args);
    let result = if whole { carry::input(thread, call, &list, done) } else { done };
    (result, Plan::NOTHING)
}

/// A read that must go to the guest's own buffer: with O_DIRECT the kernel wants addresses and lengths that are multiples
/// of a sector's. What it brings can be read again, so nothing is lost that dies with the primary.
#[cold]
#[inline(never)]
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
#[inline(always)]
fn read_piece(
    thread: &mut Thread,
    row: &Row,
    input: &Input,
    args: &[u64; 6],
    place: *mut u8,
    first: bool,
) -> i64 {
    let piece = args[2] as usize;
    if piece != 0 && !input.is_positioned {
        match input.kind.evidence(Direction::In, input.flags == 0) {
            Evidence::Pattern if input.kind != Kind::Pipe => {
                // Of a further piece only what is there already is taken.
                if first {
                    witness::lay_pattern(place, piece);
                }
            }
            Evidence::Totals => {}
            evidence => {
                if let Some(result) = read_witnessed(thread, input, evidence, args, place, first) {
                    return if failed(result) && !first { 0 } else { result };
                }
            }
        }
    }
    if first { execute_marked(thread, row, row.nr.into(), args) } else { more(thread, row, input, args) }
}

/// The same where the kind asks for more than a pattern. `None`: the call is to be made.
#[inline(never)]
fn read_witnessed(
    thread: &mut Thread,
    input: &Input,
    evidence: Evidence,
    args: &[u64; 6],
    place: *mut u8,
    first: bool,
) -> Option<i64> {
    let piece = args[2] as usize;
    match evidence {
        Evidence::Message => {
            // A further piece takes what is there, unless the guest has asked to wait for all of it.
            let at_once = if first || input.flags & MSG_WAITALL != 0 { 0 } else { MSG_DONTWAIT };
            witness::receive(thread, args[0], place, piece, input.flags | at_once)
        }
        Evidence::Pattern => {
            let shared = input.shadow.filter(|shadow| pipe::is_shared_input(shadow));
            let taken = shared.and_then(|shadow| pipe::take(thread, shadow, args[0], place, piece, !first));
            if taken.is_none() {
                witness::lay_pattern(place, piece);
            }
            taken
        }
        Evidence::Position => {
            let shadow = input.shadow?;
            witness::note_position(thread, args[0] as i32, shadow, false);
            None
        }
        Evidence::Totals => None,
    }
}

#[inline(always)]
fn put_return(thread: &mut Thread, row: &Row, place: *mut u8, flags: u8, result: i64, bytes: usize) {
    let ticket = if flags & RETURN_MORE != 0 { us_abi::NO_TICKET } else { return_ticket(row) };
    // SAFETY: reserved by the caller.
    unsafe { place.cast::<ReturnHead>().write(ReturnHead { result, identity: 0 }) };
    thread.publish(EventKind::Return, flags, row.nr, ticket, size_of::<ReturnHead>() + bytes);
}

/// A further piece of the same read: only what is there already, as one large read would have taken it.
#[inline(never)]
fn more(thread: &Thread, row: &Row, input: &Input, args: &[u64; 6]) -> i64 {
    const POLLIN: u64 = 1;
    let none = raw::Look::new();
    let mut args = *args;
    if row.nr as u64 == raw::nr::RECVFROM {
        if input.flags & MSG_WAITALL == 0 {
            args[3] |= MSG_DONTWAIT;
        }
    } else if !input.is_positioned {
        // A pipe or a stream may be empty now; a file is always readable.
        if raw::poll(args[0] as i32, POLLIN) & POLLIN as i64 == 0 {
            return 0;
        }
    }
    // SAFETY: into the reserved piece of our own ring.
    let result = unsafe { raw::marked(row.nr.into(), &args, &none, witness::mark_of(thread)) };
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
    // Before the loop: what the other modes need is computed in front of that, each time.
    if thread.calls() == Mode::Record
        && let Some(result) = record_gathered(thread, row, call, shape, flags)
    {
        return result;
    }
    gathered_in_any_mode(thread, row, call, shape, flags)
}

#[inline(always)]
fn record_gathered(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    shape: Shape,
    flags: u64,
) -> Option<i64> {
    let fd = call.args[0] as i32;
    let mut before = spans::Before::nothing();
    before.look(row, &call.args);
    let mut arguments = spans::arguments(row, call, thread.verify);
    let wanted = shape.wanted();
    arguments.len = wanted;
    begin(thread, row, arguments);
    let is_placed = buffers::are_there(thread, shape, wanted);
    // For nobody nothing is taken: see `read_pieces`.
    let shadow = fdtable::get(fd).filter(|_| is_placed);
    let evidence = shadow.map(|shadow| shadow.kind().evidence(Direction::In, false));
    let attempt = match (evidence, shadow, shape) {
        (Some(Evidence::Message), ..) => witness::gather(thread, call.args[0], shape, wanted, flags),
        (Some(Evidence::Pattern), Some(shadow), Shape::Vectors(list, count)) => {
            witness::scatter(thread, row, shadow, fd, list, count)
        }
        _ => None,
    };
    let result = attempt.unwrap_or_else(|| execute_marked(thread, row, call.nr, &call.args));
    count_input(fd, flags, result);
    message::received(thread, row, call, result);
    if carry::is_read_cut_now(thread, row, call, result, wanted) {
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

/// What a copy that acts counts of a gathered input.
#[inline(always)]
fn count_input(fd: i32, flags: u64, result: i64) {
    if takes(flags) {
        fdtable::moved(fd, Direction::In, result);
    }
}

#[inline(never)]
fn gathered_in_any_mode(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    shape: Shape,
    flags: u64,
) -> i64 {
    let fd = call.args[0] as i32;
    let counts = takes(flags);
    thread.attempt(|thread, mode| {
        let mut before = spans::Before::nothing();
        before.look(row, &call.args);
        match mode {
            Mode::Solo => {
                let result = execute(thread, row, call.nr, &call.args);
                count_input(fd, flags, result);
                let plan = signal::plan(thread, row, result);
                if plan.carry_out(thread) {
                    return None;
                }
                message::received(thread, row, call, result);
                Some(whole_input(thread, row, call, shape, plan, result))
            }
            Mode::Record => record_gathered(thread, row, call, shape, flags),
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
                    return Some(gathered_in_doubt(thread, row, call, shape, head.result));
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

#[cold]
#[inline(never)]
fn rest_of_input(thread: &mut Thread, call: &Call, shape: Shape, done: i64) -> i64 {
    carry::park(thread);
    let mut vectors = [Vector::default(); VECTORS];
    carry::input(thread, call, carry::shape_vectors(shape, &mut vectors), done)
}

#[cold]
#[inline(never)]
fn gathered_in_doubt(thread: &mut Thread, row: &Row, call: &Call, shape: Shape, done: i64) -> i64 {
    let mut vectors = [Vector::default(); VECTORS];
    carry::input_in_doubt(thread, row, call, carry::shape_vectors(shape, &mut vectors), done)
}

/// write, pwrite64, sendto.
pub fn write(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    output(thread, row, call, |thread| write_arguments(thread, call), span_of(call))
}

/// As [`write`], in the way of [`read_here`].
#[inline(always)]
pub fn write_here(thread: &mut Thread, row: &'static Row, call: &Call) -> Option<i64> {
    if thread.calls() != Mode::Record {
        return None;
    }
    let logged = write_arguments(thread, call);
    record_output(thread, row, call, logged, span_of(call))
}

#[inline(always)]
fn span_of(call: &Call) -> Source {
    Source::Span(Vector { base: call.args[1], len: call.args[2] })
}

#[inline(always)]
fn write_arguments(thread: &Thread, call: &Call) -> CallArgs {
    let mut digest = Digest::new();
    if thread.verify {
        digest.bytes(call.args[1], call.args[2] as usize);
    }
    CallArgs { fd: call.args[0] as i32, digest: digest.finish(), len: call.args[2] }
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

/// Executes an output for real; where the object's own figures do not tell how far it came, with a witness.
#[inline(always)]
fn put_out(thread: &mut Thread, row: &Row, call: &Call, source: Source, wanted: u64) -> i64 {
    let shadow = fdtable::get(call.args[0] as i32);
    let kind = shadow.map_or(Kind::None, Shadow::kind);
    let evidence = kind.evidence(Direction::Out, matches!(source, Source::Span(_)));
    if let Some(shadow) = shadow
        && (evidence == Evidence::Message || kind == Kind::Pipe || kind.is_file())
        && let Some(result) = put_out_witnessed(thread, row, call, source, wanted, shadow)
    {
        return result;
    }
    execute_marked(thread, row, call.nr, &call.args)
}

/// `None`: the call is to be made.
#[inline(never)]
fn put_out_witnessed(
    thread: &mut Thread,
    row: &Row,
    call: &Call,
    source: Source,
    wanted: u64,
    shadow: &Shadow,
) -> Option<i64> {
    let args = &call.args;
    let is_positioned = has_position(call.nr);
    let evidence = shadow.kind().evidence(Direction::Out, matches!(source, Source::Span(_)));
    if pipe::is_shared(shadow, row, wanted)
        && let Some(result) = pipe::put_out(thread, shadow, args[0], source)
    {
        return Some(result);
    }
    let attempt = match source {
        _ if is_positioned || evidence != Evidence::Message => None,
        Source::Span(span) if span.len == 0 && call.nr == raw::nr::WRITE => None,
        Source::Span(span) if span.len > buffers::BYTES_MAX => None,
        Source::Span(span) => {
            let to = call.nr == raw::nr::SENDTO;
            let name = if to { (args[4], args[5] as u32) } else { (0, 0) };
            witness::send_span(thread, args[0], span, name, if to { args[3] } else { 0 })
        }
        // Without a byte nothing is sent, not even an empty message.
        Source::Vectors(_, vector_count) if vector_count > buffers::VECTORS_MAX || wanted == 0 => None,
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
    if attempt.is_none() && !is_positioned {
        witness::note_position(thread, args[0] as i32, shadow, true);
    }
    attempt
}

/// A call that puts bytes out. What the dead primary had done a part of is carried on.
pub fn output(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    arguments: impl Fn(&Thread) -> CallArgs,
    source: Source,
) -> i64 {
    // Before the loop, as in `gathered`.
    if thread.calls() == Mode::Record {
        let logged = arguments(thread);
        if let Some(result) = record_output(thread, row, call, logged, source) {
            return result;
        }
    }
    output_in_any_mode(thread, row, call, arguments, source)
}

#[inline(never)]
fn output_in_any_mode(
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
            record_output(thread, row, call, logged, source)
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

#[inline(always)]
fn record_output(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    logged: CallArgs,
    source: Source,
) -> Option<i64> {
    let wanted = logged.len;
    begin(thread, row, logged);
    let result = put_out(thread, row, call, source, wanted);
    fdtable::moved(call.args[0] as i32, Direction::Out, result);
    if thread.pending.load(Ordering::Relaxed) == 0 && !shown::is_counted() {
        end(thread, row, 0, ReturnHead { result, identity: append_position(call, result) });
        // A cancellation is told of without a notice.
        Plan::NOTHING.carry_out(thread);
        return Some(result);
    }
    record_rest_of_output(thread, row, call, source, result)
}

/// The end of an output that something else comes with.
#[inline(never)]
fn record_rest_of_output(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    source: Source,
    result: i64,
) -> Option<i64> {
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

/// What an output comes to, in a copy that acts: the rest is put out where the runtime alone has cut it off.
#[inline(always)]
fn whole_output(thread: &mut Thread, call: &Call, source: Source, plan: Plan, result: i64) -> i64 {
    if thread.calls() == Mode::Record || !carry::is_write_cut(plan, call, result, source.wanted()) {
        return result;
    }
    carry::park(thread);
    carry::output(thread, call, source, result)
}
