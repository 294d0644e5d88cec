//! read, pread and recv: one place to fill.
//!
//! Input is read *into the ring* and copied out from there: bytes that the kernel has handed over cannot
//! die with the primary, also when it is killed before it has published them. A read with a buffer larger
//! than an event is made in pieces, so the guest sees no short read that it would not see natively.

use us_abi::PAYLOAD_BYTES_MAX;
use us_abi::event::{CallArgs, EventKind, RETURN_MORE, RETURN_PARTIAL, ReturnHead};
use us_calls::Row;
use us_world::{Direction, Evidence, Transfer};

use crate::call::Call;
use crate::door::carry;
use crate::door::io::{MSG_DONTWAIT, MSG_WAITALL, gathered, has_position, is_logged};
use crate::door::recorded::{begin, execute, execute_marked, return_ticket, take_begin, take_end};
use crate::door::transfer::takes;
use crate::door::witness::{self, Shape};
use crate::door::{buffers, held, observe, pattern, pipe};
use crate::fdtable::{self, Kind, Shadow};
use crate::guest::{Digest, GuestMut, GuestPtr, PAST_MIN};
use crate::log::Next;
use crate::raw::err::EFAULT;
use crate::raw::{self, failed};
use crate::real::single_threaded;
use crate::signal::{self, Plan};
use crate::sys::spans::Vector;
use crate::thread::{Mode, Thread};
use crate::{mirror, state};

/// Longest piece, bytes.
const PIECE: usize = PAYLOAD_BYTES_MAX - size_of::<ReturnHead>();

/// Flags with which a recv takes what a read takes, and leaves what a read leaves.
const PLAIN: u64 = MSG_DONTWAIT | crate::kernel::MSG_NOSIGNAL;

