//! Inputs into several places, and outputs. Inputs into one place are [`super::read`]'s.

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, RETURN_PARTIAL, ReturnHead};
use us_calls::Row;
use us_world::{Direction, Evidence, Transfer};

use crate::call::Call;
use crate::door::answer::log_outputs;
use crate::door::carry::{self, VECTORS};
use crate::door::recorded::{
    begin, end, execute, execute_marked, recorded, take_begin, take_begin_with, take_end, take_outputs,
};
use crate::door::transfer::{append_position, takes, word_of};
use crate::door::witness::{self, Shape};
use crate::door::{buffers, held, message, output as shown, pipe};
use crate::fdtable::{self, Kind, Shadow};
use crate::guest::{Digest, GuestPtr};
use crate::mapping::views;
use crate::raw;
use crate::raw::nr::WRITEV;
use crate::signal::{self, Plan};
use crate::sys::spans::{self, MessageHeader, Source, Vector};
use crate::thread::{Mode, Thread};
use crate::{mirror, state};

/// System call number.
pub const SENDMSG: u64 = crate::raw::nr::SENDMSG;

/// Position argument of pread and pwrite.
pub fn has_position(nr: u64) -> bool {
    matches!(nr, 17 | 18 | 295 | 296 | 327 | 328)
}

/// readv, preadv, preadv2: one read into the ring, scattered from there.
pub fn readv(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    use crate::raw::nr::READV;
    if call.nr == READV {
        return gathered(thread, row, call, Shape::Vectors(GuestPtr::at(call.args[1]), call.args[2]), 0);
    }
    recorded(thread, row, call)
}

/// System call number.
pub const RECVMSG: u64 = crate::raw::nr::RECVMSG;
/// The kernel's flag of that name.
pub const MSG_DONTWAIT: u64 = crate::kernel::MSG_DONTWAIT;
/// The kernel's flag of that name.
pub const MSG_WAITALL: u64 = crate::kernel::MSG_WAITALL;

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
            pipe::scatter(thread, row, shadow, fd, list, count)
        }
        _ => None,
    };
    let result = attempt.unwrap_or_else(|| execute_marked(thread, row, call.nr, &call.args));
    let result = held::at_the_end(fd, wanted, result);
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
    if state::is_gated() {
        is_logged(fd, flags, wanted, result);
    }
    if plan.carry_out(thread) {
        return None;
    }
    Some(whole_input(thread, row, call, shape, plan, result))
}

/// A gate may let others know that this has been read.
#[cold]
#[inline(never)]
pub(super) fn is_logged(fd: i32, flags: u64, wanted: u64, result: i64) {
    if let Some(shadow) = fdtable::get(fd).filter(|_| takes(flags) && result >= 0) {
        shadow.is_logged(result == 0 && wanted != 0);
    }
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
                let result = held::at_the_end(fd, shape.wanted(), execute(thread, row, call.nr, &call.args));
                count_input(fd, flags, result);
                // Before any handler: a copy that is made in one would take it for told by a log.
                message::received(thread, row, call, result);
                let plan = signal::plan(thread, row, result);
                if plan.carry_out(thread) {
                    return None;
                }
                Some(whole_input(thread, row, call, shape, plan, result))
            }
            Mode::Record => record_gathered(thread, row, call, shape, flags),
            Mode::Replay => {
                let ours = spans::arguments(row, call, thread.verify);
                take_begin_with(thread, row, fd, ours.digest, |_, _| ())?;
                let taken = take_outputs(thread, row, call, &before, |thread, head| {
                    if counts && let Some(shadow) = fdtable::get(fd) {
                        let word = match shape {
                            Shape::Vectors(list, count) => {
                                word_of(shadow, Source::Vectors(list.address(), count))
                            }
                            _ => 0,
                        };
                        let bytes = head.result.max(0) as u64;
                        shadow.count(Direction::In, Transfer { bytes, word, position: 0 });
                        shadow.note_error(head.result);
                        held::is_told(shadow, head.result);
                    }
                    if counts && head.result == 0 && shape.wanted() != 0 && state::is_mirrored() {
                        mirror::ended(fd);
                    }
                    message::received(thread, row, call, head.result);
                });
                let (head, flags) = taken?;
                if flags & RETURN_PARTIAL != 0 {
                    return Some(gathered_in_doubt(thread, row, call, shape, head.result));
                }
                if Plan::replay(thread, flags, head.result) {
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
        && let Some(result) = put_out_witnessed(thread, row, call, (source, wanted), shadow, evidence)
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
    (source, wanted): (Source, u64),
    shadow: &Shadow,
    evidence: Evidence,
) -> Option<i64> {
    let args = &call.args;
    let is_positioned = has_position(call.nr);
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
        Source::Message(at) => match GuestPtr::<MessageHeader>::at(at).load() {
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
            if state::is_mirrored() && !has_position(call.nr) {
                mirror::begins(thread.slot(), fd, source, ours.len);
            }
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
                if state::is_mirrored() {
                    match head.result {
                        1.. => mirror::wrote(fd, at, source, head.result as u64),
                        _ => mirror::wrote_nothing(fd),
                    }
                }
                (head.result, flags)
            });
            let (result, flags) = taken?;
            shown::replay(thread, fd, source, result, flags);
            if flags & RETURN_PARTIAL != 0 {
                return Some(carry::output_in_doubt(thread, call, source, result));
            }
            if Plan::replay(thread, flags, result) {
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