/// read, pread64, recvfrom.
pub fn read(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let args = &call.args;
    if row.nr as u64 == raw::nr::RECVFROM && args[4] != 0 {
        return gathered(thread, row, call, Shape::From([args[1], args[2], args[4], args[5]]), args[3]);
    }
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => {
            let result = held::at_the_end(args[0] as i32, args[2], execute(thread, row, call.nr, args));
            Input::of(row, call).has_given(result);
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
            if row.nr as u64 == raw::nr::PREAD64
                && let Next::Event(event) = thread.next()
                && event.header.kind == EventKind::Call as u8
            {
                return observe::replay(thread, row, call, asked_at(args));
            }
            take_begin(thread, row, &read_arguments(row, args))?;
            let input = Input::of(row, call);
            let counts = !input.is_positioned && takes(input.flags);
            let to = (!input.is_thrown_away).then_some(GuestMut::at(args[1]));
            let (result, flags) = take_pieces(thread, row, to, args[0] as i32, counts)?;
            if flags & RETURN_PARTIAL != 0 {
                let list = [Vector { base: args[1], len: args[2] }];
                return Some(carry::input_in_doubt(thread, row, call, &list, result));
            }
            if Plan::replay(thread, flags, result) {
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
    if row.nr as u64 == raw::nr::PREAD64 && is_file(call.args[0]) {
        return record_at(thread, row, call);
    }
    begin(thread, row, read_arguments(row, &call.args));
    let (result, plan) = read_pieces(thread, row, call);
    if state::is_gated() {
        is_logged(call.args[0] as i32, Input::of(row, call).flags, call.args[2], result);
    }
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

/// Whether it is a regular file, by what this copy knows.
#[inline(always)]
fn is_file(fd: u64) -> bool {
    fdtable::get(fd as i32).is_some_and(|shadow| shadow.kind().is_file())
}

/// A read of a file from a place that it says. It takes nothing away and moves no position, so it is one event, as a call that
/// [observes](observe): who finds none reads. It goes to the program's own buffer, as a read of much does.
#[inline(always)]
fn record_at(thread: &mut Thread, row: &'static Row, call: &Call) -> Option<i64> {
    let asked = asked_at(&call.args);
    observe::record(thread, row, call, asked, |thread, flags, head| log_at(thread, row, call, flags, head))
}

/// What it is asked, as [`observe`] has it.
#[inline(always)]
fn asked_at(args: &[u64; 6]) -> u64 {
    let mut digest = Digest::new();
    digest.number(args[2]);
    digest.number(args[3]);
    u64::from(args[0] as u32) | u64::from(digest.finish()) << 32
}

#[inline(always)]
fn log_at(thread: &mut Thread, row: &Row, call: &Call, flags: u8, head: ReturnHead) {
    log_copies(thread, row, EventKind::Call, call.args[1], (flags, head), PIECE, |_| head);
}

/// Logs what a read has brought to the program's own buffer, in pieces of at most so many bytes. `more` gives the head of a piece
/// of which the next is to come; the last one has the flags, and that head.
#[inline(always)]
fn log_copies(
    thread: &mut Thread,
    row: &Row,
    kind: EventKind,
    from: u64,
    (flags, head): (u8, ReturnHead),
    most: usize,
    more: impl Fn(usize) -> ReturnHead,
) {
    let bytes = if failed(head.result) { 0 } else { head.result as usize };
    let mut at = 0;
    loop {
        let piece = (bytes - at).min(most);
        let is_last = at + piece == bytes;
        let Some(place) = thread.reserve(size_of::<ReturnHead>() + piece) else { return };
        // SAFETY: the payload lies behind the head, both reserved.
        let data = unsafe { place.add(size_of::<ReturnHead>()) };
        GuestPtr::<u8>::at(from + at as u64).copy_past(data, piece);
        let (flags, head) = if is_last { (flags, head) } else { (RETURN_MORE, more(piece)) };
        put(thread, row, kind, place, flags, head, piece);
        at += piece;
        if is_last {
            return;
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

    /// Whether so many bytes can be read again, and are better read where the program wants them: what dies with the primary
    /// has told nobody anything.
    #[inline(always)]
    fn comes_again(&self, wanted: u64) -> bool {
        wanted >= PAST_MIN as u64 && self.kind.is_file() && (self.is_positioned || is_alone(self.shadow))
    }

    /// What the copy that acts counts.
    #[inline(always)]
    fn has_given(&self, result: i64) {
        if takes(self.flags)
            && let Some(shadow) = self.shadow
        {
            shadow.moved(Direction::In, result);
        }
    }
}

/// Whether nobody else moves a file's position: it can be put back.
#[cold]
#[inline(never)]
fn is_alone(shadow: Option<&Shadow>) -> bool {
    single_threaded() && shadow.is_some_and(Shadow::is_private)
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
    if input.comes_again(wanted) {
        return read_directly(thread, row, call);
    }
    // Of a pipe the slot tells how far a read came as long as all of it has the pattern.
    let most = if input.kind == Kind::Pipe { pattern::PATTERN_MAX } else { PIECE };
    loop {
        let piece = (wanted - total as u64).min(most as u64) as usize;
        let room = size_of::<ReturnHead>() + piece + witness::tail_bytes(piece);
        let Some(place) = thread.reserve(room) else { return read_unlogged(thread, row, call, total) };
        // SAFETY: the payload lies behind the head, both reserved.
        let data = unsafe { place.add(size_of::<ReturnHead>()) };
        args[1] = data as u64;
        args[2] = piece as u64;
        let mut result = read_piece(thread, row, &input, &args, place, total == 0);
        if result == 0 && total == 0 {
            result = held::at_the_end(args[0] as i32, wanted, result);
        }
        input.has_given(result);
        if result == raw::err::EINVAL && total == 0 && row.nr as u64 != raw::nr::RECVFROM {
            return read_directly(thread, row, call);
        }
        // With MSG_TRUNC the count of a datagram is its whole length, which may be more than there was room for.
        let got = if failed(result) { 0 } else { (result as usize).min(piece) };
        let copied =
            input.is_thrown_away || GuestMut::<u8>::at(call.args[1] + total as u64).copy_from(data, got);
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
        Input::of(row, call).has_given(result);
        return (result, signal::plan(thread, row, result));
    }
    let list = [Vector { base: call.args[1], len: call.args[2] }];
    let whole = carry::wants_whole(row, call.args[0] as i32, &call.args);
    let result = if whole { carry::input(thread, call, &list, done) } else { done };
    (result, Plan::NOTHING)
}

/// A read that goes to the guest's own buffer. It must with O_DIRECT: the kernel wants addresses and lengths that are multiples
/// of a sector's. It may where much is read of a file: the ring's lines are at the other processor, and need not come here. What
/// it brings can be read again, so nothing is lost that dies with the primary.
#[inline(never)]
fn read_directly(thread: &mut Thread, row: &'static Row, call: &Call) -> (i64, Plan) {
    /// Whole sectors: who has had some pieces asks for the rest.
    const SECTORS: usize = PIECE & !4095;
    // The room for the first piece as well: were the ring to go back to its beginning behind the call, nothing would say there
    // that the kernel had been entered.
    witness::mark_elsewhere(thread, (call.args[2] as usize).min(SECTORS));
    let result = execute_marked(thread, row, call.nr, &call.args);
    Input::of(row, call).has_given(result);
    let plan = signal::plan(thread, row, result);
    if plan.is_abandoned() {
        return (result, plan);
    }
    let last = (plan.flags(), head_of(result));
    log_copies(thread, row, EventKind::Return, call.args[1], last, SECTORS, |piece| head_of(piece as i64));
    (result, plan)
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
        match input.kind.evidence(Direction::In, input.flags & !PLAIN == 0) {
            Evidence::Pattern if input.kind != Kind::Pipe => {
                // Of a further piece only what is there already is taken.
                if first {
                    pattern::lay_pattern(place, piece);
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
                pattern::lay_pattern(place, piece);
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
    put(thread, row, EventKind::Return, place, flags, head_of(result), bytes);
}

#[inline(always)]
fn put(
    thread: &mut Thread,
    row: &Row,
    kind: EventKind,
    place: *mut u8,
    flags: u8,
    head: ReturnHead,
    bytes: usize,
) {
    let ticket = if flags & RETURN_MORE != 0 { us_abi::NO_TICKET } else { return_ticket(row) };
    // SAFETY: reserved by the caller.
    unsafe { place.cast::<ReturnHead>().write(head) };
    thread.publish(kind, flags, row.nr, ticket, size_of::<ReturnHead>() + bytes);
}

const fn head_of(result: i64) -> ReturnHead {
    ReturnHead { result, identity: 0 }
}

/// A further piece of the same read: only what is there already, as one large read would have taken it.
#[inline(never)]
fn more(thread: &Thread, row: &Row, input: &Input, args: &[u64; 6]) -> i64 {
    use crate::kernel::POLLIN;
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
    to: Option<GuestMut<u8>>,
    fd: i32,
    counts: bool,
) -> Option<(i64, u8)> {
    let mut at = 0u64;
    loop {
        let (result, flags, got) = take_end(thread, row, |thread, head, bytes, flags| {
            if let Some(to) = to {
                to.nth(at).copy_from(bytes.as_ptr(), bytes.len());
            }
            if counts && let Some(shadow) = fdtable::get(fd) {
                let word = bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
                shadow.count(Direction::In, Transfer { bytes: bytes.len() as u64, word, position: 0 });
                shadow.note_error(head.result);
                held::is_told(shadow, head.result);
            }
            if counts && flags & RETURN_MORE == 0 && state::is_mirrored() {
                if head.result == 0 && thread.begun().call.1.len != 0 {
                    mirror::ended(fd);
                }
                mirror::took(fd, head.result.max(0) as u64);
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
